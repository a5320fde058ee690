/**
 * Text files as batches of tokens.
 *
 * What a training step sees is a pure function of (tokens, seed, step), so that a run resumes from
 * its step alone. An epoch cuts the tokens into windows that start at an offset of its own and
 * visits each once, in an order of its own.
 */
#ifndef TGI_CLI_DATASET_H
#define TGI_CLI_DATASET_H

#include "tegula/tokenizer.h"
#include <stdbool.h>

/** Tokens and what they stand for. */
typedef struct tgi_dataset {
  int32_t *ids; /* NULL: nothing to free */
  int64_t count;
  uint64_t hash; /* of the file's bytes */
} tgi_dataset;

/**
 * Reads a UTF-8 text file; special tokens' text in it becomes their ids. Errors: IO, NO_MEMORY,
 * BAD_FILE (empty, not UTF-8 with the byte, not a regular file).
 */
tg_status tgi_dataset_load(const char *path, const tg_tokenizer *tokenizer, tgi_dataset *out,
                           tg_error *error);

void tgi_dataset_free(tgi_dataset *dataset);

/** A borrowed part of a dataset. */
typedef struct tgi_tokens {
  const int32_t *ids;
  int64_t count;
} tgi_tokens;

/** Shape of a batch: rows of `length` ids and as many targets, each the id that follows. */
typedef struct tgi_batch_shape {
  int64_t rows, length;
} tgi_batch_shape;

/** Fills the batch of step `step` (from 0). tokens.count must be above shape.length. */
void tgi_batch_for_training(tgi_tokens tokens, uint64_t seed, int64_t step, tgi_batch_shape shape,
                            int32_t *ids, int32_t *targets);

/**
 * Batches that score every token but the first once, each with at least half a row of text before
 * it where the text has it: rows overlap by half, and only the second half's targets count. Other
 * targets are -100. Two tokens or more.
 */
int64_t tgi_batches_for_evaluation(tgi_tokens tokens, tgi_batch_shape shape);

/** Fills batch `index`; returns the number of targets that count (at least 1). */
int64_t tgi_batch_for_evaluation(tgi_tokens tokens, int64_t index, tgi_batch_shape shape,
                                 int32_t *ids, int32_t *targets);

/** Bytes of text that tokens 1 .. count - 1 stand for; special tokens stand for none. */
tg_status tgi_tokens_bytes(tgi_tokens tokens, const tg_tokenizer *tokenizer, int64_t *bytes,
                           tg_error *error);

#endif
