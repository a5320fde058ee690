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

enum {
  kAhead = 2048, /* bytes from here that are fetched: a panel is one stream */
  kGroups = 8,   /* whose sum is taken before it is added: short sums of short sums lose less */
};

/* Of TGI_LANES rows; by way of a copy, for f16 may lie at any address here. */
TGI_INLINE vf load_scales(const tgi_int4_layout *l, const uint8_t *group, int64_t o)
{
  uint16_t half[TGI_LANES];
  if (l->scale_dtype == TG_F32) {
    return vf_load_f32(group + 4 * o);
  }
  memcpy(half, group + 2 * o, sizeof half);
  return vf_load_f16(half);
}

/* The sums of a row's digits to its totals: 16 columns from `o` on. */
TGI_INLINE void add_group(const int planes, const tgi_int4_layout *l, const tgi_int4_correction *c,
                          quads sum[TGI_DIGITS_MAX], const uint8_t *group, int64_t o, float *total)
{
  float low[16], high[16];
  quads_store_f32(low, quads_join(sum[1], sum[0]));
  if (planes == 3) {
    quads_store_f32(high, sum[2]);
  }
  const uint8_t *zero_points = group + TGI_PANEL_ROWS * (l->scale_dtype == TG_F16 ? 2 : 4);
  TGI_UNROLLED(v, 16 / TGI_LANES)
  {
    const int e = v * TGI_LANES;
    vf n = vf_load_f32(low + e);
    if (planes == 3) {
      n = vf_load_f32(high + e) * vf_set1(65536) + n;
    }
    if (l->zero_points) {
      n = vf_fma(vf_set1(8) - vf_load_u8(zero_points + o + e), vf_set1(c->sum), n);
    }
    vf_store_f32(total + e, vf_fma(load_scales(l, group, o + e), n, vf_load_f32(total + e)));
  }
}

/* A strip and a group of it: `rows` rows of x of `planes` digits, `lines` lines of W. */
typedef struct strip_group {
  const tgi_int4_correction *corrections; /* of the first row */
  const int8_t *digits;
  int64_t lines;
} strip_group;

/* The sums of all digits, by the vectors of columns from `from` on. */
TGI_INLINE void multiply_lines(const int digits, const strip_group *x, const uint8_t *from,
                               quads sum[TGI_QUAD_VECTORS][TGI_QUAD_LINES])
{
  const int8_t *step = x->digits;
  for (int64_t s = 0; s < x->lines; s++) {
    quad_bytes low[TGI_QUAD_VECTORS], high[TGI_QUAD_VECTORS];
    TGI_UNROLLED(j, TGI_QUAD_VECTORS)
    {
      __builtin_prefetch(from + kAhead + 64 * j);
      quad_load_halves(from + 64 * j, &low[j], &high[j]);
    }
    TGI_UNROLLED(d, digits)
    {
      const quad_x first = quad_spread(step + d * TGI_DIGITS_STEP);
      const quad_x second = quad_spread(step + (digits + d) * TGI_DIGITS_STEP);
      TGI_UNROLLED(j, TGI_QUAD_VECTORS)
      {
        sum[j][d] = quads_add(quads_add(sum[j][d], low[j], first), high[j], second);
      }
    }
    from += TGI_INT4_LINE_BYTES;
    step += 2 * digits * TGI_DIGITS_STEP;
  }
}

TGI_INLINE void multiply_group(const int rows, const int planes, const tgi_int4_layout *l,
                               const strip_group *x, int64_t groups, const uint8_t *group,
                               float *total)
{
  const uint8_t *first = group + tgi_int4_head_bytes(l);
  for (int half = 0; half < 2; half += TGI_QUAD_VECTORS) {
    quads sum[TGI_QUAD_VECTORS][TGI_QUAD_LINES];
    TGI_UNROLLED(r, rows)
    {
      TGI_UNROLLED(j, TGI_QUAD_VECTORS)
      {
        sum[j][planes * r] = quads_set(-x->corrections[r * groups].low);
        sum[j][planes * r + 1] = quads_set(0);
        if (planes == 3) {
          sum[j][planes * r + 2] = quads_set(-x->corrections[r * groups].high);
        }
      }
    }
    multiply_lines(rows * planes, x, first + half * 64, sum);
    TGI_UNROLLED(r, rows)
    {
      TGI_UNROLLED(j, TGI_QUAD_VECTORS)
      {
        const int64_t o = (half + j) * 16;
        add_group(planes, l, &x->corrections[r * groups], sum[j] + planes * r, group, o,
                  total + r * TGI_PANEL_ROWS + o);
      }
    }
  }
}

/* total[0 .. n) += part, which is 0 then. */
TGI_INLINE void fold_part(float *total, float *part, int n)
{
  for (int i = 0; i < n; i += TGI_LANES) {
    vf_store_f32(total + i, vf_load_f32(total + i) + vf_load_f32(part + i));
    vf_store_f32(part + i, vf_zero());
  }
}

TGI_INLINE void multiply(const int rows, const int planes, const tgi_int4_layout *l,
                         const tgi_int4_strip *x, const uint8_t *panel, float *total)
{
  const int64_t whole = l->group_size / TGI_INT4_LINE_K;
  int64_t lines = tgi_divide_up(l->in, TGI_INT4_LINE_K);
  strip_group strip = {x->corrections, x->digits, 0};
  float part[TGI_INT4_MAX_ROWS * TGI_PANEL_ROWS] = {0};
  memset(total, 0, (size_t)rows * TGI_PANEL_ROWS * sizeof *total);
  for (int64_t g = 0; g < x->groups; g++) {
    strip.lines = tgi_min_i64(whole, lines);
    multiply_group(rows, planes, l, &strip, x->groups, panel, part);
    panel += tgi_int4_group_bytes(l);
    strip.digits += whole * 2 * rows * planes * TGI_DIGITS_STEP;
    strip.corrections++;
    lines -= whole;
    if ((g + 1) % kGroups == 0 || g + 1 == x->groups) {
      fold_part(total, part, rows * TGI_PANEL_ROWS);
    }
  }
}

#define TILE(rows, planes)                                                                         \
  static void tile_##rows##x##planes(const tgi_int4_layout *l, const tgi_int4_strip *x,            \
                                     const uint8_t *panel, float *total)                           \
  {                                                                                                \
    multiply(rows, planes, l, x, panel, total);                                                    \
  }

/* Every number of rows that this instruction set's tile may have, of two digits and of three. */
#if TGI_LANES < 16
TILE(1, 2)
TILE(1, 3)
#define TWO                                                                                        \
  {                                                                                                \
    tile_1x2                                                                                       \
  }
#define THREE                                                                                      \
  {                                                                                                \
    tile_1x3                                                                                       \
  }
#elif defined(__AVX512VNNI__)
TILE(1, 2)
TILE(2, 2)
TILE(3, 2)
TILE(4, 2)
TILE(5, 2)
TILE(6, 2)
TILE(1, 3)
TILE(2, 3)
TILE(3, 3)
TILE(4, 3)
#define TWO                                                                                        \
  {                                                                                                \
    tile_1x2, tile_2x2, tile_3x2, tile_4x2, tile_5x2, tile_6x2                                     \
  }
#define THREE                                                                                      \
  {                                                                                                \
    tile_1x3, tile_2x3, tile_3x3, tile_4x3                                                         \
  }
#else
TILE(1, 2)
TILE(2, 2)
TILE(3, 2)
TILE(1, 3)
TILE(2, 3)
#define TWO                                                                                        \
  {                                                                                                \
    tile_1x2, tile_2x2, tile_3x2                                                                   \
  }
#define THREE                                                                                      \
  {                                                                                                \
    tile_1x3, tile_2x3                                                                             \
  }
#endif

const tgi_int4_tiles TGI_JOIN(int4, tiles, TGI_ENTRY) = {TGI_QUAD_LINES, {TWO, THREE}};
