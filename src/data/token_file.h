/**
 * Files of token ids for training, little-endian.
 *
 *   llm.c    256 int32: magic, version, number of ids (below 2^31), zeros; then the ids: uint16
 *            (magic 20240520, version 1) where all fit, else uint32 (magic 20240801, version 7)
 *   tegula   256 bytes: "TGTOKENS", uint32 version 1, uint32 bytes of an id (2 or 4), uint64 number
 *            of ids, uint64 ids of the vocabulary, zeros; then the ids
 */
#ifndef TGI_DATA_TOKEN_FILE_H
#define TGI_DATA_TOKEN_FILE_H

#include "files/file_map.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum tgi_token_format { TGI_TOKENS_LLMC, TGI_TOKENS_TEGULA } tgi_token_format;

/** "llm.c" or "tegula"; false for any other text. */
bool tgi_token_format_of(const char *name, tgi_token_format *format);

/** Bytes of an id in a file of a vocabulary of so many ids: 2 or 4. */
size_t tgi_token_bytes(int32_t vocab_size);

/** Writes a file as a whole or not at all. Errors: IO, NO_MEMORY, UNSUPPORTED (too many ids). */
tg_status tgi_token_file_write(const char *path, tgi_token_format format, const int32_t *ids,
                               size_t count, int32_t vocab_size, tg_error *error);

/** A file of ids, mapped. */
typedef struct tgi_token_file {
  tgi_file_map map;
  const void *ids;
  int64_t count;
  int32_t id_bytes;   /* 2 or 4 */
  int64_t vocab_size; /* -1: the format does not say */
} tgi_token_file;

/** Whether bytes begin as a file of ids does. */
bool tgi_token_file_begins(const char *bytes, size_t size);

/**
 * Maps a file of either format. Ids are not looked at. Errors: IO, BAD_FILE (another file, another
 * version, a size that does not fit the header).
 */
tg_status tgi_token_file_open(const char *path, tgi_token_file *file, tg_error *error);

/** A zeroed file is allowed. */
void tgi_token_file_close(tgi_token_file *file);

#endif
