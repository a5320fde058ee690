/* SwiGLU on CUDA.
 *
 * Method     One pass; cuda/silu_math.cuh has the formulas, cuda/gated_map.cuh the loops.
 * Work       16 bytes of gate, or of gate_up if interleaved, for a thread.
 * Bound      Memory: forward reads gate and up and writes y, backward reads dy, gate and up and
 *            writes dgate and dup.
 */
#include "ops/shared/gated/swiglu_functions.cuh"

namespace
{

template <typename T> tg_status run_fwd(const tg_context *ctx, const tg_swiglu_fwd_args *a)
{
  return a->rounding == TG_ROUNDING_HF
             ? gated_fwd<T>(ctx, gate_up_of(a), &a->y, swiglu_forward<T, T>())
             : gated_fwd<T>(ctx, gate_up_of(a), &a->y, swiglu_forward<T, float>());
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
               status =
                   gated_bwd<T>(ctx, &a->dy, gate_up_of(a), dgate_up_of(a), swiglu_backward<T>()));
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
