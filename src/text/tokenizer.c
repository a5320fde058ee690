#include "tegula/tokenizer.h"
#include "files/file_error.h"
#include "files/utf8.h"
#include "special_tokens.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tg_status bad_argument(tg_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static tg_status bad_argument(tg_error *error, const char *format, ...)
{
  if (!error) {
    return TG_BAD_ARGUMENT;
  }
  error->status = TG_BAD_ARGUMENT;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  return TG_BAD_ARGUMENT;
}

tg_tokenizer *tgi_tokenizer_allocate(size_t capacity)
{
  tg_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
  tgi_special_token *tokens = calloc(capacity + 1, sizeof *tokens);
  if (!tokenizer || !tokens) {
    free(tokenizer);
    free(tokens);
    return NULL;
  }
  tokenizer->tokens = tokens;
  return tokenizer;
}

void tgi_tokenizer_add(tg_tokenizer *tokenizer, char *text, bool special)
{
  tokenizer->tokens[tokenizer->count++] = (tgi_special_token){text, strlen(text), special};
  tokenizer->starts[(unsigned char)text[0]] = true;
}

tg_status tg_tokenizer_create_bytes(tg_tokenizer **out, tg_error *error)
{
  *out = NULL;
  tg_tokenizer *tokenizer = tgi_tokenizer_allocate(1);
  char *text = strdup(TGI_END_OF_TEXT);
  if (!tokenizer || !text) {
    free(text);
    tg_tokenizer_destroy(tokenizer);
    return tgi_file_error_memory(error, "tokenizer", sizeof *tokenizer);
  }
  tgi_tokenizer_add(tokenizer, text, true);
  *out = tokenizer;
  return TG_OK;
}

void tg_tokenizer_destroy(tg_tokenizer *tokenizer)
{
  if (!tokenizer) {
    return;
  }
  for (size_t i = 0; i < tokenizer->count; i++) {
    free(tokenizer->tokens[i].text);
  }
  free(tokenizer->tokens);
  free(tokenizer);
}

int32_t tg_tokenizer_vocab_size(const tg_tokenizer *tokenizer)
{
  return TGI_BYTE_TOKENS + (int32_t)tokenizer->count;
}

int32_t tg_tokenizer_end_of_text(const tg_tokenizer *tokenizer)
{
  for (size_t i = 0; i < tokenizer->count; i++) {
    if (strcmp(tokenizer->tokens[i].text, TGI_END_OF_TEXT) == 0) {
      return TGI_BYTE_TOKENS + (int32_t)i;
    }
  }
  return -1;
}

/** The longest special token at the start of `text`, as Hugging Face's matcher chooses; or NULL. */
static const tgi_special_token *match_special(const tg_tokenizer *tokenizer, const char *text,
                                              size_t size)
{
  const tgi_special_token *best = NULL;
  for (size_t i = 0; i < tokenizer->count; i++) {
    const tgi_special_token *token = &tokenizer->tokens[i];
    if (token->size <= size && memcmp(token->text, text, token->size) == 0 &&
        (!best || token->size > best->size)) {
      best = token;
    }
  }
  return best;
}

/** Ids of the text; written where `ids` is not NULL. */
static size_t encode(const tg_tokenizer *tokenizer, const char *text, size_t size, bool plain,
                     int32_t *ids)
{
  size_t count = 0;
  for (size_t i = 0; i < size; count++) {
    const unsigned char byte = (unsigned char)text[i];
    const tgi_special_token *special =
        plain || !tokenizer->starts[byte] ? NULL : match_special(tokenizer, text + i, size - i);
    if (ids) {
      ids[count] = special ? TGI_BYTE_TOKENS + (int32_t)(special - tokenizer->tokens) : byte;
    }
    i += special ? special->size : 1;
  }
  return count;
}

tg_status tg_tokenizer_encode(const tg_tokenizer *tokenizer, const char *text, size_t size,
                              uint32_t flags, int32_t *ids, size_t capacity, size_t *count,
                              tg_error *error)
{
  *count = 0;
  if (flags & ~TG_TOKENIZER_PLAIN) {
    return bad_argument(error, "tokenizer_encode: flags: expected 0 or PLAIN, got %u", flags);
  }
  const size_t valid = tgi_utf8_valid_bytes(text, size);
  if (valid < size) {
    return bad_argument(error, "tokenizer_encode: text: byte %zu: expected UTF-8, got 0x%02x",
                        valid, (unsigned char)text[valid]);
  }
  const bool plain = flags & TG_TOKENIZER_PLAIN;
  *count = encode(tokenizer, text, size, plain, NULL);
  if (capacity == 0) {
    return TG_OK;
  }
  if (capacity < *count) {
    return bad_argument(error, "tokenizer_encode: capacity: expected at least %zu, got %zu", *count,
                        capacity);
  }
  encode(tokenizer, text, size, plain, ids);
  return TG_OK;
}

/** Bytes of one id; *piece points to them. An id without a token, such as one of the rows that pad
 * a vocabulary, has none. */
static size_t piece_of(const tg_tokenizer *tokenizer, int32_t id, bool skip, char *byte,
                       const char **piece)
{
  if (id < TGI_BYTE_TOKENS) {
    *byte = (char)id;
    *piece = byte;
    return 1;
  }
  if (id >= tg_tokenizer_vocab_size(tokenizer)) {
    *piece = "";
    return 0;
  }
  const tgi_special_token *token = &tokenizer->tokens[id - TGI_BYTE_TOKENS];
  *piece = token->text;
  return skip && token->special ? 0 : token->size;
}

tg_status tg_tokenizer_decode(const tg_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              uint32_t flags, char *text, size_t capacity, size_t *size,
                              tg_error *error)
{
  *size = 0;
  if (flags & ~TG_TOKENIZER_SKIP_SPECIAL) {
    return bad_argument(error, "tokenizer_decode: flags: expected 0 or SKIP_SPECIAL, got %u",
                        flags);
  }
  const bool skip = flags & TG_TOKENIZER_SKIP_SPECIAL;
  char byte;
  const char *piece;
  size_t total = 0;
  for (size_t i = 0; i < count; i++) {
    if (ids[i] < 0) {
      return bad_argument(error, "tokenizer_decode: ids[%zu]: expected an id of at least 0, got %d",
                          i, ids[i]);
    }
    total += piece_of(tokenizer, ids[i], skip, &byte, &piece);
  }
  *size = total;
  if (capacity == 0) {
    return TG_OK;
  }
  if (capacity < total) {
    return bad_argument(error, "tokenizer_decode: capacity: expected at least %zu, got %zu", total,
                        capacity);
  }
  for (size_t i = 0; i < count; i++) {
    const size_t length = piece_of(tokenizer, ids[i], skip, &byte, &piece);
    memcpy(text, piece, length);
    text += length;
  }
  return TG_OK;
}
