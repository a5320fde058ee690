/** Register tiles of grouped_linear_mxfp4: a few rows of x by the 32 rows of a panel, all of k; and
 * a panel widened.
 *
 * A lane has a row of W. A line of a group holds a word of eight codes for each; they become twice
 * their values by a lookup in a register, and meet the broadcast elements of x. Rows of W are
 * scaled once a group. */
#ifndef TGI_OPS_MXFP4_TILE_H
#define TGI_OPS_MXFP4_TILE_H

#include "cpu/fp4.h"
#include "cpu/quads.h"
#include "cpu/unroll.h"
#include "ops/grouped_linear_mxfp4/mxfp4_packed.h"

enum {
  TGI_MXFP4_ROWS = TGI_LANES == 16  ? 12
                   : TGI_LANES == 8 ? 4
                                    : 2, /* of the largest tile: its sums fill the registers */
  TGI_MXFP4_AHEAD = 4096, /* bytes from here that are fetched: a panel is one stream */
};

/** Half the scales of TGI_LANES rows from o on, 2^(scale - 128). */
TGI_INLINE vf half_scales(const uint8_t *group, int o)
{
  return vf_scale2(vf_set1(1), vf_load_u8(group + o) - vf_set1(128));
}

/** total[r][v] += scale * sum over a group, for `vectors` vectors of rows of W from o on. */
TGI_INLINE void add_group(const int rows, const int vectors, const float *x, int64_t stride,
                          const uint8_t *group, int o, vf total[TGI_MXFP4_ROWS][2])
{
  const fp4_values all = fp4_all();
  const uint8_t *line = group + TGI_PANEL_ROWS + 4 * o;
  vf even[TGI_MXFP4_ROWS][2], odd[TGI_MXFP4_ROWS][2];
  TGI_UNROLLED(r, rows)
  {
    TGI_UNROLLED(v, vectors)
    {
      even[r][v] = odd[r][v] = vf_zero();
    }
  }
  for (int d = 0; d < TGI_MXFP4_LINES; d++, line += TGI_MXFP4_LINE_BYTES, x += TGI_MXFP4_LINE_K) {
    TGI_UNROLLED(v, vectors)
    {
      const vi words = fp4_load(line + 4 * v * TGI_LANES);
      __builtin_prefetch(line + 4 * v * TGI_LANES + TGI_MXFP4_AHEAD);
      TGI_UNROLLED(j, TGI_MXFP4_LINE_K / 2)
      {
        const vf a = vf_fp4(all, words, 2 * j), b = vf_fp4(all, words, 2 * j + 1);
        TGI_UNROLLED(r, rows)
        {
          even[r][v] = vf_fma(vf_set1(x[r * stride + 2 * j]), a, even[r][v]);
          odd[r][v] = vf_fma(vf_set1(x[r * stride + 2 * j + 1]), b, odd[r][v]);
        }
      }
    }
  }
  TGI_UNROLLED(v, vectors)
  {
    const vf scale = half_scales(group, o + v * TGI_LANES);
    TGI_UNROLLED(r, rows)
    {
      total[r][v] = vf_fma(scale, even[r][v] + odd[r][v], total[r][v]);
    }
  }
}

/** total[r * 32 + o] of rows x[r * stride ..]; one row takes two vectors at a time, for more chains
 * of sums, and with 16 lanes all of its sums stay in registers. */
TGI_INLINE void multiply_panel(const int rows, const float *x, int64_t stride, int64_t groups,
                               const uint8_t *panel, float *total)
{
  const int vectors = rows == 1 ? 2 : 1, strips = TGI_PANEL_ROWS / TGI_LANES / vectors;
  vf sums[TGI_PANEL_ROWS / TGI_LANES][TGI_MXFP4_ROWS][2];
#define EACH_SUM(statement)                                                                        \
  for (int s = 0; s < strips; s++) {                                                               \
    TGI_UNROLLED(r, rows)                                                                          \
    {                                                                                              \
      TGI_UNROLLED(v, vectors)                                                                     \
      {                                                                                            \
        statement;                                                                                 \
      }                                                                                            \
    }                                                                                              \
  }
  EACH_SUM(sums[s][r][v] = vf_zero())
  for (int64_t g = 0; g < groups; g++) {
    for (int s = 0; s < strips; s++) {
      add_group(rows, vectors, x, stride, panel, s * vectors * TGI_LANES, sums[s]);
    }
    panel += TGI_MXFP4_GROUP_BYTES;
    x += TGI_MXFP4_GROUP;
  }
  EACH_SUM(vf_store_f32(total + r * TGI_PANEL_ROWS + (s * vectors + v) * TGI_LANES, sums[s][r][v]))
#undef EACH_SUM
}

/** The values of a group, turned: column k's 32 from to[k * stride] on, of dtype t. */
TGI_INLINE void widen_group(int t, const uint8_t *group, char *to, int64_t stride)
{
  const fp4_values all = fp4_all();
  for (int o = 0; o < TGI_PANEL_ROWS; o += TGI_LANES) {
    const vf scale = half_scales(group, o);
    for (int d = 0; d < TGI_MXFP4_LINES; d++) {
      const vi words = fp4_load(group + TGI_PANEL_ROWS + d * TGI_MXFP4_LINE_BYTES + 4 * o);
      TGI_UNROLLED(j, TGI_MXFP4_LINE_K)
      {
        vf_store(to, t, (d * TGI_MXFP4_LINE_K + j) * stride + o, vf_fp4(all, words, j) * scale);
      }
    }
  }
}

#endif
