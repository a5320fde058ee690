/* Combine on the CPU.
 *
 * Method     Forward: a strip of a token's columns is summed in registers over its rows. Backward:
 *            each row of dy is a token's row of dout times a number; each dweight is a dot product.
 * Work       Forward: chunks of tokens of about 64 KiB of out. Backward: chunks of rows, then of
 *            slots, of the same size.
 * Bound      Memory: forward reads k rows a token and writes one; backward reads dout and y and
 *            writes dy.
 */
#include "cpu/simd.h"
#include "ops/moe_combine/combine_rows.h"

#include <stdio.h>

enum { kChunkBytes = 64 << 10, kPiece = 1024 };

static int64_t grain_of(const tg_tensor *t)
{
  const int64_t row_bytes = t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype);
  return row_bytes > 0 && row_bytes < kChunkBytes ? kChunkBytes / row_bytes : 1;
}

/* ---- forward ---- */

/* n <= TGI_LANES columns of a token from column i on. */
TGI_INLINE void combine_columns(const tg_moe_combine_fwd_args *a, int64_t t, int64_t i, int64_t n,
                                int dtype, bool each)
{
  vf sum = vf_zero();
  for (int64_t j = 0; j < a->row.shape[1]; j++) {
    const int64_t r = slot_row(&a->row, t, j);
    if (r >= 0) {
      const vf y = vf_load_up_to(tgi_row(&a->y, r), dtype, i, n);
      const vf product = y * vf_set1((float)slot_weight(&a->weights, t, j));
      sum = sum + (each ? vf_round(dtype, product) : product);
    }
  }
  sum = each ? vf_round(dtype, sum) : sum;
  if (tgi_present(&a->residual)) {
    sum = sum + vf_load_up_to(tgi_row(&a->residual, t), dtype, i, n);
  }
  vf_put_up_to(tgi_row(&a->out, t), dtype, i, n, sum, false);
}

TGI_INLINE void combine_token(const tg_moe_combine_fwd_args *a, int64_t t, int dtype)
{
  const int64_t hidden = a->out.shape[1];
  const bool each = a->rounding == TG_ROUNDING_HF;
  int64_t i = 0;
  for (; i + TGI_LANES <= hidden; i += TGI_LANES) {
    combine_columns(a, t, i, TGI_LANES, dtype, each);
  }
  if (i < hidden) {
    combine_columns(a, t, i, hidden - i, dtype, each);
  }
}

static void combine_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_moe_combine_fwd_args *a = arg;
  (void)thread;
  for (int64_t t = begin; t < end; t++) {
    TGI_SWITCH_FLOAT(a->y.dtype, T, combine_token(a, t, T));
  }
}

tg_status TGI_KERNEL(moe_combine_fwd)(const tg_context *ctx, const tg_moe_combine_fwd_args *a)
{
  tg_moe_combine_fwd_args args = *a;
  const tg_status status = check_rows(ctx, "moe_combine_fwd", &a->row, a->y.shape[0]);
  if (status == TG_OK) {
    tgi_for(ctx, a->out.shape[0], grain_of(&a->out), combine_tokens, &args);
  }
  return status;
}

void TGI_PLAN(moe_combine_fwd)(const tg_context *ctx, const tg_moe_combine_fwd_args *a, char *text,
                               size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "chunks of %lld tokens", (long long)grain_of(&a->out));
}

/* ---- backward ---- */

static void scale_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_moe_combine_bwd_args *a = arg;
  const int64_t hidden = a->dy.shape[1], k = a->row.shape[1];
  (void)thread;
  for (int64_t r = begin; r < end; r++) {
    const int64_t s = ((const int32_t *)a->slot.data)[r], t = s / k, j = s % k;
    void *dy = tgi_row(&a->dy, r);
    if (slot_row(&a->row, t, j) != r) {
      memset(dy, 0, (size_t)hidden * tg_dtype_bytes(a->dy.dtype));
      continue;
    }
    const vf w = vf_set1((float)slot_weight(&a->weights, t, j));
    const void *dout = tgi_row(&a->dout, t);
    for (int64_t i = 0; i < hidden; i += TGI_LANES) {
      const int64_t n = tgi_min_i64(TGI_LANES, hidden - i);
      TGI_SWITCH_FLOAT(a->dy.dtype, T, vf_store_part(dy, T, i, n, vf_load_part(dout, T, i, n) * w));
    }
  }
}

/* Of one row of dout and one of y: an f64 sum of f32 sums of pieces. */
TGI_INLINE double dot_rows(const void *dout, const void *y, int64_t hidden, int dtype)
{
  double sum = 0;
  for (int64_t first = 0; first < hidden; first += kPiece) {
    const int64_t end = tgi_min_i64(hidden, first + kPiece);
    vf s = vf_zero();
    for (int64_t i = first; i < end; i += TGI_LANES) {
      const int64_t n = tgi_min_i64(TGI_LANES, end - i);
      s = vf_fma(vf_load_part(dout, dtype, i, n), vf_load_part(y, dtype, i, n), s);
    }
    sum += vf_sum_f64(s);
  }
  return sum;
}

static void weigh_slots(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_moe_combine_bwd_args *a = arg;
  const int64_t hidden = a->dout.shape[1], k = a->row.shape[1];
  (void)thread;
  for (int64_t s = begin; s < end; s++) {
    const int64_t t = s / k, r = slot_row(&a->row, t, s % k);
    double sum = 0;
    if (r >= 0) {
      TGI_SWITCH_FLOAT(a->dout.dtype, T,
                       sum = dot_rows(tgi_row(&a->dout, t), tgi_row(&a->y, r), hidden, T));
    }
    tgi_store(tgi_row(&a->dweights, t), a->dweights.dtype, s % k, sum);
  }
}

tg_status TGI_KERNEL(moe_combine_bwd)(const tg_context *ctx, const tg_moe_combine_bwd_args *a)
{
  tg_moe_combine_bwd_args args = *a;
  const tg_status status = check_combine_bwd(ctx, a);
  if (status == TG_OK && tgi_present(&a->dy)) {
    tgi_for(ctx, a->dy.shape[0], grain_of(&a->dy), scale_rows, &args);
  }
  if (status == TG_OK && tgi_present(&a->dweights)) {
    tgi_for(ctx, tgi_numel(&a->row), grain_of(&a->dout), weigh_slots, &args);
  }
  return status;
}

void TGI_PLAN(moe_combine_bwd)(const tg_context *ctx, const tg_moe_combine_bwd_args *a, char *text,
                               size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "chunks of %lld rows", (long long)grain_of(&a->dout));
}
