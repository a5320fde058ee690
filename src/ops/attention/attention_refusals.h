/** What Hopper's kernels of attention decline; sm80 runs those calls. */
#ifndef TGI_OPS_ATTENTION_REFUSALS_H
#define TGI_OPS_ATTENTION_REFUSALS_H

#include "ops/attention/attention_layout.h"
#include "ops/refusal_rules.h"

static inline bool has_no_16_bits(const tg_tensor *q)
{
  return q->dtype != TG_F16 && q->dtype != TG_BF16;
}

static inline bool is_wide(const tgi_attention_layout *l)
{
  return l->head_dim > 256 || l->v_dim > 256;
}

/* TMA copies boxes whose rows begin at multiples of 16 bytes. */
static inline bool has_no_boxes(const tg_tensor *t)
{
  return tgi_present(t) && (t->shape[3] % 8 != 0 || !tgi_rows_begin_at(t, 16));
}

static inline bool is_empty(const tg_tensor *t)
{
  return tgi_present(t) && tgi_numel(t) == 0;
}

static inline bool has_many_rows(const tgi_attention_layout *l, int64_t window,
                                 const tg_tensor *query_start)
{
  const int64_t most = (int64_t)1 << 28;
  return l->nq >= most || l->extent >= most || (window >= 2 * most && tgi_present(query_start));
}

/* One query against a short cache has a kernel on Hopper. */
static inline bool has_short_cache(const tg_attention_fwd_args *a, const tgi_attention_layout *l)
{
  int64_t reach = l->extent;
  if (a->window > 0 && a->window < 1 << 29) {
    const int64_t seen = a->causal ? a->window : 2 * (int64_t)a->window - 1;
    reach = seen < reach ? seen : reach;
  }
  return l->nq == 1 && l->head_dim == l->v_dim && (l->head_dim == 64 || l->head_dim == 128) &&
         l->group <= 8 && reach * l->head_dim <= 512 * 128;
}

static inline bool fwd_has_no_16_bits(const void *args)
{
  const tg_attention_fwd_args *a = args;
  return has_no_16_bits(&a->q);
}

static inline bool fwd_has_table(const void *args)
{
  return tgi_attention_fwd_layout(args).has_table;
}

static inline bool fwd_is_wide(const void *args)
{
  const tgi_attention_layout l = tgi_attention_fwd_layout(args);
  return is_wide(&l);
}

static inline bool fwd_has_no_boxes(const void *args)
{
  const tg_attention_fwd_args *a = args;
  return has_no_boxes(&a->q) || has_no_boxes(&a->k) || has_no_boxes(&a->v) || has_no_boxes(&a->out);
}

static inline bool fwd_is_empty(const void *args)
{
  const tg_attention_fwd_args *a = args;
  return is_empty(&a->q) || is_empty(&a->k) || is_empty(&a->v) || is_empty(&a->out);
}

static inline bool fwd_has_few_queries(const void *args)
{
  const tg_attention_fwd_args *a = args;
  const tgi_attention_layout l = tgi_attention_fwd_layout(a);
  const bool few =
      !l.packed_q && !l.packed_k && (l.nq <= 16 || (l.nq * l.group <= 64 && l.extent > 256));
  return few && !has_short_cache(a, &l);
}

static inline bool fwd_has_many_rows(const void *args)
{
  const tg_attention_fwd_args *a = args;
  const tgi_attention_layout l = tgi_attention_fwd_layout(a);
  return has_many_rows(&l, a->window, &a->query_start);
}

static inline bool bwd_has_no_16_bits(const void *args)
{
  const tg_attention_bwd_args *a = args;
  return has_no_16_bits(&a->q);
}

static inline bool bwd_is_wide(const void *args)
{
  const tgi_attention_layout l = tgi_attention_bwd_layout(args);
  return is_wide(&l);
}

static inline bool bwd_has_no_boxes(const void *args)
{
  const tg_attention_bwd_args *a = args;
  return has_no_boxes(&a->q) || has_no_boxes(&a->k) || has_no_boxes(&a->v) ||
         has_no_boxes(&a->out) || has_no_boxes(&a->dout) || has_no_boxes(&a->dq) ||
         has_no_boxes(&a->dk) || has_no_boxes(&a->dv);
}

static inline bool bwd_is_empty(const void *args)
{
  const tg_attention_bwd_args *a = args;
  return is_empty(&a->q) || is_empty(&a->k) || is_empty(&a->v) || is_empty(&a->out);
}

static inline bool bwd_has_many_rows(const void *args)
{
  const tg_attention_bwd_args *a = args;
  const tgi_attention_layout l = tgi_attention_bwd_layout(a);
  return has_many_rows(&l, a->window, &a->query_start);
}

#define TGI_SIXTEEN_BITS "f32", "the kernels multiply f16 and bf16 by wgmma"
#define TGI_WIDE_HEADS                                                                             \
  "head_dim or v_dim above 256", "the accumulators of a tile exceed the registers"
#define TGI_BOXES                                                                                  \
  "head_dim or v_dim not a multiple of 8, or rows that do not begin at multiples of 16 bytes",     \
      "TMA copies such rows alone"
#define TGI_EMPTY "tensors without elements", "TMA has no box without elements"
#define TGI_MANY_ROWS                                                                              \
  "2^28 rows or more of queries or keys; query_start with a window of 2^29 or more",               \
      "positions are 32-bit counters"

static const spec_refusal fwd_refuses[] = {
    {"sm90", TGI_SIXTEEN_BITS, fwd_has_no_16_bits},
    {"sm90", "block_table", "the kernels do not follow a table", fwd_has_table},
    {"sm90",
     "up to 16 queries, or up to 64 queries of a group with more than 256 keys; but one query of "
     "heads of 64 or 128, group up to 8, with up to 65536 / head_dim visible keys",
     "a tile of 64 queries would be mostly padding; sm80 has a split-KV kernel",
     fwd_has_few_queries},
    {"sm90", TGI_WIDE_HEADS, fwd_is_wide},
    {"sm90", TGI_BOXES, fwd_has_no_boxes},
    {"sm90", TGI_EMPTY, fwd_is_empty},
    {"sm90", TGI_MANY_ROWS, fwd_has_many_rows},
    {NULL, NULL, NULL, NULL},
};

static const spec_refusal bwd_refuses[] = {
    {"sm90", TGI_SIXTEEN_BITS, bwd_has_no_16_bits}, {"sm90", TGI_WIDE_HEADS, bwd_is_wide},
    {"sm90", TGI_BOXES, bwd_has_no_boxes},          {"sm90", TGI_EMPTY, bwd_is_empty},
    {"sm90", TGI_MANY_ROWS, bwd_has_many_rows},     {NULL, NULL, NULL, NULL},
};

#endif
