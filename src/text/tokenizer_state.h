/** What a tokenizer holds, and the functions that fill it. */
#ifndef TGI_TEXT_TOKENIZER_STATE_H
#define TGI_TEXT_TOKENIZER_STATE_H

#include "added_tokens.h"
#include "bpe/merge_table.h"
#include "bpe/vocabulary.h"
#include "kept_files.h"
#include "tegula/tokenizer.h"
#include "unicode/pattern.h"
#include "unicode/point_map.h"
#include <stdatomic.h>

#define TGI_END_OF_TEXT "<|endoftext|>"

enum { TGI_MAX_PATTERNS = 8, TGI_MAX_AROUND = 8 };

/** Whether merging a token's bytes gives the token alone: looked at when first met. */
typedef enum tgi_wholeness { TGI_WHOLE_UNKNOWN, TGI_WHOLE, TGI_NOT_WHOLE } tgi_wholeness;

/** Ids that the post-processor puts at one end of a text. */
typedef struct tgi_around {
  int32_t ids[TGI_MAX_AROUND];
  int count;
} tgi_around;

struct tg_tokenizer {
  /* Normalising: NULL, or NFC by this map. */
  tgi_point_map *nfc;
  /* Splitting: each pattern cuts the pieces of the one before. */
  tgi_pattern *patterns[TGI_MAX_PATTERNS];
  int num_patterns;
  tgi_point_map *late; /* NULL: no pattern looks at classes */
  /* Merging. */
  tgi_vocabulary vocabulary;
  tgi_merge_table merges;
  int32_t byte_ids[256];
  bool ignore_merges;         /* a piece that is a token is that token, whatever its merges give */
  _Atomic uint8_t *wholeness; /* tgi_wholeness of each id; written by every thread */
  /* Added tokens, found before and after normalising. */
  tgi_added_tokens added, added_normalised;
  /* What the post-processor adds. */
  tgi_around before, behind;
  int32_t bos, eos, pad; /* -1: none */
  tgi_kept_files files;
};

/** An empty tokenizer; NULL without memory. */
tg_tokenizer *tgi_tokenizer_allocate(void);

/** Of tokenizer.json in memory; messages call it `path`. *out is NULL on failure. */
tg_status tgi_tokenizer_parse(const char *path, const char *text, size_t size, tg_tokenizer **out,
                              tg_error *error);

/** The texts of a directory without tokenizer.json, and what messages call them. */
typedef struct tgi_paired_texts {
  const tgi_kept_file *vocabulary, *merges; /* vocab.json, merges.txt */
  const tgi_kept_file *settings;            /* tokenizer_config.json; NULL: none */
  const char *directory;
} tgi_paired_texts;

/** Of vocab.json and merges.txt. *out is NULL on failure. */
tg_status tgi_tokenizer_pair(const tgi_paired_texts *texts, tg_tokenizer **out, tg_error *error);

/**
 * Checks that all bytes have tokens, once vocabulary and added tokens are there, and makes what
 * depends on them. The vocabulary stands in the file `path`, at `place`: "model: vocab: ", or "".
 * Errors: UNSUPPORTED, NO_MEMORY.
 */
tg_status tgi_tokenizer_complete(tg_tokenizer *tokenizer, const char *path, const char *place,
                                 tg_error *error);

/**
 * tg_tokenizer_encode_marked into a block of its own, to be freed, of *count ids. Errors: also
 * NO_MEMORY; *ids is then NULL.
 */
tg_status tgi_tokenizer_encode_all(const tg_tokenizer *tokenizer, const char *text, size_t size,
                                   uint32_t flags, int32_t **ids, size_t *count, tg_error *error);

/** A text, of which some ranges may hold no added tokens (tg_tokenizer_encode_marked). */
typedef struct tgi_marked_text {
  const char *bytes;
  size_t size;
  const tg_text_range *ranges;
  size_t num_ranges;
} tgi_marked_text;

/** For each id the bytes that it stands for. */
typedef struct tgi_spans {
  tg_text_range *list;
  size_t count, capacity;
} tgi_spans;

/** Ids with their spans, to be reused. Starts zeroed, ends with tgi_spanned_ids_free. */
typedef struct tgi_spanned_ids {
  int32_t *ids;
  size_t count, capacity;
  tgi_spans spans;
} tgi_spanned_ids;

/**
 * tg_tokenizer_encode_marked that also says which bytes of the text each id stands for. Spans are
 * in order. An id that holds part of a character has that part. Of text that was normalised, an id
 * has all that the stretch was made of; an added token has the white space that it took. What
 * ADD_SPECIAL adds has no bytes. Errors: also NO_MEMORY.
 */
tg_status tgi_tokenizer_encode_spans(const tg_tokenizer *tokenizer, const tgi_marked_text *text,
                                     uint32_t flags, tgi_spanned_ids *out, tg_error *error);

void tgi_spanned_ids_free(tgi_spanned_ids *out);

#endif
