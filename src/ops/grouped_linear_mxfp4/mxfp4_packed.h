/** Where things lie in weights packed by tg_grouped_linear_mxfp4_pack; see its contract. */
#ifndef TGI_OPS_MXFP4_PACKED_H
#define TGI_OPS_MXFP4_PACKED_H

#include "core/values/half.h"
#include "core/values/packed_weight.h"

#define TGI_MXFP4_MAGIC "TGmxfp4"

enum {
  TGI_MXFP4_VERSION = 1,   /* of the layout */
  TGI_MXFP4_GROUP = 32,    /* columns that share a scale */
  TGI_MXFP4_LARGEST = 252, /* scale: beyond it values exceed f32 */
  TGI_MXFP4_LINE_K = 8,    /* neighbours in k of a line */
  TGI_MXFP4_LINES = TGI_MXFP4_GROUP / TGI_MXFP4_LINE_K,
  TGI_MXFP4_LINE_BYTES = TGI_MXFP4_LINE_K / 2 * TGI_PANEL_ROWS,
  TGI_MXFP4_GROUP_BYTES = TGI_PANEL_ROWS + TGI_MXFP4_LINES * TGI_MXFP4_LINE_BYTES,
};

/** Extents of packed weights. */
typedef struct tgi_mxfp4_layout {
  int64_t panels, groups; /* of an expert; of a panel */
} tgi_mxfp4_layout;

static inline tgi_mxfp4_layout tgi_mxfp4_layout_of(int64_t out, int64_t in)
{
  const tgi_mxfp4_layout l = {tgi_panel_count(out), in / TGI_MXFP4_GROUP};
  return l;
}

static inline int64_t tgi_mxfp4_panel_bytes(const tgi_mxfp4_layout *l)
{
  return l->groups * TGI_MXFP4_GROUP_BYTES;
}

/** Bytes from the start of the buffer to a panel of an expert. */
static inline int64_t tgi_mxfp4_panel_at(const tgi_mxfp4_layout *l, int64_t expert, int64_t panel)
{
  return TGI_PACKED_HEADER_BYTES + (expert * l->panels + panel) * tgi_mxfp4_panel_bytes(l);
}

/** Twice the value of a code. */
static inline int tgi_mxfp4_twice(int code)
{
  const int m = code & 7, twice = m < 4 ? m : m == 7 ? 12 : 2 * m - 4;
  return code & 8 ? -twice : twice;
}

#endif
