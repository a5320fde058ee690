/** Register tiles of linear_int4: a few rows of x by the 32 rows of a panel, all of k. */
#ifndef TGI_OPS_LINEAR_INT4_TILE_H
#define TGI_OPS_LINEAR_INT4_TILE_H

#include "ops/linear_int4/linear_int4_packed.h"

enum { TGI_INT4_MAX_ROWS = 6 };

/** 8 sum X of a row and a group, taken from the sums of its digits: high * 65536 + low. */
typedef struct tgi_int4_correction {
  int32_t low, high; /* with two digits high is 0 */
  float sum;         /* of X, for zero points */
} tgi_int4_correction;

typedef struct tgi_int4_strip {
  const int8_t *digits;                   /* see cpu/digits.h */
  const tgi_int4_correction *corrections; /* [rows][groups] */
  int64_t groups;
} tgi_int4_strip;

/** total[r * 32 + o] = sum over the groups of scale * sum_k X * (W - zero_point). */
typedef void tgi_int4_tile(const tgi_int4_layout *l, const tgi_int4_strip *x, const uint8_t *panel,
                           float *total);

/** One entry's tiles: of[planes - 2][n - 1] takes n rows of x, up to lines / planes. */
typedef struct tgi_int4_tiles {
  int lines;
  tgi_int4_tile *of[2][TGI_INT4_MAX_ROWS];
} tgi_int4_tiles;

extern const tgi_int4_tiles tgi_int4_tiles_generic, tgi_int4_tiles_avx2, tgi_int4_tiles_avx512,
    tgi_int4_tiles_avx512_vnni;

#endif
