#define _DEFAULT_SOURCE /* usleep */
/* `tegula generate`: stop strings, biases, names of options, files of prompts, JSON, hub names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include "expect.h"
#include "scratch_directory.h"
#include "tegula/model.h"
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kEnd = 256 }; /* the model's end token */

static scratch dir;
static char model[SCRATCH_PATH];

static int make_model(void **state)
{
  (void)state;
  tg_model *made = NULL;
  tg_tokenizer *tokenizer = NULL;
  tg_error error = {0};
  dir = scratch_make();
  snprintf(model, sizeof model, "%s", scratch_file(&dir, "model"));
  EXPECT_OK(tg_model_create("gpt_nano", 257, 3, &made, &error), error);
  EXPECT_OK(tg_tokenizer_create_bytes(&tokenizer, &error), error);
  EXPECT_OK(tg_model_save(made, &(tg_save_options){.tokenizer = tokenizer}, model, &error), error);
  tg_tokenizer_destroy(tokenizer);
  tg_model_destroy(made);
  return 0;
}

static int remove_model(void **state)
{
  (void)state;
  scratch_remove(&dir);
  return 0;
}

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

/* ---- several prompts ---- */

static void several_prompts(void **state)
{
  (void)state;
  const char *prompts = scratch_file(&dir, "prompts.jsonl"), *out = scratch_file(&dir, "out.jsonl");
  static const char *const texts[] = {"the cat", "a \xc3\xbc", "third"};
  write_text(prompts,
             "{\"prompt\": \"the cat\"}\n\n"
             "{\"prompt\": \"a \\u00fc\", \"id\": 7, \"n_predict\": 5, \"temperature\": 0}\n"
             "{\"max_tokens\": 9, \"seed\": 3, \"prompt\": \"third\", \"top_k\": 4}");
  EXPECT_CLI(0, "ended: 3 of 3 prompts\n", "generate", model, "-f", prompts, "--out", out, "-n",
             "12", "--seed", "1");
  size_t size;
  char *all = read_file(out, &size), *line = all;
  for (int i = 0; i < 3; i++) {
    static const char *const own[][6] = {{"-n", "12", "--seed", "1"},
                                         {"-n", "5", "--temp", "0"},
                                         {"-n", "9", "--seed", "3", "--top-k", "4"}};
    char begin[32];
    snprintf(begin, sizeof begin, "{\"index\":%d,\"text\":", i);
    assert_int_equal(strncmp(line, begin, strlen(begin)), 0);
    const char *arguments[16] = {"generate", model, texts[i], "--json"};
    for (int k = 0; k < 6 && own[i][k]; k++) {
      arguments[k + 4] = own[i][k];
    }
    cli_result alone = cli_run(&(cli_setup){0}, arguments);
    assert_int_equal(alone.code, 0);
    /* The same text, ids and reason as alone. */
    const char *want = strstr(alone.out, "\"text\":"), *timings = strstr(alone.out, "\"timings\":");
    assert_int_equal(strncmp(strstr(line, "\"text\":"), want, (size_t)(timings - want)), 0);
    cli_free(&alone);
    line = strchr(line, '\n') + 1;
  }
  assert_int_equal(line - all, size);
  free(all);
  EXPECT_CLI(0, "", "generate", model, "-f", prompts, "--out", out, "--quiet", "--logprobs", "1");
}

/* Lines but for their timings. */
static void expect_same_lines(const char *one, const char *other, int count)
{
  for (int i = 0; i < count; i++) {
    const char *end = strstr(one, "\"timings\":"), *other_end = strstr(other, "\"timings\":");
    assert_true(end && other_end);
    assert_int_equal(end - one, other_end - other);
    assert_memory_equal(one, other, (size_t)(end - one));
    one = strchr(one, '\n') + 1;
    other = strchr(other, '\n') + 1;
  }
  assert_int_equal(*one, '\0');
  assert_int_equal(*other, '\0');
}

/* Any number at the same time gives the same lines in the same order. */
static void prompts_at_the_same_time(void **state)
{
  (void)state;
  enum { kPrompts = 40 };
  const char *prompts = scratch_file(&dir, "forty.jsonl"), *out = scratch_file(&dir, "forty.out");
  static const char *const counts[] = {"1", "7", "64"};
  char text[kPrompts * 128], *lines[3];
  for (int i = 0, at = 0; i < kPrompts; i++) {
    at += snprintf(text + at, sizeof text - (size_t)at,
                   "{\"prompt\": \"%.*s\", \"seed\": %d, \"max_tokens\": %d}\n", 3 + i,
                   "a prompt of some length, cut where its number says so", i, 1 + i * 7 % 60);
  }
  write_text(prompts, text);
  for (int i = 0; i < 3; i++) {
    size_t size;
    EXPECT_CLI(0, "ended: 40 of 40 prompts\n", "generate", model, "-f", prompts, "--out", out,
               "--parallel", counts[i], "--stop", "the", "--logprobs", "1");
    lines[i] = read_file(out, &size);
    expect_same_lines(lines[0], lines[i], kPrompts);
  }
  for (int i = 0; i < 3; i++) {
    free(lines[i]);
  }
  EXPECT_CLI(2, "--parallel: expected a whole number from 1 to 64, got 65", "generate", model, "-f",
             prompts, "--out", out, "--parallel", "65");
}

static void a_full_disk_keeps_the_lines_that_are_done(void **state)
{
  (void)state;
  const char *prompts = scratch_file(&dir, "limit.jsonl"), *out = scratch_file(&dir, "full.out");
  char text[40 * 32] = "";
  for (int i = 0; i < 40; i++) {
    strcat(text, "{\"prompt\": \"a\"}\n");
  }
  write_text(prompts, text);
  const char *const arguments[] = {"generate", model, "-f", prompts, "--out", out, "-n", "4", NULL};
  cli_result r = cli_run(&(cli_setup){.file_size_limit = 4000}, arguments);
  cli_expect(&r, 1, "expected to write more bytes");
  size_t size;
  char *kept = read_file(out, &size);
  assert_true(size > 0 && size <= 4000 && kept[size - 1] == '\n');
  int lines = 0;
  for (char *line = kept; *line; line = strchr(line, '\n') + 1) {
    char start[32];
    snprintf(start, sizeof start, "{\"index\":%d,", lines++);
    assert_int_equal(strncmp(line, start, strlen(start)), 0);
  }
  assert_true(lines > 1);
  free(kept);
}

/* A rename would put a file in the place of a device, such as /dev/stdout, or of a link. */
static void results_replace_files_alone(void **state)
{
  (void)state;
  const char *prompts = scratch_file(&dir, "one.jsonl"), *pipe = scratch_file(&dir, "pipe");
  const char *folder = scratch_file(&dir, "folder"), *link = scratch_file(&dir, "link");
  const char *file = scratch_file(&dir, "behind.jsonl");
  struct stat info;
  write_text(prompts, "{\"prompt\": \"a\"}\n");
  assert_int_equal(mkfifo(pipe, 0600), 0);
  assert_int_equal(mkdir(folder, 0700), 0);
  EXPECT_CLI(1, "pipe: expected a regular file or nothing of that name, got a pipe", "generate",
             model, "-f", prompts, "--out", pipe, "-n", "2");
  assert_true(stat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
  EXPECT_CLI(1, "folder: expected a regular file or nothing of that name, got a directory",
             "generate", model, "-f", prompts, "--out", folder, "-n", "2");
  write_text(file, "old");
  assert_int_equal(symlink("behind.jsonl", link), 0);
  EXPECT_CLI(0, "", "generate", model, "-f", prompts, "--out", link, "-n", "2", "--quiet");
  assert_true(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
  size_t size;
  char *text = read_file(file, &size);
  assert_non_null(strstr(text, "\"index\":0"));
  free(text);
}

static void damaged_lines_are_named(void **state)
{
  (void)state;
  const char *prompts = scratch_file(&dir, "bad.jsonl"), *out = scratch_file(&dir, "never.jsonl");
  static const struct {
    const char *line, *message;
  } lines[] = {
      {"{\"prompt\": \"a\"", "bad.jsonl: line 3: byte 14: expected JSON"},
      {"[1]", "bad.jsonl: line 3: expected an object, got [1]"},
      {"{}", "bad.jsonl: line 3: prompt: expected a text, got none"},
      {"{\"prompt\": 5}", "bad.jsonl: line 3: prompt: expected a text, got 5"},
      {"{\"prompt\": \"\"}", "bad.jsonl: line 3: prompt: expected text, got none"},
      {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "bad.jsonl: line 3: "},
      {"{\"prompt\": \"\xff\"}", "bad.jsonl: line 3: "},
      {"{\"prompt\": \"a\", \"top_k\": 1.5}",
       "bad.jsonl: line 3: top_k: expected a whole number from 0 to 2147483647, got 1.5"},
      {"{\"prompt\": \"a\", \"temperature\": \"hot\"}",
       "bad.jsonl: line 3: temperature: expected a number from 0 to 1000, got \"hot\""},
      {"{\"prompt\": \"a\", \"temp\": 0, \"temperature\": 1}",
       "bad.jsonl: line 3: temperature: expected one of its names, got two"},
      {"{\"prompt\": \"a\", \"max_tokens\": 0}",
       "bad.jsonl: line 3: max_tokens: expected -1 or at least 1, got 0"},
  };
  char text[4096];
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    snprintf(text, sizeof text, "{\"prompt\": \"good\"}\n\n%s\n{\"prompt\": \"good\"}\n",
             lines[i].line);
    write_text(prompts, text);
    EXPECT_CLI(1, lines[i].message, "generate", model, "-f", prompts, "--out", out);
    assert_false(file_exists(out));
  }
  char longer[200];
  memset(longer, 'a', sizeof longer);
  snprintf(text, sizeof text, "{\"prompt\": \"good\"}\n{\"prompt\": \"%.150s\"}", longer);
  write_text(prompts, text);
  EXPECT_CLI(1,
             "bad.jsonl: line 2: prompt: expected at most 128 tokens (the model's positions), "
             "got 150",
             "generate", model, "-f", prompts, "--out", out);
  write_text(prompts, "\n \n");
  EXPECT_CLI(1, "bad.jsonl: expected a prompt, got none", "generate", model, "-f", prompts, "--out",
             out);
  assert_false(file_exists(out));
  EXPECT_CLI(2, "expected --out FILE for the results of", "generate", model, "-f", prompts);
  EXPECT_CLI(2, "--out: expected another file than --file", "generate", model, "-f", prompts,
             "--out", prompts);
  EXPECT_CLI(2, "--out: expected prompts in --file FILE.jsonl, got none", "generate", model, "t",
             "--out", out);
  EXPECT_CLI(2, "expected one of --json and --out, got both", "generate", model, "-f", prompts,
             "--out", out, "--json");
}

/* Bytes of the file that `out` is written to before it takes its name. */
static off_t bytes_so_far(const char *name)
{
  struct stat info = {0};
  char path[2 * SCRATCH_PATH];
  DIR *entries = opendir(dir.path);
  assert_non_null(entries);
  for (struct dirent *e; (e = readdir(entries)) != NULL;) {
    if (strncmp(e->d_name, name, strlen(name)) == 0) {
      snprintf(path, sizeof path, "%s/%s", dir.path, e->d_name);
      (void)stat(path, &info);
    }
  }
  closedir(entries);
  return info.st_size;
}

static void interrupted_runs_keep_whole_lines(void **state)
{
  (void)state;
  enum { kPrompts = 4000, kTries = 3000 };
  static const char kLine[] = "{\"prompt\": \"the cat\"}\n";
  char *prompts = malloc(kPrompts * sizeof kLine), path[SCRATCH_PATH], out[SCRATCH_PATH];
  prompts[0] = '\0';
  for (int i = 0; i < kPrompts; i++) {
    memcpy(prompts + (size_t)i * (sizeof kLine - 1), kLine, sizeof kLine);
  }
  snprintf(path, sizeof path, "%s", scratch_file(&dir, "many.jsonl"));
  snprintf(out, sizeof out, "%s", scratch_file(&dir, "some.jsonl"));
  write_text(path, prompts);
  free(prompts);
  const pid_t pid = cli_start(scratch_file(&dir, "log"),
                              (const char *const[]){"generate", model, "-f", path, "--out", out,
                                                    "-n", "50", "--threads", "1", NULL});
  int tries = 0;
  while (bytes_so_far("some.jsonl.tegula-") < 2000 && tries++ < kTries) {
    usleep(10000);
  }
  assert_false(file_exists(out));
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(cli_wait(pid), 130);
  size_t size;
  char *text = read_file(out, &size);
  assert_true(size >= 2000);
  int lines = 0;
  for (const char *at = text; *at; lines++) {
    char begin[32];
    snprintf(begin, sizeof begin, "{\"index\":%d,", lines);
    assert_int_equal(strncmp(at, begin, strlen(begin)), 0);
    const char *end = strchr(at, '\n');
    assert_true(end && end[-1] == '}');
    at = end + 1;
  }
  assert_true(lines > 0 && lines < kPrompts);
  free(text);
  EXPECT_CLI(1, "/nowhere/out.jsonl", "generate", model, "-f", path, "--out",
             scratch_file(&dir, "nowhere/out.jsonl"));
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
      cmocka_unit_test(stop_strings_end_the_text),
      cmocka_unit_test(biases_choose_tokens),
      cmocka_unit_test(end_tokens_are_ignored),
      cmocka_unit_test(names_of_other_programs),
      cmocka_unit_test(penalties_have_windows),
      cmocka_unit_test(files_of_prompts),
      cmocka_unit_test(one_json_object),
      cmocka_unit_test(several_prompts),
      cmocka_unit_test(prompts_at_the_same_time),
      cmocka_unit_test(a_full_disk_keeps_the_lines_that_are_done),
      cmocka_unit_test(results_replace_files_alone),
      cmocka_unit_test(damaged_lines_are_named),
      cmocka_unit_test(interrupted_runs_keep_whole_lines),
      cmocka_unit_test(models_by_hub_name),
  };
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
