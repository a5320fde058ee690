/**
 * Tokens that were made from text, in a file to be mapped: kept under the hash of all that they
 * depend on, so that the next run need not make them again.
 *
 *   32 bytes   "TGTCACHE", uint32 version, uint32 bytes of an id (2 or 4), the key's 16 bytes
 *   ids        padded with zeros to a multiple of 8
 *   ends       uint64 each: where a document ends
 *   counted    a bit for each token, if not all count as targets; padded to a multiple of 8
 *   64 bytes   uint64 numbers of tokens, documents and bytes of `counted`, and of documents that
 *              were left out as they have no targets; the hash of all from the ids on; zeros;
 *              "TGTCLAST"
 *
 * A file is written under another name and renamed when it is complete. What is read is compared
 * with its hash, its key and the vocabulary, so a damaged or foreign file is never used.
 */
#ifndef TGI_DATA_TOKEN_CACHE_H
#define TGI_DATA_TOKEN_CACHE_H

#include "files/directories/durable_file.h"
#include "files/hash128.h"
#include "token_store.h"

typedef struct tgi_token_cache_info {
  int64_t left_out; /* documents without targets */
  tgi_hash128 hash; /* of the contents */
} tgi_token_cache_info;

/** Opens a cache. Errors: IO, BAD_FILE (anything that is not as it was written), NO_MEMORY. */
tg_status tgi_token_cache_open(const char *path, tgi_hash128 key, int32_t vocab_size,
                               tgi_token_store *store, tgi_token_cache_info *info, tg_error *error);

/** Writes a cache. Starts zeroed. */
typedef struct tgi_token_writer {
  tgi_durable_file file;
  bool in_memory; /* the file has no name and stands in memory */
  tgi_hash128 key;
  int32_t vocab_size;
  tgi_hasher hasher;
  unsigned char *piece; /* what is written next */
  size_t piece_size;
  int64_t count, num_documents, left_out;
  uint64_t *ends;
  size_t ends_capacity;
  uint8_t *counted; /* a bit for each token; complete if not all count */
  size_t counted_capacity;
  bool some_do_not;
} tgi_token_writer;

/** `path` NULL: tokens are kept in memory. Errors: IO, NO_MEMORY. */
tg_status tgi_token_writer_begin(const char *path, tgi_hash128 key, int32_t vocab_size,
                                 tgi_token_writer *writer, tg_error *error);

/** Adds a document, ids of the vocabulary; counted[i] says whether token i counts as a target
 * (NULL: all do). Errors: IO, NO_MEMORY. */
tg_status tgi_token_writer_add(tgi_token_writer *writer, const int32_t *ids, const uint8_t *counted,
                               int64_t count, tg_error *error);

/** Completes the file, frees the writer, and opens what was written. Errors: those of open. */
tg_status tgi_token_writer_commit(tgi_token_writer *writer, tgi_token_store *store,
                                  tgi_token_cache_info *info, tg_error *error);

/** Removes what was written, and frees; a zeroed or committed writer is allowed. */
void tgi_token_writer_drop(tgi_token_writer *writer);

#endif
