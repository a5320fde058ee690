#include "batches.h"

#include "files/file_error.h"
#include "order.h"
#include <stdlib.h>
#include <string.h>

tg_status tgi_batch_make(tgi_batch_shape shape, int64_t most_documents, tgi_batch *batch,
                         tg_error *error)
{
  const size_t bytes = (size_t)shape.rows * (size_t)shape.length * sizeof *batch->tokens;
  const size_t ends = (size_t)(shape.rows * most_documents + 1) * sizeof *batch->cu_seqlens;
  *batch = (tgi_batch){0};
  if (most_documents > 0 && shape.rows > INT32_MAX / shape.length) { /* they end at int32 */
    return tgi_file_error(error, TG_UNSUPPORTED, "batch", TGI_NO_BYTE,
                          "below 2^31 tokens in packed documents, got %lld rows of %lld",
                          (long long)shape.rows, (long long)shape.length);
  }
  *batch = (tgi_batch){.tokens = malloc(bytes),
                       .targets = malloc(bytes),
                       .cu_seqlens = most_documents > 0 ? malloc(ends) : NULL};
  if (!batch->tokens || !batch->targets || (most_documents > 0 && !batch->cu_seqlens)) {
    tgi_batch_free(batch);
    return tgi_file_error_memory(error, "batch", 2 * bytes + ends);
  }
  return TG_OK;
}

void tgi_batch_free(tgi_batch *batch)
{
  free(batch->tokens);
  free(batch->targets);
  free(batch->cu_seqlens);
  *batch = (tgi_batch){0};
}

/* ---- of a stream ---- */

void tgi_stream_train(tgi_stream stream, uint64_t seed, int64_t step, tgi_batch_shape shape,
                      tgi_batch *batch)
{
  const int64_t spare = stream.count - shape.length;
  const uint64_t offsets = (uint64_t)(spare < shape.length ? spare : shape.length);
  const uint64_t windows = ((uint64_t)stream.count - offsets) / (uint64_t)shape.length;
  for (int64_t row = 0; row < shape.rows; row++) {
    const uint64_t sample = (uint64_t)(step * shape.rows + row);
    const uint64_t key = tgi_mix(seed, sample / windows);
    const uint64_t window = tgi_permute(sample % windows, windows, key);
    const uint64_t from = tgi_mix(key, 0) % offsets + window * (uint64_t)shape.length;
    const int64_t at = stream.first + (int64_t)from;
    tgi_store_read(stream.store, at, shape.length, batch->tokens + row * shape.length);
    tgi_store_read_targets(stream.store, at + 1, shape.length, batch->targets + row * shape.length);
  }
  batch->num_documents = 0;
}

static int64_t half_row(tgi_batch_shape shape)
{
  return shape.length > 1 ? shape.length / 2 : 1;
}

static int64_t count_windows(tgi_stream stream, tgi_batch_shape shape)
{
  const int64_t after_first = stream.count - 1 - shape.length, step = half_row(shape);
  return 1 + (after_first > 0 ? (after_first + step - 1) / step : 0);
}

int64_t tgi_stream_evaluations(tgi_stream stream, tgi_batch_shape shape)
{
  return (count_windows(stream, shape) + shape.rows - 1) / shape.rows;
}

/* Tokens and targets that are not there: ids 0, and nothing counts. */
static void clear(int32_t *tokens, int32_t *targets, int64_t n)
{
  memset(tokens, 0, (size_t)n * sizeof *tokens);
  for (int64_t i = 0; i < n; i++) {
    targets[i] = TGI_IGNORED;
  }
}

int64_t tgi_stream_evaluate(tgi_stream stream, int64_t index, tgi_batch_shape shape,
                            tgi_batch *batch)
{
  const int64_t windows = count_windows(stream, shape), step = half_row(shape);
  int64_t scored = 0;
  for (int64_t row = 0; row < shape.rows; row++) {
    const int64_t window = index * shape.rows + row, start = window * step;
    const int64_t first = window == 0 ? 0 : shape.length - step;
    int32_t *tokens = batch->tokens + row * shape.length;
    int32_t *targets = batch->targets + row * shape.length;
    const int64_t left = window < windows ? stream.count - 1 - start : 0;
    const int64_t n = left < shape.length ? left : shape.length;
    clear(tokens, targets, shape.length);
    if (n > 0) {
      tgi_store_read(stream.store, stream.first + start, n, tokens);
    }
    if (n > first) {
      scored += tgi_store_read_targets(stream.store, stream.first + start + first + 1, n - first,
                                       targets + first);
    }
  }
  batch->num_documents = 0;
  return scored;
}

/* ---- of packed rows ---- */

int64_t tgi_rows_most_documents(const tgi_rows *rows)
{
  return rows->most_pieces > 1 ? rows->most_pieces + 1 : 0;
}

/*
 * Fills row `to` of the batch by packed row `from` (-1: by nothing). What is left of a row is a
 * document of its own, so that attention of the others does not see it; a row of one document needs
 * none, as what is left stands behind it.
 */
static int64_t fill_row(const tgi_token_store *store, const tgi_rows *rows, int64_t from,
                        tgi_batch_shape shape, int64_t to, tgi_batch *batch)
{
  int32_t *tokens = batch->tokens + to * shape.length;
  int32_t *targets = batch->targets + to * shape.length;
  const int64_t begin = from < 0 ? 0 : rows->begins[from];
  const int64_t end = from < 0 ? 0 : rows->begins[from + 1];
  int64_t at = 0, scored = 0;
  for (int64_t p = begin; p < end; p++) {
    const tgi_piece *piece = &rows->pieces[p];
    tgi_store_read(store, piece->first, piece->count, tokens + at);
    scored += tgi_store_read_targets(store, piece->first + 1, piece->count, targets + at);
    if (batch->cu_seqlens) {
      batch->cu_seqlens[batch->num_documents++] = (int32_t)(to * shape.length + at);
    }
    at += piece->count;
  }
  if (at < shape.length) {
    clear(tokens + at, targets + at, shape.length - at);
    if (batch->cu_seqlens) {
      batch->cu_seqlens[batch->num_documents++] = (int32_t)(to * shape.length + at);
    }
  }
  return scored;
}

static void end_documents(tgi_batch_shape shape, tgi_batch *batch)
{
  if (batch->cu_seqlens) {
    batch->cu_seqlens[batch->num_documents] = (int32_t)(shape.rows * shape.length);
  }
}

void tgi_rows_train(const tgi_token_store *store, const tgi_rows *rows, uint64_t seed, int64_t step,
                    tgi_batch_shape shape, tgi_batch *batch)
{
  const uint64_t num_rows = (uint64_t)rows->num_rows;
  batch->num_documents = 0;
  for (int64_t row = 0; row < shape.rows; row++) {
    const uint64_t sample = (uint64_t)(step * shape.rows + row);
    const uint64_t key = tgi_mix(seed, sample / num_rows);
    const uint64_t from = tgi_permute(sample % num_rows, num_rows, key);
    fill_row(store, rows, (int64_t)from, shape, row, batch);
  }
  end_documents(shape, batch);
}

int64_t tgi_rows_evaluations(const tgi_rows *rows, tgi_batch_shape shape)
{
  return (rows->num_rows + shape.rows - 1) / shape.rows;
}

int64_t tgi_rows_evaluate(const tgi_token_store *store, const tgi_rows *rows, int64_t index,
                          tgi_batch_shape shape, tgi_batch *batch)
{
  int64_t scored = 0;
  batch->num_documents = 0;
  for (int64_t row = 0; row < shape.rows; row++) {
    const int64_t from = index * shape.rows + row;
    scored += fill_row(store, rows, from < rows->num_rows ? from : -1, shape, row, batch);
  }
  end_documents(shape, batch);
  return scored;
}

/* ---- text behind targets ---- */

int64_t tgi_target_bytes(const tg_tokenizer *tokenizer, const int32_t *targets, int64_t n)
{
  int64_t bytes = 0;
  for (int64_t i = 0; i < n; i++) {
    if (targets[i] != TGI_IGNORED) {
      const tg_token piece = tg_tokenizer_piece(tokenizer, targets[i]);
      bytes += piece.kind == TG_TOKEN_SPECIAL ? 0 : (int64_t)piece.size;
    }
  }
  return bytes;
}
