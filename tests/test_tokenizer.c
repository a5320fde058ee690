/* The byte-level tokenizer, its files, and the UTF-8 that streams out of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/utf8.h"
#include "files/utf8_stream.h"
#include "scratch_directory.h"
#include "tegula/tokenizer.h"
#include "text/byte_alphabet.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static tg_error error;

static tg_tokenizer *make(void)
{
  tg_tokenizer *t;
  EXPECT_OK(tg_tokenizer_create_bytes(&t, &error), error);
  return t;
}

static void text_becomes_its_bytes_and_back(void **state)
{
  (void)state;
  tg_tokenizer *t = make();
  assert_int_equal(tg_tokenizer_vocab_size(t), 257);
  assert_int_equal(tg_tokenizer_end_of_text(t), 256);
  static const char text[] = "H\xc3\xa9 \xf0\x9f\x99\x82\0\x7f\n";
  const size_t size = sizeof text - 1;
  int32_t ids[32];
  size_t count, back_size;
  EXPECT_OK(tg_tokenizer_encode(t, text, size, 0, NULL, 0, &count, &error), error);
  assert_int_equal(count, size);
  EXPECT_OK(tg_tokenizer_encode(t, text, size, 0, ids, count, &count, &error), error);
  for (size_t i = 0; i < size; i++) {
    assert_int_equal(ids[i], (unsigned char)text[i]);
  }
  char back[32];
  EXPECT_OK(tg_tokenizer_decode(t, ids, count, 0, NULL, 0, &back_size, &error), error);
  assert_int_equal(back_size, size);
  EXPECT_OK(tg_tokenizer_decode(t, ids, count, 0, back, sizeof back, &back_size, &error), error);
  assert_memory_equal(back, text, size);
  EXPECT_OK(tg_tokenizer_encode(t, "", 0, 0, ids, 32, &count, &error), error);
  assert_int_equal(count, 0);
  tg_tokenizer_destroy(t);
  tg_tokenizer_destroy(NULL);
}

static void special_tokens_are_found_unless_plain(void **state)
{
  (void)state;
  tg_tokenizer *t = make();
  static const char text[] = "a<|endoftext|><|endoftext|><|endoftext|";
  const size_t size = sizeof text - 1;
  int32_t ids[64];
  size_t count;
  EXPECT_OK(tg_tokenizer_encode(t, text, size, 0, ids, 64, &count, &error), error);
  assert_int_equal(count, 1 + 2 + 12);
  assert_int_equal(ids[0], 'a');
  assert_int_equal(ids[1], 256);
  assert_int_equal(ids[2], 256);
  assert_int_equal(ids[3], '<');
  char back[64];
  size_t used;
  EXPECT_OK(tg_tokenizer_decode(t, ids, count, 0, back, 64, &used, &error), error);
  assert_int_equal(used, size);
  assert_memory_equal(back, text, size);
  EXPECT_OK(tg_tokenizer_decode(t, ids, 3, TG_TOKENIZER_SKIP_SPECIAL, back, 64, &used, &error),
            error);
  assert_int_equal(used, 1);
  EXPECT_OK(tg_tokenizer_encode(t, text, size, TG_TOKENIZER_PLAIN, ids, 64, &count, &error), error);
  assert_int_equal(count, size);
  tg_tokenizer_destroy(t);
}

static void bad_arguments_are_named(void **state)
{
  (void)state;
  tg_tokenizer *t = make();
  int32_t ids[8];
  char text[8];
  size_t n;
  EXPECT_ERROR(tg_tokenizer_encode(t, "ab\xc3(", 4, 0, ids, 8, &n, &error), TG_BAD_ARGUMENT,
               "tokenizer_encode: text: byte 2: expected UTF-8, got 0xc3", error);
  EXPECT_ERROR(tg_tokenizer_encode(t, "ab\xc3", 3, 0, ids, 8, &n, &error), TG_BAD_ARGUMENT,
               "byte 2", error);
  EXPECT_ERROR(tg_tokenizer_encode(t, "abc", 3, 0, ids, 2, &n, &error), TG_BAD_ARGUMENT,
               "capacity: expected at least 3, got 2", error);
  EXPECT_ERROR(tg_tokenizer_encode(t, "abc", 3, 2, ids, 8, &n, &error), TG_BAD_ARGUMENT, "flags",
               error);
  EXPECT_ERROR(tg_tokenizer_decode(t, (int32_t[]){1, -1}, 2, 0, text, 8, &n, &error),
               TG_BAD_ARGUMENT, "tokenizer_decode: ids[1]: expected an id of at least 0, got -1",
               error);
  EXPECT_ERROR(tg_tokenizer_decode(t, (int32_t[]){256}, 1, 0, text, 8, &n, &error), TG_BAD_ARGUMENT,
               "capacity: expected at least 13, got 8", error);
  EXPECT_ERROR(tg_tokenizer_decode(t, ids, 0, 1, text, 8, &n, &error), TG_BAD_ARGUMENT, "flags",
               error);
  assert_int_equal(tg_tokenizer_encode(t, "\xff", 1, 0, ids, 8, &n, NULL), TG_BAD_ARGUMENT);
  tg_tokenizer_destroy(t);
}

static void alphabet_is_a_bijection(void **state)
{
  (void)state;
  int seen = 0;
  for (uint32_t point = 0; point < 0x200; point++) {
    const int byte = tgi_point_to_byte(point);
    if (byte < 0) {
      continue;
    }
    assert_int_equal(tgi_byte_to_point((unsigned char)byte), point);
    seen++;
  }
  assert_int_equal(seen, 256);
  assert_int_equal(tgi_byte_to_point(' '), 0x120); /* the G with a dot of GPT-2's files */
  assert_int_equal(tgi_byte_to_point('\n'), 0x10a);
  assert_int_equal(tgi_byte_to_point(0xad), 0x143);
  assert_int_equal(tgi_byte_to_point('A'), 'A');
}

static void saved_files_load_again(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = make(), *back;
  EXPECT_OK(tg_tokenizer_save(t, dir.path, &error), error);
  assert_int_equal(count_entries(dir.path), 2);
  EXPECT_OK(tg_tokenizer_load(dir.path, &back, &error), error);
  assert_int_equal(tg_tokenizer_vocab_size(back), 257);
  assert_int_equal(tg_tokenizer_end_of_text(back), 256);
  size_t size, size_again;
  char *first = read_file(scratch_file(&dir, "tokenizer.json"), &size);
  EXPECT_OK(tg_tokenizer_save(back, dir.path, &error), error);
  char *again = read_file(scratch_file(&dir, "tokenizer.json"), &size_again);
  assert_int_equal(size, size_again);
  assert_memory_equal(first, again, size);
  free(first);
  free(again);
  tg_tokenizer_destroy(t);
  tg_tokenizer_destroy(back);
  scratch_remove(&dir);
}

/** Loads tokenizer.json with `from` replaced by `to`. */
static void check_changed(const scratch *dir, const char *good, const char *from, const char *to,
                          tg_status status, const char *part)
{
  const char *at = strstr(good, from);
  if (!at) {
    fail_msg("the saved file lacks %s", from);
  }
  char *changed = malloc(strlen(good) + strlen(to) + 1);
  sprintf(changed, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
  write_text(scratch_file(dir, "tokenizer.json"), changed);
  free(changed);
  tg_tokenizer *t = NULL;
  if (status == TG_OK) {
    EXPECT_OK(tg_tokenizer_load(dir->path, &t, &error), error);
    assert_true(tg_tokenizer_vocab_size(t) >= 256);
  } else {
    EXPECT_ERROR(tg_tokenizer_load(dir->path, &t, &error), status, part, error);
    assert_null(t);
  }
  tg_tokenizer_destroy(t);
}

static void other_tokenizers_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = make();
  EXPECT_OK(tg_tokenizer_save(t, dir.path, &error), error);
  tg_tokenizer_destroy(t);
  char *good = read_file(scratch_file(&dir, "tokenizer.json"), NULL);
  static const struct {
    const char *from, *to;
    tg_status status;
    const char *part;
  } cases[] = {
      {"\"merges\": []", "\"merges\": [[\"a\", \"b\"]]", TG_UNSUPPORTED,
       "model: merges: expected a byte-level tokenizer (none), got [["},
      {"\"merges\": []", "\"merges\": 5", TG_BAD_FILE, "model: merges: expected an array, got 5"},
      {"\"merges\": []", "\"m\": []", TG_BAD_FILE, "model: merges: expected an array, got none"},
      {"\"BPE\"", "\"WordPiece\"", TG_UNSUPPORTED,
       "model: type: expected a byte-level tokenizer (BPE), got \"WordPiece\""},
      {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", TG_UNSUPPORTED,
       "normalizer: expected a byte-level tokenizer (null), got {"},
      {"\"pre_tokenizer\": {\n    \"type\": \"ByteLevel\"",
       "\"pre_tokenizer\": {\"type\": \"Whitespace\"", TG_UNSUPPORTED,
       "pre_tokenizer: expected a byte-level tokenizer (ByteLevel, no prefix space), got "
       "{\"type\":\"Whitespace\""},
      {"\"add_prefix_space\": false", "\"add_prefix_space\": true", TG_UNSUPPORTED,
       "no prefix space"},
      {"\"post_processor\": null", "\"post_processor\": {\"type\": \"BertProcessing\"}",
       TG_UNSUPPORTED, "post_processor: expected a byte-level tokenizer (adds no tokens), got {"},
      {"\"post_processor\": null",
       "\"post_processor\": {\"type\": \"TemplateProcessing\", \"special_tokens\": {\"x\": 1}}",
       TG_UNSUPPORTED, "post_processor: expected a byte-level tokenizer (adds no tokens), got {"},
      {"\"post_processor\": null",
       "\"post_processor\": {\"type\": \"TemplateProcessing\", \"special_tokens\": {}}", TG_OK, ""},
      {"\"post_processor\": null", "\"post_processor\": {\"type\": \"ByteLevel\"}", TG_OK, ""},
      {"\"decoder\": {\n    \"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"Fuse\"",
       TG_UNSUPPORTED, "decoder: expected a byte-level tokenizer (ByteLevel)"},
      {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", TG_UNSUPPORTED,
       "no subword prefix or suffix"},
      {"\"A\": 65", "\"A\": 66", TG_UNSUPPORTED,
       "model: vocab: \"A\": expected a byte-level tokenizer (tokens of one byte, whose value is "
       "the id), got 66"},
      {"\"A\": 65", "\"A\": \"65\"", TG_BAD_FILE,
       "model: vocab: \"A\": expected an id, an integer that is not negative, got \"65\""},
      {"\"A\": 65", "\"A\": -65", TG_BAD_FILE, "got -65"},
      {"\"A\": 65,", "", TG_UNSUPPORTED, "a token for every byte"},
      {"\"A\": 65", "\"A\": 65, \"the\": 256", TG_UNSUPPORTED, "tokens of one byte"},
      {"\"A\": 65", "\"A\": 65, \"the\": 300", TG_UNSUPPORTED, "tokens of one byte"},
      {"\"A\": 65", "\"A\": 65, \"<|endoftext|>\": 256", TG_OK, ""},
      {"\"A\": 65", "\"A\": 65, \"A\": 65", TG_BAD_FILE, "duplicate object key"},
      {"\"id\": 256", "\"id\": 257", TG_UNSUPPORTED,
       "added tokens with ids from 256 on, in order), got 257"},
      {"\"id\": 256", "\"id\": \"256\"", TG_BAD_FILE, "an added token with id and content"},
      {"\"<|endoftext|>\"", "\"\"", TG_BAD_FILE, "an added token with id and content"},
      {"\"<|endoftext|>\"", "7", TG_BAD_FILE, "an added token with id and content"},
      {"\"lstrip\": false", "\"lstrip\": true", TG_UNSUPPORTED,
       "added tokens that match as they are"},
      {"\"added_tokens\": [",
       "\"added_tokens\": [{\"id\": 256, \"content\": \"x\"}, {\"id\": 257, \"content\": \"x\"},",
       TG_BAD_FILE, "added_tokens[1]: expected each content once, got {\"id\":257"},
      {"\"added_tokens\": [", "\"added_tokens\": [7,", TG_BAD_FILE,
       "added_tokens[0]: expected an added token with id and content, got 7"},
      {"\"added_tokens\": [", "\"added_tokens\": 7, \"x\": [", TG_BAD_FILE,
       "added_tokens: expected an array, got 7"},
      {"\"added_tokens\": [", "\"other\": [", TG_OK, ""},
      {"\"model\": {", "\"model\": 3, \"x\": {", TG_BAD_FILE, "model: expected an object, got 3"},
      {"{", "[{", TG_BAD_FILE, "expected JSON, got this error: ']' expected near end of file"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check_changed(&dir, good, cases[i].from, cases[i].to, cases[i].status, cases[i].part);
  }
  write_text(scratch_file(&dir, "tokenizer.json"), "[]");
  tg_tokenizer *none;
  EXPECT_ERROR(tg_tokenizer_load(dir.path, &none, &error), TG_BAD_FILE,
               "expected an object, got []", error);
  free(good);
  unlink(scratch_file(&dir, "tokenizer.json"));
  EXPECT_ERROR(tg_tokenizer_load(dir.path, &none, &error), TG_IO,
               "/tokenizer.json: expected to open it", error);
  scratch_remove(&dir);
  EXPECT_ERROR(tg_tokenizer_load(dir.path, &none, &error), TG_IO,
               ": expected to find this directory, got No such file", error);
  t = make();
  EXPECT_ERROR(tg_tokenizer_save(t, dir.path, &error), TG_IO,
               "create a temporary file beside it, got No such", error);
  tg_tokenizer_destroy(t);
}

static void the_longest_special_token_wins(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = make();
  EXPECT_OK(tg_tokenizer_save(t, dir.path, &error), error);
  tg_tokenizer_destroy(t);
  char *good = read_file(scratch_file(&dir, "tokenizer.json"), NULL);
  check_changed(&dir, good, "\"added_tokens\": [\n    {\n      \"id\": 256",
                "\"added_tokens\": [{\"id\": 256, \"content\": \"<|\", \"special\": true},"
                "{\"id\": 257, \"content\": \"ab\", \"special\": false}, {\"id\": 258",
                TG_OK, "");
  EXPECT_OK(tg_tokenizer_load(dir.path, &t, &error), error);
  assert_int_equal(tg_tokenizer_vocab_size(t), 259);
  assert_int_equal(tg_tokenizer_end_of_text(t), 258);
  int32_t ids[8];
  size_t count, size;
  EXPECT_OK(tg_tokenizer_encode(t, "<|<|endoftext|>abc", 18, 0, ids, 8, &count, &error), error);
  assert_int_equal(count, 4);
  assert_int_equal(ids[0], 256);
  assert_int_equal(ids[1], 258);
  assert_int_equal(ids[2], 257);
  assert_int_equal(ids[3], 'c');
  char text[8];
  EXPECT_OK(tg_tokenizer_decode(t, ids, 4, TG_TOKENIZER_SKIP_SPECIAL, text, 8, &size, &error),
            error);
  assert_int_equal(size, 3); /* an added word that is not special stays */
  assert_memory_equal(text, "abc", 3);
  tg_tokenizer_destroy(t);
  free(good);
  scratch_remove(&dir);
}

/* ---- UTF-8 ---- */

static void every_code_point_round_trips(void **state)
{
  (void)state;
  for (uint32_t point = 0; point <= 0x10ffff; point++) {
    if (point >= 0xd800 && point < 0xe000) {
      continue;
    }
    char text[4];
    uint32_t back = 0;
    const size_t size = tgi_utf8_encode(point, text);
    if (tgi_utf8_decode(text, size, &back) != size || back != point) {
      fail_msg("U+%04X: got U+%04X", point, back);
    }
    if (tgi_utf8_decode(text, size - 1, &back) != 0) {
      fail_msg("U+%04X: one byte less is complete", point);
    }
  }
}

static void check_stream(const char *bytes, size_t size, const char *wanted)
{
  /* in every pair of pieces, and byte by byte */
  for (size_t cut = 0; cut <= size + 1; cut++) {
    tgi_utf8_stream stream = {0};
    char out[TGI_UTF8_STREAM_BOUND(64) + 4];
    size_t used = 0;
    if (cut <= size) {
      used += tgi_utf8_stream_push(&stream, bytes, cut, out);
      used += tgi_utf8_stream_push(&stream, bytes + cut, size - cut, out + used);
    } else {
      for (size_t i = 0; i < size; i++) {
        used += tgi_utf8_stream_push(&stream, bytes + i, 1, out + used);
      }
    }
    assert_int_equal(tgi_utf8_valid_bytes(out, used), used);
    used += tgi_utf8_stream_finish(&stream, out + used);
    out[used] = '\0';
    assert_string_equal(out, wanted);
    assert_int_equal(tgi_utf8_stream_finish(&stream, out), 0);
  }
}

#define FFFD "\xef\xbf\xbd"

static void streams_are_valid_utf8_at_every_cut(void **state)
{
  (void)state;
  check_stream("", 0, "");
  check_stream("plain", 5, "plain");
  check_stream("\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x99\x82", 9, "\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x99\x82");
  check_stream("a\x80z", 3, "a" FFFD "z");
  check_stream("\xc3(", 2, FFFD "(");
  check_stream("\xc0\xaf", 2, FFFD FFFD);
  check_stream("\xe0\x80\xaf", 3, FFFD FFFD FFFD);
  check_stream("\xed\xa0\x80", 3, FFFD FFFD FFFD);
  check_stream("\xf4\x91\x92\x93\xff"
               "A",
               6, FFFD FFFD FFFD FFFD FFFD "A");
  check_stream("\xf0\x9f\x99", 3, FFFD);
  check_stream("\xf0\x9f\x99\xf0\x9f\x99\x82", 7, FFFD "\xf0\x9f\x99\x82");
  /* the example of Unicode's table 3-11 */
  check_stream("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
               "A",
               9, FFFD FFFD FFFD FFFD "A");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_becomes_its_bytes_and_back),
      cmocka_unit_test(special_tokens_are_found_unless_plain),
      cmocka_unit_test(bad_arguments_are_named),
      cmocka_unit_test(alphabet_is_a_bijection),
      cmocka_unit_test(saved_files_load_again),
      cmocka_unit_test(other_tokenizers_are_refused),
      cmocka_unit_test(the_longest_special_token_wins),
      cmocka_unit_test(every_code_point_round_trips),
      cmocka_unit_test(streams_are_valid_utf8_at_every_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
