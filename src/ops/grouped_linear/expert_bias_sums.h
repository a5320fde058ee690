/**
 * Sums of columns over each expert's rows on the CPU: gradients of biases. Groups of 64 rows are
 * added up, then the groups in order. Tasks are chunks of columns of an expert.
 */
#ifndef TGI_OPS_EXPERT_BIAS_SUMS_H
#define TGI_OPS_EXPERT_BIAS_SUMS_H

#include "cpu/simd.h"
#include "ops/grouped_linear/grouped_rows.h"

/** to[e, j] += sum of dy[r, j] over the rows of e; with weights that of w dy[g(r), j], where w is
 * the weight of r's slot and g(r) its token. */
typedef struct expert_bias_sums {
  grouped_rows rows;
  const tg_tensor *dy, *to, *weights; /* weights NULL: none */
  bool overwrite;
} expert_bias_sums;

enum { kBiasGroup = 64, kBiasColumns = 256 };

/* Rows [r0, r1) for one vector of columns. */
TGI_INLINE vf sum_of_group(const expert_bias_sums *s, int t, int64_t r0, int64_t r1, int64_t j,
                           int64_t n)
{
  vf sum = vf_zero();
  for (int64_t r = r0; r < r1; r++) {
    if (s->weights) {
      const vf w = vf_set1((float)weight_of_row(&s->rows, s->weights, r));
      const void *dy = tgi_row(s->dy, source_row(&s->rows, r));
      sum = vf_fma(w, vf_load_part(dy, t, j, n), sum);
    } else {
      sum = sum + vf_load_part(tgi_row(s->dy, r), t, j, n);
    }
  }
  return sum;
}

static inline void sum_bias_columns(const expert_bias_sums *s, int64_t e, int64_t j, int64_t n)
{
  const int64_t r0 = first_row(&s->rows, e), r1 = first_row(&s->rows, e + 1);
  void *to = tgi_row(s->to, e);
  vf total = vf_zero();
  for (int64_t r = r0; r < r1; r += kBiasGroup) {
    const int64_t last = tgi_min_i64(r1, r + kBiasGroup);
    TGI_SWITCH_FLOAT(s->dy->dtype, T, total = total + sum_of_group(s, T, r, last, j, n));
  }
  if (r0 < r1 || s->overwrite) {
    TGI_SWITCH_FLOAT(s->to->dtype, T, {
      const vf old = s->overwrite ? vf_zero() : vf_load_part(to, T, j, n);
      vf_store_part(to, T, j, n, old + total);
    });
  }
}

static inline int64_t bias_chunks(const expert_bias_sums *s)
{
  return (s->to->shape[1] + kBiasColumns - 1) / kBiasColumns;
}

/* Task: chunk of columns, expert. */
static inline void sum_bias_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
  const expert_bias_sums *s = arg;
  const int64_t chunks = bias_chunks(s), cols = s->to->shape[1];
  (void)thread;
  for (int64_t task = begin; task < end; task++) {
    const int64_t first = task % chunks * kBiasColumns;
    const int64_t last = tgi_min_i64(cols, first + kBiasColumns);
    for (int64_t j = first; j < last; j += TGI_LANES) {
      sum_bias_columns(s, task / chunks, j, tgi_min_i64(TGI_LANES, last - j));
    }
  }
}

static inline void tgi_add_expert_sums(const tg_context *ctx, expert_bias_sums *s)
{
  tgi_for(ctx, s->rows.experts * bias_chunks(s), 1, sum_bias_tasks, s);
}

#endif
