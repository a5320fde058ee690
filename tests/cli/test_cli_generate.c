/* `tegula generate`: stop strings, biases, option names, JSON, hub names; a prompt of a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* after cmocka.h */
#include "cli_chance_model.h"

enum { kEnd = 256 }; /* the model's end token */

static void expect_out(cli_result r, const char *want)
{
  if (r.code != 0 || strcmp(r.out, want) != 0) {
    fail_msg("expected code 0 and \"%s\" on standard output, got code %d, \"%s\" and \"%s\"", want,
             r.code, r.out, r.err);
  }
  cli_free(&r);
}

static void expect_part(cli_result r, const char *part)
{
  if (r.code != 0 || !strstr(r.out, part)) {
    fail_msg("expected code 0 and \"%s\" on standard output, got code %d, \"%s\" and \"%s\"", part,
             r.code, r.out, r.err);
  }
  cli_free(&r);
}

/* Sampled from the letters: only they have no bias against them, so that every text is ASCII. */
static char letters[1200];

static void list_letters(void)
{
  letters[0] = '\0';
  for (int letter = 'a'; letter <= 'd'; letter++) {
    char one[16];
    snprintf(one, sizeof one, letter == 'a' ? "%d=50" : ",%d=50", letter);
    strcat(letters, one);
  }
}

#define TEXT "generate", model, "the ", "--logit-bias", letters, "-n", "60", "--seed", "2"

static void stop_strings_end_the_text(void **state)
{
  (void)state;
  list_letters();
  cli_result whole = CLI(TEXT, "--quiet");
  assert_int_equal(whole.code, 0);
  assert_int_equal(whole.out_size, 61);
  assert_int_equal(strspn(whole.out, "abcd"), 60);
  char stop[4], other[8], want[64];
  snprintf(stop, sizeof stop, "%.3s", whole.out + 30);
  snprintf(other, sizeof other, "%.3sx", whole.out + 10); /* held back, and then no stop */
  snprintf(want, sizeof want, "%.*s\n", (int)(strstr(whole.out, stop) - whole.out), whole.out);
  expect_out(CLI(TEXT, "--quiet", "--stop", stop), want);
  expect_out(CLI(TEXT, "--quiet", "--stop", other, "--stop", "never", "--stop", stop), want);
  expect_out(CLI(TEXT, "--quiet", "--stop", other), whole.out);
  snprintf(other, sizeof other, "%.2sx", whole.out + 58); /* held when the text ends */
  expect_out(CLI(TEXT, "--quiet", "--stop", other), whole.out);
  EXPECT_CLI(0, "ended: stop string\n", TEXT, "--stop", stop);
  EXPECT_CLI(2, "--stop: expected TEXT, got an empty text", TEXT, "--stop", "");
  EXPECT_CLI(2, "--stop: expected UTF-8, got \\xff", TEXT, "--stop", "\xff");
  EXPECT_CLI(2, "--stop: expected a prompt that is text, got --tokens", "generate", model,
             "--tokens", "1", "--stop", "a");
  cli_free(&whole);
}

static void biases_choose_tokens(void **state)
{
  (void)state;
  expect_out(CLI("generate", model, "t", "-n", "3", "--quiet", "--logit-bias", "120=99"), "xxx\n");
  expect_out(CLI("generate", model, "t", "-n", "3", "--quiet", "-l", "120+99", "-l", "121-5"),
             "xxx\n");
  expect_out(CLI("generate", model, "t", "-n", "3", "--quiet", "--logit-bias",
                 "120=99,121=120,121=-90", "--temp", "0"),
             "xxx\n");
  expect_out(CLI("generate", model, "t", "-n", "2", "--quiet", "--logit-bias", "120=99,120=-inf",
                 "--logit-bias=121=60"),
             "yy\n");
  /* A penalty that outweighs the bias takes each in turn. */
  expect_out(CLI("generate", model, "t", "-n", "4", "--quiet", "--logit-bias", "120=60,121=50",
                 "--frequency-penalty", "15", "--temp", "0"),
             "xyxy\n");
  static const char *const wrong[] = {"x",       "1",     "1=",    "=1",   "1=2,",
                                      "1=2;3=4", "1=nan", "1=inf", "-1=2", "1=x"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    EXPECT_CLI(2, "expected ID=VALUE with a number or -inf, got", "generate", model, "t",
               "--logit-bias", wrong[i]);
  }
  EXPECT_CLI(1, "--logit-bias: byte 4: expected an id of the model, 0 to 256, got 257", "generate",
             model, "t", "--logit-bias", "1=2,257=1");
}

static void end_tokens_are_ignored(void **state)
{
  (void)state;
  EXPECT_CLI(0, "generated: 0 ", "generate", model, "t", "--logit-bias", "256=99");
  EXPECT_CLI(0, "ended: end of text\n", "generate", model, "t", "--logit-bias", "256=99");
  EXPECT_CLI(0, "generated: 20 ", "generate", model, "t", "--logit-bias", "256=99", "--ignore-eos",
             "-n", "20");
  cli_result r = CLI("generate", model, "--tokens", "1", "--logit-bias", "256=99", "--ignore-eos",
                     "-n", "50", "--quiet");
  for (char *at = r.out; *at && *at != '\n';) {
    assert_int_not_equal(strtol(at, &at, 10), kEnd);
  }
  cli_free(&r);
}

/* Of options that have two, both names mean the same; --help shows one. */
static void names_of_other_programs(void **state)
{
  (void)state;
  static const char *const names[][3] = {{"--max-tokens", "--n-predict", "9"},
                                         {"--max-tokens", "--predict", "9"},
                                         {"--temperature", "--temp", "0"},
                                         {"--repetition-penalty", "--repeat-penalty", "1.7"},
                                         {"--ctx", "--ctx-size", "20"},
                                         {"--threads", "-t", "1"},
                                         {"--seed", "-s", "4"},
                                         {"--ctx", "-c", "20"}};
  cli_result help = CLI("generate", "--help");
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    cli_result own = CLI("generate", model, "the ", names[i][0], names[i][2], "--quiet");
    assert_int_equal(own.code, 0);
    expect_out(CLI("generate", model, "the ", names[i][1], names[i][2], "--quiet"), own.out);
    cli_free(&own);
    assert_non_null(strstr(help.out, names[i][0]));
    if (names[i][1][1] == '-') {
      char shown[64];
      snprintf(shown, sizeof shown, "%s=", names[i][1]);
      assert_null(strstr(help.out, shown));
    }
  }
  cli_free(&help);
  EXPECT_CLI(2, "--temp: expected a number from 0 to 1000, got x", "generate", model, "t", "--temp",
             "x");
  EXPECT_CLI(2, "--max-tokens: expected -1 or at least 1, got 0", "generate", model, "t", "-n",
             "0");
  EXPECT_CLI(2, "--repeat-last-n: expected a whole number of at least -1, got -2", "generate",
             model, "t", "--repeat-last-n", "-2");
}

static void penalties_have_windows(void **state)
{
  (void)state;
#define PENALISED "generate", model, "the cat", "-n", "40", "--temp", "0", "--quiet"
  cli_result plain = CLI(PENALISED), penalised = CLI(PENALISED, "--repetition-penalty", "1.8");
  assert_string_not_equal(plain.out, penalised.out);
  expect_out(CLI(PENALISED, "--repetition-penalty", "1.8", "--repeat-last-n", "0"), plain.out);
  expect_out(CLI(PENALISED, "--repetition-penalty", "1.8", "--repeat-last-n", "99"), penalised.out);
  expect_out(CLI(PENALISED, "--repetition-penalty", "1"), plain.out);
  cli_free(&plain);
  cli_free(&penalised);
}

static void files_of_prompts(void **state)
{
  (void)state;
  const char *file = scratch_file(&dir, "prompt.txt");
  cli_result want = CLI("generate", model, "one\ntwo", "-n", "20", "--quiet", "--echo");
  assert_int_equal(want.code, 0);
  write_text(file, "one\ntwo\n"); /* an editor's last newline is not part of it */
  expect_out(CLI("generate", model, "-f", file, "-n", "20", "--quiet", "--echo"), want.out);
  write_text(file, "one\ntwo");
  expect_out(CLI("generate", "-m", model, "--file", file, "-n", "20", "--quiet", "--echo"),
             want.out);
  write_text(file, "\n");
  EXPECT_CLI(1, "prompt.txt: prompt: expected text, got none", "generate", model, "-f", file);
  EXPECT_CLI(1, "none.txt: expected to", "generate", model, "-f", scratch_file(&dir, "none.txt"));
  EXPECT_CLI(2, "got both", "generate", model, "t", "-f", file);
  EXPECT_CLI(2, "got both", "generate", model, "--tokens", "1", "-f", file);
  EXPECT_CLI(1, "got \",2\"", "generate", model, "--tokens", "1,,2");
  EXPECT_CLI(1, "expected an id behind \"1, \"", "generate", model, "--tokens", "1, ");
  cli_free(&want);
}

static void one_json_object(void **state)
{
  (void)state;
  list_letters();
  cli_result text = CLI(TEXT, "--quiet");
  char want[256];
  snprintf(want, sizeof want, "{\"text\":\"%.60s\",\"ids\":[%d,", text.out, text.out[0]);
  static const char *const names[] = {"\"finish_reason\":\"length\"",
                                      "\"timings\":{\"cache_n\":0,\"prompt_n\":4,\"prompt_ms\":",
                                      "\"prompt_per_token_ms\":",
                                      "\"prompt_per_second\":",
                                      "\"predicted_n\":60,\"predicted_ms\":",
                                      "\"predicted_per_token_ms\":",
                                      "\"predicted_per_second\":",
                                      "\"load_ms\":",
                                      "\"bytes_per_token\":",
                                      "\"gbps\":",
                                      "\"read_gbps\":",
                                      "\"read_share\":"};
  cli_result json = CLI(TEXT, "--json");
  assert_int_equal(json.code, 0);
  assert_int_equal(strncmp(json.out, want, strlen(want)), 0);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (!strstr(json.out, names[i])) {
      fail_msg("expected %s, got %s", names[i], json.out);
    }
  }
  assert_null(strstr(json.out, "null"));
  assert_null(strchr(strchr(json.out, '\n') + 1, '\n')); /* one line */
  assert_string_equal(json.err, "");
  expect_part(CLI(TEXT, "--json", "--quiet"), "\"read_gbps\":null");
  expect_part(CLI(TEXT, "--json", "--stop", "a", "--stop", "b", "--stop", "c", "--stop", "d"),
              "{\"text\":\"\",\"ids\":[");
  expect_part(CLI(TEXT, "--json", "--stop", "a", "--stop", "b", "--stop", "c", "--stop", "d"),
              "\"finish_reason\":\"stop\"");
  expect_part(CLI("generate", model, "--tokens", "1", "-n", "2", "--json"), "{\"text\":null,");
  expect_part(
      CLI("generate", model, "t", "-n", "1", "--json", "--logit-bias", "120=99", "--logprobs", "0"),
      "\"logprobs\":[{\"id\":120,\"token\":\"x\",\"logprob\":-");
  expect_part(CLI("generate", model, "t", "-n", "1", "--json", "--logprobs", "2"),
              ",\"top\":[{\"id\":");
  EXPECT_CLI(2, "--logprobs: expected --json or --out too", TEXT, "--logprobs", "1");
  EXPECT_CLI(2, "--logprobs: expected a whole number from 0 to 20, got 21", TEXT, "--json",
             "--logprobs", "21");
  EXPECT_CLI(2, "--echo: expected text output, got --json", TEXT, "--json", "--echo");
  cli_free(&text);
  cli_free(&json);
}

/* ---- hub names ---- */

static void models_by_hub_name(void **state)
{
  (void)state;
  char path[2 * SCRATCH_PATH], variable[2 * SCRATCH_PATH];
  static const char *const folders[] = {"hub", "hub/models--org--tiny",
                                        "hub/models--org--tiny/refs",
                                        "hub/models--org--tiny/snapshots"};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(mkdir(scratch_file(&dir, folders[i]), 0700), 0);
  }
  write_text(scratch_file(&dir, "hub/models--org--tiny/refs/main"), "0f1e2d");
  snprintf(path, sizeof path, "%s", scratch_file(&dir, "hub/models--org--tiny/snapshots/0f1e2d"));
  assert_int_equal(symlink(model, path), 0);
  snprintf(variable, sizeof variable, "HF_HUB_CACHE=%s", scratch_file(&dir, "hub"));
  const char *const environment[] = {variable, NULL};
  const cli_setup setup = {.environment = environment, .input = "116"};
  write_text(scratch_file(&dir, "text"), "a text to train on, as long as it has to be for a step");
  const char *out = scratch_file(&dir, "trained"), *text = scratch_file(&dir, "text");
  const char *const calls[][14] = {
      {"generate", "org/tiny", "t", "-n", "1"},
      {"generate", "-m", "org/tiny", "--tokens", "1", "-n", "1"},
      {"tokenize", "org/tiny", "--count"},
      {"detokenize", "org/tiny"},
      {"info", "org/tiny"},
      {"bench", "-m", "org/tiny", "prefill", "--seq", "8", "--steps", "1"},
      {"convert", "org/tiny", scratch_file(&dir, "converted")},
      {"train", "--model", "org/tiny", "--train-file", text, "--out", out, "--steps", "1", "--seq",
       "8", "--batch", "1"},
  };
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    cli_result r = cli_run(&setup, calls[i]);
    if (r.code != 0) {
      fail_msg("%s: expected code 0, got %d and \"%s\"", calls[i][0], r.code, r.err);
    }
    cli_free(&r);
  }
  cli_result absent = cli_run(&setup, (const char *const[]){"generate", "org/other", "t", NULL});
  cli_expect(&absent, 1,
             "org/other: expected to find this directory, or "
             "models--org--other/refs/main in ");
  cli_result plain =
      cli_run(&setup, (const char *const[]){"template", "org/tiny", "--file", text, NULL});
  cli_expect(&plain, 1, "/snapshots/0f1e2d"); /* a model without a template */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stop_strings_end_the_text), cmocka_unit_test(biases_choose_tokens),
      cmocka_unit_test(end_tokens_are_ignored),    cmocka_unit_test(names_of_other_programs),
      cmocka_unit_test(penalties_have_windows),    cmocka_unit_test(files_of_prompts),
      cmocka_unit_test(one_json_object),           cmocka_unit_test(models_by_hub_name),
  };
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
