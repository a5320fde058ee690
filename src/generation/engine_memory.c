/* Memory of an engine: everything that steps need is taken when it is made. The pool's blocks lie
 * layer by layer; on a CPU the system gives their pages when they are first written. */
#include "core/error_record.h"
#include "engine_state.h"
#include "free_memory.h"
#include "tegula/device.h"

#include <stdlib.h>

/* Least blocks of a table, so that a sequence has one extent up to 256 tokens. */
enum { kLeastWidth = 4 };

int64_t tgi_engine_token_bytes(const tg_engine *e)
{
  const tgi_config *c = &e->model.config;
  return 2 * c->num_hidden_layers * tgi_config_key_width(c) *
         (int64_t)tg_dtype_bytes(e->cache_dtype);
}

int64_t tgi_engine_tokens_that_fit(const tg_engine *e, int32_t device_index)
{
  tg_device_info gpu;
  const int64_t bytes = !e->on_gpu ? tgi_free_memory("")
                        : tg_device_get_info(device_index, &gpu, NULL) == TG_OK ? gpu.free_bytes
                                                                                : 0;
  return bytes == 0 ? INT64_MAX : bytes / 2 / tgi_engine_token_bytes(e); /* 0: unknown */
}

void tgi_engine_lay_out(tg_engine *e, tgi_memory_plan *plan, int64_t batch, int64_t seq,
                        int64_t logit_rows)
{
  const tgi_config *c = &e->model.config;
  const tgi_scheduler *s = &e->scheduler;
  tgi_step_inputs *in = &e->inputs;
  /* What stays where it is whatever the pass comes first. */
  tgi_rope_tables_lay_out(&e->row, plan, c, s->batch);
  e->logits = tgi_take_2d(plan, TG_F32, s->batch, c->vocab_size);
  e->picked = tgi_take_1d(plan, TG_I32, s->batch);
  e->seeds = tgi_take_1d(plan, TG_I64, s->batch);
  in->rows = s->batch > s->piece ? s->batch : s->piece;
  for (in->width = kLeastWidth; in->width * TG_BLOCK_TOKENS < s->most_tokens;) {
    in->width *= 2;
  }
  in->all = tgi_take_1d(plan, TG_I32, 4 * in->rows + s->batch * in->width);
  e->a.layer = e->layer;
  if (e->cache_dtype != e->model.dtype) {
    tgi_cache_cast_lay_out(&e->cast, plan, c, e->cache_dtype, batch * seq);
  }
  tgi_activations_lay_out(&e->a, plan, &e->model, batch, seq, 0, false);
  if (logit_rows > 0) {
    e->a.logits = e->logits;
    e->a.logits.shape[0] = logit_rows;
  }
}

static tg_status fail(const tg_engine *e, tg_status status, tg_error *error)
{
  return tgi_error_set(error, status, "engine_create: %s", tg_context_message(e->ctx));
}

static tg_status refuse(tg_error *error, const char *what)
{
  return tgi_error_set(error, TG_NO_MEMORY, "engine_create: expected memory for %s, got none",
                       what);
}

/* Keys and values of a layer, without memory for sizing. */
static void view_layer(const tg_engine *e, tgi_layer_cache *cache, char *memory)
{
  const tgi_config *c = &e->model.config;
  const int64_t blocks = e->scheduler.pool.count;
  const int64_t shape[4] = {blocks, TG_BLOCK_TOKENS, c->num_key_value_heads, c->head_dim};
  const int64_t bytes =
      blocks * TG_BLOCK_TOKENS * tgi_config_key_width(c) * (int64_t)tg_dtype_bytes(e->cache_dtype);
  cache->memory = memory;
  cache->keys = tg_tensor_view(memory, e->cache_dtype, 4, shape);
  cache->values = tg_tensor_view(memory ? memory + bytes : NULL, e->cache_dtype, 4, shape);
}

static tg_status take_pool(tg_engine *e, tg_error *error)
{
  const int layers = e->model.config.num_hidden_layers;
  const size_t bytes = (size_t)(e->scheduler.pool.count * TG_BLOCK_TOKENS) *
                       (size_t)(tgi_engine_token_bytes(e) / layers);
  for (int i = 0; i < layers; i++) {
    void *memory;
    const tg_status status = tg_memory_allocate(e->ctx, bytes, &memory);
    if (status != TG_OK) {
      return fail(e, status, error);
    }
    view_layer(e, &e->cache[i], memory);
  }
  return TG_OK;
}

static tg_status take_tables(tg_engine *e, tg_error *error)
{
  const tgi_config *c = &e->model.config;
  tgi_memory_plan plan = {NULL, 0};
  tgi_rope_tables_lay_out(&e->rope, &plan, c, e->scheduler.most_tokens);
  const tg_status status = tg_memory_allocate(e->ctx, plan.bytes, &e->rope_memory);
  if (status != TG_OK) {
    return fail(e, status, error);
  }
  plan = (tgi_memory_plan){e->rope_memory, 0};
  tgi_rope_tables_lay_out(&e->rope, &plan, c, e->scheduler.most_tokens);
  return tgi_rope_tables_fill(&e->rope, 0, c, e->ctx, error);
}

/* The weights' copy on a GPU. */
static tg_status place_weights(tg_engine *e, tg_error *error)
{
  const tg_status status = tgi_weights_place(e->ctx, &e->model, &e->weights);
  return status ? fail(e, status, error) : TG_OK;
}

/* Bytes of the block: of the largest pass of either kind. */
static size_t block_bytes(tg_engine *e)
{
  tgi_memory_plan rows = {NULL, 0}, prompt = {NULL, 0};
  tgi_engine_lay_out(e, &rows, e->scheduler.batch, 1, 1);
  tgi_engine_lay_out(e, &prompt, 1, e->scheduler.piece, 1);
  return rows.bytes > prompt.bytes ? rows.bytes : prompt.bytes;
}

static tg_status take_buffers(tg_engine *e, tg_error *error)
{
  const size_t vocab = (size_t)e->model.config.vocab_size;
  tg_status status = tgi_engine_size_workspace(e);
  if (status == TG_OK) {
    status = tg_memory_allocate(e->ctx, block_bytes(e), &e->block);
  }
  if (status == TG_OK) {
    status = tg_memory_allocate(e->ctx, e->workspace_bytes, &e->workspace);
  }
  if (status != TG_OK) {
    return fail(e, status, error);
  }
  tgi_memory_plan plan = {e->block, 0};
  tgi_engine_lay_out(e, &plan, 1, 1, 1);
  e->inputs.host =
      e->on_gpu ? malloc((size_t)e->inputs.all.shape[0] * sizeof(int32_t)) : e->inputs.all.data;
  e->host_logits = malloc(2 * vocab * sizeof *e->host_logits);
  e->counts = calloc(vocab, sizeof *e->counts);
  return e->inputs.host && e->host_logits && e->counts ? TG_OK : refuse(error, "a row of logits");
}

tg_status tgi_engine_take_memory(tg_engine *e, tg_error *error)
{
  const size_t layers = (size_t)e->model.config.num_hidden_layers;
  e->layer = calloc(layers, sizeof *e->layer);
  e->cache = calloc(layers, sizeof *e->cache);
  if (!e->layer || !e->cache) {
    return refuse(error, "lists of layers");
  }
  e->graph = e->records ? calloc(TGI_ROW_GRAPHS, sizeof *e->graph) : NULL;
  if (e->records && !e->graph) {
    return refuse(error, "a list of graphs");
  }
  for (size_t i = 0; i < layers; i++) {
    view_layer(e, &e->cache[i], NULL);
  }
  tg_status status = e->on_gpu ? place_weights(e, error) : TG_OK;
  status = status ? status : take_tables(e, error);
  status = status ? status : take_buffers(e, error);
  return status ? status : take_pool(e, error);
}

void tgi_engine_free_memory(tg_engine *e)
{
  for (int i = 0; e->cache && i < e->model.config.num_hidden_layers; i++) {
    tg_memory_free(e->ctx, e->cache[i].memory);
  }
  tgi_weights_remove(e->ctx, &e->weights);
  tg_memory_free(e->ctx, e->block);
  tg_memory_free(e->ctx, e->workspace);
  tg_memory_free(e->ctx, e->rope_memory);
  if (e->on_gpu) {
    free(e->inputs.host);
  }
  free(e->layer);
  free(e->cache);
  free(e->host_logits);
  free(e->counts);
}
