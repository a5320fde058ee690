/* Embedding, reference: gather and add; scatter-add in the order of the tokens, each addition
 * rounded to the accumulator's dtype. */
#include "ops/embedding/embedding_ids.h"

tg_status TGI_KERNEL(embedding_fwd)(const tg_context *ctx, const tg_embedding_fwd_args *a)
{
  const tg_dtype t = a->table.dtype;
  tg_status status = check_ids(ctx, "embedding_fwd", "ids", &a->ids, a->table.shape[0]);
  if (status == TG_OK && tgi_present(&a->position_ids)) {
    status =
        check_ids(ctx, "embedding_fwd", "position_ids", &a->position_ids, a->positions.shape[0]);
  }
  for (int64_t i = 0; i < a->ids.shape[0] && status == TG_OK; i++) {
    const void *row = tgi_row(&a->table, tgi_load_int(a->ids.data, a->ids.dtype, i));
    const int64_t p = token_position(&a->position_ids, a->seq_len, a->position_offset, i);
    for (int64_t j = 0; j < a->table.shape[1]; j++) {
      double v = tgi_load(row, t, j);
      if (tgi_present(&a->positions)) {
        v += tgi_load(tgi_row(&a->positions, p), t, j);
      }
      tgi_store(tgi_row(&a->y, i), t, j, v);
    }
  }
  return status;
}

static void add_row(const tg_tensor *sums, int64_t row, const tg_tensor *dy, int64_t i)
{
  void *sum = tgi_row(sums, row);
  for (int64_t j = 0; j < dy->shape[1]; j++) {
    const double v = tgi_load(tgi_row(dy, i), dy->dtype, j);
    tgi_store(sum, sums->dtype, j, tgi_load(sum, sums->dtype, j) + v);
  }
}

tg_status TGI_KERNEL(embedding_bwd)(const tg_context *ctx, const tg_embedding_bwd_args *a)
{
  const bool table = tgi_present(&a->dtable), positions = tgi_present(&a->dpositions);
  tg_status status = TG_OK;
  if (table) {
    status = check_ids(ctx, "embedding_bwd", "ids", &a->ids, a->dtable.shape[0]);
  }
  if (status == TG_OK && positions && tgi_present(&a->position_ids)) {
    status =
        check_ids(ctx, "embedding_bwd", "position_ids", &a->position_ids, a->dpositions.shape[0]);
  }
  for (int64_t i = 0; i < a->dy.shape[0] && status == TG_OK; i++) {
    if (table) {
      add_row(&a->dtable, tgi_load_int(a->ids.data, a->ids.dtype, i), &a->dy, i);
    }
    if (positions) {
      const int64_t p = token_position(&a->position_ids, a->seq_len, a->position_offset, i);
      add_row(&a->dpositions, p, &a->dy, i);
    }
  }
  return status;
}
