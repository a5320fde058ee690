/**
 * Tokenizers: text to ids and back.
 *
 * A tokenizer is immutable: any number of threads may use one concurrently. Text is UTF-8 in both
 * directions. A single token may hold part of a character, so decoded bytes are valid UTF-8 only if
 * whole characters were decoded.
 *
 * Byte-level tokenizers are supported: one token per byte, whose id is the byte's value, followed
 * by special tokens (`<|endoftext|>` is 256).
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
 * Flag of encode: the text of special tokens is encoded as ordinary text. Without it special tokens
 * become their ids, as in Hugging Face tokenizers.
 */
#define TG_TOKENIZER_PLAIN 1u

/** Flag of decode: special tokens are skipped. */
#define TG_TOKENIZER_SKIP_SPECIAL 2u

/**
 * Creates the byte-level tokenizer of 257 ids. Errors: NO_MEMORY; *out is then NULL. `error` may be
 * NULL in every function.
 */
TG_API tg_status tg_tokenizer_create_bytes(tg_tokenizer **out, tg_error *error);

/**
 * Reads `<directory>/tokenizer.json`. Errors: IO, NO_MEMORY, BAD_FILE, UNSUPPORTED (merges, another
 * model, another pre-tokenizer, ...); *out is then NULL.
 */
TG_API tg_status tg_tokenizer_load(const char *directory, tg_tokenizer **out, tg_error *error);

/**
 * Writes tokenizer.json and tokenizer_config.json, which transformers' AutoTokenizer loads. Each
 * file is renamed to its final name only when it is complete. Errors: IO, NO_MEMORY.
 */
TG_API tg_status tg_tokenizer_save(const tg_tokenizer *tokenizer, const char *directory,
                                   tg_error *error);

/** Frees the tokenizer; NULL is allowed. */
TG_API void tg_tokenizer_destroy(tg_tokenizer *tokenizer);

/** One more than the largest id. */
TG_API int32_t tg_tokenizer_vocab_size(const tg_tokenizer *tokenizer);

/** Id of `<|endoftext|>`; -1 if the tokenizer has none. */
TG_API int32_t tg_tokenizer_end_of_text(const tg_tokenizer *tokenizer);

/**
 * Encodes `size` bytes of UTF-8 and stores the number of ids in *count. The ids are written only if
 * `capacity` holds all of them; a call with capacity 0 and ids NULL returns the number alone. There
 * is at most one id per byte. Errors: BAD_ARGUMENT (invalid UTF-8, with the byte offset; 0 <
 * capacity < *count; an unknown flag).
 */
TG_API tg_status tg_tokenizer_encode(const tg_tokenizer *tokenizer, const char *text, size_t size,
                                     uint32_t flags, int32_t *ids, size_t capacity, size_t *count,
                                     tg_error *error);

/**
 * Decodes `count` ids and stores the number of bytes in *size. The bytes are written, without a
 * terminator, only if `capacity` holds all of them; capacity 0 returns the number alone. An id
 * without a token has no bytes, as in Hugging Face tokenizers: a model's vocabulary may be wider
 * than its tokenizer's. Errors: BAD_ARGUMENT (an id below 0, with its index; 0 < capacity < *size;
 * an unknown flag).
 */
TG_API tg_status tg_tokenizer_decode(const tg_tokenizer *tokenizer, const int32_t *ids,
                                     size_t count, uint32_t flags, char *text, size_t capacity,
                                     size_t *size, tg_error *error);

#ifdef __cplusplus
}
#endif
#endif
