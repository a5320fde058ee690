/** Several prompts at the same time, and a file of results: JSON Lines in the prompts' order. */
#ifndef TGI_CLI_PROMPT_BATCH_H
#define TGI_CLI_PROMPT_BATCH_H

#include "generator.h"
#include "prompt_list.h"
#include "text_report.h"

typedef struct tgi_prompt_batch {
  const tgi_generator *generator; /* with an engine */
  const tgi_prompt_list *prompts;
  const char *out;
  int32_t parallel; /* prompts that the engine has at the same time */
  bool with_logprobs;
  int32_t num_top;
  tgi_timings sum; /* of the prompts that are done; starts zeroed but for load_ms. Its milliseconds
                      are those of the whole run, all in predicted_ms */
  size_t done;
} tgi_prompt_batch;

/**
 * Generates and writes a line per prompt: index (from 0), and the object of tgi_text_json. A
 * prompt's text is what it would be alone. A text's times include what ran beside it. The file
 * takes its name when the last line is complete. After an error or an interruption it holds the
 * lines of the prompts that were done, if any. Errors: those of generating, IO, NO_MEMORY.
 */
tg_status tgi_prompt_batch_run(tgi_prompt_batch *b, tg_error *error);

#endif
