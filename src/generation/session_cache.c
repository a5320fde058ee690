/* What of a session grows with its timeline: the keys and values of every layer, and the rows of
 * rope's tables. On a CPU memory is taken step by step, as tokens come; on a GPU all at once, for
 * recorded passes hold the addresses. */
#include "core/error_record.h"
#include "free_memory.h"
#include "session_state.h"
#include "tegula/device.h"

enum { kFirstRoom = 256 };

static int64_t row_elements(const tg_session *s)
{
  return tgi_config_key_width(&s->model.config);
}

static int64_t bytes_per_token(const tg_session *s)
{
  const tgi_config *c = &s->model.config;
  const int64_t cache =
      2 * c->num_hidden_layers * row_elements(s) * (int64_t)tg_dtype_bytes(s->cache_dtype);
  const int64_t tables = c->position == TGI_ROPE ? c->head_dim * (int64_t)sizeof(float) : 0;
  return cache + tables;
}

static int64_t free_bytes(const tg_session *s, int32_t device_index)
{
  tg_device_info gpu;
  if (!s->on_gpu) {
    return tgi_free_memory("");
  }
  return tg_device_get_info(device_index, &gpu, NULL) == TG_OK ? gpu.free_bytes : 0;
}

int64_t tgi_session_default_capacity(const tg_session *s, int32_t device_index)
{
  const int64_t positions = s->model.config.max_position_embeddings;
  const int64_t bytes = free_bytes(s, device_index);
  const int64_t fits = bytes / 2 / bytes_per_token(s);
  if (bytes == 0 || fits >= positions) { /* 0: unknown */
    return positions;
  }
  return fits > kFirstRoom ? fits : positions < kFirstRoom ? positions : kFirstRoom;
}

static void view_layer(const tg_session *s, tgi_layer_cache *cache, char *memory, int64_t room)
{
  const tgi_config *c = &s->model.config;
  const int64_t shape[4] = {1, room, c->num_key_value_heads, c->head_dim};
  const int64_t bytes = room * row_elements(s) * (int64_t)tg_dtype_bytes(s->cache_dtype);
  cache->memory = memory;
  cache->keys = tg_tensor_view(memory, s->cache_dtype, 4, shape);
  cache->values = tg_tensor_view(memory ? memory + bytes : NULL, s->cache_dtype, 4, shape);
}

void tgi_session_view_capacity(tg_session *s)
{
  tgi_memory_plan nothing = {NULL, 0};
  for (int i = 0; i < s->model.config.num_hidden_layers; i++) {
    view_layer(s, &s->cache[i], NULL, s->capacity);
  }
  tgi_rope_tables_lay_out(&s->rope, &nothing, &s->model.config, s->capacity);
}

static tg_status fail(const tg_session *s, tg_status status, tg_error *error)
{
  return tgi_error_set(error, status, "session: cache: %s", tg_context_message(s->ctx));
}

static tg_status grow_layer(tg_session *s, tgi_layer_cache *cache, int64_t room, tg_error *error)
{
  const size_t row = (size_t)row_elements(s) * tg_dtype_bytes(s->cache_dtype);
  const size_t kept = (size_t)s->length * row;
  const tgi_layer_cache old = *cache;
  void *memory;
  tg_status status = tg_memory_allocate(s->ctx, 2 * (size_t)room * row, &memory);
  if (status != TG_OK) {
    return fail(s, status, error);
  }
  view_layer(s, cache, memory, room);
  if (kept > 0) {
    status = tg_memory_copy(s->ctx, cache->keys.data, kept, old.keys.data, kept, kept, 1);
    status = status
                 ? status
                 : tg_memory_copy(s->ctx, cache->values.data, kept, old.values.data, kept, kept, 1);
  }
  tg_memory_free(s->ctx, old.memory);
  return status ? fail(s, status, error) : TG_OK;
}

static tg_status grow_tables(tg_session *s, int64_t room, tg_error *error)
{
  const tgi_config *c = &s->model.config;
  const int64_t filled = s->rope_memory ? s->room : 0;
  const tgi_rope_tables old = s->rope;
  const size_t kept = (size_t)(filled * c->head_dim / 2) * sizeof(float);
  tgi_memory_plan plan = {NULL, 0};
  void *memory = NULL;
  tgi_rope_tables_lay_out(&s->rope, &plan, c, room);
  tg_status status = tg_memory_allocate(s->ctx, plan.bytes, &memory);
  if (status != TG_OK) {
    s->rope = old;
    return fail(s, status, error);
  }
  plan = (tgi_memory_plan){memory, 0};
  tgi_rope_tables_lay_out(&s->rope, &plan, c, room);
  if (kept > 0) {
    status = tg_memory_copy(s->ctx, s->rope.cos.data, kept, old.cos.data, kept, kept, 1);
    status = status ? status
                    : tg_memory_copy(s->ctx, s->rope.sin.data, kept, old.sin.data, kept, kept, 1);
  }
  tg_memory_free(s->ctx, s->rope_memory);
  s->rope_memory = memory;
  return status ? fail(s, status, error) : tgi_rope_tables_fill(&s->rope, filled, c, s->ctx, error);
}

/* The next size: half as much again at least, so that copies stay a part of the work. */
static int64_t next_room(const tg_session *s, int64_t tokens)
{
  const int64_t more = s->room + s->room / 2;
  int64_t room = tokens > more ? tokens : more;
  room = (room + kFirstRoom - 1) / kFirstRoom * kFirstRoom;
  return room < s->capacity ? room : s->capacity;
}

tg_status tgi_session_reserve(tg_session *s, int64_t tokens, tg_error *error)
{
  if (tokens <= s->room) {
    return TG_OK;
  }
  const int64_t room = s->on_gpu ? s->capacity : next_room(s, tokens);
  tg_status status = TG_OK;
  for (int i = 0; i < s->model.config.num_hidden_layers && status == TG_OK; i++) {
    /* After a growth that failed half-way some layers have the room already. */
    if (!s->cache[i].memory || s->cache[i].keys.shape[1] < room) {
      status = grow_layer(s, &s->cache[i], room, error);
    }
  }
  if (status == TG_OK && s->model.config.position == TGI_ROPE) {
    status = grow_tables(s, room, error);
  }
  s->room = status == TG_OK ? room : s->room;
  return status;
}

void tgi_session_free_cache(tg_session *s)
{
  for (int i = 0; s->cache && i < s->model.config.num_hidden_layers; i++) {
    tg_memory_free(s->ctx, s->cache[i].memory);
  }
  tg_memory_free(s->ctx, s->rope_memory);
}

int64_t tg_session_cache_bytes(const tg_session *s)
{
  return s ? s->room * bytes_per_token(s) : 0;
}
