/**
 * Batches of tokens and targets.
 *
 * The batch of a training step is a pure function of tokens, seed and step, so a run can resume
 * from its step alone. An epoch of a stream cuts the tokens into windows from its own random offset
 * and visits each window once, in its own random order. An epoch of packed rows visits each row
 * once, in its own random order.
 */
#ifndef TGI_DATA_BATCHES_H
#define TGI_DATA_BATCHES_H

#include "packing.h"
#include "tegula/tokenizer.h"

/** Shape of a batch: rows of `length` tokens and as many targets. */
typedef struct tgi_batch_shape {
  int64_t rows, length;
} tgi_batch_shape;

/** Memory of one batch, and what is in it. */
typedef struct tgi_batch {
  int32_t *tokens, *targets; /* [rows * length] */
  int32_t *cu_seqlens;       /* where documents begin, and rows * length; NULL: a row is one */
  int64_t num_documents;     /* 0 without cu_seqlens */
} tgi_batch;

/** Memory for a shape; `most_documents` of a row, 0: without cu_seqlens. Errors: NO_MEMORY,
 * UNSUPPORTED (2^31 tokens or more with cu_seqlens). */
tg_status tgi_batch_make(tgi_batch_shape shape, int64_t most_documents, tgi_batch *batch,
                         tg_error *error);
void tgi_batch_free(tgi_batch *batch);

/* ---- of a stream ---- */

/** A part of a store. */
typedef struct tgi_stream {
  const tgi_token_store *store;
  int64_t first, count;
} tgi_stream;

/** Fills the batch of step `step` (from 0). stream.count must be above shape.length. */
void tgi_stream_train(tgi_stream stream, uint64_t seed, int64_t step, tgi_batch_shape shape,
                      tgi_batch *batch);

/**
 * Number of batches that score every token but the first exactly once. Rows overlap by half and
 * only the targets of the second half count (in the first row all), so each scored token has at
 * least half a row of text before it where the text allows. Needs two tokens or more.
 */
int64_t tgi_stream_evaluations(tgi_stream stream, tgi_batch_shape shape);

/** Fills batch `index`; returns the number of targets that count. */
int64_t tgi_stream_evaluate(tgi_stream stream, int64_t index, tgi_batch_shape shape,
                            tgi_batch *batch);

/* ---- of packed rows ---- */

/** Documents in a row of a batch, counting what is left of it. */
int64_t tgi_rows_most_documents(const tgi_rows *rows);

/** Fills the batch of step `step`. There must be a row. */
void tgi_rows_train(const tgi_token_store *store, const tgi_rows *rows, uint64_t seed, int64_t step,
                    tgi_batch_shape shape, tgi_batch *batch);

/** Number of batches that score every row once. */
int64_t tgi_rows_evaluations(const tgi_rows *rows, tgi_batch_shape shape);

/** Fills batch `index`; returns the number of targets that count. */
int64_t tgi_rows_evaluate(const tgi_token_store *store, const tgi_rows *rows, int64_t index,
                          tgi_batch_shape shape, tgi_batch *batch);

/* ---- text behind targets ---- */

/** Bytes of text in n targets that count; special tokens have none. */
int64_t tgi_target_bytes(const tg_tokenizer *tokenizer, const int32_t *targets, int64_t n);

#endif
