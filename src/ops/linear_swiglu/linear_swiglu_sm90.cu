/* Two linear layers and SwiGLU on Hopper.
 *
 * Method     More than 64 rows, in 128 tiles or more: cuda/gemm/sm90/gemm_gated_sm90.cuh, one
 * product whose tiles have columns of gate and the same of up, with the activation computed beside
 * the next tile's products. Up to 64 rows: the steps of linear_swiglu_steps.h on the kernel of few
 * rows, so that a row has the bits that it has alone. Work       A tile of 128 rows and 96 columns
 * of y for a block at a time. Bound      Tensor cores. Few rows: memory, one reading of the
 * weights.
 */
#include "cuda/gemm/sm90/gemm_gated_sm90.cuh"
#include "ops/shared/gated/swiglu_functions.cuh"

extern "C" {
#include "ops/linear_swiglu/linear_swiglu_refusals.h"
#include "ops/linear_swiglu/linear_swiglu_steps.h"
}

namespace
{

/* Two neighbours, as swiglu's kernel computes them. */
template <typename T> struct swiglu_pair {
  bool once;

  __device__ __forceinline__ uint32_t operator()(uint32_t gate, uint32_t up) const
  {
    if (!once) {
      return word_of(swiglu_forward<T, T>()(in_word<T>(gate), in_word<T>(up)));
    }
    const swiglu_forward<T, float> act;
    return round_pair<T>(act(half_of<T>(gate, 0), half_of<T>(up, 0)),
                         act(half_of<T>(gate, 1), half_of<T>(up, 1)));
  }
};

tgi_gemm_plan plan_of(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a,
                      tgi_gemm_problem *p)
{
  *p = {};
  p->m = a->x.shape[0];
  p->n = 2 * a->gate_weight.shape[0];
  p->k = a->x.shape[1];
  p->groups = 1;
  p->a = {a->x.dtype, TGI_GEMM_ALONG_K, rows_aligned(&a->x, 16)};
  p->b = {a->gate_weight.dtype, TGI_GEMM_ALONG_K,
          rows_aligned(&a->gate_weight, 16) && rows_aligned(&a->up_weight, 16)};
  p->c = {a->y.dtype, TGI_GEMM_ACROSS_K, rows_aligned(&a->y, 16)};
  p->epilogue = TGI_GEMM_GATED_HALVES;
  tgi_gemm_device device;
  device.multiprocessors = ctx->device->multiprocessors;
  device.shared_bytes = ctx->device->shared_bytes;
  return tgi_gemm_plan_tiles_sm90(p, &device, 2 * kGatedColumns);
}

template <typename T>
tg_status run(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a,
              const tgi_gemm_problem &problem, const tgi_gemm_plan &plan)
{
  const bool saves = tgi_present(&a->gate);
  const gemm_dense_tiles tiles = {
      {}, (int)problem.m, (int)problem.k, (int)plan.row_tiles, (int)plan.column_tiles};
  gemm_gated_epilogue<T, swiglu_pair<T>> e = {};
  e.y = static_cast<T *>(a->y.data);
  e.y_step = tgi_stride(&a->y, 0);
  e.n = (int)a->y.shape[1];
  e.saves = saves;
  e.act.once = a->rounding == TG_ROUNDING_ONCE;
  const tg_tensor *gate = saves ? &a->gate : &a->y, *up = saves ? &a->up : &a->y;
  return gemm_launch_gated_sm90<T>(ctx, plan,
                                   {pages_of(&a->x), pages_of(&a->gate_weight),
                                    pages_of(&a->up_weight), pages_of(gate), pages_of(up)},
                                   tiles, e);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_swiglu_fwd)(const tg_context *ctx,
                                                   const tg_linear_swiglu_fwd_args *a)
{
  return tgi_linear_swiglu_has_few_rows(a) ? linear_swiglu_bytes(ctx, a) : 0;
}

extern "C" tg_status TGI_KERNEL(linear_swiglu_fwd)(const tg_context *ctx,
                                                   const tg_linear_swiglu_fwd_args *a)
{
  if (tgi_linear_swiglu_fwd_refused(a)) {
    return TG_UNSUPPORTED;
  }
  if (tgi_linear_swiglu_has_few_rows(a)) {
    return linear_swiglu_in_steps(ctx, a);
  }
  tgi_gemm_problem problem;
  const tgi_gemm_plan plan = plan_of(ctx, a, &problem);
  if (plan.kernel == TGI_GEMM_NOT_TAKEN) {
    return TG_UNSUPPORTED;
  }
  return a->x.dtype == TG_F16 ? run<f16>(ctx, a, problem, plan) : run<bf16>(ctx, a, problem, plan);
}

extern "C" void TGI_PLAN(linear_swiglu_fwd)(const tg_context *ctx,
                                            const tg_linear_swiglu_fwd_args *a, char *text,
                                            size_t bytes)
{
  if (tgi_linear_swiglu_fwd_refused(a)) {
    return;
  }
  if (tgi_linear_swiglu_has_few_rows(a)) {
    linear_swiglu_plan(ctx, a, text, bytes);
    return;
  }
  tgi_gemm_problem problem;
  const tgi_gemm_plan plan = plan_of(ctx, a, &problem);
  if (plan.kernel != TGI_GEMM_NOT_TAKEN) {
    tgi_gemm_plan_text(&problem, &plan, text, bytes);
  }
}
