/**
 * Options of a training run, and the note of them in a checkpoint: one line of JSON with every
 * option that affects the weights, and the identity of the text.
 */
#ifndef TGI_CLI_TRAIN_OPTIONS_H
#define TGI_CLI_TRAIN_OPTIONS_H

#include "cli/option_table.h"
#include "cli/template_options.h"
#include "tegula/status.h"
#include "tegula/train.h"

typedef struct tgi_train_options {
  const char *preset, *model, *train_file, *val_file, *out, *log, *dtype, *device;
  const char *schedule, *sample_prompt, *pack, *long_documents;
  tgi_template_options of_template; /* for conversations */
  double val_fraction;
  int64_t steps, warmup, eval_every, eval_tokens, save_every, sample_every, seed, show_data;
  int32_t batch, micro_batch, seq, threads, vocab_size, keep;
  double lr, min_lr, decay_fraction, weight_decay, clip;
  double router_aux_loss; /* -1: the model's */
  bool resume, quiet, trust_content, no_cache, freeze_experts;
} tgi_train_options;

extern const tgi_command tgi_train_command_line;

/** Whether passes can run in this dtype: f32 and bf16, but not f16, whose gradients underflow. */
bool tgi_train_dtype_known(const char *dtype);

/** A schedule by its name; 0 for any other text. */
tg_schedule tgi_train_schedule(const char *name);

/** The defaults; micro_batch 0, seq 0, min_lr -1, warmup -1 and texts that are NULL follow from the
 * others, or from the data. */
tgi_train_options tgi_train_defaults(void);

/** Identity of the training text. */
typedef struct tgi_text_identity {
  uint64_t hash;        /* of its tokens, documents, and which of them count */
  int64_t train_tokens; /* without the tokens held out for validation */
} tgi_text_identity;

enum { TGI_NOTE_BYTES = 16384 };

/** A note, or storage for the strings in one. */
typedef struct tgi_note {
  char text[TGI_NOTE_BYTES];
} tgi_note;

/** 0, or TGI_EXIT_USAGE after a message: --preset, which may be NULL. */
int tgi_train_check_preset(const tgi_command *command, const char *preset);

/** Writes the note. Errors: NO_MEMORY, BAD_ARGUMENT (longer than TGI_NOTE_BYTES). */
tg_status tgi_train_note_write(const tgi_train_options *options, const tgi_text_identity *text,
                               tgi_note *note, tg_error *error);

/**
 * Fills options that were not given on the command line from the checkpoint in options->out. Their
 * strings are stored in `note`. More steps than those of a finished run are taken. *micro_batch is
 * the checkpoint's: whether another one changes the run, the model says. Errors: IO, BAD_FILE,
 * NO_MEMORY, BAD_ARGUMENT (an option that was given differs and would change the run; the message
 * names it and both values).
 */
tg_status tgi_train_note_apply(tgi_train_options *options, const tgi_parsed *given,
                               tgi_text_identity *text, int32_t *micro_batch, tgi_note *note,
                               tg_error *error);

#endif
