/* Register tiles of linear_int4. Compiled once more for processors with AVX512-VNNI.
 *
 * A line of a panel holds eight values of k, split into two vectors of bytes by a mask and a shift;
 * each is multiplied with the three digits of every row of x. After a group its sums are put
 * together in f32 and scaled. With VNNI 256 values of W in groups of 32 take 24 VPDPBUSD and about
 * as many other instructions: less time than their 144 bytes take from memory. */
#include "ops/linear_int4/linear_int4_tile.h"

#include "cpu/digits.h"
#include "cpu/quads.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"

enum { kAhead = 2048 }; /* bytes from here that are fetched: a panel is one stream */

TGI_INLINE vf load_scales(const tgi_int4_layout *l, const uint8_t *group, int64_t o)
{
  return l->scale_dtype == TG_F16 ? vf_load(group, TG_F16, o) : vf_load(group, TG_F32, o);
}

/* 8 - zero points of TGI_LANES rows. */
TGI_INLINE vf load_shifts(const uint8_t *zero_points)
{
  float shift[TGI_LANES];
  for (int c = 0; c < TGI_LANES; c++) {
    shift[c] = (float)(8 - zero_points[c]);
  }
  return vf_load_f32(shift);
}

/* The sums of a row's three digits to its totals: 16 columns from `o` on. */
TGI_INLINE void add_group(const tgi_int4_layout *l, const tgi_int4_correction *c,
                          const quads sum[TGI_DIGITS_MAX], const uint8_t *group, int64_t o,
                          float *total)
{
  int32_t digit[TGI_DIGITS_MAX][16];
  float low[16], high[16];
  TGI_UNROLLED(p, TGI_DIGITS_MAX)
  {
    quads_store(digit[p], sum[p]);
  }
  for (int e = 0; e < 16; e++) {
    low[e] = (float)(digit[1][e] * 256 + digit[0][e]);
    high[e] = (float)digit[2][e];
  }
  const uint8_t *zero_points = group + TGI_PANEL_ROWS * (l->scale_dtype == TG_F16 ? 2 : 4);
  for (int e = 0; e < 16; e += TGI_LANES) {
    vf n = vf_load_f32(high + e) * vf_set1(65536) + vf_load_f32(low + e);
    if (l->zero_points) {
      n = vf_fma(load_shifts(zero_points + o + e), vf_set1(c->sum), n);
    }
    vf_store_f32(total + e, vf_fma(load_scales(l, group, o + e), n, vf_load_f32(total + e)));
  }
}

/* One group of `lines` lines. */
TGI_INLINE void multiply_group(const int rows, const tgi_int4_layout *l, const tgi_int4_strip *x,
                               int64_t g, const int8_t *digits, const uint8_t *group, int64_t lines,
                               float *total)
{
  const uint8_t *first = group + tgi_int4_head_bytes(l);
  for (int half = 0; half < 2; half += TGI_QUAD_VECTORS) {
    quads sum[TGI_QUAD_VECTORS][TGI_QUAD_LINES];
    TGI_UNROLLED(j, TGI_QUAD_VECTORS)
    {
      TGI_UNROLLED(r, rows)
      {
        const tgi_int4_correction *c = &x->corrections[r * x->groups + g];
        sum[j][3 * r] = quads_set(-c->low);
        sum[j][3 * r + 1] = quads_set(0);
        sum[j][3 * r + 2] = quads_set(-c->high);
      }
    }
    for (int64_t s = 0; s < lines; s++) {
      const uint8_t *line = first + s * TGI_INT4_LINE_BYTES + half * 64;
      const int8_t *step = digits + s * 2 * rows * TGI_DIGITS_MAX * TGI_DIGITS_STEP;
      TGI_UNROLLED(j, TGI_QUAD_VECTORS)
      {
        quad_bytes low, high;
        __builtin_prefetch(line + kAhead + 64 * j);
        quad_load_halves(line + 64 * j, &low, &high);
        TGI_UNROLLED(d, 3 * rows)
        {
          sum[j][d] = quads_add(sum[j][d], low, quad_spread(step + 4 * d));
          sum[j][d] = quads_add(sum[j][d], high, quad_spread(step + 4 * (3 * rows + d)));
        }
      }
    }
    TGI_UNROLLED(j, TGI_QUAD_VECTORS)
    {
      const int64_t o = (half + j) * 16;
      TGI_UNROLLED(r, rows)
      {
        add_group(l, &x->corrections[r * x->groups + g], sum[j] + 3 * r, group, o,
                  total + r * TGI_PANEL_ROWS + o);
      }
    }
  }
}

TGI_INLINE void multiply(const int rows, const tgi_int4_layout *l, const tgi_int4_strip *x,
                         const uint8_t *panel, float *total)
{
  const int64_t whole = l->group_size / TGI_INT4_LINE_K;
  const int64_t lines = tgi_divide_up(l->in, TGI_INT4_LINE_K);
  const int8_t *digits = x->digits;
  memset(total, 0, (size_t)rows * TGI_PANEL_ROWS * sizeof *total);
  for (int64_t g = 0; g < x->groups; g++) {
    multiply_group(rows, l, x, g, digits, panel, tgi_min_i64(whole, lines - g * whole), total);
    panel += tgi_int4_group_bytes(l);
    digits += whole * 2 * rows * TGI_DIGITS_MAX * TGI_DIGITS_STEP;
  }
}

#define TILE(n)                                                                                    \
  static void tile_##n(const tgi_int4_layout *l, const tgi_int4_strip *x, const uint8_t *panel,    \
                       float *total)                                                               \
  {                                                                                                \
    multiply(n, l, x, panel, total);                                                               \
  }
#define ENTRY(n) tile_##n,

/* X of every number of rows that this instruction set's tile may have. */
#if TGI_LANES < 16
#define EACH_HEIGHT(X) X(1)
#elif defined(__AVX512VNNI__)
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4)
#else
#define EACH_HEIGHT(X) X(1) X(2)
#endif

EACH_HEIGHT(TILE)

const tgi_int4_tiles TGI_JOIN(int4, tiles, TGI_ENTRY) = {TGI_QUAD_LINES / TGI_DIGITS_MAX,
                                                         {EACH_HEIGHT(ENTRY)}};
