/* Grouped linear layers on the CPU: for each expert that has rows the products of a linear layer
 * (cpu/gemm/gemm.h), one expert after the other.
 *
 *   forward   z  = x W^T     rows of x are gathered as they are packed; bias ends each tile; an
 *                            activation runs on the rows of z in the end
 *   backward  dx = dy W      dW += dy^T x, with the rows of x gathered likewise
 *
 * Work       Each product is cut into tasks for all threads; sums by `in`, `out` or an expert's
 *            rows alone. dbias: chunks of columns of an expert.
 * Bound      Arithmetic, from about 16 rows of an expert on; memory (one reading of the weights of
 *            the experts that have rows) for few. */
#include "cpu/gemm/gemm.h"
#include "ops/grouped_linear/expert_bias_sums.h"
#include "ops/grouped_linear/grouped_clearing.h"
#include "ops/shared/gated/gated_choice.h"

#include <stdio.h>

static tgi_gemm_operand operand(const tg_tensor *t, bool along_k)
{
  return tgi_gemm_matrix(t->data, t->dtype, tgi_stride(t, 0), along_k);
}

/* Rows [r0, ...) of t, as they lie. */
static tgi_gemm_operand rows_from(const tg_tensor *t, int64_t r0, bool along_k)
{
  tgi_gemm_operand o = operand(t, along_k);
  if (o.data) {
    o.data = tgi_row(t, r0);
  }
  return o;
}

/* Rows of x that rows [r0, ...) multiply. */
static tgi_gemm_operand sources_from(const tg_tensor *x, const grouped_rows *g, int64_t r0,
                                     bool along_k)
{
  if (!tgi_present(g->slot)) {
    return rows_from(x, r0, along_k);
  }
  tgi_gemm_operand o = operand(x, along_k);
  if (g->slot->data) {
    o.pick = (const int32_t *)g->slot->data + r0;
  }
  o.share = g->slots_per_row;
  return o;
}

/* Where row r lies. Without memory, while the workspace is sized, a tensor that is given must not
 * be taken for one that is absent: any address will do. */
static void *place_of(const tg_tensor *t, int64_t r)
{
  return !tgi_present(t) ? NULL : t->data ? tgi_row(t, r) : (void *)(uintptr_t)t;
}

/* ---- forward ---- */

/* Bytes of z where no argument holds it. */
static size_t z_bytes(const tg_grouped_linear_fwd_args *a)
{
  const bool held = a->activation == TG_GATED_NONE || tgi_present(&a->preactivation);
  const size_t row = 2 * (size_t)a->y.shape[1] * tg_dtype_bytes(a->y.dtype);
  return held ? 0 : ((size_t)a->y.shape[0] * row + 255) / 256 * 256;
}

/* Where the product goes: y, or what an activation reads, which begins the workspace. */
static tg_tensor z_of(const tg_grouped_linear_fwd_args *a)
{
  return a->activation == TG_GATED_NONE ? a->y
         : tgi_present(&a->preactivation)
             ? a->preactivation
             : tg_tensor_2d(a->workspace, a->y.dtype, a->y.shape[0], 2 * a->y.shape[1]);
}

/* Expert e's, with rows [r0, r1). */
static tgi_gemm_problem fwd_problem(const tg_grouped_linear_fwd_args *a, const tg_tensor *z,
                                    int64_t e, int64_t r0, int64_t r1)
{
  const grouped_rows g = rows_of_fwd(a);
  const tg_tensor weight = matrix_of(&a->weight, e);
  return (tgi_gemm_problem){
      .m = r1 - r0,
      .n = z->shape[1],
      .k = a->x.shape[1],
      .a = sources_from(&a->x, &g, r0, true),
      .b = operand(&weight, !a->in_first),
      .c = {.y = place_of(z, r0),
            .dtype = z->dtype,
            .stride = tgi_stride(z, 0),
            .bias = place_of(&a->bias, e),
            .bias_dtype = a->bias.dtype},
  };
}

/* One expert has all rows: no product is larger. */
size_t TGI_WORKSPACE(grouped_linear_fwd)(const tg_context *ctx, const tg_grouped_linear_fwd_args *a)
{
  const tg_tensor z = z_of(a);
  const tgi_gemm_problem p = fwd_problem(a, &z, 0, 0, a->y.shape[0]);
  return z_bytes(a) + tgi_gemm_workspace_within(ctx, &p);
}

tg_status TGI_KERNEL(grouped_linear_fwd)(const tg_context *ctx, const tg_grouped_linear_fwd_args *a)
{
  const grouped_rows g = rows_of_fwd(a);
  const tg_tensor z = z_of(a);
  void *blocks = (char *)a->workspace + z_bytes(a);
  const tg_status status = check_rows(ctx, "grouped_linear_fwd", &g);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t e = 0; e < g.experts; e++) {
    const tgi_gemm_problem p = fwd_problem(a, &z, e, first_row(&g, e), first_row(&g, e + 1));
    tgi_gemm(ctx, &p, blocks);
  }
  clear_rest(ctx, &z, &g);
  return a->activation == TG_GATED_NONE ? TG_OK : tgi_activate(ctx, TGI_GATED_CHOICE(a), &z, &a->y);
}

/* What an expert with its share of the rows would do. */
static int64_t usual_rows(const grouped_rows *g)
{
  return (g->rows + g->experts - 1) / g->experts;
}

void TGI_PLAN(grouped_linear_fwd)(const tg_context *ctx, const tg_grouped_linear_fwd_args *a,
                                  char *text, size_t bytes)
{
  const grouped_rows g = rows_of_fwd(a);
  const tg_tensor z = z_of(a);
  const tgi_gemm_problem p = fwd_problem(a, &z, 0, 0, usual_rows(&g));
  char of_expert[160];
  tgi_gemm_explain(ctx, &p, of_expert, sizeof of_expert);
  snprintf(text, bytes, "an expert of rows spread evenly: %s", of_expert);
}

/* ---- backward ---- */

static tgi_gemm_problem dx_problem(const tg_grouped_linear_bwd_args *a, int64_t e, int64_t r0,
                                   int64_t r1)
{
  const tg_tensor weight = matrix_of(&a->weight, e);
  return (tgi_gemm_problem){
      .m = r1 - r0,
      .n = a->x.shape[1],
      .k = a->dy.shape[1],
      .a = rows_from(&a->dy, r0, true),
      .b = operand(&weight, a->in_first),
      .c = {.y = place_of(&a->dx, r0), .dtype = a->dx.dtype, .stride = tgi_stride(&a->dx, 0)},
  };
}

static tgi_gemm_problem dweight_problem(const tg_grouped_linear_bwd_args *a, int64_t e, int64_t r0,
                                        int64_t r1)
{
  const grouped_rows g = rows_of_bwd(a);
  const tg_tensor to = matrix_of(&a->dweight, e);
  const tgi_gemm_operand dy = rows_from(&a->dy, r0, false);
  const tgi_gemm_operand x = sources_from(&a->x, &g, r0, false);
  const bool in_place = to.dtype == TG_F32, adds = !a->overwrite;
  void *y = place_of(&to, 0);
  return (tgi_gemm_problem){
      .m = to.shape[0],
      .n = to.shape[1],
      .k = r1 - r0,
      .a = a->in_first ? x : dy,
      .b = a->in_first ? dy : x,
      .c = {.y = y,
            .dtype = to.dtype,
            .stride = to.stride[0],
            .residual = adds && !in_place ? y : NULL,
            .residual_stride = adds && !in_place ? to.stride[0] : 0,
            .accumulate = adds && in_place},
  };
}

size_t TGI_WORKSPACE(grouped_linear_bwd)(const tg_context *ctx, const tg_grouped_linear_bwd_args *a)
{
  const int64_t rows = a->dy.shape[0];
  size_t most = 0;
  if (tgi_present(&a->dx)) {
    const tgi_gemm_problem p = dx_problem(a, 0, 0, rows);
    most = tgi_gemm_workspace_within(ctx, &p);
  }
  if (tgi_present(&a->dweight)) {
    const tgi_gemm_problem p = dweight_problem(a, 0, 0, rows);
    const size_t bytes = tgi_gemm_workspace_within(ctx, &p);
    most = bytes > most ? bytes : most;
  }
  return most;
}

tg_status TGI_KERNEL(grouped_linear_bwd)(const tg_context *ctx, const tg_grouped_linear_bwd_args *a)
{
  const grouped_rows g = rows_of_bwd(a);
  const tg_status status = check_rows(ctx, "grouped_linear_bwd", &g);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t e = 0; e < g.experts; e++) {
    const int64_t r0 = first_row(&g, e), r1 = first_row(&g, e + 1);
    if (tgi_present(&a->dx)) {
      const tgi_gemm_problem p = dx_problem(a, e, r0, r1);
      tgi_gemm(ctx, &p, a->workspace);
    }
    if (tgi_present(&a->dweight) && (r0 < r1 || a->overwrite)) {
      const tgi_gemm_problem p = dweight_problem(a, e, r0, r1);
      tgi_gemm(ctx, &p, a->workspace);
    }
  }
  if (tgi_present(&a->dx)) {
    clear_rest(ctx, &a->dx, &g);
  }
  if (tgi_present(&a->dbias)) {
    tgi_add_expert_sums(
        ctx,
        &(expert_bias_sums){.rows = g, .dy = &a->dy, .to = &a->dbias, .overwrite = a->overwrite});
  }
  return TG_OK;
}

void TGI_PLAN(grouped_linear_bwd)(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                                  char *text, size_t bytes)
{
  const grouped_rows g = rows_of_bwd(a);
  char of_dx[160] = "none", of_dweight[160] = "none";
  if (tgi_present(&a->dx)) {
    const tgi_gemm_problem p = dx_problem(a, 0, 0, usual_rows(&g));
    tgi_gemm_explain(ctx, &p, of_dx, sizeof of_dx);
  }
  if (tgi_present(&a->dweight)) {
    const tgi_gemm_problem p = dweight_problem(a, 0, 0, usual_rows(&g));
    tgi_gemm_explain(ctx, &p, of_dweight, sizeof of_dweight);
  }
  snprintf(text, bytes, "an expert of rows spread evenly: dx %s; dweight %s", of_dx, of_dweight);
}
