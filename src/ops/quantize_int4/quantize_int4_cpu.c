/* Quantisation to 4 bits on the CPU.
 *
 * Method     Segments of a row that stay in the first-level cache: bounds of each group, scales of
 *            all of them, then the integers.
 * Work       Chunks of rows.
 * Bound      Memory: x is read once; q is written past the caches if it exceeds them.
 */
#include "core/quantize.h"
#include "cpu/quantize_lanes.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"
#include "ops/quantize_int4/group_rules.h"

#include <stdio.h>
#include <string.h>

enum { kPieceBytes = 64 << 10, kSegment = 2048, kSegmentGroups = kSegment / 32 };

typedef struct job {
  const tg_quantize_int4_fwd_args *a;
  int64_t rows, cols, groups;
  bool stream;
} job;

static job make_job(const tg_context *ctx, const tg_quantize_int4_fwd_args *a)
{
  job p = {.a = a, .rows = a->x.shape[0], .cols = a->x.shape[1]};
  p.groups = tgi_groups_of(p.cols, a->group_size);
  p.stream = tgi_streamable(a->q.data, tgi_stride(&a->q, 0), 1) &&
             tgi_exceeds_cache(ctx, tgi_span_bytes(&a->q));
  return p;
}

static int64_t grain(const job *p)
{
  const int64_t bytes = p->cols * (int64_t)tg_dtype_bytes(p->a->x.dtype);
  return bytes < kPieceBytes ? kPieceBytes / bytes : 1;
}

/* Groups of one segment. */
typedef struct segment {
  float low[kSegmentGroups], high[kSegmentGroups], scale[kSegmentGroups];
  int32_t zero_point[kSegmentGroups];
} segment;

TGI_INLINE void find_bounds(const void *x, int t, int64_t n, int64_t group_size, segment *s)
{
  for (int64_t begin = 0, k = 0; begin < n; begin += group_size, k++) {
    const int64_t end = tgi_min_i64(begin + group_size, n);
    vf_bounds b = {vf_zero(), vf_zero()};
    int64_t j = begin;
    for (; j + TGI_LANES <= end; j += TGI_LANES) {
      b = vf_widen(b, vf_load(x, t, j));
    }
    if (j < end) {
      b = vf_widen(b, vf_load_part(x, t, j, end - j));
    }
    vf_hbounds(b, &s->low[k], &s->high[k]);
  }
}

/* Sets scales and zero points of `count` groups, here and in the outputs from `first` on. */
static void choose(const tg_quantize_int4_fwd_args *a, int64_t first, int64_t count, segment *s)
{
  const bool asymmetric = tgi_present(&a->zero_point);
  for (int64_t k = 0; k < count; k++) {
    const tgi_quant g = asymmetric ? tgi_int4_asymmetric(s->low[k], s->high[k], a->scale.dtype)
                                   : tgi_int4_symmetric(s->low[k], s->high[k], a->scale.dtype);
    s->scale[k] = g.scale;
    s->zero_point[k] = g.zero_point;
    if (a->scale.dtype == TG_F32) {
      ((float *)a->scale.data)[first + k] = g.scale;
    } else {
      ((uint16_t *)a->scale.data)[first + k] = tgi_f32_to_f16(g.scale);
    }
    if (asymmetric) {
      ((uint8_t *)a->zero_point.data)[first + k] = (uint8_t)g.zero_point;
    }
  }
}

/* Vector of 0 to 15, saturated above: nothing is below. */
TGI_INLINE vi quantize(vf x, const segment *s, int64_t group)
{
  const vi n = vf_multiple(x, vf_set1(s->scale[group]));
  return vi_min(vi_add(n, vi_set1(s->zero_point[group])), vi_set1(15));
}

TGI_INLINE void quantize_segment(const void *x, int t, int64_t n, int64_t group_size,
                                 const segment *s, uint8_t *q, bool stream)
{
  int64_t j = 0;
  for (; j + TGI_BYTE_UNIT <= n; j += TGI_BYTE_UNIT) {
    vi v[4];
    TGI_UNROLLED(k, 4)
    {
      const int64_t i = j + k * TGI_LANES;
      v[k] = quantize(vf_load(x, t, i), s, i / group_size);
    }
    vi_put_nibbles(q + j / 2, v, stream);
  }
  if (j < n) { /* past the end: 0 */
    vi v[4];
    uint8_t bytes[TGI_BYTE_UNIT / 2];
    TGI_UNROLLED(k, 4)
    {
      const int64_t i = j + k * TGI_LANES, left = n - i;
      v[k] = vi_set1(0);
      if (left > 0) {
        v[k] = quantize(vf_load_part(x, t, i, tgi_min_i64(TGI_LANES, left)), s, i / group_size);
      }
    }
    vi_put_nibbles(bytes, v, false);
    if (n % 2) {
      bytes[(n - j) / 2] &= 15;
    }
    memcpy(q + j / 2, bytes, (size_t)(n - j + 1) / 2);
  }
}

TGI_INLINE void quantize_row(const job *p, int64_t i, int t)
{
  const int64_t group_size = p->a->group_size;
  uint8_t *q = tgi_row(&p->a->q, i);
  segment s;
  for (int64_t j = 0; j < p->cols; j += kSegment) {
    const int64_t n = tgi_min_i64(kSegment, p->cols - j);
    const void *x = at(tgi_row(&p->a->x, i), t, j);
    find_bounds(x, t, n, group_size, &s);
    choose(p->a, i * p->groups + j / group_size, tgi_groups_of(n, group_size), &s);
    if (p->stream) {
      quantize_segment(x, t, n, group_size, &s, q + j / 2, true);
    } else {
      quantize_segment(x, t, n, group_size, &s, q + j / 2, false);
    }
  }
}

static void quantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    TGI_SWITCH_FLOAT(p->a->x.dtype, T, quantize_row(p, i, T));
  }
  vf_stream_fence();
}

tg_status TGI_KERNEL(quantize_int4_fwd)(const tg_context *ctx, const tg_quantize_int4_fwd_args *a)
{
  job p = make_job(ctx, a);
  tgi_for(ctx, p.rows, grain(&p), quantize_rows, &p);
  return TG_OK;
}

void TGI_PLAN(quantize_int4_fwd)(const tg_context *ctx, const tg_quantize_int4_fwd_args *a,
                                 char *text, size_t bytes)
{
  const job p = make_job(ctx, a);
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)grain(&p),
           p.stream ? "streaming" : "cached");
}
