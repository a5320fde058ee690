#include "prefix_cache.h"

#include <stdlib.h>
#include <string.h>

bool tgi_prefix_cache_open(tgi_prefix_cache *cache, tgi_block_pool *pool, int32_t piece,
                           int32_t block)
{
  const int64_t room = pool->count * block / piece, all = room > 0 ? room : 1;
  *cache =
      (tgi_prefix_cache){.pool = pool,
                         .entry = calloc((size_t)all, sizeof *cache->entry),
                         .ids = malloc((size_t)(all * piece) * sizeof *cache->ids),
                         .blocks = malloc((size_t)(all * piece / block) * sizeof *cache->blocks),
                         .bucket = malloc((size_t)all * sizeof *cache->bucket),
                         .room = (int32_t)room,
                         .piece = piece,
                         .piece_blocks = piece / block,
                         .unused = room > 0 ? 0 : -1};
  if (!cache->entry || !cache->ids || !cache->blocks || !cache->bucket) {
    tgi_prefix_cache_close(cache);
    return false;
  }
  for (int32_t i = 0; i < cache->room; i++) {
    cache->entry[i].next = i + 1 < cache->room ? i + 1 : -1;
    cache->bucket[i] = -1;
  }
  return true;
}

void tgi_prefix_cache_close(tgi_prefix_cache *cache)
{
  free(cache->entry);
  free(cache->ids);
  free(cache->blocks);
  free(cache->bucket);
  *cache = (tgi_prefix_cache){.unused = -1};
}

/* FNV-1a over words, mixed at the end: the low bits choose a bucket. */
static uint32_t hash_piece(const tgi_prefix_cache *cache, int32_t before, const int32_t *ids)
{
  uint64_t h = 0xcbf29ce484222325u ^ (uint32_t)before;
  for (int32_t i = 0; i < cache->piece; i++) {
    h = (h ^ (uint32_t)ids[i]) * 0x100000001b3u;
  }
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15u;
  return (uint32_t)(h >> 32);
}

int32_t tgi_prefix_find(tgi_prefix_cache *cache, int32_t before, const int32_t *ids)
{
  if (cache->room == 0) {
    return -1;
  }
  const uint32_t hash = hash_piece(cache, before, ids);
  const size_t bytes = (size_t)cache->piece * sizeof *ids;
  int32_t i = cache->bucket[hash % (uint32_t)cache->room];
  for (; i >= 0; i = cache->entry[i].next) {
    const tgi_prefix_entry *e = &cache->entry[i];
    if (e->hash == hash && e->before == before &&
        memcmp(cache->ids + (int64_t)i * cache->piece, ids, bytes) == 0) {
      cache->entry[i].used = ++cache->clock;
      break;
    }
  }
  return i;
}

const int32_t *tgi_prefix_blocks(const tgi_prefix_cache *cache, int32_t entry)
{
  return cache->blocks + (int64_t)entry * cache->piece_blocks;
}

int32_t tgi_prefix_add(tgi_prefix_cache *cache, int32_t before, const int32_t *ids,
                       const int32_t *blocks)
{
  /* There is room: entries have blocks of their own, and there are as many entries as blocks. */
  const int32_t i = cache->unused;
  tgi_prefix_entry *e = &cache->entry[i];
  cache->unused = e->next;
  const uint32_t hash = hash_piece(cache, before, ids);
  int32_t *bucket = &cache->bucket[hash % (uint32_t)cache->room];
  *e = (tgi_prefix_entry){.before = before, .next = *bucket, .hash = hash, .used = ++cache->clock};
  *bucket = i;
  memcpy(cache->ids + (int64_t)i * cache->piece, ids, (size_t)cache->piece * sizeof *ids);
  for (int32_t k = 0; k < cache->piece_blocks; k++) {
    cache->blocks[(int64_t)i * cache->piece_blocks + k] = blocks[k];
    tgi_block_share(cache->pool, blocks[k]);
  }
  if (before >= 0) {
    cache->entry[before].follow++;
  }
  return i;
}

/* Whether nobody but the cache uses the entry's blocks. Whoever uses one uses all, and those of the
 * pieces before it. */
static bool is_idle(const tgi_prefix_cache *cache, int32_t i)
{
  return cache->entry[i].used > 0 && cache->pool->users[tgi_prefix_blocks(cache, i)[0]] == 1;
}

static void take_out(tgi_prefix_cache *cache, int32_t i)
{
  tgi_prefix_entry *e = &cache->entry[i];
  int32_t *link = &cache->bucket[e->hash % (uint32_t)cache->room];
  while (*link != i) {
    link = &cache->entry[*link].next;
  }
  *link = e->next;
  if (e->before >= 0) {
    cache->entry[e->before].follow--;
  }
  for (int32_t k = 0; k < cache->piece_blocks; k++) {
    tgi_block_drop(cache->pool, tgi_prefix_blocks(cache, i)[k]);
  }
  *e = (tgi_prefix_entry){.next = cache->unused};
  cache->unused = i;
}

bool tgi_prefix_evict(tgi_prefix_cache *cache)
{
  int32_t oldest = -1;
  for (int32_t i = 0; i < cache->room; i++) {
    if (is_idle(cache, i) && cache->entry[i].follow == 0 &&
        (oldest < 0 || cache->entry[i].used < cache->entry[oldest].used)) {
      oldest = i;
    }
  }
  if (oldest >= 0) {
    take_out(cache, oldest);
  }
  return oldest >= 0;
}

int64_t tgi_prefix_idle_blocks(const tgi_prefix_cache *cache)
{
  int64_t idle = 0;
  for (int32_t i = 0; i < cache->room; i++) {
    idle += is_idle(cache, i) ? cache->piece_blocks : 0;
  }
  return idle;
}
