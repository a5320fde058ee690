/** Where things lie in a weight packed by tg_linear_int4_pack; see its contract. */
#ifndef TGI_OPS_LINEAR_INT4_PACKED_H
#define TGI_OPS_LINEAR_INT4_PACKED_H

#include "core/values/half.h"
#include "core/values/packed_weight.h"

#define TGI_INT4_MAGIC "TGqint4"

enum {
  TGI_INT4_VERSION = 1, /* of the layout */
  TGI_INT4_LINE_K = 8,  /* neighbours in k of a line */
  TGI_INT4_LINE_BYTES = TGI_INT4_LINE_K / 2 * TGI_PANEL_ROWS,
  TGI_INT4_LEAST_GROUP = 32,
};

/** How a weight is packed: from its header, which an op has checked, or from its parts. */
typedef struct tgi_int4_layout {
  int64_t in, group_size;
  tg_dtype scale_dtype;
  bool zero_points;
} tgi_int4_layout;

static inline bool tgi_int4_group_size(int64_t group_size)
{
  return group_size == 32 || group_size == 64 || group_size == 128;
}

static inline tgi_int4_layout tgi_int4_layout_of(const tgi_packed_header *h)
{
  return (tgi_int4_layout){h->in, h->group_size, (tg_dtype)h->scale_dtype, h->zero_points != 0};
}

/** Bytes of a group's scales and zero points for the 32 rows of a panel. */
static inline int64_t tgi_int4_head_bytes(const tgi_int4_layout *l)
{
  const int64_t scale = (int64_t)tg_dtype_bytes(l->scale_dtype);
  return TGI_PANEL_ROWS * (scale + (l->zero_points ? 1 : 0));
}

/** Bytes of a whole group of a panel. */
static inline int64_t tgi_int4_group_bytes(const tgi_int4_layout *l)
{
  return tgi_int4_head_bytes(l) + l->group_size / TGI_INT4_LINE_K * TGI_INT4_LINE_BYTES;
}

/** Bytes of a panel: its last group may be short. */
static inline int64_t tgi_int4_panel_bytes(const tgi_int4_layout *l)
{
  return tgi_divide_up(l->in, l->group_size) * tgi_int4_head_bytes(l) +
         tgi_divide_up(l->in, TGI_INT4_LINE_K) * TGI_INT4_LINE_BYTES;
}

/** Bytes from the start of the buffer to group g of the panel that holds row o. */
static inline int64_t tgi_int4_group_at(const tgi_int4_layout *l, int64_t o, int64_t g)
{
  return TGI_PACKED_HEADER_BYTES + o / TGI_PANEL_ROWS * tgi_int4_panel_bytes(l) +
         g * tgi_int4_group_bytes(l);
}

/** Bytes from the start of a group's first line to the byte with value (o, k), k within the group;
 * it is the high half if k % 8 >= 4. */
static inline int64_t tgi_int4_value_at(int64_t o, int64_t k)
{
  return k / TGI_INT4_LINE_K * TGI_INT4_LINE_BYTES + o % TGI_PANEL_ROWS * 4 + k % 4;
}

#endif
