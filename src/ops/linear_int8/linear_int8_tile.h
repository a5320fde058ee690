/** Register tiles of linear_int8: lines of digits by the 32 rows of a panel. */
#ifndef TGI_OPS_LINEAR_INT8_TILE_H
#define TGI_OPS_LINEAR_INT8_TILE_H

#include "ops/linear_int8/linear_int8_packed.h"

enum { TGI_INT8_MAX_LINES = 12 };

/**
 * sums[l * 32 + o] = sum over the steps of digits (line l) times bytes (row o), for a strip of a
 * certain number of lines. x and w point to the first step; steps <= TGI_INT8_MAX_STEPS, so that
 * no sum of products of at most 255 * 128 leaves 32 bits.
 */
typedef void tgi_int8_tile(int64_t steps, const int8_t *x, const uint8_t *w, int32_t *sums);

enum { TGI_INT8_MAX_STEPS = 8192 };

/** One entry's tiles: `of[n - 1]` takes n lines, up to `lines`. */
typedef struct tgi_int8_tiles {
  int lines;
  tgi_int8_tile *of[TGI_INT8_MAX_LINES];
} tgi_int8_tiles;

extern const tgi_int8_tiles tgi_int8_tiles_generic, tgi_int8_tiles_avx2, tgi_int8_tiles_avx512,
    tgi_int8_tiles_avx512_vnni;

#endif
