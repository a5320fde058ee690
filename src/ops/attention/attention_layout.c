#include "ops/attention/attention_layout.h"

/* Facts that both directions share; the views have passed <op>.c. */
static tgi_attention_layout layout_of(const tg_tensor *q, const tg_tensor *k, const tg_tensor *v,
                                      const tg_tensor *cu_q, const tg_tensor *cu_k)
{
  return (tgi_attention_layout){
      .batch = tgi_present(cu_q) ? cu_q->shape[0] - 1 : q->shape[0],
      .q_heads = q->shape[2],
      .kv_heads = k->shape[2],
      .group = q->shape[2] / k->shape[2],
      .head_dim = q->shape[3],
      .v_dim = v->shape[3],
      .nq = q->shape[1],
      .extent = k->shape[1],
      .cu_q = cu_q->data,
      .cu_k = cu_k->data,
      .packed_q = tgi_present(cu_q),
      .packed_k = tgi_present(cu_k),
  };
}

tgi_attention_layout tgi_attention_fwd_layout(const tg_attention_fwd_args *a)
{
  tgi_attention_layout l = layout_of(&a->q, &a->k, &a->v, &a->cu_seqlens_q, &a->cu_seqlens_k);
  l.key_start = a->key_start.data;
  l.key_count = a->key_count.data;
  l.query_start = a->query_start.data;
  l.window = a->window;
  l.causal = a->causal;
  if (tgi_present(&a->block_table)) {
    l.has_table = true;
    l.block_table = a->block_table.data;
    l.max_blocks = a->block_table.shape[1];
    l.num_blocks = a->k.shape[0];
    l.block_size = a->k.shape[1];
    l.extent = l.max_blocks * l.block_size;
  }
  return l;
}

tgi_attention_layout tgi_attention_bwd_layout(const tg_attention_bwd_args *a)
{
  tgi_attention_layout l = layout_of(&a->q, &a->k, &a->v, &a->cu_seqlens_q, &a->cu_seqlens_k);
  l.key_start = a->key_start.data;
  l.key_count = a->key_count.data;
  l.query_start = a->query_start.data;
  l.window = a->window;
  l.causal = a->causal;
  return l;
}

tgi_attention_sequence tgi_attention_sequence_at(const tgi_attention_layout *l, int64_t b)
{
  tgi_attention_sequence s = {.b = b, .q_index = b, .nq = l->nq, .k_index = b};
  s.extent = l->extent;
  if (l->packed_q) {
    s.q_index = 0;
    s.q_first = l->cu_q[b];
    s.nq = l->cu_q[b + 1] - l->cu_q[b];
  }
  if (l->packed_k) {
    s.k_index = 0;
    s.k_first = l->cu_k[b];
    s.extent = l->cu_k[b + 1] - l->cu_k[b];
  }
  s.first = l->key_start ? l->key_start[b] : 0;
  s.count = l->key_count ? l->key_count[b] : s.extent - s.first;
  s.position = l->query_start ? l->query_start[b] : s.first + s.count - s.nq;
  return s;
}

static tg_status check_cu(const tg_context *ctx, const char *op, const char *name,
                          const int32_t *cu, int64_t batch, int64_t rows)
{
  for (int64_t b = 0; cu && b <= batch; b++) {
    const int64_t low = b == 0 ? 0 : cu[b - 1], high = b == 0 ? 0 : rows;
    if (cu[b] < low || cu[b] > high) {
      return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: %s[%lld]: expected %lld to %lld, got %d", op,
                        name, (long long)b, (long long)low, (long long)high, (int)cu[b]);
    }
  }
  if (cu && cu[batch] != rows) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: %s[%lld]: expected %lld, got %d", op, name,
                      (long long)batch, (long long)rows, (int)cu[batch]);
  }
  return TG_OK;
}

static tg_status check_blocks(const tg_context *ctx, const char *op, const tgi_attention_layout *l,
                              const tgi_attention_sequence *s)
{
  if (s->count == 0) {
    return TG_OK;
  }
  const int64_t last = (s->first + s->count - 1) / l->block_size;
  for (int64_t i = s->first / l->block_size; i <= last; i++) {
    const int64_t index = s->b * l->max_blocks + i, block = l->block_table[index];
    if (block < 0 || block >= l->num_blocks) {
      return tgi_report(
          ctx, TG_BAD_ARGUMENT, "%s: block_table[%lld, %lld]: expected 0 to %lld, got %lld", op,
          (long long)s->b, (long long)i, (long long)l->num_blocks - 1, (long long)block);
    }
  }
  return TG_OK;
}

static tg_status check_keys(const tg_context *ctx, const char *op, const tgi_attention_layout *l,
                            int64_t b)
{
  const tgi_attention_sequence s = tgi_attention_sequence_at(l, b);
  if (s.first < 0 || s.first > s.extent) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: key_start[%lld]: expected 0 to %lld, got %lld", op,
                      (long long)b, (long long)s.extent, (long long)s.first);
  }
  if (s.count < 0 || s.count > s.extent - s.first) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: key_count[%lld]: expected 0 to %lld, got %lld", op,
                      (long long)b, (long long)(s.extent - s.first), (long long)s.count);
  }
  return l->has_table ? check_blocks(ctx, op, l, &s) : TG_OK;
}

tg_status tgi_attention_check(const tg_context *ctx, const char *op, const tgi_attention_layout *l)
{
  tg_status status = check_cu(ctx, op, "cu_seqlens_q", l->cu_q, l->batch, l->nq);
  if (status == TG_OK) {
    status = check_cu(ctx, op, "cu_seqlens_k", l->cu_k, l->batch, l->extent);
  }
  for (int64_t b = 0; b < l->batch && status == TG_OK; b++) {
    status = check_keys(ctx, op, l, b);
  }
  return status;
}
