#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/utf8.h"
#include "small_tokenizer.h"
#include "text/bpe/byte_alphabet.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *or_else(const char *given, const char *usual)
{
  return given ? given : usual;
}

char *small_tokenizer_text(const small_tokenizer *s)
{
  char vocabulary[8192], *at = vocabulary;
  for (int byte = 0; byte < 256; byte++) {
    char name[5] = {0};
    tgi_utf8_encode(tgi_byte_to_point((unsigned char)byte), name);
    const char *escape = byte == '"' || byte == '\\' ? "\\" : "";
    at += sprintf(at, "%s\"%s%s\": %d", byte ? ", " : "", escape, name, byte);
  }
  static const char format[] =
      "{\"version\": \"1.0\", \"added_tokens\": %s, \"normalizer\": %s, \"pre_tokenizer\": %s, "
      "\"post_processor\": %s, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": "
      "\"BPE\", \"vocab\": {%s%s}, \"merges\": %s%s}}\n";
  const char *const parts[] = {
      or_else(s->added, "[]"),
      or_else(s->normalizer, "null"),
      or_else(s->pre_tokenizer, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"),
      or_else(s->post_processor, "null"),
      or_else(s->tokens, ""),
      or_else(s->merges, "[]"),
      or_else(s->model, "")};
  size_t size = sizeof format + sizeof vocabulary;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    size += strlen(parts[i]);
  }
  char *text = malloc(size);
  snprintf(text, size, format, parts[0], parts[1], parts[2], parts[3], vocabulary, parts[4],
           parts[5], parts[6]);
  return text;
}

tg_tokenizer *small_tokenizer_load(const scratch *directory, const small_tokenizer *s)
{
  tg_error error;
  tg_tokenizer *t = NULL;
  char *text = small_tokenizer_text(s);
  write_text(scratch_file(directory, "tokenizer.json"), text);
  free(text);
  EXPECT_OK(tg_tokenizer_load(directory->path, &t, &error), error);
  return t;
}

void small_tokenizer_expect(const tg_tokenizer *t, const char *text, uint32_t flags,
                            const int32_t *ids)
{
  int32_t got[256];
  size_t count = 0, wanted = 0;
  tg_error error;
  EXPECT_OK(tg_tokenizer_encode(t, text, strlen(text), flags, got, 256, &count, &error), error);
  while (ids[wanted] >= 0) {
    wanted++;
  }
  for (size_t i = 0; i < count && i < wanted; i++) {
    if (got[i] != ids[i]) {
      fail_msg("\"%s\": id %zu: expected %d, got %d", text, i, ids[i], got[i]);
    }
  }
  if (count != wanted) {
    fail_msg("\"%s\": expected %zu ids, got %zu", text, wanted, count);
  }
}
