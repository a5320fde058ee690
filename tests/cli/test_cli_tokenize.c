/* tegula tokenize and detokenize: what they print, and the files of ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include "small_tokenizer.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static scratch dir;

static void expect_out(const char *input, const char *wanted, const char *const *arguments)
{
  cli_result r = cli_run(&(cli_setup){.input = input}, arguments);
  if (r.code != 0) {
    fail_msg("expected success, got %d: %s", r.code, r.err);
  }
  assert_string_equal(r.out, wanted);
  assert_string_equal(r.err, "");
  cli_free(&r);
}

#define EXPECT_OUT(input, wanted, ...)                                                             \
  expect_out(input, wanted, (const char *const[]){__VA_ARGS__, NULL})

static void text_becomes_lines_numbers_or_json(void **state)
{
  (void)state;
  const char *d = dir.path;
  EXPECT_OUT("the \"\xc3\xa9<s>\n", /* e with an accent is two tokens */
             "    257  \"the\"\n     32  \" \"\n     34  \"\\\"\"\n    195  \"\\xc3\"\n"
             "    169  \"\\xa9\"\n    258  \"<s>\"\n     10  \"\\n\"\n",
             "tokenize", d);
  EXPECT_OUT("the a", "257 32 97\n", "tokenize", d, "--ids");
  EXPECT_OUT("", "\n", "tokenize", d, "--ids");
  EXPECT_OUT("the a", "3\n", "tokenize", d, "--count");
  EXPECT_OUT("the <s>\xc3\xa9",
             "{\"count\":5,\"ids\":[257,32,258,195,169],\"pieces\":[\"the\",\" \",\"<s>\","
             "\"\xef\xbf\xbd\",\"\xef\xbf\xbd\"]}\n",
             "tokenize", d, "--json");
  EXPECT_OUT("<s>", "60 115 62\n", "tokenize", d, "--ids", "--plain");
  EXPECT_OUT("a", "258 97\n", "tokenize", d, "--ids", "--add-special");
  const char *file = scratch_file(&dir, "text");
  write_text(file, "the");
  EXPECT_OUT("never read", "257\n", "tokenize", "-f", file, d, "--ids");
  EXPECT_OUT("never read", "257\n", "tokenize", d, "--file", file, "--ids");
  EXPECT_CLI(2, "--out: expected another file than --file", "tokenize", d, "-f", file, "--out",
             file);
}

static void ids_become_lines_of_text(void **state)
{
  (void)state;
  const char *d = dir.path;
  EXPECT_OUT("257 32,97\n\n[258, 97, 9999]\r\n195\n", "the a\n\n<s>a\n\xef\xbf\xbd\n", "detokenize",
             d);
  EXPECT_OUT("257 258 195 169", "the\xc3\xa9\n", "detokenize", d, "--skip-special");
  const char *file = scratch_file(&dir, "ids");
  write_text(file, "97");
  EXPECT_OUT("", "a\n", "detokenize", d, "-f", file);
}

/* ---- files of ids ---- */

static uint64_t number(const char *bytes, int size)
{
  uint64_t value = 0;
  for (int i = 0; i < size; i++) {
    value |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
  }
  return value;
}

static char *write_ids(const char *directory, const char *format, size_t wanted_size)
{
  const char *out = scratch_file(&dir, "out.bin");
  const char *const arguments[] = {"tokenize", directory, "--out", out, "--format", format, NULL};
  cli_result r = cli_run(&(cli_setup){.input = "the <s>a"}, arguments);
  cli_expect(&r, 0, " ids of ");
  size_t size;
  char *bytes = read_file(out, &size);
  assert_int_equal(size, wanted_size);
  return bytes;
}

static void ids_are_written_for_training(void **state)
{
  (void)state;
  static const int wanted[] = {257, 32, 258, 97};
  char *b = write_ids(dir.path, "llm.c", 1024 + 4 * 2);
  assert_int_equal(number(b, 4), 20240520);
  assert_int_equal(number(b + 4, 4), 1);
  assert_int_equal(number(b + 8, 4), 4);
  for (int i = 12; i < 1024; i++) {
    assert_int_equal(b[i], 0);
  }
  for (int i = 0; i < 4; i++) {
    assert_int_equal(number(b + 1024 + (ptrdiff_t)i * 2, 2), wanted[i]);
  }
  free(b);
  b = write_ids(dir.path, "tegula", 256 + 4 * 2);
  assert_memory_equal(b, "TGTOKENS", 8);
  assert_int_equal(number(b + 8, 4), 1);
  assert_int_equal(number(b + 12, 4), 2);
  assert_int_equal(number(b + 16, 8), 4);
  assert_int_equal(number(b + 24, 8), 259);
  assert_int_equal(number(b + 256 + 2, 2), 32);
  free(b);
  /* a vocabulary above 2^16 */
  const scratch large = scratch_make();
  tg_tokenizer_destroy(small_tokenizer_load(
      &large, &(small_tokenizer){.tokens = ", \"the\": 256, \"<s>\": 257, \"far\": 70000"}));
  b = write_ids(large.path, "llm.c", 1024 + 8 * 4);
  assert_int_equal(number(b, 4), 20240801);
  assert_int_equal(number(b + 4, 4), 7);
  assert_int_equal(number(b + 8, 4), 8);
  free(b);
  scratch_remove(&large);
}

static void wrong_calls_say_what_is_wrong(void **state)
{
  (void)state;
  const char *d = dir.path;
  EXPECT_CLI(2, "expected DIR", "tokenize");
  EXPECT_CLI(2, "expected DIR", "detokenize");
  EXPECT_CLI(2, "expected one of --ids, --json, --count and --out", "tokenize", d, "--ids",
             "--count");
  EXPECT_CLI(2, "--format: expected --out FILE too", "tokenize", d, "--format", "llm.c");
  EXPECT_CLI(2, "--format: expected llm.c or tegula, got gguf", "tokenize", d, "--out", "x",
             "--format", "gguf");
  EXPECT_CLI(1, "/none: ", "tokenize", d, "-f", scratch_file(&dir, "none"));
  EXPECT_CLI(1, "/none: expected to find this directory", "tokenize", scratch_file(&dir, "none"));
  EXPECT_CLI(1, "create a temporary file", "tokenize", d, "--out", "/nowhere/x.bin");
  cli_result r =
      cli_run(&(cli_setup){.input = "ab\xff"}, (const char *const[]){"tokenize", d, NULL});
  cli_expect(&r, 1, "standard input: tokenizer_encode: text: byte 2: expected UTF-8, got 0xff");
  static const struct {
    const char *input, *part;
  } lines[] = {
      {"1 2\n3 x\n", "standard input: byte 6: expected ids, got \"x\""},
      {"-1", "byte 0: expected ids, got \"-1\""},
      {"1.5", "byte 0: expected ids, got \"1.5\""},
      {"2147483648", "byte 0: expected ids, got \"2147483648\""},
  };
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    r = cli_run(&(cli_setup){.input = lines[i].input},
                (const char *const[]){"detokenize", d, NULL});
    cli_expect(&r, 1, lines[i].part);
  }
}

static int set_up(void **state)
{
  (void)state;
  dir = scratch_make();
  tg_tokenizer_destroy(small_tokenizer_load(
      &dir,
      &(small_tokenizer){.tokens = ", \"th\": 256, \"the\": 257",
                         .merges = "[\"t h\", \"th e\"]",
                         .added = "[{\"id\": 258, \"content\": \"<s>\", \"special\": true}]",
                         .post_processor =
                             "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
                             "{\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}], "
                             "\"special_tokens\": {\"<s>\": {\"ids\": [258]}}}"}));
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  scratch_remove(&dir);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_becomes_lines_numbers_or_json),
      cmocka_unit_test(ids_become_lines_of_text),
      cmocka_unit_test(ids_are_written_for_training),
      cmocka_unit_test(wrong_calls_say_what_is_wrong),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
