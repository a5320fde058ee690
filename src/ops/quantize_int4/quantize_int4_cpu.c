/* Quantisation to 4 bits on the CPU.
 *
 * Method     Segments of a row that stay in the first-level cache: bounds of each group, scales of
 *            all of them in lanes, then the integers. Segments with values that are not finite, or
 *            with scales at the ends of their range, take the rules of core/values/quantize.h one
 * by one. Work       Chunks of rows. Bound      Memory: x is read once; q is written past the
 * caches if it exceeds them.
 */
#include "core/values/quantize.h"
#include "cpu/quantize_lanes.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"
#include "ops/shared/quantisation/group_rules.h"

#include <stdio.h>
#include <string.h>

enum { kPieceBytes = 1 << 20, kSegment = 2048, kSegmentGroups = kSegment / 32 };

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

/* Groups of one segment; those past the last are zeros. */
typedef struct segment {
  float low[kSegmentGroups], high[kSegmentGroups], scale[kSegmentGroups], inverse[kSegmentGroups];
  int32_t zero_point[kSegmentGroups];
} segment;

TGI_INLINE void prefetch(const void *ahead, int t, int64_t i, int64_t n)
{
  for (int64_t k = 0; k < n; k += t == TG_F32 ? 16 : 32) { /* a line */
    tgi_prefetch(ahead, t, i + k);
  }
}

/* Bounds of every group; true if all values are finite. Meanwhile the first half of `ahead`, the
 * next segment, comes to the cache, as its second half does in quantize_segment: the processor's
 * own prefetch stops while what is read is there already. */
TGI_INLINE bool find_bounds(const void *x, int t, int64_t n, int64_t group_size, const void *ahead,
                            segment *s)
{
  vf poison = vf_zero();
  for (int64_t begin = 0, k = 0; begin < n; begin += group_size, k++) {
    const int64_t end = tgi_min_i64(begin + group_size, n);
    vf_bounds b = vf_no_bounds();
    int64_t j = begin;
    prefetch(ahead, t, begin / 2, group_size / 2);
    for (; j + TGI_LANES <= end; j += TGI_LANES) {
      b = vf_widen(b, vf_load(x, t, j));
    }
    if (j < end) {
      b = vf_widen(b, vf_load_part(x, t, j, end - j));
    }
    s->low[k] = -vf_hmax(vf_zero() - b.low);
    s->high[k] = vf_hmax(b.high);
    poison = poison + b.high * vf_zero();
  }
  return vf_sum(poison) == 0;
}

/* tgi_scale_up of positive numbers. */
TGI_INLINE vf scale_up(vf v)
{
  return vf_bits(vi_and(vi_add(vi_bits(v), vi_set1(4 + 511)), vi_set1(~511)));
}

/* The next f16 number at or above v, at most 65504. */
TGI_INLINE vf up_to_f16(vf v)
{
  const vf near = vf_round_f16(v);
  const vf denormal = near + vf_set1(0x1p-24f);
  const vf normal = vf_bits(vi_add(vi_bits(near), vi_set1(1 << 13)));
  const vf above = vf_select(vf_lt(near, vf_set1(0x1p-14f)), denormal, normal);
  return vf_select(vf_lt(near, v), above, near);
}

/* Scales of `count` groups in lanes; false if one is beyond f16 or too small to be quick. */
TGI_INLINE bool choose_scales(const tg_quantize_int4_fwd_args *a, int64_t count, segment *s)
{
  const bool asymmetric = tgi_present(&a->zero_point), half = a->scale.dtype == TG_F16;
  const float limit = half ? 65504.0f : tgi_largest_finite(TG_F32);
  vf least = vf_set1(1), most = vf_zero();
  for (int64_t k = 0; k < count; k += TGI_LANES) {
    const vf low = vf_load_f32(s->low + k), high = vf_load_f32(s->high + k);
    const vf up = high / vf_set1(7.5f), down = (vf_zero() - low) / vf_set1(8.5f);
    const vf range = high / vf_set1(15) - low / vf_set1(15);
    const vf raw = scale_up(asymmetric ? range : vf_max(up, down));
    const vf stored = half ? up_to_f16(raw) : raw;
    const vf scale = vf_select(vf_lt(low, high), stored, vf_set1(1));
    const vi zero_point = asymmetric ? vi_nearest((vf_zero() - low) / scale) : vi_set1(8);
    least = vf_min(scale, least);
    most = vf_max(vf_select(vf_lt(low, high), raw, vf_zero()), most);
    vf_store_f32(s->scale + k, scale);
    vf_store_f32(s->inverse + k, vf_set1(1) / scale);
    vi_store(s->zero_point + k, zero_point);
  }
  return tgi_is_quick_scale(-vf_hmax(vf_zero() - least)) && vf_hmax(most) <= limit;
}

/* The same for any values, one group after the other; bounds are found again, with NaN. */
static void choose_plainly(const tg_quantize_int4_fwd_args *a, const void *x, int64_t n, segment *s)
{
  for (int64_t begin = 0, k = 0; begin < n; begin += a->group_size, k++) {
    float low = 0, high = 0;
    for (int64_t j = begin; j < tgi_min_i64(begin + a->group_size, n); j++) {
      const float v = (float)tgi_load(x, a->x.dtype, j);
      low = v < low ? v : low;
      high = isnan(v) || v > high ? v : high; /* once NaN, nothing is above */
    }
    const tgi_quant g = tgi_present(&a->zero_point) ? tgi_int4_asymmetric(low, high, a->scale.dtype)
                                                    : tgi_int4_symmetric(low, high, a->scale.dtype);
    s->scale[k] = s->inverse[k] = g.scale; /* not used: these segments are divided */
    s->zero_point[k] = g.zero_point;
  }
}

static void store_groups(const tg_quantize_int4_fwd_args *a, int64_t first, int64_t count,
                         const segment *s)
{
  for (int64_t k = 0; k < count; k += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, count - k);
    const vf scale = vf_load_f32(s->scale + k);
    if (a->scale.dtype == TG_F16) {
      vf_store_part(a->scale.data, TG_F16, first + k, n, scale);
    } else {
      vf_store_part(a->scale.data, TG_F32, first + k, n, scale);
    }
  }
  for (int64_t k = 0; k < count && tgi_present(&a->zero_point); k++) {
    ((uint8_t *)a->zero_point.data)[first + k] = (uint8_t)s->zero_point[k];
  }
}

/* Vector of 0 to 15, saturated above: nothing is below. */
TGI_INLINE vi quantize(vf x, const segment *s, int64_t group, bool quick)
{
  const vf scale = vf_set1(s->scale[group]), inverse = vf_set1(s->inverse[group]);
  const vi n = vf_multiple(x, scale, inverse, quick);
  return vi_min(vi_add(n, vi_set1(s->zero_point[group])), vi_set1(15));
}

TGI_INLINE void quantize_segment(const void *x, int t, int64_t n, int64_t group_size,
                                 const segment *s, bool quick, uint8_t *q, bool stream,
                                 const void *ahead)
{
  int64_t j = 0;
  for (; j + TGI_BYTE_UNIT <= n; j += TGI_BYTE_UNIT) {
    vi v[4];
    prefetch(ahead, t, (n + j) / 2, TGI_BYTE_UNIT / 2);
    TGI_UNROLLED(k, 4)
    {
      const int64_t i = j + k * TGI_LANES;
      v[k] = quantize(vf_load(x, t, i), s, i / group_size, quick);
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
        const vf part = vf_load_part(x, t, i, tgi_min_i64(TGI_LANES, left));
        v[k] = quantize(part, s, i / group_size, quick);
      }
    }
    vi_put_nibbles(bytes, v, false);
    if (n % 2) {
      bytes[(n - j) / 2] &= 15;
    }
    memcpy(q + j / 2, bytes, (size_t)(n - j + 1) / 2);
  }
}

/* What choose_plainly chose for: rare, so one instance for all sizes of groups. */
static void quantize_plainly(const void *x, int t, int64_t n, int64_t group_size, const segment *s,
                             uint8_t *q, const void *ahead)
{
  TGI_SWITCH_FLOAT(t, T, quantize_segment(x, T, n, group_size, s, false, q, false, ahead));
}

/* group_size is a constant in the caller. */
TGI_INLINE void quantize_row(const job *p, int64_t i, int t, int64_t group_size)
{
  const void *next = tgi_row(&p->a->x, i + 1);
  uint8_t *q = tgi_row(&p->a->q, i);
  segment s = {.low = {0}};
  for (int64_t j = 0; j < p->cols; j += kSegment) {
    const int64_t n = tgi_min_i64(kSegment, p->cols - j), count = tgi_groups_of(n, group_size);
    const void *x = at(tgi_row(&p->a->x, i), t, j);
    const void *ahead = j + n < p->cols ? at(x, t, n) : next;
    const bool quick =
        find_bounds(x, t, n, group_size, ahead, &s) && choose_scales(p->a, count, &s);
    if (!quick) {
      choose_plainly(p->a, x, n, &s);
      quantize_plainly(x, t, n, group_size, &s, q + j / 2, ahead);
    } else {
      quantize_segment(x, t, n, group_size, &s, true, q + j / 2, p->stream, ahead);
    }
    store_groups(p->a, i * p->groups + j / group_size, count, &s);
  }
}

TGI_INLINE void quantize_row_as(const job *p, int64_t i, int t)
{
  switch (p->a->group_size) {
  case 32:
    quantize_row(p, i, t, 32);
    break;
  case 64:
    quantize_row(p, i, t, 64);
    break;
  default:
    quantize_row(p, i, t, 128);
    break;
  }
}

static void quantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    TGI_SWITCH_FLOAT(p->a->x.dtype, T, quantize_row_as(p, i, T));
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
