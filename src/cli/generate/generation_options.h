/**
 * The options by which every command that generates text samples and runs: rows of the command
 * line, their check, and what a model's directory says where they are not given.
 *
 * A command puts a tgi_generation_options into its struct of values and names the rows as `shared`
 * in its tgi_command.
 */
#ifndef TGI_CLI_GENERATION_OPTIONS_H
#define TGI_CLI_GENERATION_OPTIONS_H

#include "cli/option_table.h"
#include "files/json_file.h"
#include "logit_bias.h"
#include "tegula/engine.h"

/** What each prompt may have for itself. */
typedef struct tgi_generation_numbers {
  int64_t max_tokens; /* -1: as many as fit */
  int64_t seed;
  int32_t top_k;
  int32_t repeat_last_n; /* tokens that penalties look at; -1: all, 0: none */
  double temperature, top_p, min_p;
  double repetition_penalty, presence_penalty, frequency_penalty;
} tgi_generation_numbers;

typedef struct tgi_generation_options {
  tgi_generation_numbers numbers; /* first: see tgi_generation_number */
  int32_t threads, ctx;
  const char *device, *dtype, *cache_dtype;
  tgi_option_list logit_bias, stop;
  bool ignore_eos;
  bool config_limits; /* max_tokens is that of generation_config.json */
} tgi_generation_options;

/** Rows whose values are a tgi_generation_options. */
extern const tgi_option tgi_generation_rows[];

/** The values before the command line is parsed. */
tgi_generation_options tgi_generation_defaults(void);

/** Checks what the rows do not; a wrong value is printed. Returns 0 or TGI_EXIT_USAGE. */
int tgi_generation_check(const tgi_command *command, const tgi_generation_options *o);

/** After the check: where it runs, and the dtype of the weights (TG_DTYPE_NONE: the files'). */
tgi_run_device tgi_generation_device(const tgi_generation_options *o);
tg_dtype tgi_generation_dtype(const tgi_generation_options *o);

/** What the command line leaves open, the model's directory says. */
void tgi_generation_fill(tgi_generation_options *o, const tgi_command *command,
                         const tgi_parsed *given, const tg_model *model);

/**
 * Sets the number that a JSON key names, as its option does ("top_k", "n_predict"), to a value in
 * the range of the option; any other key is no error. *given has a bit for each number so far.
 * Errors: BAD_FILE (the value, a second name of a number), named by `json` and the key.
 */
tg_status tgi_generation_number(tgi_generation_numbers *numbers, const char *key,
                                const json_t *value, const tgi_json *json, uint64_t *given,
                                tg_error *error);

/** The biases of --logit-bias, and with --ignore-eos -infinity for the model's end tokens. Errors:
 * those of tgi_bias_parse. */
tg_status tgi_generation_bias(const tgi_generation_options *o, const tg_model *model,
                              tgi_bias_list *out, tg_error *error);

/** How to pick tokens, once filled. The result borrows the bias and the model's end tokens. */
tg_generate_options tgi_generation_how(const tgi_generation_options *o,
                                       const tgi_generation_numbers *numbers,
                                       const tgi_bias_list *bias, const tg_model *model);

/** A session's options. `needed` is how many tokens it needs at most; 0: not known. On a GPU, which
 * allocates the cache at once, it is then no larger. */
tg_session_options tgi_generation_session(const tgi_generation_options *o, const tg_model *model,
                                          int64_t needed);

/** An engine's options for `count` prompts, at most `parallel` at the same time, that need so many
 * tokens at most. */
tg_engine_options tgi_generation_engine(const tgi_generation_options *o, const tg_model *model,
                                        int64_t needed, size_t count, int32_t parallel);

/** What limits the tokens of a session or engine made so, which may have `capacity`: a phrase for
 * messages. */
const char *tgi_generation_limit(const tgi_generation_options *o, const tg_model *model,
                                 int64_t capacity, int64_t needed);

#endif
