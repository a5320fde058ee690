/* Values of 8-bit integers on the CPU.
 *
 * Method     One pass over the rows.
 * Work       Chunks of rows.
 * Bound      Memory: q is read, x is written, past the caches if it exceeds them.
 */
#include "cpu/saturate.h"
#include "cpu/unroll.h"
#include "ops/shared/quantisation/dequantize_chunks.h"

#include <string.h>

enum { kTogether = 4 };

typedef struct job {
  const tg_dequantize_int8_fwd_args *a;
  dequantize_chunks chunks;
} job;

/* Of some columns: pointers to their first, NULL without zero points. */
typedef struct columns {
  const float *scale;
  const int8_t *zero_point_i8;
  const int32_t *zero_point_i32;
} columns;

/* Zero points of n <= TGI_LANES columns from j on, or of the first in all lanes. */
TGI_INLINE vf zero_points(const columns *c, int64_t j, int64_t n, bool by_column)
{
  float z[TGI_LANES] = {0};
  if (c->zero_point_i8) {
    for (int64_t k = 0; k < (by_column ? n : 1); k++) {
      z[k] = (float)c->zero_point_i8[by_column ? j + k : 0];
    }
  } else if (c->zero_point_i32) {
    for (int64_t k = 0; k < (by_column ? n : 1); k++) {
      z[k] = (float)c->zero_point_i32[by_column ? j + k : 0];
    }
  }
  return by_column ? vf_load(z, TG_F32, 0) : vf_set1(z[0]);
}

/* Columns share a scale and zero point, or have their own; `by_column` is a constant. */
TGI_INLINE void dequantize_row(const int8_t *q, int64_t n, const columns *c, bool by_column,
                               void *x, int t, bool stream)
{
  const vf one_zero_point = zero_points(c, 0, 1, false), one_scale = vf_set1(*c->scale);
  int64_t j = 0;
  for (; j + kTogether * TGI_LANES <= n; j += kTogether * TGI_LANES) {
    TGI_UNROLLED(k, kTogether)
    {
      const int64_t i = j + k * TGI_LANES;
      const vf z = by_column ? zero_points(c, i, TGI_LANES, true) : one_zero_point;
      const vf s = by_column ? vf_load(c->scale, TG_F32, i) : one_scale;
      vf_put(x, t, i, vf_saturate(t, (vf_load_i8(q + i) - z) * s), stream);
    }
  }
  for (; j < n; j += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, n - j);
    const vf z = by_column ? zero_points(c, j, left, true) : one_zero_point;
    const vf s = by_column ? vf_load_part(c->scale, TG_F32, j, left) : one_scale;
    int8_t bytes[TGI_LANES] = {0};
    memcpy(bytes, q + j, (size_t)left);
    vf_store_part(x, t, j, left, vf_saturate(t, (vf_load_i8(bytes) - z) * s));
  }
}

static columns columns_of_row(const tg_dequantize_int8_fwd_args *a, int64_t row)
{
  const int64_t i = a->granularity == TG_QUANT_PER_ROW ? row : 0;
  columns c = {.scale = (const float *)a->scale.data + i};
  if (a->zero_point.dtype == TG_I8) {
    c.zero_point_i8 = (const int8_t *)a->zero_point.data + i;
  } else if (tgi_present(&a->zero_point)) {
    c.zero_point_i32 = (const int32_t *)a->zero_point.data + i;
  }
  return c;
}

TGI_INLINE void dequantize_row_as(const job *p, int64_t i, int t)
{
  const columns c = columns_of_row(p->a, i);
  const int8_t *q = tgi_row(&p->a->q, i);
  void *x = tgi_row(&p->a->x, i);
  if (p->a->granularity == TG_QUANT_PER_COLUMN) {
    dequantize_row(q, p->chunks.cols, &c, true, x, t, p->chunks.stream);
  } else if (p->chunks.stream) {
    dequantize_row(q, p->chunks.cols, &c, false, x, t, true);
  } else {
    dequantize_row(q, p->chunks.cols, &c, false, x, t, false);
  }
}

static void dequantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    TGI_SWITCH_FLOAT(p->a->x.dtype, T, dequantize_row_as(p, i, T));
  }
  vf_stream_fence();
}

tg_status TGI_KERNEL(dequantize_int8_fwd)(const tg_context *ctx,
                                          const tg_dequantize_int8_fwd_args *a)
{
  job p = {.a = a, .chunks = cut_into_chunks(ctx, &a->x)};
  tgi_for(ctx, p.chunks.rows, p.chunks.grain, dequantize_rows, &p);
  return TG_OK;
}

void TGI_PLAN(dequantize_int8_fwd)(const tg_context *ctx, const tg_dequantize_int8_fwd_args *a,
                                   char *text, size_t bytes)
{
  describe_chunks(ctx, &a->x, text, bytes);
}
