/* `tegula generate` with one prompt: the same text again, where the text ends, prompts that are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_model.h"
#include "files/utf8.h"

static char *read_in(const char *directory, const char *name)
{
  char path[SCRATCH_PATH * 2];
  size_t size;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return read_file(path, &size);
}

static void generates_the_same_text_again(void **state)
{
  (void)state;
  static const char *const seeds[] = {"1", "2", "3"};
  for (int i = 0; i < 3; i++) {
    cli_result a = CLI("generate", model, "the ", "--seed", seeds[i], "--max-tokens", "60",
                       "--temperature", "3", "--threads", "1");
    cli_result b = CLI("generate", model, "the ", "--seed", seeds[i], "--max-tokens", "60",
                       "--temperature", "3", "--threads", "3");
    assert_int_equal(a.code, 0);
    assert_string_equal(a.out, b.out);
    /* So hot a model makes bytes of every kind; what comes out is UTF-8 all the same. */
    assert_int_equal(tgi_utf8_valid_bytes(a.out, a.out_size), a.out_size);
    assert_non_null(strstr(a.err, "tok/s"));
    cli_free(&a);
    cli_free(&b);
  }
  cli_result a = CLI("generate", model, "the ", "--temperature", "0", "--max-tokens", "5");
  cli_result b = CLI("generate", model, "--tokens", "116, 104,101,32", "--temperature", "0",
                     "--max-tokens", "5", "--seed", "9", "--quiet");
  char ids[64] = "";
  for (const char *c = a.out; *c && *c != '\n'; c++) {
    snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s%d", c == a.out ? "" : " ", *c);
  }
  strcat(ids, "\n");
  assert_string_equal(b.out, ids);
  assert_string_equal(b.err, "");
  cli_free(&a);
  cli_free(&b);
}

/* Models of Qwen3 and Llama 3 end a turn by one of several ids. */
static void every_end_token_ends_the_text(void **state)
{
  (void)state;
  enum { kTokens = 24, kAbsent = 200 };
  cli_result r = CLI("generate", model, "--tokens", "116,104,101,32", "--temperature", "2",
                     "--max-tokens", "24", "--quiet");
  assert_int_equal(r.code, 0);
  int id[kTokens], n = 0, stop = 0;
  for (char *at = r.out; n < kTokens; n++) {
    id[n] = (int)strtol(at, &at, 10);
    assert_int_not_equal(id[n], kAbsent);
  }
  for (bool seen = true; seen; stop++) { /* the first id behind the fourth that is a new one */
    seen = stop < 4;
    for (int i = 0; i < stop; i++) {
      seen = seen || id[i] == id[stop];
    }
    assert_true(stop < kTokens - 1);
  }
  stop--;
  char *config = read_in(model, "config.json"), *until = r.out, expected[256];
  for (int i = 0; i < stop; i++) {
    (void)strtol(until, &until, 10);
  }
  snprintf(expected, sizeof expected, "%.*s\n", (int)(until - r.out), r.out);
  for (int last = 0; last < 2; last++) {
    char list[64], name[8];
    snprintf(list, sizeof list, "\"eos_token_id\": [%d, %d]", last ? kAbsent : id[stop],
             last ? id[stop] : kAbsent);
    snprintf(name, sizeof name, "ends%d", last);
    char *ends = replace(config, "\"eos_token_id\": 256", list);
    const char *copy = broken_copy(name, "config.json", ends, strlen(ends));
    cli_result cut = CLI("generate", copy, "--tokens", "116,104,101,32", "--temperature", "2",
                         "--max-tokens", "24");
    assert_string_equal(cut.out, expected);
    assert_non_null(strstr(cut.err, "ended: end of text"));
    cli_free(&cut);
    expect_out(CLI("info", copy), 0, last ? "end of text 200, " : ", 200\n");
    expect_out(CLI("info", copy, "--json"), 0, "\"eos_token_ids\": [");
    free(ends);
  }
  free(config);
  cli_free(&r);
}

/* Ids that no token has, as the rows that pad a vocabulary: text of no bytes. */
static void a_vocabulary_wider_than_the_tokenizer(void **state)
{
  (void)state;
  const char *wide = scratch_file(&dir, "wide");
  EXPECT_CLI(0, "320 ids", "train", "--preset", "gpt_nano", "--vocab-size", "320", "--train-file",
             scratch_file(&dir, "text"), "--out", wide, "--steps", "1", "--batch", "1", "--seq",
             "16", "--threads", "1");
  char *config = read_in(wide, "config.json");
  assert_non_null(strstr(config, "\"eos_token_id\": 256,"));
  free(config);
  cli_result ids = CLI("generate", wide, "--tokens", "116", "--temperature", "9", "--seed", "4",
                       "--max-tokens", "60", "--quiet");
  bool drawn = false;
  for (char *at = ids.out; *at && *at != '\n';) {
    drawn = strtol(at, &at, 10) > 256 || drawn;
  }
  assert_true(drawn);
  cli_free(&ids);
  EXPECT_CLI(0, "generated: ", "generate", wide, "t", "--temperature", "9", "--seed", "4",
             "--max-tokens", "60");
}

/* An added word may be as long as it likes. */
static void a_token_of_two_thousand_bytes(void **state)
{
  (void)state;
  char word[2001], more[2200], path[SCRATCH_PATH * 2];
  memset(word, 'z', sizeof word - 1);
  word[sizeof word - 1] = '\0';
  snprintf(more, sizeof more, "\"special\": true}, {\"id\": 257, \"content\": \"%s\"}", word);
  snprintf(path, sizeof path, "%s/tokenizer.json", scratch_file(&dir, "wide"));
  char *tokenizer = read_in(scratch_file(&dir, "wide"), "tokenizer.json");
  char *longer = replace(tokenizer, "\"special\": true\n    }", more);
  write_text(path, longer);
  cli_result r = CLI("generate", scratch_file(&dir, "wide"), word, "--echo", "--max-tokens", "1");
  assert_int_equal(r.code, 0);
  assert_memory_equal(r.out, word, sizeof word - 1);
  assert_non_null(strstr(r.err, "prompt: 1 tokens"));
  cli_free(&r);
  free(tokenizer);
  free(longer);
}

/* The other family, from its first weights to its text. */
static void qwen3(void **state)
{
  (void)state;
  const char *qwen = scratch_file(&dir, "qwen");
  EXPECT_CLI(0, "model: qwen3, 4 layers, width 128, 257 ids, 0.82 M parameters", "train",
             "--preset", "qwen3_nano", "--train-file", scratch_file(&dir, "text"), "--out", qwen,
             "--steps", "4", "--batch", "2", "--seq", "32", "--threads", "2");
  EXPECT_CLI(0, "all 6 steps are done", "train", "--model", qwen, "--train-file",
             scratch_file(&dir, "text"), "--out", scratch_file(&dir, "tuned"), "--steps", "6",
             "--batch", "2", "--seq", "32", "--threads", "1");
  expect_out(CLI("info", qwen), 0, "qwen: qwen3, 0.82 M parameters");
  expect_out(CLI("info", qwen), 0, "heads      4 of size 32, 2 for keys and values");
  expect_out(CLI("info", qwen, "--json"), 0, "\"model_type\": \"qwen3\"");
  cli_result a = CLI("generate", qwen, "the ", "--max-tokens", "40", "--threads", "1");
  cli_result b = CLI("generate", qwen, "the ", "--max-tokens", "40", "--threads", "3");
  assert_int_equal(a.code, 0);
  assert_string_equal(a.out, b.out);
  cli_free(&a);
  cli_free(&b);
}

/* -m, -p and -n, as other programs for models have them. */
static void the_customary_letters(void **state)
{
  (void)state;
  cli_result plain = CLI("generate", model, "the ", "--max-tokens", "9", "--quiet");
  assert_int_equal(plain.code, 0);
  static const char *const orders[][7] = {{"-m", "MODEL", "-p", "the ", "-n", "9", NULL},
                                          {"-n9", "-pthe ", "MODEL", NULL},
                                          {"--model", "MODEL", "the ", "-n", "9", NULL},
                                          {"MODEL", "--prompt=the ", "-n", "9", NULL}};
  for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
    const char *arguments[16] = {"generate", "--quiet"};
    for (int k = 0; orders[i][k]; k++) {
      arguments[k + 2] = strcmp(orders[i][k], "MODEL") == 0 ? model : orders[i][k];
    }
    cli_result r = cli_run(&(cli_setup){0}, arguments);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, plain.out);
    cli_free(&r);
  }
  cli_free(&plain);
  expect_out(CLI("bench", "-m", model, "decode", "--seq", "16", "--steps", "1"), 0, "tok/s");
}

static void context_ends(void **state)
{
  (void)state;
  char prompt[130];
  memset(prompt, 'a', sizeof prompt);
  prompt[129] = '\0';
  EXPECT_CLI(1, "prompt: expected at most 128 tokens", "generate", model, prompt);
  prompt[126] = '\0';
  EXPECT_CLI(0, "the context is full", "generate", model, prompt, "--temperature", "0");
  prompt[128] = '\0';
  prompt[127] = 'a';
  prompt[126] = 'a';
  EXPECT_CLI(0, "generated: 1 ", "generate", model, prompt, "--temperature", "0");
}

static void bad_prompts(void **state)
{
  (void)state;
  EXPECT_CLI(1, "prompt: expected text, got none", "generate", model, "");
  EXPECT_CLI(1, "expected UTF-8", "generate", model, "ab\xff");
  EXPECT_CLI(1, "prompt: expected text, got none", "generate", model, "-");
  EXPECT_CLI(1, "--tokens: byte 2: expected ids", "generate", model, "--tokens", "1,x");
  EXPECT_CLI(1, "--tokens: byte 0: expected ids", "generate", model, "--tokens", " ");
  EXPECT_CLI(1, "257", "generate", model, "--tokens", "257");
  cli_result r = cli_run(&(cli_setup){.input = "the "},
                         (const char *const[]){"generate", model, "-", "--max-tokens", "3",
                                               "--echo", "--temperature", "0", NULL});
  assert_int_equal(r.code, 0);
  assert_memory_equal(r.out, "the ", 4);
  cli_free(&r);
}

static void closed_output(void **state)
{
  (void)state;
  cli_result r = cli_run(&(cli_setup){.closed_output = 1},
                         (const char *const[]){"generate", model, "the ", "--quiet", NULL});
  assert_int_equal(r.code, 1);
  assert_string_equal(r.err, "");
  cli_free(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(generates_the_same_text_again),
      cmocka_unit_test(every_end_token_ends_the_text),
      cmocka_unit_test(a_vocabulary_wider_than_the_tokenizer),
      cmocka_unit_test(a_token_of_two_thousand_bytes),
      cmocka_unit_test(qwen3),
      cmocka_unit_test(the_customary_letters),
      cmocka_unit_test(context_ends),
      cmocka_unit_test(bad_prompts),
      cmocka_unit_test(closed_output),
  };
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
