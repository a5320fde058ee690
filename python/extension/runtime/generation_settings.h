/** How to generate, from the keyword arguments of a call. */
#ifndef TGI_PYTHON_GENERATION_SETTINGS_H
#define TGI_PYTHON_GENERATION_SETTINGS_H

#include "generation/stop_strings.h"
#include "model_handle.h"

typedef struct tgi_generation_settings {
  tg_generate_options options; /* its lists are those below */
  int32_t *prompt;             /* [num_rows * num_prompt]; one row but for batches */
  int64_t num_rows, num_prompt;
  int32_t *stop_ids;
  const char **stop_texts; /* [num_stop_texts], in the objects of stop_objects */
  int64_t num_stop_texts;
  const tg_tokenizer *tokenizer; /* whose tokens' bytes make the text; of tokenizer_object */
  PyObject *stop_objects, *tokenizer_object;
  tg_logit_bias *bias;
  tg_token_logprobs logprobs;
  bool wants_logprobs;
} tgi_generation_settings;

/** Arguments: prompt (a list of one row; of rows for a batch), and by name max_new_tokens (0: as
 * many as fit), temperature, top_k, top_p, min_p, seed, repetition_penalty, presence_penalty,
 * frequency_penalty, penalty_window, stop (a list of ids), stop_texts (a tuple of str) and their
 * tokenizer (a handle or None), bias (a list of pairs), logprobs (-1: none). -1 with an exception
 * set on failure; nothing is to be freed then. */
int tgi_settings_read(const tgi_model_handle *handle, PyObject *args, PyObject *named,
                      tgi_generation_settings *out);

/** What looks for the stop texts in one row's tokens; NULL in *out where there are none. Needs no
 * lock. Errors: NO_MEMORY. */
tg_status tgi_settings_open_stops(const tgi_generation_settings *settings, tgi_stop_strings **out,
                                  tg_error *error);

/** Whether a row's next token completes a stop text. Needs no lock; `stops` may be NULL. Errors:
 * NO_MEMORY, in *error. */
bool tgi_settings_text_ends(const tgi_generation_settings *settings, tgi_stop_strings *stops,
                            int32_t id, tg_error *error);

/** Whether the id is one of the stop ids. */
bool tgi_settings_id_ends(const tgi_generation_settings *settings, int32_t id);

void tgi_settings_free(tgi_generation_settings *settings);

/** (id, logprob, [(id, logprob), ...]) of the token whose log-probabilities were filled last. */
PyObject *tgi_logprobs_object(int32_t id, const tg_token_logprobs *logprobs);

#endif
