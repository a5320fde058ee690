/* Attention of a pass, and the key-value cache in front of it. Where the cache has another dtype
 * than the activations, keys and values are converted on their way in, and attention runs in the
 * cache's dtype: queries are converted before it and its output behind it. */
#include "transformer.h"

#include "tegula/device.h"

void tgi_cache_cast_lay_out(tgi_cache_cast *cast, tgi_memory_plan *plan, const tgi_config *config,
                            tg_dtype dtype, int64_t rows)
{
  const int64_t q = tgi_config_query_width(config), kv = tgi_config_key_width(config);
  cast->q = tgi_take_2d(plan, dtype, rows, q);
  cast->out = tgi_take_2d(plan, dtype, rows, q);
  if (config->sinks) {
    cast->sinks = tgi_take_1d(plan, TG_F32, config->num_attention_heads);
  }
  cast->kv = tgi_take_2d(plan, dtype, rows > 2 ? rows : 2, kv);
}

tg_tensor tgi_heads_as_rows(const tg_tensor *heads)
{
  tg_tensor t = tg_tensor_2d(heads->data, heads->dtype, heads->shape[0] * heads->shape[1],
                             heads->shape[2] * heads->shape[3]);
  t.stride[0] = heads->stride[1];
  t.stride[1] = 1;
  return t;
}

static tg_tensor as_row(const tg_tensor *vector)
{
  return tg_tensor_2d(vector->data, vector->dtype, 1, vector->shape[0]);
}

/* Appends the pass's keys or values to the cache. */
static tg_status store_in_cache(const tgi_pass *pass, const tg_tensor *from, const tg_tensor *cache)
{
  const tg_tensor rows = tgi_heads_as_rows(from);
  const int64_t width = rows.shape[1];
  char *to = tgi_advance(cache, pass->past * width);
  return tg_memory_convert(pass->ctx, tg_tensor_2d(to, cache->dtype, pass->seq, width), rows);
}

/* Whether the rotation of keys writes them to the cache itself. */
static bool rotates_into_cache(const tgi_pass *pass)
{
  return pass->cache && !pass->cast && !pass->pages && !pass->place &&
         pass->model->config.position == TGI_ROPE;
}

tg_tensor tgi_rotated_keys(const tgi_pass *pass, const tg_tensor *keys, int index)
{
  if (!rotates_into_cache(pass)) {
    return *keys;
  }
  const tg_tensor *cache = &pass->cache[index].keys;
  const int64_t width = keys->shape[2] * keys->shape[3];
  return tg_tensor_view(tgi_advance(cache, pass->past * width), cache->dtype, 4, keys->shape);
}

/* Elements from one buffer to a later one of the same block. */
static int64_t distance(const tg_tensor *from, const tg_tensor *to)
{
  return ((char *)to->data - (char *)from->data) / (int64_t)tg_dtype_bytes(from->dtype);
}

/* The token's key and value as two rows, to the place in the layer's keys and values. */
static tg_status store_at_place(const tgi_pass *pass, const tgi_heads *h,
                                const tgi_layer_cache *cache)
{
  const int64_t width = h->k.shape[2] * h->k.shape[3];
  tg_tensor from = tg_tensor_2d(h->k.data, h->k.dtype, 2, width);
  from.stride[0] = distance(&h->k, &h->v);
  from.stride[1] = 1;
  if (pass->cast) {
    tg_tensor kv = pass->cast->kv;
    kv.shape[0] = 2;
    const tg_status status = tg_memory_convert(pass->ctx, kv, from);
    if (status != TG_OK) {
      return status;
    }
    from = kv;
  }
  tg_tensor to = tg_tensor_view(cache->keys.data, cache->keys.dtype, 3,
                                (const int64_t[]){2, cache->keys.shape[1], width});
  to.stride[0] = distance(&cache->keys, &cache->values);
  to.stride[1] = width;
  to.stride[2] = 1;
  return tg_memory_put(pass->ctx, to, from, pass->place->position);
}

static tg_status store(const tgi_pass *pass, const tgi_heads *h, const tgi_layer_cache *cache)
{
  if (pass->sizing) {
    return TG_OK;
  }
  if (pass->pages) {
    return tgi_pages_store(pass, h, cache);
  }
  if (pass->place) {
    return store_at_place(pass, h, cache);
  }
  const tg_status status =
      rotates_into_cache(pass) ? TG_OK : store_in_cache(pass, &h->k, &cache->keys);
  return status ? status : store_in_cache(pass, &h->v, &cache->values);
}

static tg_tensor cached(const tgi_pass *pass, const tg_tensor *cache)
{
  tg_tensor t = *cache;
  if (!pass->pages) {
    t.shape[1] = pass->place ? pass->place->extent : pass->past + pass->seq;
  }
  return t;
}

/* A buffer of rows in the place of heads. */
static tg_tensor as_heads(const tg_tensor *rows, const tg_tensor *heads)
{
  return tg_tensor_view(rows->data, rows->dtype, 4, heads->shape);
}

static tg_status attend_cached(tgi_pass *pass, const tgi_heads *h, tg_attention_fwd_args *args,
                               const tgi_layer_cache *cache)
{
  const tgi_cache_cast *cast = pass->cast;
  tg_status status = store(pass, h, cache);
  args->k = cached(pass, &cache->keys);
  args->v = cached(pass, &cache->values);
  if (pass->place) {
    args->key_count = pass->place->key_count;
  }
  if (cast) {
    args->q = as_heads(&cast->q, &h->q);
    args->out = as_heads(&cast->out, &h->attention);
  }
  if (status == TG_OK && cast && !pass->sizing) {
    status = tg_memory_convert(pass->ctx, cast->q, tgi_heads_as_rows(&h->q));
  }
  if (cast && args->sinks.ndim) {
    if (status == TG_OK && !pass->sizing) {
      status = tg_memory_convert(pass->ctx, as_row(&cast->sinks), as_row(&args->sinks));
    }
    args->sinks = cast->sinks;
  }
  if (status == TG_OK) {
    status = pass->pages ? tgi_pages_attend(pass, args) : TGI_STEP(pass, attention_fwd, args);
  }
  if (status == TG_OK && cast && !pass->sizing) {
    status = tg_memory_convert(pass->ctx, tgi_heads_as_rows(&h->attention), cast->out);
  }
  return status;
}

tg_status tgi_attend(tgi_pass *pass, const tgi_layer_activations *l, int index)
{
  const tgi_config *c = &pass->model->config;
  const tgi_heads h = tgi_split_heads(pass, &l->qk, &l->qkv, &l->attention);
  tg_attention_fwd_args args = {
      .q = h.q,
      .k = h.k,
      .v = h.v,
      .out = h.attention,
      .lse = l->lse,
      .sinks = tgi_weight(pass->model, pass->model->parameters.layer[index].sinks),
      .scale = tgi_attention_scale(c, index),
      .window = tgi_attention_window(c, index),
      .causal = true};
  tgi_documents_cut_fwd(pass, &args);
  return pass->cache ? attend_cached(pass, &h, &args, &pass->cache[index])
                     : TGI_STEP(pass, attention_fwd, &args);
}
