/* A cache in blocks: keys and values of a pass into the pool, and attention through block tables.
 * Sequences whose tables have one width are one call, for a sequence's bits follow from the extent
 * of its own table. */
#include "transformer.h"

#include "tegula/device.h"

/* Keys or values of the pass to their rows of the pool. */
static tg_status store_rows(const tgi_pass *pass, const tg_tensor *heads, const tg_tensor *cache)
{
  tg_tensor from = tgi_heads_as_rows(heads);
  const int64_t rows = from.shape[0], width = from.shape[1];
  if (pass->cast) {
    tg_tensor converted = pass->cast->kv;
    converted.shape[0] = rows;
    const tg_status status = tg_memory_convert(pass->ctx, converted, from);
    if (status != TG_OK) {
      return status;
    }
    from = converted;
  }
  /* Every row has the whole pool to choose its place from. */
  const int64_t places = cache->shape[0] * cache->shape[1];
  tg_tensor to =
      tg_tensor_view(cache->data, cache->dtype, 3, (const int64_t[]){rows, places, width});
  to.stride[0] = 0;
  to.stride[1] = width;
  to.stride[2] = 1;
  return tg_memory_put(pass->ctx, to, from, pass->pages->slots);
}

tg_status tgi_pages_store(const tgi_pass *pass, const tgi_heads *h, const tgi_layer_cache *cache)
{
  const tg_status status = store_rows(pass, &h->k, &cache->keys);
  return status ? status : store_rows(pass, &h->v, &cache->values);
}

/* Sequences of a tensor [batch, seq, heads, d]. */
static tg_tensor some_sequences(const tg_tensor *t, int64_t first, int64_t count)
{
  tg_tensor some = *t;
  const int64_t step = t->stride[0] ? t->stride[0] : t->shape[1] * t->shape[2] * t->shape[3];
  some.data = tgi_advance(t, first * step);
  some.shape[0] = count;
  return some;
}

tg_status tgi_pages_attend(tgi_pass *pass, const tg_attention_fwd_args *args)
{
  tg_status status = TG_OK;
  for (int i = 0; i < pass->pages->num_groups && status == TG_OK; i++) {
    const tgi_page_group *g = &pass->pages->group[i];
    tg_attention_fwd_args some = *args;
    some.q = some_sequences(&args->q, g->first, g->count);
    some.out = some_sequences(&args->out, g->first, g->count);
    some.block_table = g->block_table;
    some.key_count = g->key_count;
    status = TGI_STEP(pass, attention_fwd, &some);
  }
  return status;
}
