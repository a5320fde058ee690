/**
 * Pieces of prompts whose keys and values are in the pool, found by their ids and what is before
 * them.
 *
 * A piece's bits depend on its own ids, on those before it, and on how the prompt was cut. Prompts
 * are cut at the same places, so a whole piece behind equal pieces has equal bits, whoever computed
 * it. A piece is found by a hash, and compared id by id.
 *
 *   root -> [0, 256) -> [256, 512) -> ...      a tree: an entry knows the piece before it
 *
 * The cache is a user of its blocks. An entry whose blocks have no other user, and that no other
 * entry follows, may be evicted; the one that was used longest ago is the first.
 */
#ifndef TGI_GENERATION_PREFIX_CACHE_H
#define TGI_GENERATION_PREFIX_CACHE_H

#include "block_pool.h"

typedef struct tgi_prefix_entry {
  int32_t before; /* entry; -1: the root */
  int32_t next;   /* of the same bucket, or of the free ones; -1: none */
  int32_t follow; /* how many entries follow it directly */
  uint32_t hash;
  uint64_t used; /* when; 0: the entry is free */
} tgi_prefix_entry;

typedef struct tgi_prefix_cache {
  tgi_block_pool *pool;
  tgi_prefix_entry *entry; /* [room] */
  int32_t *ids;            /* [room][piece] */
  int32_t *blocks;         /* [room][piece_blocks] */
  int32_t *bucket;         /* [room]: the first entry; -1: none */
  int32_t room, piece, piece_blocks;
  int32_t unused; /* the first free entry; -1: none */
  uint64_t clock;
} tgi_prefix_cache;

/** Pieces of so many tokens, in blocks of `block`. False: no memory. */
bool tgi_prefix_cache_open(tgi_prefix_cache *cache, tgi_block_pool *pool, int32_t piece,
                           int32_t block);

void tgi_prefix_cache_close(tgi_prefix_cache *cache);

/** The entry of piece `ids` behind the entry `before`; -1: none. What is found is used now. */
int32_t tgi_prefix_find(tgi_prefix_cache *cache, int32_t before, const int32_t *ids);

/** The blocks of an entry, [piece_blocks]. */
const int32_t *tgi_prefix_blocks(const tgi_prefix_cache *cache, int32_t entry);

/** Adds a piece that is not there, behind an entry whose blocks the caller uses too, and shares its
 * blocks. */
int32_t tgi_prefix_add(tgi_prefix_cache *cache, int32_t before, const int32_t *ids,
                       const int32_t *blocks);

/** Evicts one entry. False: there is none that may be. */
bool tgi_prefix_evict(tgi_prefix_cache *cache);

/** How many blocks are there for nobody but the cache. */
int64_t tgi_prefix_idle_blocks(const tgi_prefix_cache *cache);

#endif
