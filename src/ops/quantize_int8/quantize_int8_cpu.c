/* Quantisation to 8 bits on the CPU.
 *
 * Method     Per row: bounds, then the row once more out of the cache. Per tensor and per column:
 *            bounds of up to 64 parts of the rows, in the workspace; united; then all rows. Bounds
 *            do not depend on the order in which they are united.
 * Work       Chunks of rows; uniting columns: pieces of columns.
 * Bound      Memory: x is read once, or twice; q is written past the caches if it exceeds them.
 */
#include "core/values/quantize.h"
#include "cpu/quantize_lanes.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"

#include <stdio.h>
#include <string.h>

enum { kPieceBytes = 1 << 20, kParts = 64, kColumnPiece = 512, kTogether = 4, kLineBytes = 64 };

typedef struct job {
  const tg_quantize_int8_fwd_args *a;
  int64_t rows, cols, part_rows; /* part_rows: of a part whose bounds are found together */
  float *low, *high;             /* [parts, cols or 1] */
  float *inverse;                /* of scales: [cols or 1] */
  int32_t *zero_point;           /* [cols or 1] */
  bool stream, quick;            /* quick: every scale is (cpu/quantize_lanes.h) */
} job;

static int64_t rows_of_part(int64_t rows)
{
  return (rows + kParts - 1) / kParts;
}

static int64_t count_parts(const job *p)
{
  return p->part_rows ? (p->rows + p->part_rows - 1) / p->part_rows : 0;
}

/* Columns that have bounds of their own. */
static int64_t width_of_bounds(const tg_quantize_int8_fwd_args *a)
{
  return a->granularity == TG_QUANT_PER_COLUMN ? a->x.shape[1] : 1;
}

static int64_t grain(const job *p)
{
  const int64_t bytes = p->cols * (int64_t)tg_dtype_bytes(p->a->x.dtype) + 1;
  return bytes < kPieceBytes ? kPieceBytes / bytes : 1;
}

static tgi_quant choose(const tg_quantize_int8_fwd_args *a, int64_t group, float low, float high)
{
  const bool asymmetric = tgi_present(&a->zero_point);
  const tgi_quant g = asymmetric ? tgi_int8_asymmetric(low, high) : tgi_int8_symmetric(low, high);
  ((float *)a->scale.data)[group] = g.scale;
  if (asymmetric && a->zero_point.dtype == TG_I8) {
    ((int8_t *)a->zero_point.data)[group] = (int8_t)g.zero_point;
  } else if (asymmetric) {
    ((int32_t *)a->zero_point.data)[group] = g.zero_point;
  }
  return g;
}

/* ---- bounds ---- */

/* Half as many lines as kTogether vectors of f32 take. */
TGI_INLINE void prefetch_half(const void *ahead, int t, int64_t i)
{
  if (ahead) {
    for (int k = 0; k < kTogether * TGI_LANES / 2; k += kLineBytes / 4) {
      tgi_prefetch(ahead, t, i + k);
    }
  }
}

/* Meanwhile the first half of `ahead`, the next row, comes to the cache, as its second half does in
 * quantize_row: the processor's own prefetch stops while what is read is there already. */
TGI_INLINE vf_bounds bounds_of_row(const void *x, int t, int64_t n, const void *ahead)
{
  vf_bounds b[kTogether];
  int64_t j = 0;
  TGI_UNROLLED(k, kTogether)
  {
    b[k] = vf_no_bounds();
  }
  for (; j + kTogether * TGI_LANES <= n; j += kTogether * TGI_LANES) {
    prefetch_half(ahead, t, j / 2);
    TGI_UNROLLED(k, kTogether)
    {
      b[k] = vf_widen(b[k], vf_load(x, t, j + k * TGI_LANES));
    }
  }
  for (; j < n; j += TGI_LANES) {
    b[0] = vf_widen(b[0], vf_load_part(x, t, j, tgi_min_i64(TGI_LANES, n - j)));
  }
  return vf_unite(vf_unite(b[0], b[1]), vf_unite(b[2], b[3]));
}

/* Widens the bounds of every column by `rows` rows, a constant in the caller. */
TGI_INLINE void widen_columns(const job *p, int64_t row, int rows, int t, float *low, float *high)
{
  const void *x[kTogether];
  int64_t j = 0;
  TGI_UNROLLED(k, rows)
  {
    x[k] = tgi_row(&p->a->x, row + k);
  }
  for (; j + TGI_LANES <= p->cols; j += TGI_LANES) {
    vf_bounds b = {vf_load_f32(low + j), vf_load_f32(high + j)};
    TGI_UNROLLED(k, rows)
    {
      b = vf_widen(b, vf_load(x[k], t, j));
    }
    vf_store_f32(low + j, b.low);
    vf_store_f32(high + j, b.high);
  }
  const int64_t left = p->cols - j;
  if (left > 0) {
    vf_bounds b = {vf_load_part_f32(low + j, left), vf_load_part_f32(high + j, left)};
    TGI_UNROLLED(k, rows)
    {
      b = vf_widen(b, vf_load_part(x[k], t, j, left));
    }
    vf_store_part_f32(low + j, left, b.low);
    vf_store_part_f32(high + j, left, b.high);
  }
}

static void find_column_bounds(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t part = begin; part < end; part++) {
    float *low = p->low + part * p->cols, *high = p->high + part * p->cols;
    int64_t i = part * p->part_rows;
    const int64_t last = tgi_min_i64(p->rows, i + p->part_rows);
    memset(low, 0, (size_t)p->cols * sizeof *low);
    memset(high, 0, (size_t)p->cols * sizeof *high);
    for (; i + kTogether <= last; i += kTogether) {
      TGI_SWITCH_FLOAT(p->a->x.dtype, T, widen_columns(p, i, kTogether, T, low, high));
    }
    for (; i < last; i++) {
      TGI_SWITCH_FLOAT(p->a->x.dtype, T, widen_columns(p, i, 1, T, low, high));
    }
  }
}

static void find_part_bounds(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t part = begin; part < end; part++) {
    const int64_t first = part * p->part_rows;
    vf_bounds b = vf_no_bounds();
    for (int64_t i = first; i < tgi_min_i64(p->rows, first + p->part_rows); i++) {
      const void *x = tgi_row(&p->a->x, i);
      TGI_SWITCH_FLOAT(p->a->x.dtype, T, b = vf_unite(bounds_of_row(x, T, p->cols, NULL), b));
    }
    vf_hbounds(b, &p->low[part], &p->high[part]);
  }
}

/* Unites the parts' bounds of some columns (one, per tensor) and sets their scales. */
static void unite_bounds(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  const int64_t width = width_of_bounds(p->a), parts = count_parts(p);
  (void)thread;
  for (int64_t j = begin; j < end; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, end - j);
    float low[TGI_LANES], high[TGI_LANES];
    vf_bounds b = vf_no_bounds();
    for (int64_t part = 0; part < parts; part++) {
      b = vf_unite((vf_bounds){vf_load_part_f32(p->low + part * width + j, n),
                               vf_load_part_f32(p->high + part * width + j, n)},
                   b);
    }
    vf_store_f32(low, b.low);
    vf_store_f32(high, b.high);
    for (int64_t k = 0; k < n; k++) {
      const tgi_quant g = choose(p->a, j + k, low[k], high[k]);
      p->inverse[j + k] = 1 / g.scale;
      p->zero_point[j + k] = g.zero_point;
    }
  }
}

static bool all_are_quick(const tg_quantize_int8_fwd_args *a)
{
  const float *scale = a->scale.data;
  bool quick = true;
  for (int64_t j = 0; j < a->scale.shape[0]; j++) {
    quick = quick && tgi_is_quick_scale(scale[j]);
  }
  return quick;
}

/* ---- integers ---- */

/* What columns are divided by; one for all of them, or one each. */
typedef struct divisors {
  const float *scale, *inverse;
  const int32_t *zero_point;
} divisors;

/* One row; flags are constants in the caller. */
TGI_INLINE void quantize_row(const void *x, int t, int64_t n, const divisors *d, bool by_column,
                             bool quick, int8_t *q, bool stream, const void *ahead)
{
  const vf one_scale = vf_set1(*d->scale), one_inverse = vf_set1(*d->inverse);
  const vi one_zero_point = vi_set1(*d->zero_point);
  int64_t j = 0;
  for (; j + TGI_BYTE_UNIT <= n; j += TGI_BYTE_UNIT) {
    vi v[4];
    prefetch_half(ahead, t, (n + j) / 2);
    TGI_UNROLLED(k, 4)
    {
      const int64_t i = j + k * TGI_LANES;
      const vf s = by_column ? vf_load_f32(d->scale + i) : one_scale;
      const vf inverse = by_column ? vf_load_f32(d->inverse + i) : one_inverse;
      const vi z = by_column ? vi_load(d->zero_point + i) : one_zero_point;
      v[k] = vi_add(vf_multiple(vf_load(x, t, i), s, inverse, quick), z);
    }
    vi_put_i8(q + j, v, stream);
  }
  for (; j < n; j += TGI_LANES) { /* a vector at the head of a unit */
    const int64_t left = tgi_min_i64(TGI_LANES, n - j);
    const vf s = by_column ? vf_load_part_f32(d->scale + j, left) : one_scale;
    int32_t z[TGI_LANES] = {0};
    int8_t bytes[TGI_BYTE_UNIT];
    if (by_column) {
      memcpy(z, d->zero_point + j, (size_t)left * sizeof *z);
    }
    vi v[4] = {vf_multiple(vf_load_part(x, t, j, left), s, s, false)};
    v[0] = vi_add(v[0], by_column ? vi_load(z) : one_zero_point);
    v[1] = v[2] = v[3] = vi_set1(0);
    vi_put_i8(bytes, v, false);
    memcpy(q + j, bytes, (size_t)left);
  }
}

TGI_INLINE void quantize_row_as(const job *p, int64_t i, int t, const divisors *d, bool by_column,
                                bool quick, const void *ahead)
{
  const void *x = tgi_row(&p->a->x, i);
  int8_t *q = tgi_row(&p->a->q, i);
  if (!quick) {
    quantize_row(x, t, p->cols, d, by_column, false, q, false, ahead);
  } else if (p->stream) {
    quantize_row(x, t, p->cols, d, by_column, true, q, true, ahead);
  } else {
    quantize_row(x, t, p->cols, d, by_column, true, q, false, ahead);
  }
}

static void quantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  const divisors d = {p->a->scale.data, p->inverse, p->zero_point};
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    if (p->a->granularity == TG_QUANT_PER_COLUMN) {
      TGI_SWITCH_FLOAT(p->a->x.dtype, T, quantize_row_as(p, i, T, &d, true, p->quick, NULL));
    } else {
      TGI_SWITCH_FLOAT(p->a->x.dtype, T, quantize_row_as(p, i, T, &d, false, p->quick, NULL));
    }
  }
  vf_stream_fence();
}

static void quantize_each_row(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const void *ahead = tgi_row(&p->a->x, i + 1 < end ? i + 1 : i);
    vf_bounds b;
    float low, high;
    TGI_SWITCH_FLOAT(p->a->x.dtype, T, b = bounds_of_row(tgi_row(&p->a->x, i), T, p->cols, ahead));
    vf_hbounds(b, &low, &high);
    const tgi_quant g = choose(p->a, i, low, high);
    const float inverse = 1 / g.scale;
    const divisors d = {&g.scale, &inverse, &g.zero_point};
    TGI_SWITCH_FLOAT(p->a->x.dtype, T,
                     quantize_row_as(p, i, T, &d, false, tgi_is_quick_scale(g.scale), ahead));
  }
  vf_stream_fence();
}

/* ---- the call ---- */

static size_t align64(size_t bytes)
{
  return (bytes + 63) / 64 * 64;
}

size_t TGI_WORKSPACE(quantize_int8_fwd)(const tg_context *ctx, const tg_quantize_int8_fwd_args *a)
{
  const size_t width = (size_t)width_of_bounds(a);
  (void)ctx;
  return a->granularity == TG_QUANT_PER_ROW
             ? 0
             : 2 * align64(kParts * width * sizeof(float)) + align64(width * sizeof(float)) +
                   align64(width * sizeof(int32_t));
}

static job make_job(const tg_context *ctx, const tg_quantize_int8_fwd_args *a)
{
  const size_t bounds = align64(kParts * (size_t)width_of_bounds(a) * sizeof(float));
  job p = {.a = a, .rows = a->x.shape[0], .cols = a->x.shape[1]};
  p.stream = tgi_streamable(a->q.data, tgi_stride(&a->q, 0), 1) &&
             tgi_exceeds_cache(ctx, tgi_span_bytes(&a->q));
  if (a->granularity != TG_QUANT_PER_ROW) {
    p.part_rows = rows_of_part(p.rows);
  }
  if (a->granularity != TG_QUANT_PER_ROW && a->workspace) { /* none where a plan is told */
    char *memory = a->workspace;
    p.low = (float *)(void *)memory;
    p.high = (float *)(void *)(memory + bounds);
    p.inverse = (float *)(void *)(memory + 2 * bounds);
    p.zero_point = (int32_t *)(void *)(memory + 2 * bounds +
                                       align64((size_t)width_of_bounds(a) * sizeof(float)));
  }
  return p;
}

tg_status TGI_KERNEL(quantize_int8_fwd)(const tg_context *ctx, const tg_quantize_int8_fwd_args *a)
{
  job p = make_job(ctx, a);
  switch (a->granularity) {
  case TG_QUANT_PER_ROW:
    tgi_for(ctx, p.rows, grain(&p), quantize_each_row, &p);
    break;
  case TG_QUANT_PER_TENSOR:
    tgi_for(ctx, count_parts(&p), 1, find_part_bounds, &p);
    unite_bounds(&p, 0, 1, 0);
    p.quick = all_are_quick(a);
    tgi_for(ctx, p.rows, grain(&p), quantize_rows, &p);
    break;
  case TG_QUANT_PER_COLUMN:
    tgi_for(ctx, count_parts(&p), 1, find_column_bounds, &p);
    tgi_for(ctx, p.cols, kColumnPiece, unite_bounds, &p);
    p.quick = all_are_quick(a);
    tgi_for(ctx, p.rows, grain(&p), quantize_rows, &p);
    break;
  }
  return TG_OK;
}

void TGI_PLAN(quantize_int8_fwd)(const tg_context *ctx, const tg_quantize_int8_fwd_args *a,
                                 char *text, size_t bytes)
{
  const job p = make_job(ctx, a);
  snprintf(text, bytes, "%s, chunks of %lld rows, %s stores",
           p.part_rows ? "bounds first" : "row by row", (long long)grain(&p),
           p.stream ? "streaming" : "cached");
}
