/** Where the rows of each sequence are: the first half of the rules in tegula/attention.h, read
 * from the views and the i32 tensors of a call. The reference and all kernels share it; each of
 * them applies the visibility of keys itself. */
#ifndef TGI_OPS_ATTENTION_LAYOUT_H
#define TGI_OPS_ATTENTION_LAYOUT_H

#include "ops/kernels.h"

/** Extents of a call, and its i32 data (NULL where absent). */
typedef struct tgi_attention_layout {
  int64_t batch, q_heads, kv_heads, group; /* group = q_heads / kv_heads */
  int64_t head_dim, v_dim;
  int64_t nq, extent; /* of every sequence; of all together where packed (cu_*) */
  const int32_t *cu_q, *cu_k, *key_start, *key_count, *query_start, *block_table;
  int64_t max_blocks, block_size, num_blocks; /* 0 without block_table */
  int64_t window;
  bool causal, packed_q, packed_k, has_table; /* while sizing, the pointers above may be NULL */
} tgi_attention_layout;

/** One sequence. Row r of its keys is k[k_index, k_first + r] unless there is a block table. */
typedef struct tgi_attention_sequence {
  int64_t b;
  int64_t q_index, q_first, nq; /* query i is q[q_index, q_first + i] */
  int64_t k_index, k_first, extent;
  int64_t first, count; /* rows first .. first + count - 1 of the extent are keys */
  int64_t position;     /* row at which query 0 stands */
} tgi_attention_sequence;

tgi_attention_layout tgi_attention_fwd_layout(const tg_attention_fwd_args *a);
tgi_attention_layout tgi_attention_bwd_layout(const tg_attention_bwd_args *a);

/** Sequence b; its data must have passed tgi_attention_check. */
tgi_attention_sequence tgi_attention_sequence_at(const tgi_attention_layout *l, int64_t b);

/** Checks the values of all i32 tensors: BAD_ARGUMENT naming the first bad element. */
tg_status tgi_attention_check(const tg_context *ctx, const char *op, const tgi_attention_layout *l);

/** Index of key row r of the sequence along the first axes of k or v, in elements. */
static inline int64_t tgi_attention_key_offset(const tgi_attention_layout *l,
                                               const tgi_attention_sequence *s, const tg_tensor *t,
                                               int64_t r)
{
  const int64_t outer = tgi_stride(t, 0), inner = tgi_stride(t, 1);
  if (l->has_table) {
    const int64_t block = l->block_table[s->b * l->max_blocks + r / l->block_size];
    return block * outer + r % l->block_size * inner;
  }
  return s->k_index * outer + (s->k_first + r) * inner;
}

#endif
