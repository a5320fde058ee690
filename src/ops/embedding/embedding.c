#include "ops/kernels.h"

/* Without position ids the positions follow from the scalars: the largest must have a row. */
static void check_positions(tgi_call *call, const char *argument, const tg_tensor *positions,
                            const tg_tensor *position_ids, int64_t tokens, int64_t seq_len,
                            int64_t position_offset)
{
  const int64_t span = seq_len > 0 && seq_len < tokens ? seq_len : tokens;
  tgi_want_range(call, "seq_len", seq_len, 0, INT64_MAX);
  tgi_want_range(call, "position_offset", position_offset, 0, INT64_MAX);
  if (!tgi_present(positions) || tokens == 0 || call->status != TG_OK) {
    return;
  }
  const int64_t rows = positions->shape[0];
  if (tgi_present(position_ids)) {
    if (rows == 0) {
      tgi_fail(call, TG_BAD_SHAPE, argument, "expected at least 1 row, got 0");
    }
  } else if (rows < span || position_offset > rows - span) {
    tgi_fail(
        call, TG_BAD_SHAPE, argument,
        "expected at least %lld + %lld rows (position_offset + tokens of a sequence), got %lld",
        (long long)position_offset, (long long)span, (long long)rows);
  }
}

static void check_vocab(tgi_call *call, const char *argument, const tg_tensor *table,
                        int64_t tokens)
{
  if (tgi_present(table) && table->shape[0] == 0 && tokens > 0) {
    tgi_fail(call, TG_BAD_SHAPE, argument, "expected at least 1 row, got 0");
  }
}

void tgi_embedding_fwd_check(tgi_call *call, const tg_embedding_fwd_args *a)
{
  const int64_t tokens = a->ids.shape[0], dim = a->table.shape[1];
  const uint32_t dtype = TG_DTYPE_BIT(a->table.dtype);
  TGI_WANT_SHAPE(call, a, y, tokens, dim);
  TGI_WANT_DTYPE(call, a, y, dtype);
  TGI_WANT_SHAPE(call, a, positions, a->positions.shape[0], dim);
  TGI_WANT_DTYPE(call, a, positions, dtype);
  TGI_WANT_SHAPE(call, a, position_ids, tokens);
  if (tgi_present(&a->position_ids) && !tgi_present(&a->positions)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "position_ids", "expected none without positions, got some");
  }
  check_vocab(call, "table", &a->table, tokens);
  check_positions(call, "positions", &a->positions, &a->position_ids, tokens, a->seq_len,
                  a->position_offset);
  call->empty = tokens == 0 || dim == 0;
}

void tgi_embedding_bwd_check(tgi_call *call, const tg_embedding_bwd_args *a)
{
  const int64_t tokens = a->dy.shape[0], dim = a->dy.shape[1];
  TGI_WANT_SHAPE(call, a, ids, tokens);
  TGI_WANT_SHAPE(call, a, position_ids, tokens);
  TGI_WANT_SHAPE(call, a, dtable, a->dtable.shape[0], dim);
  TGI_WANT_DTYPE(call, a, dtable, tgi_like_or_f32(&a->dy));
  TGI_WANT_SHAPE(call, a, dpositions, a->dpositions.shape[0], dim);
  TGI_WANT_DTYPE(call, a, dpositions, tgi_like_or_f32(&a->dy));
  check_vocab(call, "dtable", &a->dtable, tokens);
  check_positions(call, "dpositions", &a->dpositions, &a->position_ids, tokens, a->seq_len,
                  a->position_offset);
  call->empty = tokens == 0 || dim == 0;
}
