/* Register tiles of linear_int8. Compiled once more for processors with AVX512-VNNI.
 *
 * A step loads one line of the panel and spreads four digits of each line of x: with VNNI 12 lines
 * by two vectors, 24 VPDPBUSD for 14 loads. Each number of lines has a function of its own, so a
 * single row of x (three lines, or one) wastes nothing and waits for memory alone. */
#include "ops/linear_int8/linear_int8_tile.h"

#include "cpu/quads.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"

enum { kAhead = 2048 }; /* bytes from here that are fetched: a panel is one stream */

TGI_INLINE void multiply(const int lines, int64_t steps, const int8_t *x, const uint8_t *w,
                         int32_t *sums)
{
  for (int half = 0; half < 2; half += TGI_QUAD_VECTORS, w += 64, sums += 16) {
    quads sum[TGI_QUAD_LINES][TGI_QUAD_VECTORS];
    TGI_UNROLLED(l, lines)
    {
      TGI_UNROLLED(j, TGI_QUAD_VECTORS)
      {
        sum[l][j] = quads_set(0);
      }
    }
    for (int64_t s = 0; s < steps; s++) {
      const uint8_t *line = w + s * TGI_INT8_LINE_BYTES;
      quad_bytes weights[TGI_QUAD_VECTORS];
      TGI_UNROLLED(j, TGI_QUAD_VECTORS)
      {
        __builtin_prefetch(line + kAhead + 64 * j);
        weights[j] = quad_load(line + 64 * j);
      }
      TGI_UNROLLED(l, lines)
      {
        const quad_x digits = quad_spread(x + (s * lines + l) * 4);
        TGI_UNROLLED(j, TGI_QUAD_VECTORS)
        {
          sum[l][j] = quads_add(sum[l][j], weights[j], digits);
        }
      }
    }
    TGI_UNROLLED(l, lines)
    {
      TGI_UNROLLED(j, TGI_QUAD_VECTORS)
      {
        quads_store(sums + l * TGI_PANEL_ROWS + j * 16, sum[l][j]);
      }
    }
  }
}

#define TILE(n)                                                                                    \
  static void tile_##n(int64_t steps, const int8_t *x, const uint8_t *w, int32_t *sums)            \
  {                                                                                                \
    multiply(n, steps, x, w, sums);                                                                \
  }
#define ENTRY(n) tile_##n,

/* X of every number of lines that this instruction set's tile may have. */
#if TGI_LANES < 16
#define EACH_HEIGHT(X) X(1) X(2) X(3)
#elif defined(__AVX512VNNI__)
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

EACH_HEIGHT(TILE)

const tgi_int8_tiles TGI_JOIN(int8, tiles, TGI_ENTRY) = {TGI_QUAD_LINES, {EACH_HEIGHT(ENTRY)}};
