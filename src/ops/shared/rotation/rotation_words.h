/** The words of shape strings that rope and qk_norm_rope share. */
#ifndef TGI_OPS_ROTATION_WORDS_H
#define TGI_OPS_ROTATION_WORDS_H

#include "ops/shape.h"

/* b sequences of s tokens, h heads of q, kv heads of k, head_dim d, rotary_dim r; p:
 * position_offset; x: rows of the tables that nobody reads, at their end; batched: tables for each
 * sequence; narrow: tables of width rotary_dim / 2; tf32: tables in f32. */
#define TGI_ROTATION_SYNTAX                                                                        \
  "bN_sN_hN_[kvN_]dN[_rN][_pN][_xN][_batched][_narrow][_tf32][_interleaved][_once]"

typedef struct tgi_rotation_words {
  tg_tensor q, k, table; /* views without memory; k of kv heads, or of none */
  int64_t rotary_dim, position_offset;
  tg_rope_pairing pairing;
  tg_rounding rounding;
} tgi_rotation_words;

static inline tgi_rotation_words tgi_read_rotation(tgi_shape *s)
{
  const int64_t batch = tgi_shape_number(s, "b", 1), seq = tgi_shape_number(s, "s", 1);
  const int64_t heads = tgi_shape_number(s, "h", 1), kv_heads = tgi_shape_number(s, "kv", 0);
  const int64_t dim = tgi_shape_number(s, "d", 64), rotary = tgi_shape_number(s, "r", 0);
  const int64_t width = (rotary ? rotary : dim) / (tgi_shape_flag(s, "narrow") ? 2 : 1);
  const tg_dtype dtype = tgi_shape_flag(s, "tf32") ? TG_F32 : s->dtype;
  tgi_rotation_words w = {
      .q = tg_tensor_4d(NULL, s->dtype, batch, seq, heads, dim),
      .k = tg_tensor_4d(NULL, s->dtype, batch, seq, kv_heads, dim),
      .rotary_dim = rotary,
      .position_offset = tgi_shape_number(s, "p", 0),
      .pairing = tgi_shape_flag(s, "interleaved") ? TG_ROPE_INTERLEAVED : TG_ROPE_HALVES,
      .rounding = tgi_shape_flag(s, "once") ? TG_ROUNDING_ONCE : TG_ROUNDING_HF,
  };
  const int64_t table[3] = {tgi_shape_flag(s, "batched") ? batch : 1,
                            w.position_offset + seq + tgi_shape_number(s, "x", 0), width};
  w.table = tg_tensor_view(NULL, dtype, 3, table);
  return w;
}

/** Sets the fields that every args struct with a rotation has. */
#define TGI_FILL_ROTATION(a, w)                                                                    \
  do {                                                                                             \
    (a)->cos = (a)->sin = (w).table;                                                               \
    (a)->rotary_dim = (w).rotary_dim;                                                              \
    (a)->position_offset = (w).position_offset;                                                    \
    (a)->pairing = (w).pairing;                                                                    \
  } while (0)

#endif
