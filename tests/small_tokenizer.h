/** Small tokenizer.json texts for tests: the 256 bytes, and what a test adds to them. */
#ifndef TEGULA_TESTS_SMALL_TOKENIZER_H
#define TEGULA_TESTS_SMALL_TOKENIZER_H

#include "scratch_directory.h"
#include "tegula/tokenizer.h"

/** Pieces of JSON; NULL is the usual one. Ids of bytes are their values, further ones begin at 256.
 */
typedef struct small_tokenizer {
  const char *tokens;         /* more of the vocabulary: ", \"th\": 256" */
  const char *merges;         /* "[\"t h\"]"; usually none */
  const char *added;          /* "[{...}]"; usually none */
  const char *normalizer;     /* usually null */
  const char *pre_tokenizer;  /* usually ByteLevel with GPT-2's pattern */
  const char *post_processor; /* usually null */
  const char *model;          /* more keys of the model: ", \"ignore_merges\": true" */
} small_tokenizer;

/** The text, to be freed. */
char *small_tokenizer_text(const small_tokenizer *s);

/** Writes it as tokenizer.json of the directory, and loads that; the test fails where it cannot. */
tg_tokenizer *small_tokenizer_load(const scratch *directory, const small_tokenizer *s);

/** Whether the text has these ids, ended by -1; the test fails where it has others. */
void small_tokenizer_expect(const tg_tokenizer *t, const char *text, uint32_t flags,
                            const int32_t *ids);

#define EXPECT_IDS(t, text, flags, ...)                                                            \
  small_tokenizer_expect(t, text, flags, (const int32_t[]){__VA_ARGS__, -1})

#endif
