/* Values of MXFP4 on the CPU.
 *
 * Method     One pass over the rows. A code's magnitude, times two, is a maximum of three lines, so
 *            that no table is looked up; half the scale goes with it.
 * Work       Chunks of rows.
 * Bound      Memory: blocks are read, x is written, past the caches if it exceeds them.
 */
#include "cpu/unroll.h"
#include "ops/shared/quantisation/dequantize_chunks.h"

#include <string.h>

typedef struct job {
  const tg_dequantize_mxfp4_fwd_args *a;
  dequantize_chunks chunks;
} job;

/* 2^(scale - 128), from its bits; the first two are denormal. f32 has no 2^128, so a factor of two
 * goes to the codes. */
static inline float half_scale(uint8_t scale)
{
  const uint32_t bits = scale >= 2 ? (uint32_t)(scale - 1) << 23 : UINT32_C(0x200000) << scale;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Twice fp4[code], of codes as numbers. */
TGI_INLINE vf twice_fp4(vf code)
{
  const vf eight = vf_set1(8.0f), two = vf_set1(2.0f);
  const vm positive = vf_lt(code, eight);
  const vf m = vf_select(positive, code, code - eight);
  const vf steep = vf_fma(m, vf_set1(4.0f), vf_set1(-16.0f));
  const vf v = vf_max(m, vf_max(vf_fma(m, two, vf_set1(-4.0f)), steep));
  return vf_select(positive, v, -v);
}

/* A unit of values from column j on. */
TGI_INLINE void dequantize_unit(const uint8_t *blocks, const uint8_t *scales, int64_t j, vf *v)
{
  vf_load_nibbles(blocks, v);
  TGI_UNROLLED(k, 4)
  {
    v[k] = twice_fp4(v[k]) * vf_set1(half_scale(scales[(j + k * TGI_LANES) / 32]));
  }
}

/* The last values of a row, less than a unit. */
TGI_INLINE void dequantize_tail(const uint8_t *blocks, const uint8_t *scales, int64_t j, int64_t n,
                                char *x, int t)
{
  enum { kScales = TGI_BYTE_UNIT / 32 + 1 };
  uint8_t bytes[TGI_BYTE_UNIT / 2] = {0}, own[kScales] = {0};
  vf v[4];
  memcpy(bytes, blocks + j / 2, (size_t)(n - j) / 2);
  memcpy(own, scales + j / 32, (size_t)(n - j) / 32);
  dequantize_unit(bytes, own, 0, v);
  for (int k = 0; k < 4 && j < n; k++, j += TGI_LANES) {
    vf_store_part(x, t, j, tgi_min_i64(TGI_LANES, n - j), v[k]);
  }
}

TGI_INLINE void dequantize_row(const job *p, int64_t i, int t, bool stream)
{
  const int64_t n = p->chunks.cols, groups = n / 32;
  const uint8_t *blocks = (const uint8_t *)p->a->blocks.data + i * groups * 16;
  const uint8_t *scales = (const uint8_t *)p->a->scales.data + i * groups;
  char *x = tgi_row(&p->a->x, i);
  int64_t j = 0;
  for (; j + TGI_BYTE_UNIT <= n; j += TGI_BYTE_UNIT) {
    vf v[4];
    dequantize_unit(blocks + j / 2, scales, j, v);
    TGI_UNROLLED(k, 4)
    {
      vf_put(x, t, j + k * TGI_LANES, v[k], stream);
    }
  }
  if (j < n) {
    dequantize_tail(blocks, scales, j, n, x, t);
  }
}

static void dequantize_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const job *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    if (p->chunks.stream) {
      TGI_SWITCH_FLOAT(p->a->x.dtype, T, dequantize_row(p, i, T, true));
    } else {
      TGI_SWITCH_FLOAT(p->a->x.dtype, T, dequantize_row(p, i, T, false));
    }
  }
  vf_stream_fence();
}

tg_status TGI_KERNEL(dequantize_mxfp4_fwd)(const tg_context *ctx,
                                           const tg_dequantize_mxfp4_fwd_args *a)
{
  job p = {.a = a, .chunks = cut_into_chunks(ctx, &a->x)};
  tgi_for(ctx, p.chunks.rows, p.chunks.grain, dequantize_rows, &p);
  return TG_OK;
}

void TGI_PLAN(dequantize_mxfp4_fwd)(const tg_context *ctx, const tg_dequantize_mxfp4_fwd_args *a,
                                    char *text, size_t bytes)
{
  describe_chunks(ctx, &a->x, text, bytes);
}
