/** What kernels that quantise do to a vector: widen the bounds of a group, find multiples. */
#ifndef TGI_CPU_QUANTIZE_LANES_H
#define TGI_CPU_QUANTIZE_LANES_H

#include "cpu/bytes.h"

/** Ends of the values seen and 0, lane by lane; high is NaN once a value was not finite. */
typedef struct vf_bounds {
  vf low, high;
} vf_bounds;

TGI_INLINE vf_bounds vf_no_bounds(void)
{
  return (vf_bounds){vf_zero(), vf_zero()};
}

TGI_INLINE vf_bounds vf_widen(vf_bounds b, vf x)
{
  b.low = vf_min(x, b.low);                   /* NaN is passed over */
  b.high = vf_max(x, b.high) + x * vf_zero(); /* 0, or NaN for good: it stays, being second */
  return b;
}

/** Both at once. */
TGI_INLINE vf_bounds vf_unite(vf_bounds a, vf_bounds b)
{
  return (vf_bounds){vf_min(a.low, b.low), vf_max(a.high, b.high) + a.high * vf_zero()};
}

/** Ends over all lanes; high is NaN if one is. */
TGI_INLINE void vf_hbounds(vf_bounds b, float *low, float *high)
{
  *low = -vf_hmax(vf_zero() - b.low);
  *high = vf_hmax(b.high) + vf_sum(b.high * vf_zero());
}

/** True if vf_multiple may be `quick` with this scale: no product of it is a denormal. */
static inline bool tgi_is_quick_scale(float scale)
{
  return scale >= 0x1p-90f;
}

/**
 * The integer nearest to x / scale, ties to even; 0 where that is no number. Quick: by the inverse,
 * rounded, and one correction (Markstein 1990, doi:10.1147/rd.341.0111), which is too close to the
 * exact quotient to end on another side of a tie: those are f32 numbers, see
 * core/values/quantize.h.
 */
TGI_INLINE vi vf_multiple(vf x, vf scale, vf inverse, bool quick)
{
#ifdef __FMA__
  if (quick) {
    const vf ratio = x * inverse;
    return vi_nearest(vf_fma(vf_fma(vf_zero() - ratio, scale, x), inverse, ratio));
  }
#endif
  (void)quick;
  (void)inverse;
  const vf ratio = x / scale;
  return vi_nearest(vf_select(vf_le(ratio, ratio), ratio, vf_zero()));
}

#endif
