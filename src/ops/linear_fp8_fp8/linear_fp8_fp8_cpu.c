/* Linear layers of e4m3 by e4m3 on the CPU.
 *
 * Method     Codes of x, and of up to 1024 rows of W at a time, become bf16 in the workspace, which
 *            holds them exactly. Their product (cpu/gemm/gemm.h) leaves f32 sums there; scales and
 *            bias follow.
 * Bound      Arithmetic; for few rows the widening of W.
 */
#include "core/values/quantize.h"
#include "cpu/float8.h"
#include "cpu/gemm/gemm.h"
#include "ops/kernels.h"
#include <stdio.h>

enum { kOutputs = 1024, kGrain = 32 << 10 }; /* rows of W together; values of a task */

/* Parts of the workspace; without memory their sizes alone. */
typedef struct job {
  const tg_linear_fp8_fp8_fwd_args *a;
  tg_tensor x, w, sums; /* x and some rows of W in bf16; f32 */
  float *scale;         /* of rows of x */
  void *packed;         /* of the product */
  int64_t first, count; /* rows of W */
} job;

static size_t aligned(size_t bytes)
{
  return (bytes + 63) / 64 * 64;
}

static tgi_gemm_problem product_of(const job *j)
{
  return (tgi_gemm_problem){
      .m = j->x.shape[0],
      .n = j->count,
      .k = j->x.shape[1],
      .a = tgi_gemm_matrix(j->x.data, TG_BF16, tgi_stride(&j->x, 0), true),
      .b = tgi_gemm_matrix(j->w.data, TG_BF16, tgi_stride(&j->w, 0), true),
      .c = {.y = j->sums.data, .dtype = TG_F32, .stride = tgi_stride(&j->sums, 0)},
  };
}

/* Returns the bytes that the job takes of the workspace. */
static size_t make_job(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a, job *j)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1];
  const int64_t count = tgi_min_i64(a->y.shape[1], kOutputs);
  char *memory = a->workspace;
  size_t at = 0;
  *j = (job){.a = a, .count = count};
  j->x = tg_tensor_2d(NULL, TG_BF16, rows, in);
  j->w = tg_tensor_2d(NULL, TG_BF16, count, in);
  j->sums = tg_tensor_2d(NULL, TG_F32, rows, count);
  tg_tensor *const views[] = {&j->x, &j->w, &j->sums};
  for (int i = 0; i < 3; i++) {
    views[i]->data = memory ? memory + at : NULL;
    at += aligned(tgi_span_bytes(views[i]));
  }
  j->scale = memory ? (float *)(void *)(memory + at) : NULL;
  at += aligned((size_t)rows * sizeof *j->scale);
  j->packed = memory ? memory + at : NULL;
  const tgi_gemm_problem p = product_of(j);
  return at + tgi_gemm_workspace_within(ctx, &p);
}

size_t TGI_WORKSPACE(linear_fp8_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a)
{
  job j;
  return make_job(ctx, a, &j);
}

static void widen_row(const uint8_t *codes, int64_t n, uint16_t *to)
{
  int64_t k = 0;
  for (; k + TGI_LANES <= n; k += TGI_LANES) {
    vf_store(to, TG_BF16, k, vf_load_f8(codes + k));
  }
  for (; k < n; k++) {
    to[k] = tgi_f32_to_bf16(tgi_f8_e4m3_to_f32(codes[k]));
  }
}

static void quantise_row(const tg_linear_fp8_fp8_fwd_args *a, int64_t i, uint16_t *to, float *scale)
{
  const void *x = tgi_row(&a->x, i);
  const int64_t in = a->x.shape[1];
  float most = 0;
  for (int64_t k = 0; k < in; k++) {
    const float v = fabsf((float)tgi_load(x, a->x.dtype, k));
    most = v > most || isnan(v) ? v : most;
  }
  *scale = tgi_e4m3_scale(most);
  for (int64_t k = 0; k < in; k++) {
    const float v = (float)tgi_load(x, a->x.dtype, k) / *scale;
    to[k] = tgi_f32_to_bf16(tgi_f8_e4m3_to_f32(tgi_f32_to_f8_e4m3(v)));
  }
}

static void make_x(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    if (tgi_present(&j->a->x_scale)) {
      j->scale[i] = ((const float *)j->a->x_scale.data)[i];
      widen_row(tgi_row(&j->a->x, i), j->x.shape[1], tgi_row(&j->x, i));
    } else {
      quantise_row(j->a, i, tgi_row(&j->x, i), &j->scale[i]);
    }
  }
}

static void make_w(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  (void)thread;
  for (int64_t o = begin; o < end; o++) {
    widen_row(tgi_row(&j->a->weight, j->first + o), j->w.shape[1], tgi_row(&j->w, o));
  }
}

static void finish_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *j = arg;
  const tg_linear_fp8_fp8_fwd_args *a = j->a;
  const float *scales = a->weight_scale.data;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const float *sums = tgi_row(&j->sums, i);
    for (int64_t n = 0; n < j->count; n++) {
      const int64_t o = j->first + n;
      const float scaled = sums[n] * j->scale[i];
      float y = scaled * scales[a->weight_scale.shape[0] == 1 ? 0 : o];
      if (tgi_present(&a->bias)) {
        y = y + (float)tgi_load(a->bias.data, a->bias.dtype, o);
      }
      tgi_store(tgi_row(&a->y, i), a->y.dtype, o, (double)y);
    }
  }
}

tg_status TGI_KERNEL(linear_fp8_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a)
{
  job j;
  make_job(ctx, a, &j);
  const int64_t rows = a->x.shape[0], out = a->y.shape[1], grain = 1 + kGrain / (a->x.shape[1] + 1);
  tgi_for(ctx, rows, grain, make_x, &j);
  for (j.first = 0; j.first < out; j.first += kOutputs) {
    j.count = tgi_min_i64(out - j.first, kOutputs);
    tgi_for(ctx, j.count, grain, make_w, &j);
    const tgi_gemm_problem p = product_of(&j);
    tgi_gemm(ctx, &p, j.packed);
    tgi_for(ctx, rows, 1 + kGrain / (j.count + 1), finish_rows, &j);
  }
  return TG_OK;
}

void TGI_PLAN(linear_fp8_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a,
                                  char *text, size_t bytes)
{
  job j;
  char product[160];
  make_job(ctx, a, &j);
  const tgi_gemm_problem p = product_of(&j);
  tgi_gemm_explain(ctx, &p, product, sizeof product);
  snprintf(text, bytes, "codes as bf16, %lld rows of W at a time; %s", (long long)j.count, product);
}
