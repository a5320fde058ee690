/** swiglu and swiglu_clamped for one element or two, as functions for the loops of
 * cuda/gated_map.cuh and for kernels that compute them beside other things. */
#ifndef TGI_OPS_SWIGLU_FUNCTIONS_CUH
#define TGI_OPS_SWIGLU_FUNCTIONS_CUH

#include "cuda/gated_map.cuh"
#include "cuda/silu_math.cuh"
#include "ops/kernels.cuh"

#include <float.h>

extern "C" {
#include "core/values/half.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** Step: the dtype that silu(gate) is rounded to; float where it is not. */
template <typename T, typename Step> struct swiglu_forward {
  static constexpr bool kX2 = kByX2<Step>;

  __device__ float operator()(float gate, float up) const
  {
    return rounded<Step>(silu<T>(gate)) * up;
  }

  template <typename X2> __device__ X2 operator()(X2 gate, X2 up) const
  {
    const X2 finite = finite_below(gate); /* -infinity times 0 is no limit */
    const float low = __low2float(finite), high = __high2float(finite);
    return __hmul2_rn(x2_from_f32<X2>(low * logistic<T>(low), high * logistic<T>(high)), up);
  }
};

template <typename T> struct swiglu_backward {
  __device__ void operator()(float dy, float gate, float up, float *dgate, float *dup) const
  {
    float value;
    *dgate = dy * up * silu_slope<T>(gate, &value);
    *dup = dy * value;
  }
};

/** Below `lowest` the sigmoid is 0 in f32, down to -infinity. */
struct clamps {
  float alpha, limit, lowest;
};

inline clamps clamps_of(tg_dtype dtype, float alpha, float limit)
{
  const float lowest = -89.0f / alpha;
  return {alpha, (float)tgi_round(dtype, (double)limit), lowest < -FLT_MAX ? -FLT_MAX : lowest};
}

/** Step: the dtype that steps are rounded to; float where they are not. */
template <typename T, typename Step> struct clamped_forward {
  static constexpr bool kX2 = kByX2<Step>;
  clamps c;

  __device__ float operator()(float gate, float up) const
  {
    const float g = at_most(c.limit, gate);
    const float u = at_least(-c.limit, at_most(c.limit, up));
    const float s = rounded<Step>(logistic<T>(rounded<Step>(c.alpha * g)));
    /* s of -infinity is 0, but their product no limit. */
    return rounded<Step>(u + 1.0f) * rounded<Step>(at_least(-FLT_MAX, g) * s);
  }

  template <typename X2> __device__ X2 operator()(X2 gate, X2 up) const
  {
    const X2 g = __hmin2_nan(gate, x2_from_f32<X2>(c.limit, c.limit));
    const X2 u = __hmax2_nan(__hmin2_nan(up, x2_from_f32<X2>(c.limit, c.limit)),
                             x2_from_f32<X2>(-c.limit, -c.limit));
    const X2 z = x2_from_f32<X2>(c.alpha * __low2float(g), c.alpha * __high2float(g));
    const X2 s = x2_from_f32<X2>(logistic<T>(__low2float(z)), logistic<T>(__high2float(z)));
    return __hmul2_rn(__hadd2_rn(u, x2_from_f32<X2>(1.0f, 1.0f)), __hmul2_rn(finite_below(g), s));
  }
};

template <typename T> struct clamped_backward {
  clamps c;

  __device__ void operator()(float dy, float gate, float up, float *dgate, float *dup) const
  {
    const float g = at_least(c.lowest, at_most(c.limit, gate));
    const float u = at_least(-c.limit, at_most(c.limit, up));
    const float x = c.alpha * g, z = bounded_gate(x), e = exp_of_minus<T>(z);
    const float s = inverse_of<T>(one_plus<T>(x, e)), slope = fmaf(z * s, e * s, s);
    *dgate = gate <= c.limit ? dy * (u + 1.0f) * slope : 0.0f;
    *dup = fabsf(up) <= c.limit ? dy * (g * s) : 0.0f;
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
