/**
 * The newest short pieces of a text with their ids, so that the words that make up most of it are
 * neither looked up in the vocabulary, whose memory is far away, nor merged again.
 */
#ifndef TGI_TEXT_PIECE_CACHE_H
#define TGI_TEXT_PIECE_CACHE_H

#include "byte_words.h"
#include <stdlib.h>

enum {
  TGI_CACHED_BYTES = 15, /* the last byte of the words is the size */
  TGI_CACHED_IDS = 3,
  TGI_CACHED_LEAST = 512,
  TGI_CACHED_MOST = 16384, /* 512 KiB: more no longer stay in the L2 cache */
};

typedef struct tgi_cached_piece {
  uint64_t words[2];
  int32_t ids[TGI_CACHED_IDS];
  uint32_t count;
} tgi_cached_piece;

/** Each piece has one place; the newest stays there. */
typedef struct tgi_piece_cache {
  size_t mask; /* places less 1; a power of two */
  tgi_cached_piece pieces[];
} tgi_piece_cache;

/** An empty cache for a text of so many bytes, to be given to free; NULL without memory. */
static inline tgi_piece_cache *tgi_piece_cache_make(size_t size)
{
  size_t places = TGI_CACHED_LEAST;
  while (places < TGI_CACHED_MOST && places < size / 16) {
    places *= 2;
  }
  tgi_piece_cache *cache = calloc(1, sizeof *cache + places * sizeof *cache->pieces);
  if (cache) {
    cache->mask = places - 1;
  }
  return cache;
}

/** The place of a piece of 1 to TGI_CACHED_BYTES bytes, and its words. */
static inline tgi_cached_piece *tgi_piece_place(tgi_piece_cache *cache, const char *bytes,
                                                size_t size, uint64_t words[2])
{
  words[0] = tgi_short_word(bytes, size < 8 ? size : 8);
  words[1] = (size > 8 ? tgi_short_word(bytes + 8, size - 8) : 0) | (uint64_t)size << 56;
  return &cache->pieces[tgi_mix_words(words[0], words[1]) & cache->mask];
}

#endif
