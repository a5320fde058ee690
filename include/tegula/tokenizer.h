/**
 * Tokenizers: text to ids and back.
 *
 * A tokenizer is immutable: any number of threads may use one at a time. Text is UTF-8 in both
 * directions, but a single token may hold part of a character, so decoded bytes are valid UTF-8
 * only where whole characters were decoded.
 *
 * Served are byte-level tokenizers: one token per byte, id = the byte's value, and special tokens
 * after them
 * (`<|endoftext|>` is 256).
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

/** For encode: special tokens' text is taken as ordinary text. Without it they become their ids,
 *  as Hugging Face tokenizers do. */
#define TG_TOKENIZER_PLAIN 1u

/** For decode: special tokens give no text. */
#define TG_TOKENIZER_SKIP_SPECIAL 2u

/** The byte-level tokenizer of 257 ids. Errors: NO_MEMORY; then *out is NULL. `error` may be NULL
 * everywhere. */
TG_API tg_status tg_tokenizer_create_bytes(tg_tokenizer **out, tg_error *error);

/**
 * Reads `<directory>/tokenizer.json`. Errors: IO, NO_MEMORY, BAD_FILE, UNSUPPORTED (merges, another
 * model, another pre-tokenizer, ...); then *out is NULL.
 */
TG_API tg_status tg_tokenizer_load(const char *directory, tg_tokenizer **out, tg_error *error);

/**
 * Writes tokenizer.json and tokenizer_config.json, which transformers' AutoTokenizer loads; each
 * takes its name only when it is complete. Errors: IO, NO_MEMORY.
 */
TG_API tg_status tg_tokenizer_save(const tg_tokenizer *tokenizer, const char *directory,
                                   tg_error *error);

/** Frees; NULL is allowed. */
TG_API void tg_tokenizer_destroy(tg_tokenizer *tokenizer);

/** One more than the largest id. */
TG_API int32_t tg_tokenizer_vocab_size(const tg_tokenizer *tokenizer);

/** Id of `<|endoftext|>`; -1 if the tokenizer has none. */
TG_API int32_t tg_tokenizer_end_of_text(const tg_tokenizer *tokenizer);

/**
 * Encodes `size` bytes of UTF-8. *count gets the number of ids; they are written only where
 * `capacity` holds them all, so that a call with capacity 0 (and ids NULL) asks for the number. At
 * most one id per byte. Errors: BAD_ARGUMENT (not UTF-8, with the byte offset; 0 < capacity <
 * *count; an unknown flag).
 */
TG_API tg_status tg_tokenizer_encode(const tg_tokenizer *tokenizer, const char *text, size_t size,
                                     uint32_t flags, int32_t *ids, size_t capacity, size_t *count,
                                     tg_error *error);

/**
 * Decodes `count` ids. *size gets the number of bytes; they are written (without a terminator) only
 * where `capacity` holds them all; capacity 0 asks. Errors: BAD_ARGUMENT (an id out of range, with
 * its index; 0 < capacity < *size; an unknown flag).
 */
TG_API tg_status tg_tokenizer_decode(const tg_tokenizer *tokenizer, const int32_t *ids,
                                     size_t count, uint32_t flags, char *text, size_t capacity,
                                     size_t *size, tg_error *error);

#ifdef __cplusplus
}
#endif
#endif
