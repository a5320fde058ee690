/** The facts about a rotation that rope and qk_norm_rope check, in both directions. */
#ifndef TGI_OPS_ROTATION_CHECKS_H
#define TGI_OPS_ROTATION_CHECKS_H

#include "core/checks.h"
#include "tegula/rope.h"

static inline void tgi_check_rotary_dim(tgi_call *call, const char *argument, int64_t head_dim,
                                        int64_t rotary_dim)
{
  tgi_want_range(call, "rotary_dim", rotary_dim, 0, head_dim);
  if (rotary_dim % 2 != 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "rotary_dim", "expected an even number, got %lld",
             (long long)rotary_dim);
  } else if (rotary_dim == 0 && head_dim % 2 != 0) {
    tgi_fail(call, TG_BAD_SHAPE, argument, "expected an even head_dim for rotary_dim 0, got %lld",
             (long long)head_dim);
  }
}

/** x: q or its gradient. */
static inline void tgi_check_tables(tgi_call *call, const tg_tensor *x, const tg_tensor *cos,
                                    const tg_tensor *sin, int64_t rotary_dim, int64_t offset)
{
  const int64_t batch = x->shape[0], seq = x->shape[1], dim = rotary_dim ? rotary_dim : x->shape[3];
  const int64_t *table = cos->shape;
  if (table[0] != 1 && table[0] != batch) {
    tgi_fail(call, TG_BAD_SHAPE, "cos", "expected first extent 1 or %lld, got %lld",
             (long long)batch, (long long)table[0]);
  }
  if (table[2] != dim && table[2] != dim / 2) {
    tgi_fail(call, TG_BAD_SHAPE, "cos", "expected width %lld or %lld, got %lld", (long long)dim,
             (long long)(dim / 2), (long long)table[2]);
  }
  tgi_want_dtype(call, "cos", cos, tgi_like_or_f32(x));
  tgi_want_shape(call, "sin", sin, 3, table);
  tgi_want_dtype(call, "sin", sin, TG_DTYPE_BIT(cos->dtype));
  if (seq > table[1]) {
    tgi_fail(call, TG_BAD_SHAPE, "cos", "expected at least %lld rows (seq), got %lld",
             (long long)seq, (long long)table[1]);
  }
  tgi_want_range(call, "position_offset", offset, 0, table[1] - seq);
}

/** All facts about the rotation of an args struct; x is its first tensor. */
#define TGI_CHECK_ROTATION(call, a, x)                                                             \
  do {                                                                                             \
    tgi_check_rotary_dim(call, #x, (a)->x.shape[3], (a)->rotary_dim);                              \
    tgi_want_range(call, "pairing", (a)->pairing, TG_ROPE_HALVES, TG_ROPE_INTERLEAVED);            \
    tgi_check_tables(call, &(a)->x, &(a)->cos, &(a)->sin, (a)->rotary_dim, (a)->position_offset);  \
  } while (0)

/** k has q's batch, seq, head_dim and dtype, whatever its number of heads. */
static inline void tgi_check_keys(tgi_call *call, const char *argument, const tg_tensor *q,
                                  const tg_tensor *k)
{
  const int64_t shape[4] = {q->shape[0], q->shape[1], k->shape[2], q->shape[3]};
  tgi_want_shape(call, argument, k, 4, shape);
  tgi_want_dtype(call, argument, k, TG_DTYPE_BIT(q->dtype));
}

/** `t` is absent or has shape and dtype of `x`. */
static inline void tgi_check_like(tgi_call *call, const char *argument, const tg_tensor *t,
                                  const tg_tensor *x)
{
  tgi_want_shape(call, argument, t, x->ndim, x->shape);
  tgi_want_dtype(call, argument, t, TG_DTYPE_BIT(x->dtype));
}

/** No token, or heads of no elements. */
static inline bool tgi_no_heads(const tg_tensor *x)
{
  return x->shape[0] == 0 || x->shape[1] == 0 || x->shape[3] == 0;
}

#endif
