/**
 * A rotation: which elements of a head are paired and which values of the tables they read, as
 * rope.h words it. What the checks, references and kernels of rope and qk_norm_rope share.
 */
#ifndef TGI_OPS_ROTATION_H
#define TGI_OPS_ROTATION_H

#include "core/tensor_view.h"
#include "tegula/rope.h"

typedef struct tgi_rotation {
  tg_tensor cos, sin;
  int64_t dim, half; /* elements that are rotated, and pairs */
  int64_t offset;
  bool interleaved;
  bool wide; /* the tables have a value for each element, not for each pair */
} tgi_rotation;

/** The rotation of an args struct `a` that has cos, sin, rotary_dim, position_offset, pairing. */
#define TGI_ROTATION(a, head_dim)                                                                  \
  tgi_rotation_of(&(a)->cos, &(a)->sin, (a)->rotary_dim ? (a)->rotary_dim : (head_dim),            \
                  (a)->position_offset, (a)->pairing)

static inline tgi_rotation tgi_rotation_of(const tg_tensor *cos, const tg_tensor *sin, int64_t dim,
                                           int64_t offset, tg_rope_pairing pairing)
{
  return (tgi_rotation){.cos = *cos,
                        .sin = *sin,
                        .dim = dim,
                        .half = dim / 2,
                        .offset = offset,
                        .interleaved = pairing == TG_ROPE_INTERLEAVED,
                        .wide = cos->shape[2] == dim};
}

/** The two elements of a pair. */
static inline int64_t tgi_first_of_pair(const tgi_rotation *r, int64_t pair)
{
  return r->interleaved ? 2 * pair : pair;
}

static inline int64_t tgi_second_of_pair(const tgi_rotation *r, int64_t pair)
{
  return r->interleaved ? 2 * pair + 1 : pair + r->half;
}

/** The row of cos or sin that token `t` of sequence `b` reads. */
static inline const void *tgi_table_row(const tgi_rotation *r, const tg_tensor *table, int64_t b,
                                        int64_t t)
{
  const int64_t sequence = table->shape[0] == 1 ? 0 : b;
  const int64_t at = sequence * tgi_stride(table, 0) + (t + r->offset) * tgi_stride(table, 1);
  return (const char *)table->data + at * (int64_t)tg_dtype_bytes(table->dtype);
}

/** Head `h` of token `t` of sequence `b`. */
static inline void *tgi_head(const tg_tensor *x, int64_t b, int64_t t, int64_t h)
{
  const int64_t at = b * tgi_stride(x, 0) + t * tgi_stride(x, 1) + h * tgi_stride(x, 2);
  return (char *)x->data + at * (int64_t)tg_dtype_bytes(x->dtype);
}

#endif
