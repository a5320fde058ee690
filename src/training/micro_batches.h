/**
 * A batch on the trainer's device, cut into micro-batches: the rows that one pass computes.
 *
 * The whole batch is checked on the host and copied at once, so that a bad value is named by its
 * index in the batch before anything is computed, and that no pass waits for the host.
 */
#ifndef TGI_TRAINING_MICRO_BATCHES_H
#define TGI_TRAINING_MICRO_BATCHES_H

#include "model/memory_plan.h"
#include "tegula/train.h"

typedef struct tgi_micro_batches {
  int64_t count, rows, length; /* micro-batches; rows of each; tokens of a row */
  int64_t max_documents;       /* of a row; 0: a row is one */
  bool counts_tokens;          /* for the auxiliary loss of routers */

  tg_tensor tokens, targets; /* i32 [count * rows * length] */
  tg_tensor positions;       /* i32 [count * rows * length]: of each token in its document */
  tg_tensor starts;          /* i32: cu_seqlens of each micro-batch, one behind the other */
  tg_tensor counted;         /* i32 [count * rows * length]: 1 in documents with a target, else 0 */

  /* Of the batch that was set last. */
  int64_t num_targets;     /* not ignored */
  bool has_documents;      /* else every row is one */
  int64_t *documents_upto; /* [count + 1]: documents before each micro-batch */
  int64_t *num_counted;    /* [count]: counted tokens of each micro-batch */
  int64_t all_counted;
  int32_t *host; /* room for what is copied to positions, starts and counted */
} tgi_micro_batches;

/** The sizes alone, from options whose micro_batch_size is set. */
tgi_micro_batches tgi_micro_batches_shape(const tg_trainer_options *options, bool counts_tokens);

/** Takes host memory. Errors: NO_MEMORY. */
tg_status tgi_micro_batches_create(tgi_micro_batches *b, tg_error *error);

void tgi_micro_batches_free(tgi_micro_batches *b);

/** Takes the room on the device. */
void tgi_micro_batches_lay_out(tgi_micro_batches *b, tgi_memory_plan *plan);

/**
 * Checks a batch and copies it to the device. Errors: BAD_ARGUMENT (NULL; a value out of range: the
 * message names `step` and the index; what was set before then stays), DEVICE.
 */
tg_status tgi_micro_batches_set(tgi_micro_batches *b, tg_context *ctx, const tg_train_batch *batch,
                                int32_t vocab_size, int64_t step, tg_error *error);

/** Parts of micro-batch `index`: [rows * length], and cu_seqlens [documents + 1]. */
tg_tensor tgi_micro_batch_part(const tgi_micro_batches *b, const tg_tensor *whole, int64_t index);
tg_tensor tgi_micro_batch_starts(const tgi_micro_batches *b, int64_t index);

#endif
