/** Keeping a vector within the finite range of the dtype that it is stored in. */
#ifndef TGI_CPU_SATURATE_H
#define TGI_CPU_SATURATE_H

#include "cpu/simd.h"

/** v, or the dtype's largest finite value of that sign beyond it; NaN stays. */
TGI_INLINE vf vf_saturate(int t, vf v)
{
  const vf most = vf_set1(tgi_largest_finite((tg_dtype)t));
  return vf_max(vf_zero() - most, vf_min(most, v)); /* NaN as a second operand is the result */
}

#endif
