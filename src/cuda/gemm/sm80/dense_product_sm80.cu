/* Products of one matrix and another on tensor cores, for linear layers: see dense_product.h.
 *
 * Method     gemm_sm80.cuh; bias, activation, saved pre-activation and residual are made while a
 *            tile is written.
 * Work       A tile of 128 x 128 for a block; of 64 x 64 where these are too few for the device, or
 *            of 16 x 32 for up to 16 rows. An element's bits are the same whichever.
 * Bound      Tensor cores; few rows: memory.
 */
#include "cuda/gemm/sm80/dense_launch_sm80.cuh"

#include <limits.h>

namespace
{

/* `lines` x k; of rows or columns, whichever are contiguous. */
bool operand_of(const gemm_operand &o, bool is_a, int64_t lines, int64_t k, mma_operand *to,
                bool *turned)
{
  const int64_t line_step = is_a ? o.row_step : o.col_step, k_step = is_a ? o.col_step : o.row_step;
  const bool along = k_step == 1 || k == 1;
  if (!along && line_step != 1 && lines != 1) {
    return false;
  }
  const int64_t step = along ? line_step : k_step, rows = along ? lines : k;
  const int64_t bytes = (int64_t)tg_dtype_bytes(o.dtype);
  *turned = !along;
  to->data = static_cast<const char *>(o.data);
  to->row_bytes = rows == 1 ? 0 : (uint32_t)(bytes * step); /* of one row nobody's business */
  to->vectors = (uintptr_t)o.data % 16 == 0 && to->row_bytes % 16 == 0;
  to->whole = lines % (16 / bytes) == 0;
  return rows == 1 || (step >= 0 && step <= UINT32_MAX / bytes);
}

/* False: not a call that is taken. */
bool form_of(const tg_context *ctx, const gemm_call &c, dense_form *f)
{
  *f = {};
  bool a_turned = false, b_turned = false;
  if (c.outer * c.inner != 1 || c.alpha != 1 || (c.c_col_step != 1 && c.n != 1) ||
      !operand_of(c.a, true, c.m, c.k, &f->a, &a_turned) ||
      !operand_of(c.b, false, c.n, c.k, &f->b, &b_turned)) {
    return false;
  }
  tgi_gemm_problem &p = f->problem;
  p.m = c.m;
  p.n = c.n;
  p.k = c.k;
  p.groups = 1;
  p.a = {c.a.dtype, a_turned ? TGI_GEMM_ACROSS_K : TGI_GEMM_ALONG_K, f->a.vectors};
  p.b = {c.b.dtype, b_turned ? TGI_GEMM_ACROSS_K : TGI_GEMM_ALONG_K, f->b.vectors};
  p.c = {c.c_dtype, TGI_GEMM_ACROSS_K, false};
  p.allow_tf32 = c.allow_tf32;
  p.adds = c.accumulate;
  const tgi_gemm_device device = gemm_device_of(ctx);
  f->plan = tgi_gemm_plan_mma(&p, &device);
  return f->plan.kernel != TGI_GEMM_NOT_TAKEN;
}

} // namespace

extern "C" tg_status tgi_dense_product(const tg_context *ctx, const gemm_call *call,
                                       const dense_finish *finish)
{
  dense_form f;
  if (!form_of(ctx, *call, &f)) {
    return TG_UNSUPPORTED;
  }
  if (call->m == 0 || call->n == 0) {
    return TG_OK;
  }
  switch (call->a.dtype) {
  case TG_F16:
    return run_form<f16>(ctx, *call, f, *finish);
  case TG_BF16:
    return run_form<bf16>(ctx, *call, f, *finish);
  default:
    return tgi_dense_product_tf32(ctx, call, &f, finish);
  }
}

extern "C" bool tgi_dense_product_plan(const tg_context *ctx, const gemm_call *call, char *text,
                                       size_t bytes)
{
  dense_form f;
  const bool taken = form_of(ctx, *call, &f);
  if (taken) {
    tgi_gemm_plan_text(&f.problem, &f.plan, text, bytes);
  }
  return taken;
}
