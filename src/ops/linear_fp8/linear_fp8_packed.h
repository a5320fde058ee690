/** Where things lie in a weight packed by tg_linear_fp8_pack; see its contract. */
#ifndef TGI_OPS_LINEAR_FP8_PACKED_H
#define TGI_OPS_LINEAR_FP8_PACKED_H

#include "core/values/packed_weight.h"

#define TGI_FP8_MAGIC "TGqfp8\0"

enum {
  TGI_FP8_VERSION = 1, /* of the layout */
  TGI_FP8_BLOCK = 128, /* columns of W that share a scale */
  TGI_FP8_HEAD_BYTES = TGI_PANEL_ROWS * 4,
  TGI_FP8_BLOCK_BYTES = TGI_FP8_HEAD_BYTES + TGI_FP8_BLOCK * TGI_PANEL_ROWS,
};

static inline int64_t tgi_fp8_panel_bytes(int64_t in)
{
  return tgi_divide_up(in, TGI_FP8_BLOCK) * TGI_FP8_HEAD_BYTES + in * TGI_PANEL_ROWS;
}

/** Bytes from the start of the buffer to block b of the panel that holds row o. */
static inline int64_t tgi_fp8_block_at(int64_t o, int64_t b, int64_t in)
{
  return TGI_PACKED_HEADER_BYTES + o / TGI_PANEL_ROWS * tgi_fp8_panel_bytes(in) +
         b * TGI_FP8_BLOCK_BYTES;
}

/** Bytes from the start of a block to weight (o, k), k within the block. */
static inline int64_t tgi_fp8_value_at(int64_t o, int64_t k)
{
  return TGI_FP8_HEAD_BYTES + k * TGI_PANEL_ROWS + o % TGI_PANEL_ROWS;
}

/** Scale of row o in its block. */
static inline float tgi_fp8_scale(const uint8_t *block, int64_t o)
{
  float v;
  memcpy(&v, block + o % TGI_PANEL_ROWS * 4, sizeof v);
  return v;
}

#endif
