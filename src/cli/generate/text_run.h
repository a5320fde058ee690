/** One text: a prompt through the session, and what is generated behind it. */
#ifndef TGI_CLI_TEXT_RUN_H
#define TGI_CLI_TEXT_RUN_H

#include "files/utf8_stream.h"
#include "generator.h"
#include "prompt.h"

typedef enum tgi_finish { TGI_FINISH_STOP, TGI_FINISH_LENGTH, TGI_FINISH_BROKEN } tgi_finish;

/**
 * Receives each token with the text that it decided, maybe none, which is valid UTF-8; and at the
 * end the rest of the text with id -1. False ends the generation.
 */
typedef bool tgi_text_sink(void *user, int32_t id, const char *text, size_t size);

/** The first fields are given, and the rest starts zeroed. */
typedef struct tgi_text_run {
  const tgi_generator *generator;
  const tgi_generation_numbers *numbers;
  const tgi_prompt *prompt;
  tgi_stop_strings *stops; /* NULL: the generator's. Texts at the same time have their own */
  tgi_text_sink *sink;     /* NULL: none */
  void *user;
  bool with_logprobs;
  int32_t num_top; /* log-probabilities of the most probable ids too */

  int32_t *ids; /* [num_ids]: generated, without an end token */
  size_t num_ids, ids_room;
  tg_token_logprobs *logprobs; /* [num_ids], if they are wanted */
  size_t logprobs_room;
  char *text; /* [size] */
  size_t size, text_room;
  tgi_finish finish;
  const char *reason; /* of the end: a phrase for people */
  int64_t passes;     /* over one token, to generate; 0: in passes that others share */
  int64_t shared;     /* tokens of the prompt that were found instead of evaluated */
  double prompt_seconds, seconds;

  tgi_utf8_stream stream;
  tg_token_logprobs latest;
  tg_generate_options how;
  tg_status status;
  tg_error *error;
} tgi_text_run;

/** Feeds the prompt to an empty timeline. Errors: those of tg_session_feed. */
tg_status tgi_text_run_prompt(tgi_text_run *r, tg_error *error);

/** Generates behind it. Errors: those of tg_session_generate, NO_MEMORY. */
tg_status tgi_text_run_generate(tgi_text_run *r, tg_error *error);

/**
 * The parts of that for tokens from elsewhere: before the first token, which sets `how`; at each,
 * a tg_token_callback whose user is the run, and whose end the run's reason says; and after the
 * last. Errors: NO_MEMORY.
 */
void tgi_text_run_begin(tgi_text_run *r, tg_error *error);
bool tgi_text_run_take(void *run, int32_t id);
tg_status tgi_text_run_end(tgi_text_run *r);

/** Frees the results. */
void tgi_text_run_free(tgi_text_run *r);

#endif
