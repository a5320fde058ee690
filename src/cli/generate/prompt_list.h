/**
 * Files of prompts: JSON Lines, each line an object with "prompt", a text, and maybe numbers of its
 * own that stand for options: temperature, top_k, top_p, min_p, seed, max_tokens,
 * repetition_penalty, presence_penalty, frequency_penalty, repeat_last_n. Other keys are passed
 * over, and so are empty lines.
 */
#ifndef TGI_CLI_PROMPT_LIST_H
#define TGI_CLI_PROMPT_LIST_H

#include "generation_options.h"
#include "prompt.h"

typedef struct tgi_listed_prompt {
  tgi_prompt prompt;
  tgi_generation_numbers numbers;
  int64_t line; /* from 1 */
} tgi_listed_prompt;

/** Starts zeroed. */
typedef struct tgi_prompt_list {
  tgi_listed_prompt *items;
  size_t count, capacity;
} tgi_prompt_list;

/**
 * Reads all prompts of `size` bytes of text, which messages call `name`, and encodes them; numbers
 * that a line leaves out are those of `numbers`. Errors: NO_MEMORY, BAD_FILE (a line, which the
 * message names; no prompt at all).
 */
tg_status tgi_prompt_list_parse(const char *name, const char *text, size_t size,
                                const tg_tokenizer *tokenizer,
                                const tgi_generation_numbers *numbers, tgi_prompt_list *out,
                                tg_error *error);

/** The same for a file. Errors: those, and IO. */
tg_status tgi_prompt_list_read(const char *path, const tg_tokenizer *tokenizer,
                               const tgi_generation_numbers *numbers, tgi_prompt_list *out,
                               tg_error *error);

void tgi_prompt_list_free(tgi_prompt_list *list);

#endif
