/*
 * The first byte chooses: tokenizer.json texts for the loader, or
 * bytes for the encoder, the decoder and the UTF-8 stream, which must agree.
 */
#include "files/utf8.h"
#include "files/utf8_stream.h"
#include "text/special_tokens.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
  if (!condition) {
    abort();
  }
}

static void load(const char *text, size_t size)
{
  tg_tokenizer *tokenizer;
  tg_error error = {0};
  const tg_status status = tgi_tokenizer_parse("fuzz", text, size, &tokenizer, &error);
  require(status == error.status);
  if (status == TG_OK) {
    require(tg_tokenizer_vocab_size(tokenizer) >= TGI_BYTE_TOKENS);
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
