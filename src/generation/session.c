/* Making a session: memory for its passes, sized before it is taken. */
#include "core/error_record.h"
#include "penalties.h"
#include "session_state.h"
#include "tegula/device.h"
#include "tegula/engine.h"

#include <stdlib.h>

/* The least extent of the cache that a pass over one token is recorded for: no more than what
 * attention reads in a moment. */
enum { kLeastExtent = 256 };

/* Buffers of a pass over `seq` tokens; the row of the tables, the logits, the history and the first
 * id come first, so that they stay where they are whatever the length of the pass. */
static void lay_out(tg_session *s, tgi_memory_plan *plan, int64_t seq)
{
  const tgi_config *c = &s->model.config;
  tgi_rope_tables_lay_out(&s->row, plan, c, 1);
  s->place = tgi_take_1d(plan, TG_I32, 2);
  const tg_tensor logits = tgi_take_2d(plan, TG_F32, 1, c->vocab_size);
  s->changed = tgi_take_2d(plan, TG_F32, 1, c->vocab_size);
  s->history = tgi_take_1d(plan, TG_I32, s->capacity);
  s->ids = tgi_take_1d(plan, TG_I32, seq);
  s->a.layer = s->layer;
  if (s->cache_dtype != s->model.dtype) {
    tgi_cache_cast_lay_out(&s->cast, plan, c, s->cache_dtype, seq);
  }
  tgi_activations_lay_out(&s->a, plan, &s->model, 1, seq, 1, false);
  s->a.logits = logits;
}

static int64_t piece_size(const tg_session *s)
{
  return s->capacity < s->piece ? s->capacity : s->piece;
}

tg_status tgi_session_pick(tg_session *s, tgi_pass *pass, const tg_sampling *sampling, bool changed)
{
  tg_sample_fwd_args args = {.logits = changed ? s->changed : s->a.logits,
                             .ids = s->ids,
                             .seed = (int64_t)sampling->seed,
                             .position = s->length,
                             .temperature = sampling->temperature,
                             .top_p = sampling->top_p,
                             .min_p = sampling->min_p,
                             .top_k = sampling->top_k};
  if (!changed && tgi_has_repetition(sampling)) {
    const int64_t count = pass->sizing ? s->capacity : s->length;
    const int64_t from = tgi_penalty_start(sampling, count);
    int32_t *ids = s->history.data;
    args.history = tg_tensor_2d(ids ? ids + from : NULL, TG_I32, 1, count - from);
    args.repetition_penalty = sampling->repetition_penalty;
  }
  return TGI_STEP(pass, sample_fwd, &args);
}

/* Sizes a pass, or a pick, into s->workspace_bytes. */
static tg_status size_pass(tg_session *s, tgi_pass *pass, const tg_sampling *sampling)
{
  pass->sizing = true;
  pass->workspace_bytes = s->workspace_bytes;
  const tg_status status =
      sampling ? tgi_session_pick(s, pass, sampling, false) : tgi_transformer_forward(pass);
  s->workspace_bytes = pass->workspace_bytes;
  return status;
}

/* What generating needs: passes over one token at every extent, and picking. */
static tg_status size_steps(tg_session *s)
{
  const tg_sampling sampling = {.temperature = 1, .repetition_penalty = 2};
  tg_status status = TG_OK;
  tgi_memory_plan plan = {NULL, 0};
  lay_out(s, &plan, 1);
  for (int64_t keys = 1; keys <= s->capacity && status == TG_OK;) {
    int64_t extent;
    tgi_place place;
    tgi_session_extent(s, keys, &extent);
    tgi_pass pass = tgi_session_pass_by_place(s, extent, &place);
    status = size_pass(s, &pass, NULL);
    keys = extent + 1;
  }
  tgi_pass pass = tgi_session_pass(s, 1);
  return status ? status : size_pass(s, &pass, &sampling);
}

/* A workspace for nearly all passes, so that few have to take a larger one: every power of two and
 * the full piece, at both ends of the cache; and those of generating. */
static tg_status size_workspace(tg_session *s)
{
  s->workspace_bytes = 0;
  tg_status status = TG_OK;
  tgi_session_view_capacity(s);
  for (int64_t seq = 1; status == TG_OK; seq = seq * 2 < piece_size(s) ? seq * 2 : piece_size(s)) {
    for (int full = 0; full < 2 && status == TG_OK; full++) {
      tgi_memory_plan plan = {NULL, 0};
      lay_out(s, &plan, seq);
      tgi_pass pass = tgi_session_pass(s, seq);
      pass.ids = s->ids;
      pass.past = full ? s->capacity - seq : 0;
      status = size_pass(s, &pass, NULL);
    }
    if (seq == piece_size(s)) {
      break;
    }
  }
  return status ? status : size_steps(s);
}

static tg_status fail(const tg_session *s, tg_status status, tg_error *error)
{
  return tgi_error_set(error, status, "%s", tg_context_message(s->ctx));
}

/* The weights' copy on a GPU. */
static tg_status place_weights(tg_session *s, tg_error *error)
{
  const tg_status status = tgi_weights_place(s->ctx, &s->model, &s->weights);
  return status ? fail(s, status, error) : TG_OK;
}

/* What generating keeps beside the plan: tokens on their way to the host. */
static tg_status open_fetches(tg_session *s)
{
  tg_status status = tg_fetch_create(s->ctx, sizeof(int32_t), &s->fetch[0]);
  return status ? status : tg_fetch_create(s->ctx, sizeof(int32_t), &s->fetch[1]);
}

static tg_status open_context(tg_session *s, const tg_session_options *o, tg_error *error)
{
  const tg_context_options options = {.backend = o->backend ? o->backend : TG_BACKEND_CPU,
                                      .num_threads = o->num_threads,
                                      .device_index = o->device_index};
  tg_status status = tg_context_create(&options, &s->ctx, error);
  if (status == TG_OK && (status = tg_context_prepare(s->ctx)) != TG_OK) {
    return fail(s, status, error);
  }
  s->on_gpu = options.backend == TG_BACKEND_CUDA;
  s->device_index = options.device_index;
  s->piece = s->on_gpu ? TGI_GPU_PIECE_TOKENS : TGI_PIECE_TOKENS;
  s->by_place = s->recorded = s->ahead = s->on_gpu;
  s->least_extent = kLeastExtent;
  return status;
}

/* Lists, and on a GPU the weights and the logits' copy. */
static tg_status take_what_is_fixed(tg_session *s, tg_error *error)
{
  const tgi_config *c = &s->model.config;
  s->layer = calloc((size_t)c->num_hidden_layers, sizeof *s->layer);
  s->cache = calloc((size_t)c->num_hidden_layers, sizeof *s->cache);
  if (!s->layer || !s->cache) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "session_create: expected room for %d layers, got none",
                         c->num_hidden_layers);
  }
  if (!s->on_gpu) {
    return TG_OK;
  }
  s->logits = malloc((size_t)c->vocab_size * sizeof *s->logits);
  return s->logits ? place_weights(s, error)
                   : tgi_error_set(error, TG_NO_MEMORY,
                                   "session_create: expected room for %d logits, got none",
                                   c->vocab_size);
}

/* Memory of the passes, for the capacity. */
static tg_status take_buffers(tg_session *s, tg_error *error)
{
  tg_status status = size_workspace(s);
  tgi_memory_plan plan = {NULL, 0};
  if (status == TG_OK) {
    lay_out(s, &plan, piece_size(s));
    status = tg_memory_allocate(s->ctx, plan.bytes, &s->block);
  }
  if (status == TG_OK) {
    status = tg_memory_allocate(s->ctx, s->workspace_bytes, &s->workspace);
  }
  if (status == TG_OK) {
    status = open_fetches(s);
  }
  if (status != TG_OK) {
    return tgi_error_set(error, status, "session_create: %s", tg_context_message(s->ctx));
  }
  tgi_session_bind(s, piece_size(s));
  s->told = malloc((size_t)s->capacity * sizeof *s->told);
  return s->told ? TG_OK
                 : tgi_error_set(error, TG_NO_MEMORY,
                                 "session_create: expected room for %lld ids, got none",
                                 (long long)s->capacity);
}

/* One kernel for a pass over one token, where there is one and memory for it. */
static tg_status open_decoder(tg_session *s, tg_error *error)
{
  tg_error why;
  const tg_status status = tgi_model_open_decoder(s->ctx, &s->model, s->cache, &s->rope,
                                                  TG_BLOCK_TOKENS, &s->decoder, &why);
  if (status == TG_OK) {
    snprintf(s->steps, sizeof s->steps, "one kernel (%s)", tg_decoder_name(s->decoder));
  } else {
    snprintf(s->no_decoder, sizeof s->no_decoder, "%s", why.text);
  }
  return status == TG_OK || status == TG_UNSUPPORTED || status == TG_NO_MEMORY
             ? TG_OK
             : tgi_error_set(error, status, "session_create: %s", why.text);
}

static tg_status set_up(tg_session *s, const tg_session_options *o, tg_error *error)
{
  tg_status status = open_context(s, o, error);
  if (status == TG_OK) {
    status = take_what_is_fixed(s, error);
  }
  if (status == TG_OK) {
    s->capacity = o->max_tokens ? o->max_tokens : tgi_session_default_capacity(s, o->device_index);
    status = take_buffers(s, error);
  }
  status = status ? status : tgi_session_reserve(s, 1, error);
  return status == TG_OK && s->on_gpu ? open_decoder(s, error) : status;
}

tg_status tg_session_create(const tg_model *model, const tg_session_options *options,
                            tg_session **out, tg_error *error)
{
  if (!model || !options || !out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_create: model, options, out: expected pointers, got NULL");
  }
  *out = NULL;
  const int32_t most = model->config.max_position_embeddings;
  if (options->max_tokens < 0 || options->max_tokens > most) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_create: max_tokens: expected 0 to %d, got %d", most,
                         options->max_tokens);
  }
  const tg_dtype cache = options->cache_dtype;
  if (cache != TG_DTYPE_NONE && cache != TG_F32 && cache != TG_F16 && cache != TG_BF16) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_create: cache_dtype: expected f32|f16|bf16, got %s",
                         tg_dtype_name(cache));
  }
  tg_session *s = calloc(1, sizeof *s);
  if (!s) {
    return tgi_error_set(error, TG_NO_MEMORY, "session_create: expected %zu bytes, got none",
                         sizeof *s);
  }
  s->model = *model;
  s->cache_dtype = cache ? cache : model->dtype;
  const tg_status status = set_up(s, options, error);
  if (status != TG_OK) {
    tg_session_destroy(s);
    return status;
  }
  *out = s;
  return TG_OK;
}

void tg_session_destroy(tg_session *s)
{
  if (s) {
    tgi_session_free_cache(s);
    tgi_session_free_forward(s);
    tgi_weights_remove(s->ctx, &s->weights);
    tg_memory_free(s->ctx, s->block);
    tg_memory_free(s->ctx, s->workspace);
    tg_decoder_destroy(s->ctx, s->decoder);
    for (int i = 0; i < TGI_EXTENTS; i++) {
      tg_graph_destroy(s->ctx, s->graph[i]);
    }
    tg_fetch_destroy(s->ctx, s->fetch[0]);
    tg_fetch_destroy(s->ctx, s->fetch[1]);
    tg_context_destroy(s->ctx);
    free(s->layer);
    free(s->cache);
    free(s->logits);
    free(s->told);
    free(s);
  }
}

void tgi_session_bind(tg_session *s, int64_t seq)
{
  tgi_memory_plan plan = {s->block, 0};
  lay_out(s, &plan, seq);
}

int64_t tg_session_length(const tg_session *s)
{
  return s ? s->length : 0;
}

int64_t tg_session_capacity(const tg_session *s)
{
  return s ? s->capacity : 0;
}

tg_status tg_session_truncate(tg_session *s, int64_t length)
{
  if (!s || length < 0 || length > s->length) {
    return TG_BAD_ARGUMENT;
  }
  s->has_logits = s->has_logits && length == s->length;
  s->length = length;
  return TG_OK;
}

const float *tg_session_logits(const tg_session *s)
{
  return !s || !s->has_logits ? NULL : s->on_gpu ? s->logits : s->a.logits.data;
}
