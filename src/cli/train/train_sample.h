/**
 * Texts that the model writes while it is trained: the tokens that `tegula generate` would print
 * for the prompt, the run's seed and the sampling of generation_config.json. A text is a function
 * of weights, prompt and seed. The weights are read and nothing of the trainer is changed, so that
 * a run has the same bits with and without it.
 *
 * The session runs on the CPU, on a GPU's run too: it needs no memory that the plan lacks.
 */
#ifndef TGI_CLI_TRAIN_SAMPLE_H
#define TGI_CLI_TRAIN_SAMPLE_H

#include "train_run.h"

/** With --sample-every: the prompt's ids. Errors: BAD_ARGUMENT (--sample-prompt: longer than the
 * model's positions allow; none, and the model has no token that begins a text), NO_MEMORY. */
tg_status tgi_train_sample_prepare(tgi_train_run *run, tg_error *error);

/** Writes a text to standard error and to the log. An interrupt ends it. Errors: NO_MEMORY, DEVICE,
 * those of tg_session_generate. */
tg_status tgi_train_sample(tgi_train_run *run, tg_error *error);

#endif
