/** Where things lie in a weight packed by tg_linear_int8_pack; see its contract. */
#ifndef TGI_OPS_LINEAR_INT8_PACKED_H
#define TGI_OPS_LINEAR_INT8_PACKED_H

#include "core/values/packed_weight.h"

#define TGI_INT8_MAGIC "TGqint8"

enum {
  TGI_INT8_VERSION = 1, /* of the layout */
  TGI_INT8_LINE_K = 4,  /* neighbours in k of a line */
  TGI_INT8_LINE_BYTES = TGI_INT8_LINE_K * TGI_PANEL_ROWS,
  TGI_INT8_PANEL_HEAD = 2 * TGI_PANEL_ROWS * 4, /* scales; 128 + zero points */
};

static inline int64_t tgi_int8_lines(int64_t in)
{
  return tgi_divide_up(in, TGI_INT8_LINE_K);
}

static inline int64_t tgi_int8_panel_bytes(int64_t in)
{
  return TGI_INT8_PANEL_HEAD + tgi_int8_lines(in) * TGI_INT8_LINE_BYTES;
}

/** Bytes from the start of the buffer to the panel that holds row o. */
static inline int64_t tgi_int8_panel_at(int64_t o, int64_t in)
{
  return TGI_PACKED_HEADER_BYTES + o / TGI_PANEL_ROWS * tgi_int8_panel_bytes(in);
}

/** Bytes from the start of a panel to 128 + weight (o, k). */
static inline int64_t tgi_int8_value_at(int64_t o, int64_t k)
{
  return TGI_INT8_PANEL_HEAD + k / TGI_INT8_LINE_K * TGI_INT8_LINE_BYTES +
         o % TGI_PANEL_ROWS * TGI_INT8_LINE_K + k % TGI_INT8_LINE_K;
}

/** Scale (which 0) or 128 + zero point (1) of row o, from the start of its panel. */
static inline float tgi_int8_head(const uint8_t *panel, int which, int64_t o)
{
  float v;
  memcpy(&v, panel + (which * TGI_PANEL_ROWS + o % TGI_PANEL_ROWS) * 4, sizeof v);
  return v;
}

#endif
