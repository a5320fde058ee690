#include "micro_batches.h"

#include "core/error_record.h"
#include "tegula/device.h"
#include <stdlib.h>
#include <string.h>

static int64_t batch_tokens(const tgi_micro_batches *b)
{
  return b->count * b->rows * b->length;
}

/* Room for the starts of a batch with as many documents as its rows may have. */
static int64_t starts_room(const tgi_micro_batches *b)
{
  return b->count * (b->rows * b->max_documents + 1);
}

tgi_micro_batches tgi_micro_batches_shape(const tg_trainer_options *options, bool counts_tokens)
{
  return (tgi_micro_batches){.count = options->batch_size / options->micro_batch_size,
                             .rows = options->micro_batch_size,
                             .length = options->sequence_length,
                             .max_documents = options->max_documents,
                             .counts_tokens = counts_tokens};
}

tg_status tgi_micro_batches_create(tgi_micro_batches *b, tg_error *error)
{
  if (b->max_documents == 0 && !b->counts_tokens) {
    return TG_OK;
  }
  const int64_t room = starts_room(b) > batch_tokens(b) ? starts_room(b) : batch_tokens(b);
  b->documents_upto = calloc((size_t)b->count + 1, sizeof *b->documents_upto);
  b->num_counted = calloc((size_t)b->count, sizeof *b->num_counted);
  b->host = malloc((size_t)room * sizeof *b->host);
  return b->documents_upto && b->num_counted && b->host
             ? TG_OK
             : tgi_error_set(error, TG_NO_MEMORY,
                             "trainer: expected room for the starts of documents, got none");
}

void tgi_micro_batches_free(tgi_micro_batches *b)
{
  free(b->documents_upto);
  free(b->num_counted);
  free(b->host);
}

void tgi_micro_batches_lay_out(tgi_micro_batches *b, tgi_memory_plan *plan)
{
  b->tokens = tgi_take_1d(plan, TG_I32, batch_tokens(b));
  b->targets = tgi_take_1d(plan, TG_I32, batch_tokens(b));
  if (b->max_documents > 0) {
    b->positions = tgi_take_1d(plan, TG_I32, batch_tokens(b));
    b->starts = tgi_take_1d(plan, TG_I32, starts_room(b));
  }
  if (b->counts_tokens) {
    b->counted = tgi_take_1d(plan, TG_I32, batch_tokens(b));
  }
}

/* ---- checks ---- */

typedef struct batch_check {
  const tgi_micro_batches *b;
  const tg_train_batch *batch;
  int64_t step; /* of the messages */
  tg_error *error;
} batch_check;

static tg_status refuse(const batch_check *c, const char *what, int64_t index, const char *expected,
                        int64_t got)
{
  return tgi_error_set(c->error, TG_BAD_ARGUMENT, "step %lld: %s[%lld]: expected %s, got %lld",
                       (long long)c->step, what, (long long)index, expected, (long long)got);
}

static tg_status check_range(const batch_check *c, const char *what, int64_t index, int32_t value,
                             int32_t vocab_size)
{
  if (value >= 0 && value < vocab_size) {
    return TG_OK;
  }
  char expected[64];
  snprintf(expected, sizeof expected, "0 to %d", vocab_size - 1);
  return refuse(c, what, index, expected, value);
}

/* *num_targets: those that are not ignored. */
static tg_status check_ids(const batch_check *c, int32_t vocab_size, int64_t *num_targets)
{
  const tg_train_batch *batch = c->batch;
  const int64_t tokens = batch_tokens(c->b);
  *num_targets = 0;
  tg_status status = TG_OK;
  for (int64_t i = 0; i < tokens && status == TG_OK; i++) {
    status = check_range(c, "tokens", i, batch->tokens[i], vocab_size);
    if (status == TG_OK && batch->targets[i] != TG_IGNORED_TARGET) {
      status = check_range(c, "targets", i, batch->targets[i], vocab_size);
      ++*num_targets;
    }
  }
  return status;
}

/* The start of document `d`, where the one before began at `before`. `in_row` counts the documents
 * of its row. */
static tg_status check_start(const batch_check *c, int64_t d, int64_t before, int64_t *in_row)
{
  const int64_t start = c->batch->cu_seqlens[d], length = c->b->length;
  if (start <= before || start > batch_tokens(c->b)) {
    char expected[96];
    snprintf(expected, sizeof expected, "%lld to %lld", (long long)before + 1,
             (long long)batch_tokens(c->b));
    return refuse(c, "cu_seqlens", d, expected, start);
  }
  if (start > (before / length + 1) * length) {
    char expected[96];
    snprintf(expected, sizeof expected, "at most %lld, where the next row begins",
             (long long)((before / length + 1) * length));
    return refuse(c, "cu_seqlens", d, expected, start);
  }
  if (++*in_row > c->b->max_documents) {
    char expected[96];
    snprintf(expected, sizeof expected, "at most %lld documents in row %lld (max_documents)",
             (long long)c->b->max_documents, (long long)(before / length));
    return refuse(c, "cu_seqlens", d, expected, *in_row);
  }
  if (start % length == 0) {
    *in_row = 0;
  }
  return TG_OK;
}

static tg_status check_documents(const batch_check *c)
{
  const tg_train_batch *batch = c->batch;
  if (c->b->max_documents == 0) {
    return tgi_error_set(c->error, TG_BAD_ARGUMENT,
                         "step %lld: cu_seqlens: expected NULL (max_documents is 0), got %lld "
                         "documents",
                         (long long)c->step, (long long)batch->num_documents);
  }
  if (batch->num_documents < 1 || batch->num_documents > batch_tokens(c->b)) {
    return tgi_error_set(
        c->error, TG_BAD_ARGUMENT, "step %lld: num_documents: expected 1 to %lld, got %lld",
        (long long)c->step, (long long)batch_tokens(c->b), (long long)batch->num_documents);
  }
  if (batch->cu_seqlens[0] != 0) {
    return refuse(c, "cu_seqlens", 0, "0", batch->cu_seqlens[0]);
  }
  tg_status status = TG_OK;
  int64_t in_row = 0;
  for (int64_t d = 1; d <= batch->num_documents && status == TG_OK; d++) {
    status = check_start(c, d, batch->cu_seqlens[d - 1], &in_row);
  }
  const int64_t end = batch->cu_seqlens[batch->num_documents];
  if (status == TG_OK && end != batch_tokens(c->b)) {
    char expected[64];
    snprintf(expected, sizeof expected, "all %lld tokens", (long long)batch_tokens(c->b));
    return refuse(c, "cu_seqlens", batch->num_documents, expected, end);
  }
  return status;
}

static tg_status check_batch(const batch_check *c, int32_t vocab_size, int64_t *num_targets)
{
  const tg_train_batch *batch = c->batch;
  if (!batch || !batch->tokens || !batch->targets) {
    return tgi_error_set(c->error, TG_BAD_ARGUMENT,
                         "trainer: batch, tokens, targets: expected pointers, got NULL");
  }
  const tg_status status = check_ids(c, vocab_size, num_targets);
  if (status != TG_OK || batch->cu_seqlens) {
    return status ? status : check_documents(c);
  }
  return batch->num_documents == 0
             ? TG_OK
             : tgi_error_set(c->error, TG_BAD_ARGUMENT,
                             "step %lld: num_documents: expected 0 without cu_seqlens, got %lld",
                             (long long)c->step, (long long)batch->num_documents);
}

/* ---- copies ---- */

static tg_status copy(tg_context *ctx, const tg_tensor *to, const int32_t *from, int64_t count)
{
  const size_t bytes = (size_t)count * sizeof *from;
  return tg_memory_copy(ctx, to->data, bytes, from, bytes, bytes, 1);
}

static tg_status copy_positions(const tgi_micro_batches *b, tg_context *ctx,
                                const tg_train_batch *batch)
{
  for (int64_t d = 0; d < batch->num_documents; d++) {
    const int32_t first = batch->cu_seqlens[d], end = batch->cu_seqlens[d + 1];
    for (int32_t i = first; i < end; i++) {
      b->host[i] = i - first;
    }
  }
  return copy(ctx, &b->positions, b->host, batch_tokens(b));
}

/* The starts among the tokens of each micro-batch, which ends with its own end. */
static tg_status copy_starts(const tgi_micro_batches *b, tg_context *ctx,
                             const tg_train_batch *batch)
{
  const int64_t tokens = b->rows * b->length;
  int64_t d = 0, used = 0;
  for (int64_t m = 0; m < b->count; m++) {
    b->documents_upto[m] = d;
    for (; batch->cu_seqlens[d] < (m + 1) * tokens; d++) {
      b->host[used++] = (int32_t)(batch->cu_seqlens[d] - m * tokens);
    }
    b->host[used++] = (int32_t)tokens;
  }
  b->documents_upto[b->count] = d;
  return copy(ctx, &b->starts, b->host, used);
}

/* Whether a document has a target that is not ignored. */
static bool has_target(const tg_train_batch *batch, int64_t first, int64_t end)
{
  for (int64_t i = first; i < end; i++) {
    if (batch->targets[i] != TG_IGNORED_TARGET) {
      return true;
    }
  }
  return false;
}

/* A document without a target, such as the rest of a row, is not counted. */
static tg_status copy_counted(tgi_micro_batches *b, tg_context *ctx, const tg_train_batch *batch)
{
  const int64_t documents = b->has_documents ? batch->num_documents : b->count * b->rows;
  memset(b->num_counted, 0, (size_t)b->count * sizeof *b->num_counted);
  b->all_counted = 0;
  for (int64_t d = 0; d < documents; d++) {
    const int64_t first = b->has_documents ? batch->cu_seqlens[d] : d * b->length;
    const int64_t end = b->has_documents ? batch->cu_seqlens[d + 1] : first + b->length;
    const bool counts = has_target(batch, first, end);
    for (int64_t i = first; i < end; i++) {
      b->host[i] = counts;
    }
    b->num_counted[first / (b->rows * b->length)] += counts ? end - first : 0;
    b->all_counted += counts ? end - first : 0;
  }
  return copy(ctx, &b->counted, b->host, batch_tokens(b));
}

tg_status tgi_micro_batches_set(tgi_micro_batches *b, tg_context *ctx, const tg_train_batch *batch,
                                int32_t vocab_size, int64_t step, tg_error *error)
{
  const batch_check check = {b, batch, step, error};
  int64_t num_targets = 0;
  tg_status status = check_batch(&check, vocab_size, &num_targets);
  if (status != TG_OK) {
    return status;
  }
  b->num_targets = num_targets;
  b->has_documents = batch->cu_seqlens != NULL;
  status = copy(ctx, &b->tokens, batch->tokens, batch_tokens(b));
  status = status ? status : copy(ctx, &b->targets, batch->targets, batch_tokens(b));
  if (status == TG_OK && b->has_documents) {
    status = copy_positions(b, ctx, batch);
    status = status ? status : copy_starts(b, ctx, batch);
  }
  if (status == TG_OK && b->counts_tokens) {
    status = copy_counted(b, ctx, batch);
  }
  return status ? tgi_error_set(error, status, "step %lld: %s", (long long)step,
                                tg_context_message(ctx))
                : TG_OK;
}

/* ---- parts ---- */

static tg_tensor part(const tg_tensor *whole, int64_t first, int64_t count)
{
  int32_t *from = whole->data;
  return tg_tensor_1d(from ? from + first : NULL, TG_I32, count);
}

tg_tensor tgi_micro_batch_part(const tgi_micro_batches *b, const tg_tensor *whole, int64_t index)
{
  const int64_t tokens = b->rows * b->length;
  return part(whole, index * tokens, tokens);
}

tg_tensor tgi_micro_batch_starts(const tgi_micro_batches *b, int64_t index)
{
  const int64_t first = b->documents_upto[index], end = b->documents_upto[index + 1];
  return part(&b->starts, first + index, end - first + 1);
}
