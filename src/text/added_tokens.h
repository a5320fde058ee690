/** Added tokens, and where a text holds them, as Hugging Face's `tokenizers` find them. */
#ifndef TGI_TEXT_ADDED_TOKENS_H
#define TGI_TEXT_ADDED_TOKENS_H

#include "tegula/tokenizer.h"
#include <stdbool.h>

typedef struct tgi_added_token {
  int32_t id;
  bool lstrip, rstrip; /* takes the white space before or behind it */
} tgi_added_token;

/** One byte of one or more contents. */
typedef struct tgi_trie_node {
  uint32_t child, sibling; /* 0: none */
  int32_t token;           /* that ends here; -1: none */
  unsigned char byte;
} tgi_trie_node;

/** A set of contents to be found together. Starts zeroed. */
typedef struct tgi_added_tokens {
  tgi_added_token *tokens;
  size_t count, capacity;
  tgi_trie_node *nodes; /* node 0 is the root */
  size_t num_nodes, node_capacity;
  bool starts[256]; /* bytes that a content begins with */
  int only_start;   /* the one such byte; -1: there are more, or none */
} tgi_added_tokens;

/** Adds a token; of two with one content the first is found. False without memory. */
bool tgi_added_tokens_add(tgi_added_tokens *set, const char *content, size_t size,
                          tgi_added_token token);

void tgi_added_tokens_free(tgi_added_tokens *set);

/** A walk over the tokens in a text. */
typedef struct tgi_token_walk {
  const tgi_added_tokens *set;
  const char *text;
  size_t size;
  const tg_text_range *ranges; /* no byte of a token lies in them; in order */
  size_t num_ranges;
  size_t at; /* starts at 0 */
} tgi_token_walk;

/**
 * The next token: the leftmost, of those the longest; the walk goes on behind it. NULL: there is no
 * other.
 */
const tgi_added_token *tgi_added_tokens_next(tgi_token_walk *walk, size_t *begin, size_t *end);

/** Where the white space that ends at `at` begins, and where that which begins at `at` ends. */
size_t tgi_space_before(const char *text, size_t at);
size_t tgi_space_behind(const char *text, size_t at, size_t size);

#endif
