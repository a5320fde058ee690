/**
 * What a checkpoint says of the trainer that wrote it, in trainer_state.json:
 *
 *   "options": {"batch_size": 8, "learning_rate": 0.001, ...}
 *   "weights_hash": 32 digits, of up to 256 elements of each trained parameter
 *
 * Checkpoints of earlier versions lack both, and are not compared.
 */
#ifndef TGI_TRAINING_TRAINER_RECORD_H
#define TGI_TRAINING_TRAINER_RECORD_H

#include "files/json_file.h"
#include "trainer_state.h"

/** Adds both to the root of trainer_state.json. The model's host memory is current. */
void tgi_trainer_record(const tg_trainer *t, json_t *root);

/**
 * Compares both with a trainer that is to go on after `step`: num_steps may be larger, and
 * warmup_steps another, where all are done; schedule, decay_fraction and, without the auxiliary
 * loss, micro_batch_size may be others. Errors: BAD_ARGUMENT (an option, by name; other weights),
 * BAD_FILE.
 */
tg_status tgi_trainer_record_check(const tg_trainer *t, const tgi_json *state, int64_t step,
                                   tg_error *error);

#endif
