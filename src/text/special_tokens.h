/** What a byte-level tokenizer holds: its special tokens, ids 256 on. */
#ifndef TGI_TEXT_SPECIAL_TOKENS_H
#define TGI_TEXT_SPECIAL_TOKENS_H

#include "tegula/tokenizer.h"
#include <stdbool.h>

#define TGI_BYTE_TOKENS 256
#define TGI_END_OF_TEXT "<|endoftext|>"

typedef struct tgi_special_token {
  char *text; /* not empty */
  size_t size;
  bool special; /* else it is merely an added word, which decoding never skips */
} tgi_special_token;

struct tg_tokenizer {
  tgi_special_token *tokens; /* tokens[i] has id 256 + i */
  size_t count;
  bool starts[256]; /* bytes that some token begins with */
};

/** A tokenizer without special tokens but with room for `capacity`; NULL without memory. */
tg_tokenizer *tgi_tokenizer_allocate(size_t capacity);

/** Adds the next token and takes `text` (from malloc), which is not empty. */
void tgi_tokenizer_add(tg_tokenizer *tokenizer, char *text, bool special);

/** tg_tokenizer_load for the text of a tokenizer.json in memory; messages call it `path`. */
tg_status tgi_tokenizer_parse(const char *path, const char *text, size_t size, tg_tokenizer **out,
                              tg_error *error);

#endif
