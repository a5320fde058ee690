/* Values of packed 4-bit integers on the CPU.
 *
 * Method     One pass over the rows, in segments whose scales are widened first.
 * Work       Chunks of rows.
 * Bound      Memory: q is read, x is written, past the caches if it exceeds them.
 */
#include "cpu/saturate.h"
#include "cpu/unroll.h"
#include "ops/shared/quantisation/dequantize_chunks.h"
#include "ops/shared/quantisation/group_rules.h"

#include <string.h>

enum { kSegment = 2048, kSegmentGroups = kSegment / 32 };

typedef struct job {
  const tg_dequantize_int4_fwd_args *a;
  dequantize_chunks chunks;
  int64_t groups; /* of a row */
} job;

/* Groups of one segment. */
typedef struct segment {
  float scale[kSegmentGroups], zero_point[kSegmentGroups];
} segment;

static void read_groups(const tg_dequantize_int4_fwd_args *a, int64_t first, int64_t count,
                        segment *s)
{
  for (int64_t k = 0; k < count; k++) {
    s->scale[k] = a->scale.dtype == TG_F32
                      ? ((const float *)a->scale.data)[first + k]
                      : tgi_f16_to_f32(((const uint16_t *)a->scale.data)[first + k]);
    s->zero_point[k] =
        tgi_present(&a->zero_point) ? (float)((const uint8_t *)a->zero_point.data)[first + k] : 8;
  }
}

/* A unit of values from column j of the segment on. */
TGI_INLINE void dequantize_unit(const uint8_t *q, const segment *s, int64_t j, int64_t group_size,
                                int t, vf *v)
{
  vf_load_nibbles(q, v);
  TGI_UNROLLED(k, 4)
  {
    const int64_t group = (j + k * TGI_LANES) / group_size;
    const vf steps = v[k] - vf_set1(s->zero_point[group]);
    v[k] = vf_saturate(t, steps * vf_set1(s->scale[group]));
  }
}

TGI_INLINE void dequantize_segment(const uint8_t *q, int64_t n, int64_t group_size,
                                   const segment *s, void *x, int t, bool stream)
{
  int64_t j = 0;
  vf v[4];
  for (; j + TGI_BYTE_UNIT <= n; j += TGI_BYTE_UNIT) {
    dequantize_unit(q + j / 2, s, j, group_size, t, v);
    TGI_UNROLLED(k, 4)
    {
      vf_put(x, t, j + k * TGI_LANES, v[k], stream);
    }
  }
  if (j < n) {
    uint8_t bytes[TGI_BYTE_UNIT / 2] = {0};
    memcpy(bytes, q + j / 2, (size_t)(n - j + 1) / 2);
    dequantize_unit(bytes, s, j, group_size, t, v);
    for (int k = 0; k < 4 && j < n; k++, j += TGI_LANES) {
      vf_store_part(x, t, j, tgi_min_i64(TGI_LANES, n - j), v[k]);
    }
  }
}

TGI_INLINE void dequantize_row(const job *p, int64_t i, int t)
{
  const int64_t group_size = p->a->group_size;
  const uint8_t *q = tgi_row(&p->a->q, i);
  char *x = tgi_row(&p->a->x, i);
  /* The tail's last vectors may lie in a group past the last. */
  segment s = {.scale = {0}};
  for (int64_t j = 0; j < p->chunks.cols; j += kSegment) {
    const int64_t n = tgi_min_i64(kSegment, p->chunks.cols - j);
    void *to = x + j * (int64_t)tg_dtype_bytes((tg_dtype)t);
    read_groups(p->a, i * p->groups + j / group_size, tgi_groups_of(n, group_size), &s);
    if (p->chunks.stream) {
      dequantize_segment(q + j / 2, n, group_size, &s, to, t, true);
    } else {
      dequantize_segment(q + j / 2, n, group_size, &s, to, t, false);
    }
  }
}

static void dequantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    TGI_SWITCH_FLOAT(p->a->x.dtype, T, dequantize_row(p, i, T));
  }
  vf_stream_fence();
}

tg_status TGI_KERNEL(dequantize_int4_fwd)(const tg_context *ctx,
                                          const tg_dequantize_int4_fwd_args *a)
{
  job p = {.a = a,
           .chunks = cut_into_chunks(ctx, &a->x),
           .groups = tgi_groups_of(a->x.shape[1], a->group_size)};
  tgi_for(ctx, p.chunks.rows, p.chunks.grain, dequantize_rows, &p);
  return TG_OK;
}

void TGI_PLAN(dequantize_int4_fwd)(const tg_context *ctx, const tg_dequantize_int4_fwd_args *a,
                                   char *text, size_t bytes)
{
  describe_chunks(ctx, &a->x, text, bytes);
}
