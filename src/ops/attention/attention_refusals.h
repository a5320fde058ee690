/** What Hopper's attention kernels decline; sm80 runs those calls. The limits are those of the
 * plans in sm90/. */
#ifndef TGI_OPS_ATTENTION_REFUSALS_H
#define TGI_OPS_ATTENTION_REFUSALS_H

#include "ops/attention/attention_layout.h"
#include "ops/refusal_rules.h"

/* ---- rules of one tensor ---- */

static inline bool has_f32(const tg_tensor *q)
{
  return q->dtype == TG_F32;
}

static inline bool has_no_vectors(const tg_tensor *t)
{
  return tgi_present(t) && (t->shape[3] % 8 != 0 || !tgi_rows_begin_at(t, 16));
}

static inline bool is_empty(const tg_tensor *t)
{
  return tgi_present(t) && tgi_numel(t) == 0;
}

static inline bool has_far_rows(const tg_tensor *t)
{
  bool far = false;
  for (int axis = 0; axis < 4 && tgi_present(t); axis++) {
    far = far || t->shape[axis] >= INT32_MAX || tgi_stride(t, axis) >= (int64_t)1 << 38;
  }
  return far;
}

/* ---- rules of a call ---- */

static inline bool is_wide(const tgi_attention_layout *l)
{
  return l->head_dim > 256 || l->v_dim > 256;
}

/* Tiles of `rows` rows, of all sequences and `heads` heads; packed sequences have up to one more.
 */
static inline bool has_many_tiles(const tgi_attention_layout *l, int64_t extent, bool packed,
                                  int64_t heads, int64_t rows)
{
  const int64_t whole = (extent + rows - 1) / rows;
  return (packed ? extent / rows + l->batch : whole * l->batch) * heads >= INT32_MAX / 2;
}

static inline bool has_many_rows(const tgi_attention_layout *l)
{
  const int64_t most = (int64_t)1 << 28;
  return l->nq >= most || l->extent >= most;
}

static inline bool is_far_window(int32_t window, const tg_tensor *query_start)
{
  return window >= 1 << 29 && tgi_present(query_start);
}

/* One query that sees up to 65536 elements of a kv head's keys has a kernel of its own. */
static inline bool has_short_cache(const tg_attention_fwd_args *a, const tgi_attention_layout *l)
{
  int64_t reach = l->extent;
  if (l->window > 0 && l->window < 1 << 29) {
    const int64_t seen = l->causal ? l->window : 2 * l->window - 1;
    reach = seen < reach ? seen : reach;
  }
  return l->nq == 1 && !l->packed_q && !l->packed_k && l->head_dim == l->v_dim &&
         (l->head_dim == 64 || l->head_dim == 128) && l->group <= 8 && l->kv_heads <= 65535 &&
         reach * l->head_dim <= 512 * 128 && 2 * tgi_stride(&a->k, 1) <= INT32_MAX &&
         2 * tgi_stride(&a->v, 1) <= INT32_MAX;
}

/* ---- forward ---- */

static inline bool fwd_has_f32(const void *args)
{
  const tg_attention_fwd_args *a = args;
  return has_f32(&a->q);
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

static inline bool fwd_has_no_vectors(const void *args)
{
  const tg_attention_fwd_args *a = args;
  return has_no_vectors(&a->q) || has_no_vectors(&a->k) || has_no_vectors(&a->v) ||
         has_no_vectors(&a->out);
}

static inline bool fwd_is_empty(const void *args)
{
  const tg_attention_fwd_args *a = args;
  return tgi_attention_fwd_layout(a).batch == 0 || is_empty(&a->q) || is_empty(&a->k);
}

static inline bool fwd_has_few_queries(const void *args)
{
  const tg_attention_fwd_args *a = args;
  const tgi_attention_layout l = tgi_attention_fwd_layout(a);
  const bool few =
      !l.packed_q && !l.packed_k && (l.nq <= 16 || (l.nq * l.group <= 64 && l.extent > 256));
  return few && !has_short_cache(a, &l);
}

static inline bool fwd_has_far_window(const void *args)
{
  const tg_attention_fwd_args *a = args;
  return is_far_window(a->window, &a->query_start);
}

static inline bool fwd_is_large(const void *args)
{
  const tg_attention_fwd_args *a = args;
  const tgi_attention_layout l = tgi_attention_fwd_layout(a);
  const bool far =
      has_far_rows(&a->q) || has_far_rows(&a->k) || has_far_rows(&a->v) || has_far_rows(&a->out);
  return has_many_rows(&l) || has_many_tiles(&l, l.nq, false, l.q_heads, 64) ||
         (far && !has_short_cache(a, &l));
}

/* ---- backward ---- */

static inline bool bwd_has_f32(const void *args)
{
  const tg_attention_bwd_args *a = args;
  return has_f32(&a->q);
}

static inline bool bwd_is_wide(const void *args)
{
  const tgi_attention_layout l = tgi_attention_bwd_layout(args);
  return is_wide(&l);
}

static inline bool bwd_has_no_vectors(const void *args)
{
  const tg_attention_bwd_args *a = args;
  return has_no_vectors(&a->q) || has_no_vectors(&a->k) || has_no_vectors(&a->v) ||
         has_no_vectors(&a->out) || has_no_vectors(&a->dout) || has_no_vectors(&a->dq) ||
         has_no_vectors(&a->dk) || has_no_vectors(&a->dv);
}

static inline bool bwd_is_empty(const void *args)
{
  const tg_attention_bwd_args *a = args;
  return tgi_attention_bwd_layout(a).batch == 0 || is_empty(&a->q) || is_empty(&a->k);
}

static inline bool bwd_has_far_window(const void *args)
{
  const tg_attention_bwd_args *a = args;
  return is_far_window(a->window, &a->query_start);
}

/* Tiles in the smallest sizes: with larger ones, a call at this limit exceeds any GPU's memory. */
static inline bool bwd_is_large(const void *args)
{
  const tg_attention_bwd_args *a = args;
  const tgi_attention_layout l = tgi_attention_bwd_layout(a);
  const tg_tensor *const tensors[] = {&a->q,    &a->k,  &a->v,  &a->out,
                                      &a->dout, &a->dq, &a->dk, &a->dv};
  bool far = false;
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
    far = far || has_far_rows(tensors[i]);
  }
  return far || has_many_rows(&l) || has_many_tiles(&l, l.nq, l.packed_q, l.q_heads, 32) ||
         has_many_tiles(&l, l.extent, l.packed_k, l.kv_heads, 64);
}

/* ---- the lists ---- */

#define REFUSE_F32(rule_holds)                                                                     \
  {                                                                                                \
    .entry = "sm90", .rule = "f32",                                                                \
    .reason = "the tiles are for 16-bit operands; with allow_tf32, sm80 multiplies in TF32",       \
    .holds = rule_holds                                                                            \
  }
#define REFUSE_WIDE(rule_holds)                                                                    \
  {                                                                                                \
    .entry = "sm90", .rule = "head_dim or v_dim above 256",                                        \
    .reason = "the accumulators of a tile would exceed the registers", .holds = rule_holds         \
  }
#define REFUSE_UNALIGNED(rule_holds)                                                               \
  {                                                                                                \
    .entry = "sm90",                                                                               \
    .rule = "head_dim or v_dim not a multiple of 8, or rows of a head that do not begin at a "     \
            "multiple of 16 bytes",                                                                \
    .reason = "TMA loads and stores rows of 16-byte vectors", .holds = rule_holds                  \
  }
#define REFUSE_EMPTY(rule_holds)                                                                   \
  {                                                                                                \
    .entry = "sm90", .rule = "no sequence, no query or no key",                                    \
    .reason = "TMA descriptors have no extents of 0", .holds = rule_holds                          \
  }
#define REFUSE_FAR_WINDOW(rule_holds)                                                              \
  {                                                                                                \
    .entry = "sm90", .rule = "a window of 2^29 or more with query_start",                          \
    .reason = "distances of any positions exceed 32-bit counters", .holds = rule_holds             \
  }
#define REFUSE_LARGE(rule_holds)                                                                   \
  {                                                                                                \
    .entry = "sm90", .rule = "at least 2^28 rows, 2^30 tiles or a stride of 2^38 elements",        \
    .reason = "rows and tiles have 32-bit counters; TMA descriptors limit strides",                \
    .holds = rule_holds, .no_case = true                                                           \
  }
#define REFUSE_NO_MORE                                                                             \
  {                                                                                                \
    .entry = NULL                                                                                  \
  }

static const spec_refusal fwd_refuses[] = {
    REFUSE_F32(fwd_has_f32),
    {.entry = "sm90",
     .rule = "block_table",
     .reason = "the kernels do not follow a table; sm80's split-KV kernel does",
     .holds = fwd_has_table},
    {.entry = "sm90",
     .rule = "few queries, not packed: up to 16, or up to 64 query rows of a kv head (queries x "
             "heads of the group) with more than 256 keys. Exception: one query, heads of 64 or "
             "128, groups of up to 8 heads, and up to 65536 / head_dim visible keys",
     .reason = "a tile of 64 or more queries would be mostly padding; sm80 has a split-KV kernel",
     .holds = fwd_has_few_queries},
    REFUSE_WIDE(fwd_is_wide),
    REFUSE_UNALIGNED(fwd_has_no_vectors),
    REFUSE_EMPTY(fwd_is_empty),
    REFUSE_FAR_WINDOW(fwd_has_far_window),
    REFUSE_LARGE(fwd_is_large),
    REFUSE_NO_MORE,
};

static const spec_refusal bwd_refuses[] = {
    REFUSE_F32(bwd_has_f32),
    REFUSE_WIDE(bwd_is_wide),
    REFUSE_UNALIGNED(bwd_has_no_vectors),
    REFUSE_EMPTY(bwd_is_empty),
    REFUSE_FAR_WINDOW(bwd_has_far_window),
    REFUSE_LARGE(bwd_is_large),
    REFUSE_NO_MORE,
};

#endif
