/* Combine on the CPU.
 *
 * Method     Strips of 512 columns in f32. Forward: a token's rows are added up in their
 *            order. Backward: each row of dy is a token's row of dout times a number; each
 *            dweight is a dot product.
 * Work       Forward: chunks of tokens of about 64 KiB of out. Backward: chunks of rows, then
 *            of slots, of the same size.
 * Bound      Memory: forward reads k rows a token and writes one; backward reads dout and y
 *            and writes dy.
 */
#include "cpu/strips.h"
#include "ops/moe_combine/combine_rows.h"

#include <stdio.h>

enum { kChunkBytes = 64 << 10, kStrip = 512 };

static int64_t grain_of(const tg_tensor *t)
{
  const int64_t row_bytes = t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype);
  return row_bytes > 0 && row_bytes < kChunkBytes ? kChunkBytes / row_bytes : 1;
}

/* ---- forward ---- */

static void combine_strip(const tg_moe_combine_fwd_args *a, int64_t t, int64_t first, int64_t n)
{
  _Alignas(64) float sum[kStrip] = {0}, y[kStrip];
  const int rounded = a->rounding == TG_ROUNDING_HF ? a->y.dtype : TG_F32;
  for (int64_t j = 0; j < a->row.shape[1]; j++) {
    const int64_t r = slot_row(&a->row, t, j);
    if (r >= 0) {
      const vf w = vf_set1((float)slot_weight(&a->weights, t, j));
      tgi_widen(y, tgi_row(&a->y, r), a->y.dtype, first, n);
      for (int64_t i = 0; i < n; i += TGI_LANES) {
        vf_store_f32(y + i, vf_load_f32(y + i) * w);
      }
      tgi_round_strip(y, rounded, n);
      for (int64_t i = 0; i < n; i += TGI_LANES) {
        vf_store_f32(sum + i, vf_load_f32(sum + i) + vf_load_f32(y + i));
      }
    }
  }
  if (tgi_present(&a->residual)) {
    tgi_round_strip(sum, rounded, n);
    tgi_widen(y, tgi_row(&a->residual, t), a->y.dtype, first, n);
    for (int64_t i = 0; i < n; i += TGI_LANES) {
      vf_store_f32(sum + i, vf_load_f32(sum + i) + vf_load_f32(y + i));
    }
  }
  tgi_narrow(tgi_row(&a->out, t), a->y.dtype, first, n, sum);
}

static void combine_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
  const tg_moe_combine_fwd_args *a = arg;
  (void)thread;
  for (int64_t t = begin; t < end; t++) {
    for (int64_t first = 0; first < a->out.shape[1]; first += kStrip) {
      combine_strip(a, t, first, tgi_min_i64(kStrip, a->out.shape[1] - first));
    }
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
    for (int64_t first = 0; first < hidden; first += kStrip) {
      _Alignas(64) float d[kStrip];
      const int64_t n = tgi_min_i64(kStrip, hidden - first);
      tgi_widen(d, tgi_row(&a->dout, t), a->dout.dtype, first, n);
      for (int64_t i = 0; i < n; i += TGI_LANES) {
        vf_store_f32(d + i, vf_load_f32(d + i) * w);
      }
      tgi_narrow(dy, a->dy.dtype, first, n, d);
    }
  }
}

/* Of one row of dout and one of y: an f64 sum of f32 sums of strips. */
static double dot_rows(const void *dout, const void *y, int64_t hidden, int dtype)
{
  double sum = 0;
  for (int64_t first = 0; first < hidden; first += kStrip) {
    _Alignas(64) float d[kStrip], v[kStrip];
    const int64_t n = tgi_min_i64(kStrip, hidden - first);
    vf s = vf_zero();
    tgi_widen(d, dout, dtype, first, n);
    tgi_widen(v, y, dtype, first, n);
    for (int64_t i = 0; i < n; i += TGI_LANES) {
      s = vf_fma(vf_load_f32(d + i), vf_load_f32(v + i), s);
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
    const double sum =
        r < 0 ? 0 : dot_rows(tgi_row(&a->dout, t), tgi_row(&a->y, r), hidden, a->dout.dtype);
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
