/*
 * test_damaged_tokenizer [N]: tokenizer.json texts with damaged bytes, N of them. Each loads, and
 * then encodes, or is refused with a message that names the file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "small_tokenizer.h"
#include "text/tokenizer_state.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static int mutations = 2000;

static const small_tokenizer kGood = {
    .tokens = ", \"th\": 256, \"the\": 257, \"\\u0120the\": 258",
    .merges = "[\"t h\", [\"th\", \"e\"], \"\\u0120 the\"]",
    .added = "[{\"id\": 259, \"content\": \"<s>\", \"special\": true}, {\"id\": 260, \"content\": "
             "\"\\u00e9\\u00ea\", \"lstrip\": true, \"rstrip\": true, \"normalized\": true}]",
    .normalizer = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}",
    .pre_tokenizer =
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
        "{\"Regex\": "
        "\"(?i:'s|'t|'re)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]++[\\\\r\\\\n]*|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": "
        "\"Isolated\"}, {\"type\": \"ByteLevel\", \"use_regex\": false}]}",
    .post_processor = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
                      "\"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"<s>\": "
                      "{\"ids\": [259]}}}",
    .model = ", \"ignore_merges\": true",
};

static size_t below(size_t limit)
{
  return limit > 0 ? (size_t)rand() % limit : 0;
}

/** Changes, removes, adds or repeats some bytes; half of the time near the end, behind the bytes'
 * names. Returns the new size; there is room for 64 more. */
static size_t damage(char *text, size_t size)
{
  static const char signs[] = "\"\\{}[]:,0129-.eE+ntfu \x00\xc3\xa9\xff|()?*<";
  const size_t half = size / 2;
  const size_t at = below(2) ? below(size) : half + below(size - half);
  const size_t some = 1 + below(12 < size - at ? 12 : size - at);
  switch (below(5)) {
  case 0:
    text[at] = (char)rand();
    return size;
  case 1:
    text[at] = signs[below(sizeof signs - 1)];
    return size;
  case 2:
    memmove(text + at, text + at + some, size - at - some);
    return size - some;
  case 3:
    memmove(text + at + some, text + at, size - at);
    return size + some;
  default:
    return below(8) ? size : at;
  }
}

static void use(const tg_tokenizer *t)
{
  static const char text[] = "The the 12345's caf\xc3\xa9 e\xcc\x81\xcc\xa3 \xe4\xbd\xa0<s> "
                             "\xf0\x9f\xab\xa8\n\n \xc3\xa9\xc3\xaa thethethethethethethe";
  int32_t ids[512];
  size_t count;
  tg_error error;
  const tg_status status = tg_tokenizer_encode(t, text, sizeof text - 1, TG_TOKENIZER_ADD_SPECIAL,
                                               ids, 512, &count, &error);
  assert_true(status == TG_OK || status == TG_UNSUPPORTED);
  for (size_t i = 0; i < count; i++) {
    assert_in_range(ids[i], 0, tg_tokenizer_vocab_size(t) - 1);
  }
}

static void damage_is_refused_or_harmless(void **state)
{
  (void)state;
  char *good = small_tokenizer_text(&kGood);
  const size_t size = strlen(good);
  char *text = malloc(size + 256);
  int loaded = 0;
  srand(11);
  for (int i = 0; i < mutations; i++) {
    memcpy(text, good, size + 1);
    size_t left = size;
    for (size_t k = below(3) + 1; k > 0 && left > 0; k--) {
      left = damage(text, left);
    }
    char *exact = malloc(left + 1); /* a sanitizer sees reads beyond */
    memcpy(exact, text, left);
    tg_tokenizer *t;
    tg_error error = {0};
    const tg_status status = tgi_tokenizer_parse("dir/t.json", exact, left, &t, &error);
    if (status == TG_OK) {
      use(t);
      loaded++;
    } else {
      assert_null(t);
      assert_true(status == TG_BAD_FILE || status == TG_UNSUPPORTED);
      assert_int_equal(status, error.status);
      if (strncmp(error.text, "dir/t.json: ", 12) != 0 || !strstr(error.text, "expected ") ||
          !strstr(error.text, ", got ")) {
        fail_msg("expected file, rule and value, got %s", error.text);
      }
    }
    tg_tokenizer_destroy(t);
    free(exact);
  }
  assert_in_range(loaded, mutations / 20, mutations * 3 / 4);
  free(text);
  free(good);
}

int main(int argc, char **argv)
{
  if (argc > 1) {
    mutations = atoi(argv[1]);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(damage_is_refused_or_harmless),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
