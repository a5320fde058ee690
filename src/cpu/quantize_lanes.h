/** What kernels that quantise do to a vector: widen the bounds of a group, find multiples. */
#ifndef TGI_CPU_QUANTIZE_LANES_H
#define TGI_CPU_QUANTIZE_LANES_H

#include "cpu/bytes.h"

/** Ends of the values seen and 0, lane by lane; high is NaN once a value was not finite. */
typedef struct vf_bounds {
  vf low, high;
} vf_bounds;

TGI_INLINE vf_bounds vf_widen(vf_bounds b, vf x)
{
  b.low = vf_min(x, b.low);             /* NaN is passed over */
  b.high = vf_max(x, b.high) + (x - x); /* 0, or NaN for good: as a second operand it stays */
  return b;
}

/** Both at once. */
TGI_INLINE vf_bounds vf_unite(vf_bounds a, vf_bounds b)
{
  return (vf_bounds){vf_min(a.low, b.low), vf_max(a.high, b.high) + (a.high - a.high)};
}

/** Ends over all lanes; high is NaN if one is. */
TGI_INLINE void vf_hbounds(vf_bounds b, float *low, float *high)
{
  *low = -vf_hmax(vf_zero() - b.low);
  *high = vf_hmax(b.high) + vf_sum(b.high - b.high);
}

/** The integer nearest to x / scale; 0 where that is no number. */
TGI_INLINE vi vf_multiple(vf x, vf scale)
{
  const vf ratio = x / scale;
  return vi_nearest(vf_select(vf_le(ratio, ratio), ratio, vf_zero()));
}

#endif
