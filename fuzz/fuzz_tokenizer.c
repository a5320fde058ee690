/*
 * tokenizer.json texts for the loader: what it takes encodes and decodes a text of every kind of
 * character, and decoding the ids of a text without added tokens and normalising gives the text.
 * Texts that are no JSON go through the tokenizer of the bytes and the UTF-8 stream, which must
 * agree.
 */
#include "files/utf8.h"
#include "files/utf8_stream.h"
#include "text/tokenizer_state.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
  if (!condition) {
    abort();
  }
}

static void encode_and_decode(const tg_tokenizer *t)
{
  static const char text[] =
      "The  12345's caf\xc3\xa9 e\xcc\x81\xcc\xa3 \xe4\xbd\xa0\xe5\xa5\xbd\n\n"
      "\xf0\x9f\xab\xa8<|a|> \xe3\x80\x80x\xcd\xb8 aaaaaaaaaaaaaaaaaaaaaaaa"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  const tg_text_range range = {3, 20};
  int32_t ids[1024];
  char out[4096];
  size_t count, size;
  tg_error error;
  const tg_status status = tg_tokenizer_encode_marked(
      t, text, sizeof text - 1, &range, 1, TG_TOKENIZER_ADD_SPECIAL, ids, 1024, &count, &error);
  require(status == TG_OK || status == TG_UNSUPPORTED);
  for (size_t i = 0; i < count; i++) {
    require(ids[i] >= 0 && ids[i] < tg_tokenizer_vocab_size(t));
  }
  if (tg_tokenizer_encode(t, text, sizeof text - 1, TG_TOKENIZER_PLAIN, ids, 1024, &count,
                          &error) == TG_OK &&
      !t->nfc) {
    require(tg_tokenizer_decode(t, ids, count, 0, out, sizeof out, &size, &error) == TG_OK);
    require(size == sizeof text - 1 && memcmp(out, text, size) == 0);
  }
}

static void load(const char *text, size_t size)
{
  tg_tokenizer *tokenizer;
  tg_error error = {0};
  const tg_status status = tgi_tokenizer_parse("fuzz", text, size, &tokenizer, &error);
  require(status == error.status);
  if (status == TG_OK) {
    require(tg_tokenizer_vocab_size(tokenizer) >= 256);
    encode_and_decode(tokenizer);
  } else {
    require(tokenizer == NULL && (status == TG_BAD_FILE || status == TG_UNSUPPORTED));
    require(strncmp(error.text, "fuzz: ", 6) == 0 && strstr(error.text, ": expected "));
    require(strncmp(error.text, "fuzz: byte ", 11) != 0 ||
            strtoull(error.text + 11, NULL, 10) <= size);
  }
  tg_tokenizer_destroy(tokenizer);
}

static void round_trip(const char *text, size_t size)
{
  tg_tokenizer *tokenizer;
  tg_error error = {0};
  require(tg_tokenizer_create_bytes(&tokenizer, &error) == TG_OK);
  int32_t *ids = malloc((size + 1) * sizeof *ids);
  char *out = malloc(TGI_UTF8_STREAM_BOUND(size) + 3);
  require(ids && out);
  size_t count, used;
  if (tg_tokenizer_encode(tokenizer, text, size, 0, ids, size + 1, &count, &error) == TG_OK) {
    require(tg_tokenizer_decode(tokenizer, ids, count, 0, out, size + 1, &used, &error) == TG_OK);
    require(used == size && memcmp(out, text, size) == 0);
  } else {
    require(tgi_utf8_valid_bytes(text, size) < size);
  }
  tgi_utf8_stream stream = {0};
  const size_t cut = size / 2;
  used = tgi_utf8_stream_push(&stream, text, cut, out);
  used += tgi_utf8_stream_push(&stream, text + cut, size - cut, out + used);
  used += tgi_utf8_stream_finish(&stream, out + used);
  require(tgi_utf8_valid_bytes(out, used) == used);
  if (tgi_utf8_valid_bytes(text, size) == size) {
    require(used == size && memcmp(out, text, size) == 0);
  }
  free(out);
  free(ids);
  tg_tokenizer_destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size == 0) {
    return 0;
  }
  if (data[0] == '{') {
    load((const char *)data, size);
  } else {
    round_trip((const char *)data + 1, size - 1);
  }
  return 0;
}
