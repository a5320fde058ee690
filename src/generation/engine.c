/* An engine: making it, and its steps. */
#include "engine_state.h"

#include "core/error_record.h"
#include "tegula/device.h"
#include <stdlib.h>

enum { kBatch = 16, kPiece = 256 };

/* ---- making ---- */

static tg_status check(const tg_model *model, const tg_engine_options *o, tg_error *error)
{
  const int32_t most = model->config.max_position_embeddings;
  const struct {
    const char *name;
    int64_t value, most;
  } numbers[] = {{"batch", o->batch, TG_ENGINE_MAX_BATCH},
                 {"max_tokens", o->max_tokens, most},
                 {"cache_tokens", o->cache_tokens, INT32_MAX - TG_BLOCK_TOKENS}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    if (numbers[i].value < 0 || numbers[i].value > numbers[i].most) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "engine_create: %s: expected 0 to %lld, got %lld", numbers[i].name,
                           (long long)numbers[i].most, (long long)numbers[i].value);
    }
  }
  if (o->cache_tokens > 0 && o->max_tokens > o->cache_tokens) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_create: max_tokens: expected at most the pool's %lld, got %d",
                         (long long)o->cache_tokens, o->max_tokens);
  }
  const int32_t piece = o->piece_tokens;
  if (piece != 0 && piece != 64 && piece != 128 && piece != 256) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_create: piece_tokens: expected 0, 64, 128 or 256, got %d", piece);
  }
  const tg_dtype cache = o->cache_dtype;
  if (cache != TG_DTYPE_NONE && cache != TG_F32 && cache != TG_F16 && cache != TG_BF16) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_create: cache_dtype: expected f32|f16|bf16, got %s",
                         tg_dtype_name(cache));
  }
  return TG_OK;
}

static tg_status open_context(tg_engine *e, const tg_engine_options *o, tg_error *error)
{
  const tg_context_options options = {.backend = o->backend ? o->backend : TG_BACKEND_CPU,
                                      .num_threads = o->num_threads,
                                      .device_index = o->device_index};
  e->on_gpu = e->records = options.backend == TG_BACKEND_CUDA;
  tg_status status = tg_context_create(&options, &e->ctx, error);
  e->prompts = e->ctx;
  if (status != TG_OK || !e->on_gpu) {
    return status;
  }
  status = tg_context_create(&options, &e->prompts, error);
  if (status == TG_OK && (status = tg_context_prepare(e->prompts)) != TG_OK) {
    tgi_error_set(error, status, "engine_create: %s", tg_context_message(e->prompts));
  }
  return status;
}

/* Tokens of a sequence, and of the pool, in blocks. */
static int64_t choose_sizes(tg_engine *e, const tg_engine_options *o)
{
  tgi_scheduler *s = &e->scheduler;
  int64_t most = o->max_tokens ? o->max_tokens : e->model.config.max_position_embeddings;
  int64_t tokens = o->cache_tokens;
  if (tokens == 0) {
    const int64_t wanted = s->batch * (most + TG_BLOCK_TOKENS);
    const int64_t fits = tgi_engine_tokens_that_fit(e, o->device_index);
    tokens = wanted < fits ? wanted : fits;
    tokens = tokens < INT32_MAX - TG_BLOCK_TOKENS ? tokens : INT32_MAX - TG_BLOCK_TOKENS;
    tokens = o->max_tokens && tokens < most ? most : tokens;
  }
  int64_t blocks = (tokens + TG_BLOCK_TOKENS - 1) / TG_BLOCK_TOKENS;
  blocks = blocks > 0 ? blocks : 1;
  s->most_tokens = most < blocks * TG_BLOCK_TOKENS ? most : blocks * TG_BLOCK_TOKENS;
  return blocks;
}

static tg_status set_up(tg_engine *e, const tg_engine_options *o, tg_error *error)
{
  tgi_scheduler *s = &e->scheduler;
  tg_status status = open_context(e, o, error);
  if (status != TG_OK) {
    return status;
  }
  s->batch = o->batch ? o->batch : kBatch;
  s->piece = o->piece_tokens ? o->piece_tokens : kPiece;
  s->shares = !o->no_sharing;
  const int64_t blocks = choose_sizes(e, o);
  if (!tgi_scheduler_open(s, blocks)) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "engine_create: expected memory for a list of %lld blocks, got none",
                         (long long)blocks);
  }
  return tgi_engine_take_memory(e, error);
}

tg_status tg_engine_create(const tg_model *model, const tg_engine_options *options, tg_engine **out,
                           tg_error *error)
{
  if (!model || !options || !out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_create: model, options, out: expected pointers, got NULL");
  }
  *out = NULL;
  tg_status status = check(model, options, error);
  if (status != TG_OK) {
    return status;
  }
  tg_engine *e = calloc(1, sizeof *e);
  if (!e) {
    return tgi_error_set(error, TG_NO_MEMORY, "engine_create: expected %zu bytes, got none",
                         sizeof *e);
  }
  e->model = *model;
  e->cache_dtype = options->cache_dtype ? options->cache_dtype : model->dtype;
  status = set_up(e, options, error);
  if (status != TG_OK) {
    tg_engine_destroy(e);
    return status;
  }
  *out = e;
  return TG_OK;
}

void tg_engine_destroy(tg_engine *e)
{
  if (e) {
    tgi_engine_release_all(e);
    tgi_engine_free_graphs(e);
    tgi_engine_free_memory(e);
    tgi_scheduler_close(&e->scheduler);
    if (e->prompts != e->ctx) {
      tg_context_destroy(e->prompts);
    }
    tg_context_destroy(e->ctx);
    free(e);
  }
}

/* ---- a step ---- */

static void end_cancelled(tg_engine *e, tgi_sequence *const *list)
{
  /* What a callback cancels or submits may change the list: it is read from its start again. */
  for (tgi_sequence *s = *list; s;) {
    if (s->cancelled) {
      tgi_engine_end(e, tgi_request_of(s), TG_FINISH_CANCELLED, NULL);
      s = *list;
    } else {
      s = s->next;
    }
  }
}

static tg_status run_rows(tg_engine *e, tgi_step_plan *plan, tg_error *error)
{
  tg_status status = tgi_engine_run_rows(e, plan);
  if (status != TG_OK) {
    return tgi_engine_fail(e, e->ctx, plan->row, plan->num_rows, status, error);
  }
  for (int32_t i = 0; i < plan->num_rows; i++) {
    tgi_scheduler_advance(&e->scheduler, plan->row[i], 1);
  }
  e->rows += plan->num_rows;
  return tgi_engine_pick(e, plan->row, plan->num_rows, error);
}

static tg_status run_prompt(tg_engine *e, const tgi_step_plan *plan, tg_error *error)
{
  tgi_sequence *s = plan->prompt;
  const tg_status status = tgi_engine_run_prompt(e, plan);
  if (status != TG_OK) {
    return tgi_engine_fail(e, e->prompts, &s, 1, status, error);
  }
  tgi_scheduler_advance(&e->scheduler, s, plan->count);
  e->prompt_tokens += plan->count;
  return tgi_sequence_picks(s) ? tgi_engine_pick(e, &s, 1, error) : TG_OK;
}

tg_status tg_engine_step(tg_engine *e, int64_t *left, tg_error *error)
{
  if (!e) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_step: engine: expected a pointer, got NULL");
  }
  tgi_step_plan plan;
  end_cancelled(e, &e->scheduler.running);
  end_cancelled(e, &e->scheduler.waiting);
  tgi_scheduler_plan(&e->scheduler, &plan);
  tg_status status = plan.num_rows > 0 ? run_rows(e, &plan, error) : TG_OK;
  /* The prompt's request is none of the rows, and no callback ends another request at once. */
  if (plan.prompt) {
    const tg_status second = run_prompt(e, &plan, status ? NULL : error);
    status = status ? status : second;
  }
  e->num_steps++;
  if (left) {
    *left = e->scheduler.num_running + e->scheduler.num_waiting;
  }
  return status;
}

const char *tg_engine_steps(const tg_engine *e)
{
  return !e ? "" : e->steps[0] ? e->steps : e->records ? "recorded" : "op by op";
}

tg_engine_info tg_engine_get_info(const tg_engine *e)
{
  if (!e) {
    return (tg_engine_info){.max_tokens = 0};
  }
  const tgi_scheduler *s = &e->scheduler;
  return (tg_engine_info){.max_tokens = s->most_tokens,
                          .blocks = s->pool.count,
                          .free_blocks = s->pool.num_free,
                          .shared_blocks = tgi_prefix_idle_blocks(&s->cache),
                          .waiting = s->num_waiting,
                          .running = s->num_running,
                          .steps = e->num_steps,
                          .rows = e->rows,
                          .prompt_tokens = e->prompt_tokens,
                          .shared_tokens = s->shared_tokens,
                          .set_back = s->set_back,
                          .cache_bytes =
                              s->pool.count * TG_BLOCK_TOKENS * tgi_engine_token_bytes(e)};
}
