/** The ids that a text begins with: of a text, of a file, or as numbers. */
#ifndef TGI_CLI_PROMPT_H
#define TGI_CLI_PROMPT_H

#include "tegula/tokenizer.h"

typedef struct tgi_prompt {
  int32_t *ids;
  int64_t count;
} tgi_prompt;

/** The ids of `size` bytes of text. Errors: those of tg_tokenizer_encode, BAD_ARGUMENT (no text).
 */
tg_status tgi_prompt_encode(const tg_tokenizer *tokenizer, const char *text, size_t size,
                            tgi_prompt *out, tg_error *error);

/**
 * The ids of a whole file, without a newline at its end; "-" is standard input, of which every byte
 * counts. Errors: also IO; messages about the text name the file.
 */
tg_status tgi_prompt_read(const tg_tokenizer *tokenizer, const char *path, tgi_prompt *out,
                          tg_error *error);

/** Ids such as "1,2,3" or "1 2 3". Errors: BAD_ARGUMENT naming the byte, NO_MEMORY. */
tg_status tgi_prompt_parse(const char *text, tgi_prompt *out, tg_error *error);

/** Frees the ids; a zeroed prompt is allowed. */
void tgi_prompt_free(tgi_prompt *prompt);

#endif
