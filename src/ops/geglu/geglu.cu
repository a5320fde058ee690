/* GeGLU on CUDA.
 *
 * Method     One pass; cuda/gelu_math.cuh has the formulas, cuda/gated_map.cuh the loops.
 * Work       16 bytes of gate, or of gate_up if interleaved, for a thread.
 * Bound      Memory: forward reads gate and up and writes y, backward reads dy, gate and up and
 *            writes dgate and dup.
 */
#include "cuda/gated_map.cuh"
#include "cuda/gelu_math.cuh"
#include "ops/kernels.cuh"

namespace
{

/* Step: the dtype that gelu(gate) is rounded to; float where it is not. */
template <bool kErf, typename Step> struct forward {
  static constexpr bool kX2 = kByX2<Step>;

  static __device__ float gelu(float gate)
  {
    return kErf ? gelu_erf(gate) : gelu_tanh(gate);
  }

  __device__ float operator()(float gate, float up) const
  {
    return rounded<Step>(gelu(gate)) * up;
  }

  template <typename X2> __device__ X2 operator()(X2 gate, X2 up) const
  {
    return __hmul2_rn(x2_from_f32<X2>(gelu(__low2float(gate)), gelu(__high2float(gate))), up);
  }
};

template <bool kErf> struct backward {
  __device__ void operator()(float dy, float gate, float up, float *dgate, float *dup) const
  {
    float value;
    *dgate = dy * up * (kErf ? gelu_erf_slope(gate, &value) : gelu_tanh_slope(gate, &value));
    *dup = dy * value;
  }
};

template <bool kErf, typename T>
tg_status run_fwd(const tg_context *ctx, const tg_geglu_fwd_args *a)
{
  return a->rounding == TG_ROUNDING_HF
             ? gated_fwd<T>(ctx, gate_up_of(a), &a->y, forward<kErf, T>())
             : gated_fwd<T>(ctx, gate_up_of(a), &a->y, forward<kErf, float>());
}

template <bool kErf, typename T>
tg_status run_bwd(const tg_context *ctx, const tg_geglu_bwd_args *a)
{
  return gated_bwd<T>(ctx, &a->dy, gate_up_of(a), dgate_up_of(a), backward<kErf>());
}

} // namespace

extern "C" tg_status TGI_KERNEL(geglu_fwd)(const tg_context *ctx, const tg_geglu_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->y.dtype, T,
               status = a->approximation == TG_GELU_ERF ? run_fwd<true, T>(ctx, a)
                                                        : run_fwd<false, T>(ctx, a));
  return status;
}

extern "C" tg_status TGI_KERNEL(geglu_bwd)(const tg_context *ctx, const tg_geglu_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->dy.dtype, T,
               status = a->approximation == TG_GELU_ERF ? run_bwd<true, T>(ctx, a)
                                                        : run_bwd<false, T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(geglu_fwd)(const tg_context *, const tg_geglu_fwd_args *a, char *text,
                                    size_t bytes)
{
  describe_gated(a->packing, text, bytes);
}

extern "C" void TGI_PLAN(geglu_bwd)(const tg_context *, const tg_geglu_bwd_args *a, char *text,
                                    size_t bytes)
{
  describe_gated(a->packing, text, bytes);
}
