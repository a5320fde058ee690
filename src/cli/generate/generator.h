/** A model of a directory, ready to generate text: what `generate` opens before its first prompt.
 */
#ifndef TGI_CLI_GENERATOR_H
#define TGI_CLI_GENERATOR_H

#include "generation/stop_strings.h"
#include "generation_options.h"
#include "tegula/tokenizer.h"

/** Starts zeroed. */
typedef struct tgi_generator {
  const tgi_generation_options *o; /* the caller's, filled by tgi_generator_load */
  tg_tokenizer *tokenizer;         /* NULL: raw ids */
  tg_model *model;
  tg_session *session; /* of one text */
  tg_engine *engine;   /* of several at the same time */
  tgi_stop_strings *stops;
  tgi_bias_list bias;
  int64_t needed; /* tokens of the longest prompt and its text; 0: not known */
  double load_seconds;
} tgi_generator;

/**
 * Loads the model, and its tokenizer unless `ids_alone`, and fills what the command line `given`
 * left open in *o. `model` is a directory or a hub name. Errors: those of the loaders, and of
 * --logit-bias.
 */
tg_status tgi_generator_load(tgi_generator *g, const char *model, bool ids_alone,
                             tgi_generation_options *o, const tgi_command *command,
                             const tgi_parsed *given, tg_error *error);

/** Counts a prompt of `count` tokens, which its numbers let grow, among those to make room for. */
void tgi_generator_expect(tgi_generator *g, int64_t count, const tgi_generation_numbers *numbers);

/** Makes the session, once all prompts are known. Errors: those of tg_session_create. */
tg_status tgi_generator_open(tgi_generator *g, tg_error *error);

/** Makes the engine for `count` prompts, at most `parallel` of them at the same time. Errors: those
 * of tg_engine_create. */
tg_status tgi_generator_open_engine(tgi_generator *g, size_t count, int32_t parallel,
                                    tg_error *error);

/** Tokens that a text may have, and what limits them: a phrase. */
int64_t tgi_generator_capacity(const tgi_generator *g);
const char *tgi_generator_limit(const tgi_generator *g);

/** Checks that a prompt of `count` tokens fits; messages call it `name`. Errors: BAD_ARGUMENT. */
tg_status tgi_generator_fits(const tgi_generator *g, const char *name, int64_t count,
                             tg_error *error);

/** Bytes per second at which the session's device reads memory: its weights, at most 512 MiB of
 * them, on a CPU; a copy on a GPU. Takes below 0.2 s. 0: not to be measured. */
double tgi_generator_read_speed(const tgi_generator *g);

/** Frees what it holds. */
void tgi_generator_close(tgi_generator *g);

#endif
