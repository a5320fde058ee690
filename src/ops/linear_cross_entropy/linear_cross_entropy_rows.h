/**
 * linear_cross_entropy on the CPU: what is done row by row, and the call that the rows are of. Rows
 * that are not ignored are numbered; a chunk has the hidden states and logits of a run of numbers
 * side by side. Compiled into its kernels.
 */
#ifndef TGI_OPS_LINEAR_CROSS_ENTROPY_ROWS_H
#define TGI_OPS_LINEAR_CROSS_ENTROPY_ROWS_H

#include "ops/linear_cross_entropy/linear_cross_entropy_plan.h"

/** A call, and the chunk that it is at. */
typedef struct lce_job {
  const tg_context *ctx;
  const lce_args *a;
  target_rule rule;
  double divisor;
  lce_plan plan;
  lce_space space;
  int64_t counted; /* rows that are not ignored */
  bool scans, differentiates;
  int64_t row0, rows; /* chunk of rows, by number */
  int64_t col0, cols; /* chunk of columns */
} lce_job;

/* ---- rows of the problem ---- */

static inline void lce_store_results(const lce_args *a, int64_t i, const row_result *r,
                                     int64_t argmax)
{
  const struct {
    const tg_tensor *t;
    float value;
  } results[] = {{&a->token_loss, r->loss}, {&a->log_prob, r->log_prob}, {&a->lse, r->lse}};
  for (int k = 0; k < 3; k++) {
    if (tgi_present(results[k].t)) {
      ((float *)results[k].t->data)[i] = results[k].value;
    }
  }
  if (a->reduction == TG_REDUCTION_NONE) {
    ((float *)a->loss.data)[i] = r->loss;
  }
  if (tgi_present(&a->argmax)) {
    tgi_store(a->argmax.data, a->argmax.dtype, i, (double)argmax);
  }
}

/** Numbers the rows; those that are ignored have their results at once. */
static inline void lce_collect_rows(lce_job *job)
{
  const lce_args *a = job->a;
  const float *lse = a->lse.data;
  const size_t row_bytes = (size_t)a->hidden.shape[1] * tg_dtype_bytes(a->hidden.dtype);
  for (int64_t i = 0; i < a->hidden.shape[0]; i++) {
    const int64_t target = tgi_load_int(a->targets.data, a->targets.dtype, i);
    if (!is_ignored(&job->rule, target)) {
      job->space.rows[job->counted++] = (lce_row){.i = i,
                                                  .target = target,
                                                  .scan = row_scan_start(),
                                                  .lse = lce_wants_loss(a) ? 0 : lse[i]};
      continue;
    }
    if (lce_wants_loss(a)) {
      lce_store_results(a, i, &(row_result){0}, -1);
    }
    if (tgi_present(&a->dhidden) && row_bytes > 0) {
      memset(tgi_row(&a->dhidden, i), 0, row_bytes);
    }
  }
}

/** The loss that is not per row. */
static inline void lce_store_loss(const lce_job *job)
{
  double sum = 0;
  for (int64_t r = 0; r < job->counted; r++) {
    sum += (double)job->space.rows[r].loss;
  }
  ((float *)job->a->loss.data)[0] = (float)(sum / job->divisor);
}

/* ---- rows of a chunk ---- */

/** Copies the hidden states of rows [begin, end) of the chunk side by side. */
static inline void lce_gather_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const lce_job *job = arg;
  const tg_tensor *hidden = &job->a->hidden;
  const int64_t bytes = hidden->shape[1] * (int64_t)tg_dtype_bytes(hidden->dtype);
  (void)thread;
  for (int64_t r = begin; r < end; r++) {
    const int64_t i = job->space.rows[job->row0 + r].i;
    memcpy(job->space.hidden + r * bytes, tgi_row(hidden, i), (size_t)bytes);
  }
}

/* Largest logit so far: the first NaN, else the first of those that the scan just found. */
static inline void lce_find_argmax(const lce_job *job, lce_row *row, const float *x, float largest)
{
  if (isnan(row->scan.sum) && !row->has_nan) {
    const int64_t j = find_nan(x, TG_F32, job->cols);
    if (j >= 0) {
      row->has_nan = true;
      row->argmax = job->col0 + j;
      return;
    }
  }
  if (row->scan.largest > largest && !row->has_nan) {
    row->argmax = job->col0 + find_largest(x, TG_F32, job->cols, &row->scan);
  }
}

static inline void lce_scan_chunk(const lce_job *job, lce_row *row, const float *x)
{
  const lce_args *a = job->a;
  const int64_t vocab = a->weight.shape[0], target = row->target - job->col0;
  const float largest = row->scan.largest;
  scan_row(&row->scan, x, TG_F32, job->cols, a->softcap, a->label_smoothing > 0);
  if (tgi_present(&a->argmax)) {
    lce_find_argmax(job, row, x, largest);
  }
  if (target >= 0 && target < job->cols) {
    row->hit = cap_one(x[target], a->softcap);
  }
  if (job->col0 + job->cols == vocab) {
    const row_result result =
        finish_row(&row->scan, row->hit, vocab, (double)a->label_smoothing, (double)a->z_loss);
    row->lse = result.lse;
    row->loss = result.loss;
    lce_store_results(a, row->i, &result, row->argmax);
  }
}

static inline void lce_differentiate_chunk(const lce_job *job, const lce_row *row, float *x)
{
  const lce_args *a = job->a;
  bwd_row b = {.x = x,
               .cols = job->cols,
               .lse = row->lse,
               .softcap = a->softcap,
               .p_scale = 1 + 2 * a->z_loss * row->lse,
               .spread = a->label_smoothing / (float)a->weight.shape[0],
               .hit = 1 - a->label_smoothing,
               .upstream = (float)(lce_upstream(a, row->i) / job->divisor)};
  b.dx = x;
  const int64_t target = row->target - job->col0;
  const bool narrow = job->plan.dlogits == TG_BF16;
  if (a->softcap > 0 && narrow) {
    bwd_row_as(&b, target, TG_F32, TG_BF16, true, false);
  } else if (a->softcap > 0) {
    bwd_row_as(&b, target, TG_F32, TG_F32, true, false);
  } else if (narrow) {
    bwd_row_as(&b, target, TG_F32, TG_BF16, false, false);
  } else {
    bwd_row_as(&b, target, TG_F32, TG_F32, false, false);
  }
}

/** Scans the logits of rows [begin, end) of the chunk, or turns them into their gradients, or both.
 */
static inline void lce_pass_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const lce_job *job = arg;
  (void)thread;
  for (int64_t r = begin; r < end; r++) {
    lce_row *row = &job->space.rows[job->row0 + r];
    float *x = job->space.logits + r * job->plan.stride;
    if (job->scans) {
      lce_scan_chunk(job, row, x);
    }
    if (job->differentiates) {
      lce_differentiate_chunk(job, row, x);
    }
  }
}

#endif
