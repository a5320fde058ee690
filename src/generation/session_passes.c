/* A session's passes: over a piece of a prompt, and over one token, by its place on a GPU. */
#include "core/error_record.h"
#include "session_state.h"
#include "tegula/device.h"

#include <string.h>

tgi_pass tgi_session_pass(tg_session *s, int64_t seq)
{
  return (tgi_pass){.ctx = s->ctx,
                    .model = &s->model,
                    .a = &s->a,
                    .batch = 1,
                    .seq = seq,
                    .cache = s->cache,
                    .cast = s->cache_dtype == s->model.dtype ? NULL : &s->cast,
                    .past = s->length,
                    .rope = s->rope,
                    .watch = s->watch,
                    .workspace = s->workspace,
                    .workspace_bytes = s->workspace_bytes};
}

int tgi_session_extent(const tg_session *s, int64_t keys, int64_t *extent)
{
  int number = 0;
  for (*extent = s->least_extent; *extent < keys; *extent *= 2) {
    number++;
  }
  *extent = *extent < s->capacity ? *extent : s->capacity;
  return number;
}

tgi_pass tgi_session_pass_by_place(tg_session *s, int64_t extent, tgi_place *place)
{
  int32_t *two = s->place.data;
  *place = (tgi_place){.position = tg_tensor_1d(two, TG_I32, 1),
                       .key_count = tg_tensor_1d(two ? two + 1 : NULL, TG_I32, 1),
                       .every = s->rope,
                       .extent = extent};
  tgi_pass pass = tgi_session_pass(s, 1);
  pass.ids = s->ids;
  pass.past = 0;
  pass.place = place;
  pass.rope = s->row;
  return pass;
}

static tg_status fail(const tg_session *s, tg_status status, tg_error *error)
{
  return tgi_error_set(error, status, "%s", tg_context_message(s->ctx));
}

/* A larger workspace. Graphs hold the address of the one before; the decoder has none. */
static tg_status grow_workspace(tg_session *s, size_t bytes)
{
  void *memory;
  const tg_status status = tg_memory_allocate(s->ctx, bytes, &memory);
  if (status != TG_OK) {
    return status;
  }
  for (int i = 0; i < TGI_EXTENTS; i++) {
    tg_graph_destroy(s->ctx, s->graph[i]);
    s->graph[i] = NULL;
  }
  tg_memory_free(s->ctx, s->workspace);
  s->workspace = memory;
  s->workspace_bytes = bytes;
  return TG_OK;
}

/* Ops need not take more workspace for more tokens, so that no pass is the one that needs most:
 * each is asked. */
static tg_status run_pass(tg_session *s, tgi_pass *pass)
{
  tgi_pass asked = *pass;
  asked.sizing = true;
  asked.watch = NULL;
  asked.workspace_bytes = 0;
  tg_status status = tgi_transformer_forward(&asked);
  if (status == TG_OK && asked.workspace_bytes > s->workspace_bytes) {
    status = grow_workspace(s, asked.workspace_bytes);
  }
  if (status != TG_OK) {
    return status;
  }
  pass->workspace = s->workspace;
  pass->workspace_bytes = s->workspace_bytes;
  tgi_watch_begin(pass->watch, "pass");
  status = tgi_transformer_forward(pass);
  tgi_watch_end(pass->watch);
  return status;
}

static tg_status repeat_pass(void *pass)
{
  return tgi_transformer_forward(pass);
}

/* The first pass of an extent runs op by op, so that everything that it needs is loaded; it is
 * recorded for the next ones. */
static tg_status step_by_place(tg_session *s)
{
  const int32_t two[2] = {(int32_t)s->length, (int32_t)s->length + 1};
  int64_t extent;
  const int number = tgi_session_extent(s, s->length + 1, &extent);
  tg_status status =
      tg_memory_copy(s->ctx, s->place.data, sizeof two, two, sizeof two, sizeof two, 1);
  if (status != TG_OK || (s->graph[number] && !s->watch)) {
    return status ? status : tg_graph_launch(s->ctx, s->graph[number]);
  }
  tgi_place place;
  tgi_pass pass = tgi_session_pass_by_place(s, extent, &place);
  status = run_pass(s, &pass);
  if (status == TG_OK && s->recorded && !s->watch &&
      tg_graph_record(s->ctx, repeat_pass, &pass, &s->graph[number]) != TG_OK) {
    s->recorded = false;
    snprintf(s->steps, sizeof s->steps, "op by op: %s", tg_context_message(s->ctx));
  }
  return status;
}

int64_t tgi_session_next_extent(const tg_session *s)
{
  int64_t extent = s->length + 1;
  if (s->by_place) {
    tgi_session_extent(s, s->length + 1, &extent);
  }
  return extent;
}

/* One launch, which picks the best id as well: into the place of the one that it has read. */
static tg_status step_by_decoder(tg_session *s)
{
  const tg_decoder_step step = {
      .id = s->ids, .position = s->length, .logits = s->a.logits, .greedy = s->ids};
  s->greedy = true;
  return tg_decoder_run(s->ctx, s->decoder, &step);
}

tg_status tgi_session_step(tg_session *s)
{
  s->greedy = false;
  if (s->decoder && !s->watch) { /* whoever watches is told of ops */
    return step_by_decoder(s);
  }
  if (s->by_place) {
    return step_by_place(s);
  }
  tgi_pass pass = tgi_session_pass(s, 1);
  pass.ids = s->ids;
  return run_pass(s, &pass);
}

const char *tg_session_steps(const tg_session *s)
{
  return !s            ? ""
         : s->decoder  ? s->steps
         : s->recorded ? "recorded"
         : s->steps[0] ? s->steps
                       : "op by op";
}

static tg_status feed_piece(tg_session *s, const int32_t *ids, int64_t count, tg_error *error)
{
  const size_t bytes = (size_t)count * sizeof *ids;
  s->greedy = false;
  tg_status status =
      tgi_session_reserve(s, count == 1 ? tgi_session_next_extent(s) : s->length + count, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_session_bind(s, count);
  status = tg_memory_copy(s->ctx, s->ids.data, bytes, ids, bytes, bytes, 1);
  tgi_pass pass = tgi_session_pass(s, count);
  pass.ids = s->ids;
  if (status == TG_OK) {
    status = count == 1 ? tgi_session_step(s) : run_pass(s, &pass);
  }
  if (status != TG_OK) {
    return fail(s, status, error);
  }
  memcpy(s->told + s->length, ids, bytes);
  s->length += count;
  return TG_OK;
}

tg_status tg_session_feed(tg_session *s, const int32_t *ids, int64_t count, tg_error *error)
{
  if (!s || !ids || count < 1) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "session_feed: ids: expected 1 or more, got %lld",
                         s && ids ? (long long)count : 0LL);
  }
  if (count > s->capacity - s->length) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_feed: ids: expected at most %lld more tokens (context of %lld), "
                         "got %lld",
                         (long long)(s->capacity - s->length), (long long)s->capacity,
                         (long long)count);
  }
  for (int64_t i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= s->model.config.vocab_size) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "session_feed: ids[%lld]: expected 0 to %d, got %d", (long long)i,
                           s->model.config.vocab_size - 1, ids[i]);
    }
  }
  const int64_t start = s->length;
  tg_status status = TG_OK;
  for (int64_t i = 0; i < count && status == TG_OK; i += s->piece) {
    const int64_t n = count - i < s->piece ? count - i : s->piece;
    status = feed_piece(s, ids + i, n, error);
  }
  if (status == TG_OK && s->on_gpu) {
    const size_t bytes = (size_t)s->model.config.vocab_size * sizeof *s->logits;
    status = tg_memory_copy(s->ctx, s->logits, bytes, s->a.logits.data, bytes, bytes, 1);
    status = status ? fail(s, status, error) : TG_OK;
  }
  s->has_logits = status == TG_OK;
  if (status != TG_OK) {
    s->length = start;
  }
  return status;
}
