/**
 * Tokens to train on, read from mapped files: one sequence, the documents that it consists of, and
 * which tokens count as targets.
 */
#ifndef TGI_DATA_TOKEN_STORE_H
#define TGI_DATA_TOKEN_STORE_H

#include "files/file_map.h"
#include <stdbool.h>
#include <stdint.h>

/** A target that has no loss. */
enum { TGI_IGNORED = -100 };

/** A stretch of the sequence: ids of one file. */
typedef struct tgi_token_part {
  const void *ids;  /* uint16_t or uint32_t, aligned */
  int32_t id_bytes; /* 2 or 4 */
  int64_t begin;    /* of its first id in the sequence */
} tgi_token_part;

/** Zeroed: empty. */
typedef struct tgi_token_store {
  tgi_token_part *parts;
  size_t num_parts;
  int64_t count;
  const uint64_t *ends; /* where each document ends; NULL: they were not looked for */
  int64_t num_documents;
  const uint8_t *counted; /* bit i % 8 of byte i / 8: token i counts as a target; NULL: all do */
  uint64_t *own_ends;     /* to be freed */
  tgi_file_map *maps;     /* what the above points into */
  size_t num_maps;
} tgi_token_store;

/** Copies tokens at .. at + n - 1, which are there. */
void tgi_store_read(const tgi_token_store *store, int64_t at, int64_t n, int32_t *ids);

/** The same, where a token that does not count is TGI_IGNORED; returns how many count. */
int64_t tgi_store_read_targets(const tgi_token_store *store, int64_t at, int64_t n,
                               int32_t *targets);

bool tgi_store_counts(const tgi_token_store *store, int64_t at);

/** How many of tokens at .. at + n - 1 count as targets. */
int64_t tgi_store_count_targets(const tgi_token_store *store, int64_t at, int64_t n);

/** Where document `index` begins. */
int64_t tgi_store_begin(const tgi_token_store *store, int64_t index);

/** The largest id, and where it first is; -1 in an empty store. */
int32_t tgi_store_largest(const tgi_token_store *store, int64_t *at);

/**
 * Ends a document behind every token `end_token` (-1: nowhere) and behind the last one. Errors:
 * NO_MEMORY.
 */
tg_status tgi_store_find_documents(tgi_token_store *store, int32_t end_token, tg_error *error);

/** Bytes of files that are mapped. */
uint64_t tgi_store_bytes(const tgi_token_store *store);

void tgi_store_close(tgi_token_store *store);

#endif
