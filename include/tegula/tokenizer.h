/**
 * Tokenizers: text to ids and back.
 *
 * One engine, byte-level BPE: text is cut into pieces by patterns, and the bytes of a piece are
 * merged pair by pair, in the order of a list, into the tokens of a vocabulary. Patterns, lists and
 * vocabularies are those of a Hugging Face directory. For what is supported the ids are those of
 * Hugging Face's library `tokenizers`; everything else is UNSUPPORTED, with the place in the file.
 * docs/tokenizers.md lists what that is.
 *
 * A tokenizer is immutable: any number of threads may use one concurrently. Text is UTF-8 in both
 * directions. A single token may hold part of a character, so decoded bytes are valid UTF-8 only if
 * whole characters were decoded. `error` may be NULL in every function.
 */
#ifndef TEGULA_TOKENIZER_H
#define TEGULA_TOKENIZER_H

#include "status.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_tokenizer tg_tokenizer;

/**
 * Flag of encode: no added token is found, so that their text is encoded as ordinary text. Without
 * it the text of added tokens becomes their ids, as in Hugging Face's library. (Its
 * `encode_special_tokens` switches off the special ones alone.)
 */
#define TG_TOKENIZER_PLAIN 1u

/** Flag of decode: special tokens are skipped. */
#define TG_TOKENIZER_SKIP_SPECIAL 2u

/**
 * Flag of encode: adds what the post-processor adds, such as the token that begins a text (also
 * where the text begins with it already, as in Hugging Face's library).
 */
#define TG_TOKENIZER_ADD_SPECIAL 4u

/**
 * Creates the tokenizer whose tokens are the 256 bytes, id by value, and `<|endoftext|>` (256).
 * Errors: NO_MEMORY; *out is then NULL.
 */
TG_API tg_status tg_tokenizer_create_bytes(tg_tokenizer **out, tg_error *error);

/**
 * Reads `<directory>/tokenizer.json`; where there is none, `vocab.json` and `merges.txt`, with the
 * patterns of GPT-2 or Qwen2 as `tokenizer_class` of tokenizer_config.json (or `model_type` of
 * config.json) says. Errors: IO, NO_MEMORY, BAD_FILE, UNSUPPORTED; *out is then NULL.
 */
TG_API tg_status tg_tokenizer_load(const char *directory, tg_tokenizer **out, tg_error *error);

/**
 * Writes the tokenizer's files as they came, byte for byte, so that transformers' AutoTokenizer
 * loads what it loaded before. Each file is renamed to its final name only when it is complete.
 * Errors: IO, NO_MEMORY.
 */
TG_API tg_status tg_tokenizer_save(const tg_tokenizer *tokenizer, const char *directory,
                                   tg_error *error);

/** Frees the tokenizer; NULL is allowed. */
TG_API void tg_tokenizer_destroy(tg_tokenizer *tokenizer);

/** One more than the largest id. */
TG_API int32_t tg_tokenizer_vocab_size(const tg_tokenizer *tokenizer);

/**
 * Id of the token that tokenizer_config.json calls `bos_token`, `eos_token` or `pad_token`; -1 if
 * the file names none, or for any other name.
 */
TG_API int32_t tg_tokenizer_special(const tg_tokenizer *tokenizer, const char *name);

typedef enum tg_token_kind {
  TG_TOKEN_NONE = 0,     /* no token has the id */
  TG_TOKEN_ORDINARY = 1, /* of the model's vocabulary */
  TG_TOKEN_ADDED = 2,    /* added, and kept by decode, such as `<think>` */
  TG_TOKEN_SPECIAL = 3,  /* added and special: TG_TOKENIZER_SKIP_SPECIAL skips it */
} tg_token_kind;

/** A token's bytes: borrowed, not terminated, and maybe part of a character. */
typedef struct tg_token {
  const char *bytes;
  size_t size; /* 0 if no token has the id */
  tg_token_kind kind;
} tg_token;

/** What an id stands for: what decode writes for it. Any id is allowed. */
TG_API tg_token tg_tokenizer_piece(const tg_tokenizer *tokenizer, int32_t id);

/**
 * Encodes `size` bytes of UTF-8 and stores the number of ids in *count. The array is complete only
 * if `capacity` holds all of them; a call with capacity 0 and ids NULL returns the number alone, in
 * the same time. There is at most one id per byte, three where text is normalised (NFC), beside
 * those of ADD_SPECIAL. Errors: BAD_ARGUMENT (invalid UTF-8, with the byte offset; 0 < capacity <
 * *count; an unknown flag), NO_MEMORY, UNSUPPORTED (a pattern that runs into PCRE2's limit on
 * steps).
 */
TG_API tg_status tg_tokenizer_encode(const tg_tokenizer *tokenizer, const char *text, size_t size,
                                     uint32_t flags, int32_t *ids, size_t capacity, size_t *count,
                                     tg_error *error);

/** A range of bytes of a text. */
typedef struct tg_text_range {
  size_t begin, end; /* `end` is behind the last byte */
} tg_text_range;

/**
 * The same, where some ranges were written by somebody who may write no special tokens, such as the
 * user of a chat: an added token is found only where none of its bytes lies in a range. All else
 * sees the whole text, so that the ids of ordinary text are those of tg_tokenizer_encode. Ranges
 * are in order and do not overlap. Errors: also BAD_ARGUMENT (ranges).
 */
TG_API tg_status tg_tokenizer_encode_marked(const tg_tokenizer *tokenizer, const char *text,
                                            size_t size, const tg_text_range *ranges,
                                            size_t num_ranges, uint32_t flags, int32_t *ids,
                                            size_t capacity, size_t *count, tg_error *error);

/**
 * Decodes `count` ids and stores the number of bytes in *size. An id without a token, as models
 * have them beyond their tokenizer's last, gives no bytes. The bytes are written, without a
 * terminator, only if `capacity` holds all of them; capacity 0 returns the number alone. Errors:
 * BAD_ARGUMENT (a negative id, with its index; 0 < capacity < *size; an unknown flag).
 */
TG_API tg_status tg_tokenizer_decode(const tg_tokenizer *tokenizer, const int32_t *ids,
                                     size_t count, uint32_t flags, char *text, size_t capacity,
                                     size_t *size, tg_error *error);

#ifdef __cplusplus
}
#endif
#endif
