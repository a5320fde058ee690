/* SwiGLU on CUDA.
 *
 * Method     One pass; cuda/silu_math.cuh has the formulas, cuda/gated_map.cuh the loops.
 * Work       16 bytes of gate, or of gate_up if interleaved, for a thread.
 * Bound      Memory: forward reads gate and up and writes y, backward reads dy, gate and up and
 *            writes dgate and dup.
 */
#include "cuda/gated_map.cuh"
#include "cuda/silu_math.cuh"
#include "ops/kernels.cuh"

namespace
{

/* Step: the dtype that silu(gate) is rounded to; float where it is not. */
template <typename T, typename Step> struct forward {
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

template <typename T> struct backward {
  __device__ void operator()(float dy, float gate, float up, float *dgate, float *dup) const
  {
    float value;
    *dgate = dy * up * silu_slope<T>(gate, &value);
    *dup = dy * value;
  }
};

template <typename T> tg_status run_fwd(const tg_context *ctx, const tg_swiglu_fwd_args *a)
{
  return a->rounding == TG_ROUNDING_HF
             ? gated_fwd<T>(ctx, gate_up_of(a), &a->y, forward<T, T>())
             : gated_fwd<T>(ctx, gate_up_of(a), &a->y, forward<T, float>());
}

} // namespace

extern "C" tg_status TGI_KERNEL(swiglu_fwd)(const tg_context *ctx, const tg_swiglu_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->y.dtype, T, status = run_fwd<T>(ctx, a));
  return status;
}

extern "C" tg_status TGI_KERNEL(swiglu_bwd)(const tg_context *ctx, const tg_swiglu_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->dy.dtype, T,
               status = gated_bwd<T>(ctx, &a->dy, gate_up_of(a), dgate_up_of(a), backward<T>()));
  return status;
}

extern "C" void TGI_PLAN(swiglu_fwd)(const tg_context *, const tg_swiglu_fwd_args *a, char *text,
                                     size_t bytes)
{
  describe_gated(a->packing, text, bytes);
}

extern "C" void TGI_PLAN(swiglu_bwd)(const tg_context *, const tg_swiglu_bwd_args *a, char *text,
                                     size_t bytes)
{
  describe_gated(a->packing, text, bytes);
}
