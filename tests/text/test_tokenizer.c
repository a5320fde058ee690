/* Tokenizers: that of the bytes, and small ones of every kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "scratch_directory.h"
#include "small_tokenizer.h"
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

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
  assert_int_equal(tg_tokenizer_special(t, "eos_token"), 256);
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
  EXPECT_OK(tg_tokenizer_decode(t, (int32_t[]){'a', 257}, 2, 0, text, 8, &n, &error), error);
  assert_int_equal(n, 1); /* models have ids that their tokenizers lack */
  EXPECT_ERROR(tg_tokenizer_decode(t, (int32_t[]){256}, 1, 0, text, 8, &n, &error), TG_BAD_ARGUMENT,
               "capacity: expected at least 13, got 8", error);
  EXPECT_ERROR(tg_tokenizer_decode(t, ids, 0, 1, text, 8, &n, &error), TG_BAD_ARGUMENT, "flags",
               error);
  assert_int_equal(tg_tokenizer_encode(t, "\xff", 1, 0, ids, 8, &n, NULL), TG_BAD_ARGUMENT);
  tg_tokenizer_destroy(t);
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
  assert_int_equal(tg_tokenizer_special(back, "eos_token"), 256);
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

/* ---- any tokenizer ---- */

/* th, the, " the", and an added token that Hugging Face's library finds in normalised text. */
static const small_tokenizer kThe = {
    .tokens = ", \"th\": 256, \"the\": 257, \"\\u0120the\": 258, \"hx\": 259",
    .merges = "[\"t h\", [\"th\", \"e\"], [\"\\u0120\", \"the\"], \"h x\"]",
    .added = "[{\"id\": 260, \"content\": \"<s>\", \"special\": true},"
             "{\"id\": 261, \"content\": \"<left>\", \"lstrip\": true, \"normalized\": false},"
             "{\"id\": 262, \"content\": \"<right>\", \"rstrip\": true, \"normalized\": false},"
             "{\"id\": 263, \"content\": \"caf\\u00e9\", \"normalized\": true},"
             "{\"id\": 264, \"content\": \"\\u00e9\\u00ea\", \"normalized\": false}]",
    .normalizer = "{\"type\": \"NFC\"}",
    .post_processor =
        "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
        "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"end\"}}], "
        "\"special_tokens\": {\"<s>\": {\"ids\": [260]}, \"end\": {\"ids\": [260, 1]}}}]}",
};

static void pieces_are_merged_by_rank(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = small_tokenizer_load(&dir, &kThe);
  assert_int_equal(tg_tokenizer_vocab_size(t), 265);
  EXPECT_IDS(t, "", 0, -1);
  EXPECT_IDS(t, "the the thx", 0, 257, 258, ' ', 256, 'x');
  EXPECT_IDS(t, "hx THE", 0, 259, ' ', 'T', 'H', 'E');
  EXPECT_IDS(t, "the", TG_TOKENIZER_ADD_SPECIAL, 260, 257, 260, 1);
  EXPECT_IDS(t, "", TG_TOKENIZER_ADD_SPECIAL, 260, 260, 1);
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

/* A token that its own merges do not give: met by text only if merges are ignored. */
static void tokens_are_merged_or_looked_up(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  small_tokenizer s = {.tokens = ", \"abc\": 256, \"ab\": 257, \"bc\": 258",
                       .merges = "[\"b c\", \"a b\"]"};
  tg_tokenizer *t = small_tokenizer_load(&dir, &s);
  for (int i = 0; i < 2; i++) { /* once looked at, and once remembered */
    EXPECT_IDS(t, "abc abc ab", 0, 'a', 258, ' ', 'a', 258, ' ', 257);
  }
  tg_tokenizer_destroy(t);
  s.model = ", \"ignore_merges\": true";
  t = small_tokenizer_load(&dir, &s);
  EXPECT_IDS(t, "abc abc ab", 0, 256, ' ', 'a', 258, ' ', 257);
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

static void added_tokens_take_white_space(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = small_tokenizer_load(&dir, &kThe);
  EXPECT_IDS(t, "x <s> y", 0, 'x', ' ', 260, ' ', 'y');
  EXPECT_IDS(t, "x \t<left> y", 0, 'x', 261, ' ', 'y');
  EXPECT_IDS(t, "x <right>\xe3\x80\x80 y", 0, 'x', ' ', 262, 'y');
  EXPECT_IDS(t, "<right>  <left>  <left>", 0, 262, 261, 261);
  EXPECT_IDS(t, "<s>", TG_TOKENIZER_PLAIN, '<', 's', '>');
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

static void added_tokens_are_found_before_or_after_normalising(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = small_tokenizer_load(&dir, &kThe);
  EXPECT_IDS(t, "caf\xc3\xa9", 0, 263);
  EXPECT_IDS(t, "cafe\xcc\x81!", 0, 263, '!');
  EXPECT_IDS(t, "cafe\xcc\x81", TG_TOKENIZER_PLAIN, 'c', 'a', 'f', 0xc3, 0xa9);
  EXPECT_IDS(t, "\xc3\xa9\xc3\xaa", 0, 264);
  EXPECT_IDS(t, "e\xcc\x81\xc3\xaa", 0, 0xc3, 0xa9, 0xc3, 0xaa);
  EXPECT_IDS(t, "e<s>\xcc\x81", 0, 'e', 260, 0xcc, 0x81); /* NFC does not cross a token */
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

static void expect_marked(const tg_tokenizer *t, const char *text, const tg_text_range *ranges,
                          size_t num_ranges, const int32_t *ids, size_t wanted)
{
  int32_t got[64];
  size_t count;
  EXPECT_OK(tg_tokenizer_encode_marked(t, text, strlen(text), ranges, num_ranges, 0, got, 64,
                                       &count, &error),
            error);
  assert_int_equal(count, wanted);
  assert_memory_equal(got, ids, wanted * sizeof *ids);
}

#define EXPECT_MARKED(t, text, ranges, n, ...)                                                     \
  expect_marked(t, text, ranges, n, (const int32_t[]){__VA_ARGS__},                                \
                sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void no_added_token_is_found_in_marked_text(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = small_tokenizer_load(&dir, &kThe);
  static const tg_text_range user[] = {{3, 10}}, within[] = {{9, 10}}, none[] = {{0, 0}};
  EXPECT_MARKED(t, "<s>the<s>e<s>", user, 1, 260, 257, '<', 's', '>', 'e', 260);
  EXPECT_MARKED(t, "<s>the<s>e<s>", within, 1, 260, 257, 260, 'e', 260);
  EXPECT_MARKED(t, "<s>the<s>e<s>", none, 1, 260, 257, 260, 'e', 260);
  /* Pieces and merges go across a range's ends. */
  static const tg_text_range cut[] = {{1, 2}};
  EXPECT_MARKED(t, "the", cut, 1, 257);
  /* Ranges follow their text where it is normalised: "cafe\u0301 cafe\u0301". */
  static const tg_text_range first[] = {{0, 6}}, second[] = {{12, 13}}, accent[] = {{11, 13}};
  EXPECT_MARKED(t, "cafe\xcc\x81 cafe\xcc\x81", first, 1, 'c', 'a', 'f', 0xc3, 0xa9, ' ', 263);
  EXPECT_MARKED(t, "cafe\xcc\x81 cafe\xcc\x81", second, 1, 263, ' ', 'c', 'a', 'f', 0xc3, 0xa9);
  EXPECT_MARKED(t, "cafe\xcc\x81 cafe\xcc\x81", accent, 1, 263, ' ', 'c', 'a', 'f', 0xc3, 0xa9);
  /* A token before them moves nothing: "<s>e\u0301 caf\u00e9". */
  static const tg_text_range word[] = {{7, 9}};
  EXPECT_MARKED(t, "<s>e\xcc\x81 caf\xc3\xa9", word, 1, 260, 0xc3, 0xa9, ' ', 'c', 'a', 'f', 0xc3,
                0xa9);
  static const tg_text_range space[] = {{6, 7}};
  EXPECT_MARKED(t, "<s>e\xcc\x81 caf\xc3\xa9", space, 1, 260, 0xc3, 0xa9, ' ', 263);
  size_t n;
  static const tg_text_range wrong[][2] = {{{2, 1}}, {{0, 4}}, {{1, 3}, {2, 3}}};
  for (int i = 0; i < 3; i++) {
    EXPECT_ERROR(
        tg_tokenizer_encode_marked(t, "abc", 3, wrong[i], i == 2 ? 2 : 1, 0, NULL, 0, &n, &error),
        TG_BAD_ARGUMENT, i == 2 ? "ranges[1]: expected a range from byte 3 on" : "ranges[0]",
        error);
  }
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

static void long_texts_have_the_ids_of_their_parts(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_tokenizer *t = small_tokenizer_load(&dir, &kThe);
  enum { kLines = 3000 };
  static const char *const lines[] = {"the hx\n", "thx the\n", "unbelievably the\n",
                                      "caf\xc3\xa9 the\n"};
  char *text = malloc(kLines * 20), *at = text;
  int32_t *wanted = malloc(kLines * 20 * sizeof *wanted), *got = malloc(kLines * 20 * sizeof *got);
  size_t expected = 0, count;
  for (int i = 0; i < kLines; i++) {
    const char *line = lines[i * 7 % 4];
    at += sprintf(at, "%s", line);
    EXPECT_OK(tg_tokenizer_encode(t, line, strlen(line), 0, wanted + expected, 20, &count, &error),
              error);
    expected += count;
  }
  EXPECT_OK(tg_tokenizer_encode(t, text, (size_t)(at - text), 0, NULL, 0, &count, &error), error);
  assert_int_equal(count, expected);
  EXPECT_OK(tg_tokenizer_encode(t, text, (size_t)(at - text), 0, got, count, &count, &error),
            error);
  assert_memory_equal(got, wanted, expected * sizeof *got);
  free(text);
  free(wanted);
  free(got);
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

/* ---- threads ---- */

typedef struct encoder {
  const tg_tokenizer *t;
  int32_t ids[64];
  size_t count;
  tg_status status;
} encoder;

static const char kShared[] = "the hx thx unbelievably the cafe\xcc\x81<s>";

static void *encode_again(void *given)
{
  encoder *e = given;
  for (int i = 0; i < 200; i++) {
    e->status =
        tg_tokenizer_encode(e->t, kShared, sizeof kShared - 1, 0, e->ids, 64, &e->count, NULL);
  }
  return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
  (void)state;
  enum { kThreads = 4 };
  const scratch dir = scratch_make();
  tg_tokenizer *t = small_tokenizer_load(&dir, &kThe); /* no token was met before */
  encoder encoders[kThreads];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; i++) {
    encoders[i] = (encoder){.t = t};
    assert_int_equal(pthread_create(&threads[i], NULL, encode_again, &encoders[i]), 0);
  }
  for (int i = 0; i < kThreads; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(encoders[i].status, TG_OK);
    assert_int_equal(encoders[i].count, encoders[0].count);
    assert_memory_equal(encoders[i].ids, encoders[0].ids, encoders[0].count * sizeof(int32_t));
  }
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

static void decoding_takes_names_as_hugging_faces_library(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const small_tokenizer s = {
      .tokens = ", \"a b\": 300",
      .added = "[{\"id\": 257, \"content\": \"\\u00e9\\u00ea\", \"special\": true},"
               "{\"id\": 258, \"content\": \"\\u20ac\"}]"};
  tg_tokenizer *t = small_tokenizer_load(&dir, &s);
  assert_int_equal(tg_tokenizer_vocab_size(t), 301);
  char text[16];
  size_t size;
  /* e with an accent is in the byte alphabet, so it is a byte; the euro sign is not; 256 and 5000
   * have no tokens */
  static const int32_t ids[] = {257, 256, 258, 5000, 300};
  EXPECT_OK(tg_tokenizer_decode(t, ids, 5, 0, text, sizeof text, &size, &error), error);
  assert_int_equal(size, 2 + 3 + 3);
  assert_memory_equal(text,
                      "\xe9\xea\xe2\x82\xac"
                      "a b",
                      8);
  EXPECT_OK(
      tg_tokenizer_decode(t, ids, 5, TG_TOKENIZER_SKIP_SPECIAL, text, sizeof text, &size, &error),
      error);
  assert_memory_equal(text,
                      "\xe2\x82\xac"
                      "a b",
                      6);
  assert_int_equal(tg_tokenizer_piece(t, 257).kind, TG_TOKEN_SPECIAL);
  assert_int_equal(tg_tokenizer_piece(t, 258).kind, TG_TOKEN_ADDED);
  assert_int_equal(tg_tokenizer_piece(t, 300).kind, TG_TOKEN_ORDINARY);
  assert_int_equal(tg_tokenizer_piece(t, 256).kind, TG_TOKEN_NONE);
  assert_int_equal(tg_tokenizer_piece(t, 'a').size, 1);
  assert_int_equal(tg_tokenizer_piece(t, 'a').bytes[0], 'a');
  assert_int_equal(tg_tokenizer_piece(t, -1).size, 0);
  tg_tokenizer_destroy(t);
  scratch_remove(&dir);
}

static void settings_name_special_tokens(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  static const char *const wrong[] = {"{\"eos_token\": 5}", "{\"eos_token\": {\"text\": \"a\"}}",
                                      "{", "[1,]"};
  write_text(scratch_file(&dir, "tokenizer_config.json"),
             "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"the\"}, \"pad_token\": null, "
             "\"model_max_length\": 1000000000000000019884624838656}");
  tg_tokenizer *t = small_tokenizer_load(&dir, &kThe);
  assert_int_equal(tg_tokenizer_special(t, "bos_token"), 260);
  assert_int_equal(tg_tokenizer_special(t, "eos_token"), 257);
  assert_int_equal(tg_tokenizer_special(t, "pad_token"), -1);
  assert_int_equal(tg_tokenizer_special(t, "cls_token"), -1);
  tg_tokenizer_destroy(t);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    write_text(scratch_file(&dir, "tokenizer_config.json"), wrong[i]);
    EXPECT_ERROR(tg_tokenizer_load(dir.path, &t, &error), TG_BAD_FILE,
                 "/tokenizer_config.json: ", error);
    assert_null(t);
  }
  scratch_remove(&dir);
}

/* What came is what is written, to the byte: other spellings, files that are not read. */
static void saving_keeps_the_files_that_came(void **state)
{
  (void)state;
  const scratch from = scratch_make(), to = scratch_make();
  static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "merges.txt",
                                      "chat_template.jinja", "special_tokens_map.json"};
  write_text(scratch_file(&from, names[1]), "{ \"eos_token\":\"<s>\" }");
  write_text(scratch_file(&from, names[2]), "never read");
  write_text(scratch_file(&from, names[3]), "{% for m in messages %}\r\n");
  write_text(scratch_file(&from, names[4]), "");
  write_text(scratch_file(&from, "model.safetensors"), "not a tokenizer's");
  tg_tokenizer *t = small_tokenizer_load(&from, &kThe);
  EXPECT_OK(tg_tokenizer_save(t, to.path, &error), error);
  assert_int_equal(count_entries(to.path), 5);
  for (size_t i = 0; i < 5; i++) {
    size_t size, again;
    char *before = read_file(scratch_file(&from, names[i]), &size);
    char *after = read_file(scratch_file(&to, names[i]), &again);
    assert_int_equal(size, again);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
  }
  tg_tokenizer_destroy(t);
  scratch_remove(&from);
  scratch_remove(&to);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_becomes_its_bytes_and_back),
      cmocka_unit_test(special_tokens_are_found_unless_plain),
      cmocka_unit_test(bad_arguments_are_named),
      cmocka_unit_test(saved_files_load_again),
      cmocka_unit_test(pieces_are_merged_by_rank),
      cmocka_unit_test(tokens_are_merged_or_looked_up),
      cmocka_unit_test(added_tokens_take_white_space),
      cmocka_unit_test(added_tokens_are_found_before_or_after_normalising),
      cmocka_unit_test(no_added_token_is_found_in_marked_text),
      cmocka_unit_test(long_texts_have_the_ids_of_their_parts),
      cmocka_unit_test(threads_share_a_tokenizer),
      cmocka_unit_test(decoding_takes_names_as_hugging_faces_library),
      cmocka_unit_test(settings_name_special_tokens),
      cmocka_unit_test(saving_keeps_the_files_that_came),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
