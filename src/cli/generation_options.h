/**
 * The options by which every command that generates text samples and runs: rows of the command
 * line, their check, and what a model's directory says where they are not given.
 *
 * A command puts a tgi_generation_options into its struct of values and names the rows as `shared`
 * in its tgi_command.
 */
#ifndef TGI_CLI_GENERATION_OPTIONS_H
#define TGI_CLI_GENERATION_OPTIONS_H

#include "option_table.h"
#include "tegula/model.h"

typedef struct tgi_generation_options {
  int64_t max_tokens, seed; /* max_tokens -1: as many as fit */
  int32_t top_k, threads, ctx;
  double temperature, top_p, min_p;
  const char *device, *dtype, *cache_dtype;
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

/** A session's options. `needed` is how many tokens it needs at most; 0: not known. On a GPU, which
 * allocates the cache at once, it is then no larger. */
tg_session_options tgi_generation_session(const tgi_generation_options *o, const tg_model *model,
                                          int64_t needed);

/** What limits a session made so: a phrase for messages. */
const char *tgi_generation_limit(const tgi_generation_options *o, const tg_model *model,
                                 const tg_session *session, int64_t needed);

/** What the command line leaves open, the model's directory says. */
void tgi_generation_fill(tgi_generation_options *o, const tgi_command *command,
                         const tgi_parsed *given, const tg_model *model);

/** How to pick tokens, once filled. */
tg_generate_options tgi_generation_how(const tgi_generation_options *o, const tg_model *model);

#endif
