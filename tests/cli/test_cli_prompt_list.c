#define _DEFAULT_SOURCE /* usleep */
/* `tegula generate -f`: several prompts, each with settings of its own, and the file of results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* after cmocka.h */
#include "cli_chance_model.h"

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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(several_prompts),
      cmocka_unit_test(prompts_at_the_same_time),
      cmocka_unit_test(a_full_disk_keeps_the_lines_that_are_done),
      cmocka_unit_test(results_replace_files_alone),
      cmocka_unit_test(damaged_lines_are_named),
      cmocka_unit_test(interrupted_runs_keep_whole_lines),
  };
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
