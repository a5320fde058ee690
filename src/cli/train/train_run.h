/** State of a training run: train_setup.c prepares it, train_command.c runs its steps. */
#ifndef TGI_CLI_TRAIN_RUN_H
#define TGI_CLI_TRAIN_RUN_H

#include "cli/generate/prompt.h"
#include "cli/progress.h"
#include "files/directories/process_lock.h"
#include "files/hub_name.h"
#include "tegula/train.h"
#include "train_data.h"
#include "train_log.h"
#include "train_options.h"

enum { TGI_LOG_PATH_BYTES = 4096 };

typedef struct tgi_train_run {
  tgi_train_options o;
  tgi_directory_lock *lock; /* of --out, from before it is read until nothing writes it any more */
  tg_tokenizer *tokenizer;
  tgi_train_data data;
  tgi_model_path model_path; /* storage of o.model, where it is found */
  tg_model *model;
  tg_trainer *trainer;
  tgi_note note;
  tgi_note old_note; /* storage for strings of options that --resume restores */
  char log_path[TGI_LOG_PATH_BYTES];
  tgi_train_log log;
  tgi_progress progress;
  tgi_prompt sample_prompt; /* with sample_every */
  int64_t saved_step;       /* of the checkpoint in --out; -1: none */
} tgi_train_run;

/**
 * Prepares a run up to its next step: checks --out and locks it, reads the data, creates or loads
 * the model, prints the memory plan, allocates, resumes, and opens the log. run->o holds the
 * options, and open ones are filled in; everything else starts zeroed.
 */
tg_status tgi_train_prepare(tgi_train_run *run, const tgi_parsed *given, tg_error *error);

/** Loads the run's tokenizer: of the checkpoint, of --model, or of bytes. */
tg_status tgi_train_load_tokenizer(tgi_train_run *run, tg_error *error);

/** Frees the run's contents, also after a failed tgi_train_prepare. */
void tgi_train_release(tgi_train_run *run);

#endif
