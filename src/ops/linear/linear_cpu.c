/* Linear layers on the CPU: three products (cpu/gemm/gemm.h) and, around them, what is not one.
 *
 *   forward   y  = x W^T     both operands along k; bias, GELU and residual end each tile
 *   backward  dx = dz W      dW += dz^T x
 *
 * Method     dz = dy * act'(z) is made first, in the workspace, if there is an activation; dbias is
 *            a sum over its rows.
 * Bound      Arithmetic, from about 16 rows on; memory (one reading of W) for few rows. */
#include "cpu/gelu_math.h"
#include "cpu/gemm/gemm.h"
#include "ops/kernels.h"
#include <stdio.h>

enum { kBiasGroup = 64, kBiasGrain = 256, kUpstreamBytes = 128 << 10 };

static tgi_gemm_operand operand(const tg_tensor *t, bool along_k)
{
  return tgi_gemm_matrix(t->data, t->dtype, tgi_stride(t, 0), along_k);
}

/* Where a tensor lies. Without memory, while the workspace is sized, one that is given must not be
 * taken for one that is absent: any address will do. */
static void *place_of(const tg_tensor *t)
{
  return tgi_present(t) && !t->data ? (void *)(uintptr_t)t : t->data;
}

static tgi_gemm_problem fwd_problem(const tg_linear_fwd_args *a)
{
  static const tgi_gemm_activation activation[] = {
      [TG_ACTIVATION_NONE] = TGI_GEMM_NO_ACTIVATION,
      [TG_ACTIVATION_GELU_TANH] = TGI_GEMM_GELU_TANH,
      [TG_ACTIVATION_GELU_ERF] = TGI_GEMM_GELU_ERF,
  };
  const bool residual = tgi_present(&a->residual), saves = tgi_present(&a->preactivation);
  return (tgi_gemm_problem){
      .m = a->x.shape[0],
      .n = a->weight.shape[0],
      .k = a->x.shape[1],
      .a = operand(&a->x, true),
      .b = operand(&a->weight, true),
      .c = {.y = a->y.data,
            .dtype = a->y.dtype,
            .stride = tgi_stride(&a->y, 0),
            .bias = place_of(&a->bias),
            .bias_dtype = a->bias.dtype,
            .residual = place_of(&a->residual),
            .residual_stride = residual ? tgi_stride(&a->residual, 0) : 0,
            .preactivation = place_of(&a->preactivation),
            .preactivation_stride = saves ? tgi_stride(&a->preactivation, 0) : 0,
            .activation = activation[a->activation]},
  };
}

size_t TGI_WORKSPACE(linear_fwd)(const tg_context *ctx, const tg_linear_fwd_args *a)
{
  const tgi_gemm_problem p = fwd_problem(a);
  return tgi_gemm_workspace(ctx, &p);
}

tg_status TGI_KERNEL(linear_fwd)(const tg_context *ctx, const tg_linear_fwd_args *a)
{
  const tgi_gemm_problem p = fwd_problem(a);
  tgi_gemm(ctx, &p, a->workspace);
  return TG_OK;
}

void TGI_PLAN(linear_fwd)(const tg_context *ctx, const tg_linear_fwd_args *a, char *text,
                          size_t bytes)
{
  const tgi_gemm_problem p = fwd_problem(a);
  tgi_gemm_explain(ctx, &p, text, bytes);
}

/* ---- backward ---- */

/* dz: dy itself, or with an activation its own rows in the workspace. */
static tg_tensor upstream_view(const tg_linear_bwd_args *a)
{
  if (a->activation == TG_ACTIVATION_NONE) {
    return a->dy;
  }
  return tg_tensor_2d(a->workspace, a->dy.dtype, a->dy.shape[0], a->dy.shape[1]);
}

static size_t upstream_bytes(const tg_linear_bwd_args *a)
{
  const tg_tensor dz = upstream_view(a);
  return a->activation == TG_ACTIVATION_NONE ? 0 : (tgi_span_bytes(&dz) + 255) / 256 * 256;
}

static tgi_gemm_problem dx_problem(const tg_linear_bwd_args *a, const tg_tensor *dz)
{
  return (tgi_gemm_problem){
      .m = a->x.shape[0],
      .n = a->x.shape[1],
      .k = a->weight.shape[0],
      .a = operand(dz, true),
      .b = operand(&a->weight, false),
      .c = {.y = a->dx.data, .dtype = a->dx.dtype, .stride = tgi_stride(&a->dx, 0)},
  };
}

static tgi_gemm_problem dweight_problem(const tg_linear_bwd_args *a, const tg_tensor *dz)
{
  const bool in_place = a->dweight.dtype == TG_F32, adds = !a->overwrite;
  const int64_t stride = tgi_stride(&a->dweight, 0);
  return (tgi_gemm_problem){
      .m = a->weight.shape[0],
      .n = a->x.shape[1],
      .k = a->x.shape[0],
      .a = operand(dz, false),
      .b = operand(&a->x, false),
      .c = {.y = a->dweight.data,
            .dtype = a->dweight.dtype,
            .stride = stride,
            .residual = adds && !in_place ? place_of(&a->dweight) : NULL,
            .residual_stride = adds && !in_place ? stride : 0,
            .accumulate = adds && in_place},
  };
}

typedef struct bwd_job {
  const tg_linear_bwd_args *a;
  tg_tensor dz;
} bwd_job;

TGI_INLINE vf derivative(tg_activation activation, vf z)
{
  return activation == TG_ACTIVATION_GELU_TANH ? vf_gelu_tanh_grad(z) : vf_gelu_erf_grad(z);
}

TGI_INLINE void upstream_row(const void *dy, const void *z, void *dz, int t, int64_t cols,
                             tg_activation activation)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= cols; j += TGI_LANES) {
    vf_store(dz, t, j, vf_load(dy, t, j) * derivative(activation, vf_load(z, t, j)));
  }
  if (j < cols) {
    const int64_t n = cols - j;
    const vf slope = derivative(activation, vf_load_part(z, t, j, n));
    vf_store_part(dz, t, j, n, vf_load_part(dy, t, j, n) * slope);
  }
}

static void upstream_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_linear_bwd_args *a = job->a;
  const int64_t cols = a->dy.shape[1];
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const void *dy = tgi_row(&a->dy, i), *z = tgi_row(&a->preactivation, i);
    void *dz = tgi_row(&job->dz, i);
    if (a->activation == TG_ACTIVATION_GELU_TANH) {
      TGI_SWITCH_FLOAT(a->dy.dtype, T, upstream_row(dy, z, dz, T, cols, TG_ACTIVATION_GELU_TANH));
    } else {
      TGI_SWITCH_FLOAT(a->dy.dtype, T, upstream_row(dy, z, dz, T, cols, TG_ACTIVATION_GELU_ERF));
    }
  }
}

/* Sum of up to kBiasGroup rows for one vector of columns. */
TGI_INLINE vf sum_group(const tg_tensor *dz, int t, int64_t i0, int64_t i1, int64_t j, int64_t n)
{
  vf sum = vf_zero();
  for (int64_t i = i0; i < i1; i++) {
    sum = sum + vf_load_part(tgi_row(dz, i), t, j, n);
  }
  return sum;
}

static void bias_columns(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_tensor *dz = &job->dz, *dbias = &job->a->dbias;
  const int64_t rows = dz->shape[0];
  (void)thread;
  for (int64_t j = begin; j < end; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, end - j);
    vf total = vf_zero();
    for (int64_t i = 0; i < rows; i += kBiasGroup) {
      const int64_t last = tgi_min_i64(rows, i + kBiasGroup);
      TGI_SWITCH_FLOAT(dz->dtype, T, total = total + sum_group(dz, T, i, last, j, n));
    }
    TGI_SWITCH_FLOAT(dbias->dtype, T, {
      const vf old = job->a->overwrite ? vf_zero() : vf_load_part(dbias->data, T, j, n);
      vf_store_part(dbias->data, T, j, n, old + total);
    });
  }
}

size_t TGI_WORKSPACE(linear_bwd)(const tg_context *ctx, const tg_linear_bwd_args *a)
{
  const tg_tensor dz = upstream_view(a);
  size_t most = 0;
  if (tgi_present(&a->dx)) {
    const tgi_gemm_problem p = dx_problem(a, &dz);
    most = tgi_gemm_workspace(ctx, &p);
  }
  if (tgi_present(&a->dweight)) {
    const tgi_gemm_problem p = dweight_problem(a, &dz);
    const size_t bytes = tgi_gemm_workspace(ctx, &p);
    most = bytes > most ? bytes : most;
  }
  return upstream_bytes(a) + most;
}

tg_status TGI_KERNEL(linear_bwd)(const tg_context *ctx, const tg_linear_bwd_args *a)
{
  bwd_job job = {.a = a, .dz = upstream_view(a)};
  char *packed = (char *)a->workspace + upstream_bytes(a);
  const int64_t rows = a->x.shape[0], out = a->weight.shape[0];
  if (a->activation != TG_ACTIVATION_NONE && rows > 0 && out > 0) {
    const int64_t row_bytes = out * (int64_t)tg_dtype_bytes(a->dy.dtype);
    tgi_for(ctx, rows, 1 + kUpstreamBytes / row_bytes, upstream_rows, &job);
  }
  if (tgi_present(&a->dx) && rows > 0) {
    const tgi_gemm_problem p = dx_problem(a, &job.dz);
    tgi_gemm(ctx, &p, packed);
  }
  if (tgi_present(&a->dweight)) {
    const tgi_gemm_problem p = dweight_problem(a, &job.dz);
    tgi_gemm(ctx, &p, packed);
  }
  if (tgi_present(&a->dbias)) {
    tgi_for(ctx, out, kBiasGrain, bias_columns, &job);
  }
  return TG_OK;
}

void TGI_PLAN(linear_bwd)(const tg_context *ctx, const tg_linear_bwd_args *a, char *text,
                          size_t bytes)
{
  const tg_tensor dz = upstream_view(a);
  const tgi_gemm_problem dx = dx_problem(a, &dz), dweight = dweight_problem(a, &dz);
  char of_dx[160] = "none", of_dweight[160] = "none";
  if (tgi_present(&a->dx)) {
    tgi_gemm_explain(ctx, &dx, of_dx, sizeof of_dx);
  }
  if (tgi_present(&a->dweight)) {
    tgi_gemm_explain(ctx, &dweight, of_dweight, sizeof of_dweight);
  }
  snprintf(text, bytes, "dx %s; dweight %s", of_dx, of_dweight);
}
