/** Views of [batch, rows, heads, dim]: the facts about q, k and v, and the address of a head's row.
 */
#ifndef TGI_OPS_ATTENTION_HEADS_H
#define TGI_OPS_ATTENTION_HEADS_H

#include "core/checks.h"

static inline void tgi_want_extent(tgi_call *call, const char *argument, const char *axis,
                                   int64_t got, bool right, const char *expected)
{
  if (!right) {
    tgi_fail(call, TG_BAD_SHAPE, argument, "expected %s %s, got %lld", axis, expected,
             (long long)got);
  }
}

/** v has k's rows and heads, and q_heads is a multiple of kv_heads. */
static inline void tgi_want_heads(tgi_call *call, const tg_tensor *q, const tg_tensor *k,
                                  const tg_tensor *v)
{
  const int64_t v_shape[4] = {k->shape[0], k->shape[1], k->shape[2], v->shape[3]};
  tgi_want_dtype(call, "k", k, TG_DTYPE_BIT(q->dtype));
  tgi_want_dtype(call, "v", v, TG_DTYPE_BIT(q->dtype));
  tgi_want_extent(call, "q", "head_dim", q->shape[3], q->shape[3] >= 1, ">= 1");
  tgi_want_extent(call, "k", "head_dim", k->shape[3], k->shape[3] == q->shape[3], "that of q");
  tgi_want_shape(call, "v", v, 4, v_shape);
  tgi_want_extent(call, "v", "head_dim", v->shape[3], v->shape[3] >= 1, ">= 1");
  tgi_want_extent(call, "k", "heads", k->shape[2], k->shape[2] >= 1, ">= 1");
  tgi_want_extent(call, "q", "heads", q->shape[2],
                  q->shape[2] >= 1 && k->shape[2] >= 1 && q->shape[2] % k->shape[2] == 0,
                  "a multiple of k's");
}

/** Address of t[index, row, head, 0]; NULL of an absent tensor. */
static inline void *tgi_head_row(const tg_tensor *t, int64_t index, int64_t row, int64_t head)
{
  const int64_t i = index * tgi_stride(t, 0) + row * tgi_stride(t, 1) + head * tgi_stride(t, 2);
  return t->data ? (char *)t->data + i * (int64_t)tg_dtype_bytes(t->dtype) : NULL;
}

#endif
