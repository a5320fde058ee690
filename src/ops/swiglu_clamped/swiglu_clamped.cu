/* Clamped SwiGLU on CUDA.
 *
 * Method     One pass; cuda/gated_map.cuh has the loops.
 * Work       16 bytes of gate, or of gate_up if interleaved, for a thread.
 * Bound      Memory: forward reads gate and up and writes y, backward reads dy, gate and up and
 *            writes dgate and dup.
 */
#include "cuda/gated_map.cuh"
#include "cuda/silu_math.cuh"
#include "ops/kernels.cuh"

#include <float.h>

extern "C" {
#include "core/half.h"
}

namespace
{

/* Below `lowest` the sigmoid is 0 in f32, down to -infinity. */
struct clamps {
  float alpha, limit, lowest;
};

/* Step: the dtype that steps are rounded to; float where they are not. */
template <typename T, typename Step> struct forward {
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

template <typename T> struct backward {
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

clamps clamps_of(tg_dtype dtype, float alpha, float limit)
{
  const float lowest = -89.0f / alpha;
  return {alpha, (float)tgi_round(dtype, (double)limit), lowest < -FLT_MAX ? -FLT_MAX : lowest};
}

template <typename T>
tg_status run_fwd(const tg_context *ctx, const tg_swiglu_clamped_fwd_args *a, clamps c)
{
  return a->rounding == TG_ROUNDING_HF
             ? gated_fwd<T>(ctx, gate_up_of(a), &a->y, forward<T, T>{c})
             : gated_fwd<T>(ctx, gate_up_of(a), &a->y, forward<T, float>{c});
}

} // namespace

extern "C" tg_status TGI_KERNEL(swiglu_clamped_fwd)(const tg_context *ctx,
                                                    const tg_swiglu_clamped_fwd_args *a)
{
  const clamps c = clamps_of(a->y.dtype, a->alpha, a->limit);
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->y.dtype, T, status = run_fwd<T>(ctx, a, c));
  return status;
}

extern "C" tg_status TGI_KERNEL(swiglu_clamped_bwd)(const tg_context *ctx,
                                                    const tg_swiglu_clamped_bwd_args *a)
{
  const clamps c = clamps_of(a->dy.dtype, a->alpha, a->limit);
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->dy.dtype, T,
               status = gated_bwd<T>(ctx, &a->dy, gate_up_of(a), dgate_up_of(a), backward<T>{c}));
  return status;
}

extern "C" void TGI_PLAN(swiglu_clamped_fwd)(const tg_context *,
                                             const tg_swiglu_clamped_fwd_args *a, char *text,
                                             size_t bytes)
{
  describe_gated(a->packing, text, bytes);
}

extern "C" void TGI_PLAN(swiglu_clamped_bwd)(const tg_context *,
                                             const tg_swiglu_clamped_bwd_args *a, char *text,
                                             size_t bytes)
{
  describe_gated(a->packing, text, bytes);
}
