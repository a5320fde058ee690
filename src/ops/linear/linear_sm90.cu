/* Linear layers on Hopper, forward, of up to 64 rows of 16-bit weights.
 *
 * Method     cuda/gemm/sm90/gemm_few_rows_sm90.cuh. Bias, GELU, the saved preactivation and
 * residual are made while y is written. Work       128 columns of y, or a part of their sums, for a
 * block. Bound      Memory: one reading of W.
 */
#include "cuda/gemm/sm90/gemm_few_rows_sm90.cuh"
#include "ops/linear/linear_finish.cuh"

extern "C" {
#include "ops/linear/linear_refusals.h"
}

namespace
{

tgi_gemm_plan plan_of(const tg_linear_fwd_args *a, tgi_gemm_problem *p)
{
  *p = {};
  p->m = a->x.shape[0];
  p->n = a->weight.shape[0];
  p->k = a->x.shape[1];
  p->groups = 1;
  p->a = {a->x.dtype, TGI_GEMM_ALONG_K, rows_aligned(&a->x, 16)};
  p->b = {a->weight.dtype, TGI_GEMM_ALONG_K, rows_aligned(&a->weight, 16)};
  p->c = {a->y.dtype, TGI_GEMM_ACROSS_K, false};
  return tgi_gemm_plan_few_sm90(p);
}

few_rows_job job_of(const tg_linear_fwd_args *a, const tgi_gemm_plan &plan)
{
  few_rows_job j = {};
  if (tgi_present(&a->bias)) {
    j.bias = a->bias.data;
    j.bias_dtype = a->bias.dtype;
  }
  j.y = a->y.data;
  j.y_dtype = a->y.dtype;
  j.y_step = tgi_stride(&a->y, 0);
  j.rows = (int)a->x.shape[0];
  j.outputs = (int)a->weight.shape[0];
  j.steps = (int)divide_up(a->x.shape[1], plan.tile_k);
  j.parts = plan.parts;
  j.plain = !j.bias && !tgi_present(&a->residual) && !tgi_present(&a->preactivation) &&
            a->activation == TG_ACTIVATION_NONE && a->y.dtype == a->x.dtype && j.outputs % 4 == 0 &&
            rows_aligned(&a->y, 8);
  return j;
}

bool takes(const tg_linear_fwd_args *a, tgi_gemm_problem *problem, tgi_gemm_plan *plan)
{
  *plan = plan_of(a, problem);
  return !tgi_linear_fwd_refused(a) && plan->kernel == TGI_GEMM_SM90_FEW;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_fwd)(const tg_context *, const tg_linear_fwd_args *)
{
  return 0;
}

extern "C" tg_status TGI_KERNEL(linear_fwd)(const tg_context *ctx, const tg_linear_fwd_args *a)
{
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  if (!takes(a, &problem, &plan)) {
    return TG_UNSUPPORTED;
  }
  const tg_tensor weight = pages_of(&a->weight), x = pages_of(&a->x);
  const few_rows_job job = job_of(a, plan);
  return a->x.dtype == TG_F16 ? few_rows_sm90<f16>(ctx, plan, &weight, &x, job, finish_of(a))
                              : few_rows_sm90<bf16>(ctx, plan, &weight, &x, job, finish_of(a));
}

extern "C" void TGI_PLAN(linear_fwd)(const tg_context *, const tg_linear_fwd_args *a, char *text,
                                     size_t bytes)
{
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  if (takes(a, &problem, &plan)) {
    tgi_gemm_plan_text(&problem, &plan, text, bytes);
  }
}
