/* Linear head and cross-entropy on the CPU.
 *
 * Method     Rows that are not ignored are numbered. For every chunk of columns, for every chunk of
 *            these rows: their hidden states are copied side by side, the logits are a product,
 *            each row of them is scanned (forward) and turned into its gradient in place while it
 *            is in the cache, and dhidden and dweight are two more products. With one chunk of
 *            columns a row's scan is complete when its gradient is due; with several the forward
 *            needs a pass of its own.
 * Sums       dhidden, dbias and a 16-bit dweight are summed in f32 in the workspace: dhidden over
 *            chunks of columns, the others, which belong to one chunk of columns, over chunks of
 *            rows. An f32 dweight is added to in place.
 * Work       Products cut themselves; the passes over rows (linear_cross_entropy_rows.h) take a row
 *            or a few at a time.
 * Bound      Arithmetic: the products. */
#include "ops/linear_cross_entropy/linear_cross_entropy_rows.h"
#include <stdio.h>

enum {
  kRowWork = 16 << 10, /* elements that are worth a task */
  kBiasCols = 1024,    /* of a task */
  kBiasGroup = 64,     /* rows whose sum is taken before it is added */
};

static int64_t grain_of(int64_t row_elements)
{
  return 1 + kRowWork / (row_elements + 1);
}

/* ---- gradients of a chunk ---- */

/* Adds rows [r0, r1) of n columns to sums. */
TGI_INLINE void add_rows(const lce_job *job, int t, int64_t j, int64_t n, int64_t r0, int64_t r1,
                         float *sum)
{
  const int64_t stride = job->plan.stride * (t == TG_F32 ? 1 : 2);
  for (int64_t r = r0; r < r1; r++) {
    for (int64_t v = 0; v < n; v += TGI_LANES) {
      const int64_t lanes = tgi_min_i64(TGI_LANES, n - v);
      const vf x = vf_load_part(job->space.logits, t, r * stride + j + v, lanes);
      vf_store_f32(sum + v, vf_load_f32(sum + v) + x);
    }
  }
}

static void sum_bias_columns(void *arg, int64_t begin, int64_t end, int thread)
{
  const lce_job *job = arg;
  const int64_t n = end - begin;
  (void)thread;
  for (int64_t r = 0; r < job->rows; r += kBiasGroup) {
    float sum[kBiasCols + TGI_LANES] = {0};
    const int64_t last = tgi_min_i64(job->rows, r + kBiasGroup);
    if (job->plan.dlogits == TG_BF16) {
      add_rows(job, TG_BF16, begin, n, r, last, sum);
    } else {
      add_rows(job, TG_F32, begin, n, r, last, sum);
    }
    for (int64_t j = 0; j < n; j++) {
      job->space.dbias[begin + j] += sum[j];
    }
  }
}

/* row[0 .. n) += sums, or = sums. */
static void add_sums(const float *sums, void *row, int t, int64_t n, bool overwrite)
{
  for (int64_t j = 0; j < n; j += TGI_LANES) {
    const int64_t lanes = tgi_min_i64(TGI_LANES, n - j);
    const vf x = vf_load_part_f32(sums + j, lanes);
    TGI_SWITCH_FLOAT(t, T, {
      const vf old = overwrite ? vf_zero() : vf_load_part(row, T, j, lanes);
      vf_store_part(row, T, j, lanes, old + x);
    });
  }
}

static void store_dhidden_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const lce_job *job = arg;
  const tg_tensor *t = &job->a->dhidden;
  const int64_t size = t->shape[1];
  (void)thread;
  for (int64_t r = begin; r < end; r++) {
    add_sums(job->space.dhidden + r * size, tgi_row(t, job->space.rows[job->row0 + r].i), t->dtype,
             size, true);
  }
}

static void store_dweight_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const lce_job *job = arg;
  const tg_tensor *t = &job->a->dweight;
  const int64_t size = t->shape[1];
  (void)thread;
  for (int64_t j = begin; j < end; j++) {
    add_sums(job->space.dweight + j * size, tgi_row(t, job->col0 + j), t->dtype, size,
             job->a->overwrite);
  }
}

/* dhidden of the chunk's rows: they have their place in the sums if these wait for more columns. */
static void add_dhidden(const lce_job *job)
{
  const int64_t size = job->a->hidden.shape[1];
  lce_job part = *job;
  part.space.dhidden += job->plan.several_cols ? job->row0 * size : 0;
  const tgi_gemm_problem p =
      lce_dhidden(job->a, &job->plan, &part.space, job->rows, job->col0, job->cols);
  tgi_gemm(job->ctx, &p, job->space.packed);
  if (job->col0 + job->cols == job->a->weight.shape[0]) {
    tgi_for(job->ctx, job->rows, grain_of(size), store_dhidden_rows, &part);
  }
}

static void add_gradients(lce_job *job)
{
  const lce_args *a = job->a;
  if (tgi_present(&a->dhidden)) {
    add_dhidden(job);
  }
  if (tgi_present(&a->dweight)) {
    const tgi_gemm_problem p =
        lce_dweight(a, &job->plan, &job->space, job->rows, job->col0, job->cols, job->row0 == 0);
    tgi_gemm(job->ctx, &p, job->space.packed);
  }
  if (tgi_present(&a->dbias)) {
    tgi_for(job->ctx, job->cols, kBiasCols, sum_bias_columns, job);
  }
}

/* What was summed over all rows goes where it belongs. */
static void finish_columns(lce_job *job)
{
  const lce_args *a = job->a;
  if (job->plan.sums_dweight) {
    tgi_for(job->ctx, job->cols, grain_of(a->hidden.shape[1]), store_dweight_rows, job);
  }
  if (tgi_present(&a->dbias)) {
    char *dbias = (char *)a->dbias.data + job->col0 * (int64_t)tg_dtype_bytes(a->dbias.dtype);
    add_sums(job->space.dbias, dbias, a->dbias.dtype, job->cols, a->overwrite);
  }
}

/* ---- passes ---- */

/* At least one chunk of rows, if of none: dweight is overwritten all the same. */
static void pass_columns(lce_job *job)
{
  job->row0 = 0;
  do {
    job->rows = tgi_min_i64(job->plan.rows, job->counted - job->row0);
    tgi_for(job->ctx, job->rows, grain_of(job->a->hidden.shape[1]), lce_gather_rows, job);
    const tgi_gemm_problem p =
        lce_logits(job->a, &job->plan, &job->space, job->rows, job->col0, job->cols);
    tgi_gemm(job->ctx, &p, job->space.packed);
    tgi_for(job->ctx, job->rows, grain_of(job->cols), lce_pass_rows, job);
    if (job->differentiates) {
      add_gradients(job);
    }
    job->row0 += job->rows;
  } while (job->row0 < job->counted);
}

static void pass(lce_job *job, bool scans, bool differentiates)
{
  const int64_t vocab = job->a->weight.shape[0];
  job->scans = scans;
  job->differentiates = differentiates;
  for (job->col0 = 0; job->col0 < vocab; job->col0 += job->cols) {
    job->cols = tgi_min_i64(job->plan.cols, vocab - job->col0);
    if (differentiates && tgi_present(&job->a->dbias)) {
      memset(job->space.dbias, 0, (size_t)job->cols * sizeof(float));
    }
    pass_columns(job);
    if (differentiates) {
      finish_columns(job);
    }
  }
}

static tg_status run(const tg_context *ctx, const lce_args *a, const char *name)
{
  lce_job job = {.ctx = ctx, .a = a, .rule = TARGET_RULE(name, a, a->weight.shape[0])};
  const bool forward = lce_wants_loss(a), gradients = lce_wants_gradients(a);
  int64_t counted;
  const tg_status status = check_targets(ctx, &job.rule, &counted);
  if (status != TG_OK) {
    return status;
  }
  job.divisor = divisor(&job.rule, counted);
  job.plan = lce_make_plan(ctx, a);
  job.space = lce_place(&job.plan, a->workspace);
  lce_collect_rows(&job);
  if (forward && (!gradients || job.plan.several_cols)) {
    pass(&job, true, false);
  }
  if (gradients) {
    pass(&job, forward && !job.plan.several_cols, true);
  }
  if (forward && a->reduction != TG_REDUCTION_NONE) {
    lce_store_loss(&job);
  }
  return TG_OK;
}

static void explain(const tg_context *ctx, const lce_args *a, char *text, size_t bytes)
{
  const lce_plan plan = lce_make_plan(ctx, a);
  snprintf(text, bytes, "chunks of %lld x %lld logits, their gradients in %s%s",
           (long long)plan.rows, (long long)plan.cols, tg_dtype_name(plan.dlogits),
           plan.sums_dweight ? "; dweight summed apart" : "");
}

/* ---- entries ---- */

size_t TGI_WORKSPACE(linear_cross_entropy_fwd)(const tg_context *ctx,
                                               const tg_linear_cross_entropy_fwd_args *a)
{
  const lce_args all = lce_forward(a);
  return lce_make_plan(ctx, &all).bytes;
}

tg_status TGI_KERNEL(linear_cross_entropy_fwd)(const tg_context *ctx,
                                               const tg_linear_cross_entropy_fwd_args *a)
{
  const lce_args all = lce_forward(a);
  return run(ctx, &all, "linear_cross_entropy_fwd");
}

void TGI_PLAN(linear_cross_entropy_fwd)(const tg_context *ctx,
                                        const tg_linear_cross_entropy_fwd_args *a, char *text,
                                        size_t bytes)
{
  const lce_args all = lce_forward(a);
  explain(ctx, &all, text, bytes);
}

size_t TGI_WORKSPACE(linear_cross_entropy_bwd)(const tg_context *ctx,
                                               const tg_linear_cross_entropy_bwd_args *a)
{
  const lce_args all = lce_backward(a);
  return lce_make_plan(ctx, &all).bytes;
}

tg_status TGI_KERNEL(linear_cross_entropy_bwd)(const tg_context *ctx,
                                               const tg_linear_cross_entropy_bwd_args *a)
{
  const lce_args all = lce_backward(a);
  return run(ctx, &all, "linear_cross_entropy_bwd");
}

void TGI_PLAN(linear_cross_entropy_bwd)(const tg_context *ctx,
                                        const tg_linear_cross_entropy_bwd_args *a, char *text,
                                        size_t bytes)
{
  const lce_args all = lce_backward(a);
  explain(ctx, &all, text, bytes);
}

size_t TGI_WORKSPACE(linear_cross_entropy_fwdbwd)(const tg_context *ctx,
                                                  const tg_linear_cross_entropy_fwdbwd_args *a)
{
  return lce_make_plan(ctx, a).bytes;
}

tg_status TGI_KERNEL(linear_cross_entropy_fwdbwd)(const tg_context *ctx,
                                                  const tg_linear_cross_entropy_fwdbwd_args *a)
{
  return run(ctx, a, "linear_cross_entropy_fwdbwd");
}

void TGI_PLAN(linear_cross_entropy_fwdbwd)(const tg_context *ctx,
                                           const tg_linear_cross_entropy_fwdbwd_args *a, char *text,
                                           size_t bytes)
{
  explain(ctx, a, text, bytes);
}
