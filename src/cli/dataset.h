/**
 * Text files as batches of tokens.
 *
 * The batch of a training step is a pure function of tokens, seed and step, so a run can resume
 * from its step alone. Each epoch cuts the tokens into windows from its own random offset and
 * visits each window once, in its own random order.
 */
#ifndef TGI_CLI_DATASET_H
#define TGI_CLI_DATASET_H

#include "tegula/tokenizer.h"
#include <stdbool.h>

/** The tokens of a file. */
typedef struct tgi_dataset {
  int32_t *ids; /* NULL: nothing to free */
  int64_t count;
  uint64_t hash; /* of the file's bytes */
} tgi_dataset;

/**
 * Reads a UTF-8 text file. The text of special tokens becomes their ids. Errors: IO, NO_MEMORY,
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
 * Number of batches that score every token but the first exactly once. Rows overlap by half and
 * only the targets of the second half count (in the first row all), so each scored token has at
 * least half a row of text before it where the text allows. Other targets are -100. Needs two
 * tokens or more.
 */
int64_t tgi_batches_for_evaluation(tgi_tokens tokens, tgi_batch_shape shape);

/** Fills batch `index`; returns the number of targets that count (at least 1). */
int64_t tgi_batch_for_evaluation(tgi_tokens tokens, int64_t index, tgi_batch_shape shape,
                                 int32_t *ids, int32_t *targets);

/** Bytes of text in tokens 1 .. count - 1; special tokens have none. */
tg_status tgi_tokens_bytes(tgi_tokens tokens, const tg_tokenizer *tokenizer, int64_t *bytes,
                           tg_error *error);

#endif
