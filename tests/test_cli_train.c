/* `tegula train`: its input, its output, and that nothing is lost when it is interrupted, killed or
 * out of disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { kTextBytes = 6000, kMostArguments = 48 };

static scratch dir;
static const char *text; /* a training text */

static int make_text(void **state)
{
  (void)state;
  char bytes[kTextBytes + 1];
  uint32_t random = 7;
  for (int i = 0; i < kTextBytes; i++) {
    random = random * 1664525u + 1013904223u;
    bytes[i] = "etaoin shrdlu.\n"[(random >> 16) % 15];
  }
  bytes[kTextBytes] = '\0';
  dir = scratch_make();
  text = strdup(scratch_file(&dir, "text"));
  write_text(text, bytes);
  return 0;
}

static int remove_text(void **state)
{
  (void)state;
  scratch_remove(&dir);
  free((void *)(uintptr_t)text);
  return 0;
}

/* `tegula train` of a small model into `out`, with more arguments (ended by NULL). */
typedef struct command {
  const char *argument[kMostArguments];
  int count;
} command;

static void add(command *c, const char *const *more)
{
  for (; *more; more++) {
    assert_true(c->count < kMostArguments - 1);
    c->argument[c->count++] = *more;
  }
  c->argument[c->count] = NULL;
}

static command train_into(const char *out, const char *const *more)
{
  command c = {.count = 0};
  add(&c, (const char *const[]){"train", "--preset", "gpt_nano", "--train-file", text, "--out", out,
                                "--batch", "2", "--seq", "16", "--threads", "1", NULL});
  add(&c, more);
  return c;
}

static command resume(const char *out, const char *const *more)
{
  command c = {.count = 0};
  add(&c, (const char *const[]){"train", "--out", out, "--resume", NULL});
  add(&c, more);
  return c;
}

static cli_result run(command c)
{
  return cli_run(&(cli_setup){0}, c.argument);
}

#define MORE(...) ((const char *const[]){__VA_ARGS__, NULL})
#define TRAIN(out, ...) run(train_into(out, MORE(__VA_ARGS__)))
#define RESUME(out, ...) run(resume(out, MORE(__VA_ARGS__)))

static void expect(cli_result r, int code, const char *part)
{
  cli_expect(&r, code, part);
}

static char *file_in(const char *directory, const char *name, size_t *size)
{
  char path[SCRATCH_PATH * 2];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return read_file(path, size);
}

static bool has(const char *directory, const char *name)
{
  char path[SCRATCH_PATH * 2];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return file_exists(path);
}

static void expect_same_weights(const char *a, const char *b)
{
  static const char *const files[] = {"model.safetensors", "optimizer_exp_avg.safetensors",
                                      "optimizer_exp_avg_sq.safetensors"};
  for (int i = 0; i < 3; i++) {
    size_t na, nb;
    char *x = file_in(a, files[i], &na), *y = file_in(b, files[i], &nb);
    if (na != nb || memcmp(x, y, na) != 0) {
      fail_msg("%s of %s and %s differ", files[i], a, b);
    }
    free(x);
    free(y);
  }
}

static int count(const char *haystack, const char *needle)
{
  int n = 0;
  for (const char *at = haystack; (at = strstr(at, needle)); at += strlen(needle)) {
    n++;
  }
  return n;
}

static void nap(long milliseconds)
{
  const struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&t, NULL);
}

/* Waits until the run's log holds `n` lines of an event. */
static void wait_for(const char *log, const char *event, int n)
{
  for (int i = 0; i < 6000; i++) {
    if (file_exists(log)) {
      size_t size;
      char *content = read_file(log, &size);
      const int seen = count(content, event);
      free(content);
      if (seen >= n) {
        return;
      }
    }
    nap(10);
  }
  fail_msg("%s: expected %d times %s within a minute", log, n, event);
}

/* ---- what it prints ---- */

static void progress_and_log(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "plain"), *log = scratch_file(&dir, "plain.jsonl");
  cli_result r = TRAIN(out, "--steps", "60", "--eval-every", "30");
  assert_int_equal(r.code, 0);
  assert_string_equal(r.out, "");
  assert_null(strchr(r.err, '\r'));
  assert_null(strchr(r.err, '\033'));
  assert_non_null(strstr(r.err, "memory:\n  weights"));
  assert_true(strstr(r.err, "memory:") < strstr(r.err, "step 1/60 | loss "));
  assert_non_null(strstr(r.err, "step 60/60 | loss "));
  assert_int_equal(count(r.err, "/60 | loss"), 21); /* the first and every third */
  assert_int_equal(count(r.err, "validation loss"), 2);
  cli_free(&r);
  size_t size;
  char *lines = read_file(log, &size);
  assert_int_equal(count(lines, "{\"event\":\"step\",\"step\":"), 60);
  assert_int_equal(count(lines, "{\"event\":\"validation\","), 2);
  assert_int_equal(count(lines, "{\"event\":\"end\",\"step\":60,\"reason\":\"done\"}"), 1);
  assert_int_equal(count(lines, "\n"), count(lines, "{\"event\":"));
  free(lines);
  r = TRAIN(scratch_file(&dir, "silent"), "--steps", "2", "--quiet");
  assert_int_equal(r.code, 0);
  assert_string_equal(r.err, "");
  cli_free(&r);
  expect(RESUME(out, "--quiet"), 0, ""); /* nothing left to do */
}

static void live_on_a_terminal_alone(void **state)
{
  (void)state;
  static const char *const no_color[] = {"NO_COLOR=1", NULL};
  if (!cli_has_terminals()) {
    print_message("no terminal to be had: needs /dev/pts\n");
    skip();
  }
  command c = train_into(scratch_file(&dir, "live"), MORE("--steps", "5"));
  cli_result r = cli_run(&(cli_setup){.term = "xterm"}, c.argument);
  assert_int_equal(r.code, 0);
  assert_int_equal(count(r.err, "\rstep "), 5);
  assert_true(count(r.err, "\033[K") >= 5);
  cli_free(&r);
  r = cli_run(&(cli_setup){.term = "xterm"}, c.argument);
  assert_int_equal(r.code, 1); /* the directory holds a model now */
  assert_non_null(strstr(r.err, "\033[31m"));
  cli_free(&r);
  r = cli_run(&(cli_setup){.term = "xterm", .environment = no_color}, c.argument);
  assert_null(strchr(r.err, '\033'));
  cli_free(&r);
  c = train_into(scratch_file(&dir, "dumb"), MORE("--steps", "5"));
  r = cli_run(&(cli_setup){.term = "dumb"}, c.argument);
  assert_int_equal(r.code, 0);
  assert_null(strchr(r.err, '\033'));
  cli_free(&r);
}

/* ---- bad input ---- */

static void bad_text(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "never"), *other = scratch_file(&dir, "other");
  write_text(other, "");
  expect(TRAIN(out, "--train-file", other), 1, "expected text, got an empty file");
  write_text(other, "short");
  expect(TRAIN(out, "--train-file", other), 1, "expected at least 17 tokens");
  write_text(other, "a text with a byte \xff that is no UTF-8");
  expect(TRAIN(out, "--train-file", other), 1, "byte 19: expected UTF-8");
  expect(TRAIN(out, "--train-file", dir.path), 1, "a directory");
  expect(TRAIN(out, "--train-file", scratch_file(&dir, "none")), 1, "No such file");
  write_text(other, "");
  expect(TRAIN(out, "--val-file", other), 1, "expected text, got an empty file");
  assert_false(file_exists(out));
  assert_false(file_exists(scratch_file(&dir, "never.jsonl")));
}

static void bad_places_and_sizes(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "never");
  expect(TRAIN(scratch_file(&dir, "no/such/dir"), "--quiet"), 1, "No such file or directory");
  expect(TRAIN(text, "--quiet"), 1, "expected a directory or a new name");
  expect(TRAIN(out, "--preset", "gpt_giant"), 1, "expected one of gpt_nano");
  expect(TRAIN(out, "--seq", "129"), 1, "128");
  expect(TRAIN(out, "--dtype", "f16"), 2, "--dtype: expected f32 or bf16, got f16");
  expect(TRAIN(out, "--log", scratch_file(&dir, "no/such.jsonl")), 1, "open the log");
  expect(RESUME(out, "--quiet"), 1, "trainer_state.json");
  expect(RESUME(scratch_file(&dir, "no/such/dir"), "--quiet"), 1, "no/such/dir");
  expect(run((command){.argument = {"train", "--train-file", text, "--out", out, "--model",
                                    scratch_file(&dir, "none")}}),
         1, "none");
  assert_false(file_exists(out));
}

static void a_loss_that_is_no_number_stops(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "nan");
  expect(TRAIN(out, "--steps", "9", "--lr", "1e30", "--warmup", "0", "--clip", "0", "--save-every",
               "1"),
         1, "holds the checkpoint of step 1");
  size_t size;
  char *log = read_file(scratch_file(&dir, "nan.jsonl"), &size);
  assert_int_equal(count(log, "{\"event\":\"step\""), 1);
  assert_non_null(strstr(log, "step 2"));
  free(log);
  char *kept = file_in(out, "trainer_state.json", &size);
  assert_non_null(strstr(kept, "\"step\": 1"));
  free(kept);
  out = scratch_file(&dir, "nan2");
  expect(TRAIN(out, "--steps", "9", "--lr", "1e30", "--warmup", "0", "--clip", "0"), 1,
         "no checkpoint was saved yet");
  assert_false(file_exists(out));
}

/* ---- going on ---- */

static void resumes_bit_for_bit(void **state)
{
  (void)state;
  static const char *const threads[] = {"1", "2", "3"};
  const char *whole = scratch_file(&dir, "whole");
  expect(TRAIN(whole, "--steps", "120", "--threads", "2"), 0, "all 120 steps are done");
  for (int i = 0; i < 3; i++) {
    char name[32];
    snprintf(name, sizeof name, "parts%d", i);
    const char *out = scratch_file(&dir, name);
    snprintf(name, sizeof name, "parts%d.jsonl", i);
    const char *log = scratch_file(&dir, name);
    command c = train_into(out, MORE("--steps", "120", "--threads", threads[(i + 1) % 3]));
    pid_t pid = cli_start(scratch_file(&dir, "output"), c.argument);
    wait_for(log, "\"event\":\"step\"", 3);
    assert_int_equal(kill(pid, i == 1 ? SIGTERM : SIGINT), 0);
    assert_int_equal(cli_wait(pid), i == 1 ? 128 + SIGTERM : 128 + SIGINT);
    size_t size;
    char *said = read_file(scratch_file(&dir, "output"), &size);
    assert_non_null(strstr(said, ", saved; go on with: tegula train --out"));
    free(said);
    expect(RESUME(out, "--threads", threads[i]), 0, "all 120 steps are done");
    expect_same_weights(whole, out);
    char *lines = read_file(log, &size);
    assert_int_equal(count(lines, "\"event\":\"step\""), 120); /* every step once */
    free(lines);
  }
}

static void resuming_something_else_is_refused(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "fixed"), *other = scratch_file(&dir, "edited");
  expect(TRAIN(out, "--steps", "4", "--lr", "0.002", "--seed", "5"), 0, "all 4 steps");
  expect(TRAIN(out, "--steps", "4"), 1, "expected a directory without a model (or --resume)");
  expect(RESUME(out, "--dtype", "bf16"), 1, "--dtype: expected f32, with which");
  expect(RESUME(out, "--seed", "6"), 1, "--seed: expected 5");
  expect(RESUME(out, "--lr", "0.001"), 1, "--lr: expected 0.002");
  expect(RESUME(out, "--steps", "8"), 1, "--steps: expected 4");
  expect(RESUME(out, "--batch", "3"), 1, "--batch: expected 2");
  expect(RESUME(out, "--seq", "8"), 1, "--seq: expected 16");
  expect(RESUME(out, "--preset", "gpt_mini"), 1, "--preset: expected gpt_nano");
  expect(RESUME(out, "--val-fraction", "0.2"), 1, "--val-fraction: expected 0.1");
  size_t size;
  char *bytes = read_file(text, &size);
  bytes[100] = bytes[100] == 'x' ? 'y' : 'x';
  write_file(other, bytes, size);
  free(bytes);
  expect(RESUME(out, "--train-file", other), 1, "--train-file: expected the text");
  expect(RESUME(out, "--val-file", text), 1, "--train-file: expected the text");
  write_file(other, "", 0);
  bytes = read_file(text, &size);
  write_file(other, bytes, size); /* the same text under another name */
  free(bytes);
  expect(RESUME(out, "--train-file", other, "--lr", "0.002", "--eval-every", "1"), 0,
         "all 4 steps are done");
}

/* A name that is no UTF-8 cannot stand in the note, so it must be given again. */
static void names_that_are_no_text(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "odd"), *odd = scratch_file(&dir, "t\xff");
  size_t size;
  char *bytes = read_file(text, &size);
  write_file(odd, bytes, size);
  free(bytes);
  expect(TRAIN(out, "--steps", "2", "--train-file", odd), 0, "all 2 steps are done");
  expect(RESUME(out, "--quiet"), 1, "--train-file: expected FILE");
  expect(RESUME(out, "--train-file", odd), 0, "all 2 steps are done");
}

/* ---- sudden ends ---- */

static void killed_at_any_moment_a_checkpoint_stands(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "killed"), *log = scratch_file(&dir, "killed.jsonl");
  command c = train_into(out, MORE("--steps", "100000", "--save-every", "1"));
  pid_t pid = cli_start(scratch_file(&dir, "output"), c.argument);
  wait_for(log, "\"event\":\"checkpoint\"", 2);
  for (int i = 0; i < 8; i++) {
    nap(3 * i);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(cli_wait(pid), 128 + SIGKILL);
    EXPECT_CLI(0, "", "info", out);
    size_t size;
    char *before = read_file(log, &size);
    const int checkpoints = count(before, "\"event\":\"checkpoint\"");
    free(before);
    c = resume(out, MORE("--quiet"));
    pid = cli_start(scratch_file(&dir, "output"), c.argument);
    wait_for(log, "\"event\":\"checkpoint\"", checkpoints + 1);
  }
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGINT);
  assert_true(has(out, "config.json"));
}

static void a_second_interrupt_ends_at_once(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "twice"), *log = scratch_file(&dir, "twice.jsonl");
  command c = train_into(out, MORE("--steps", "100000", "--save-every", "0", "--eval-every", "0"));
  const pid_t pid = cli_start(scratch_file(&dir, "output"), c.argument);
  wait_for(log, "\"event\":\"step\"", 1);
  /* Stopped, it meets both signals at the same moment. */
  assert_int_equal(kill(pid, SIGSTOP), 0);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(kill(pid, SIGTERM), 0);
  assert_int_equal(kill(pid, SIGCONT), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGINT);
  assert_false(file_exists(out)); /* it waited for no step and no checkpoint */
}

static void a_full_disk_keeps_the_old_checkpoint(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "full"), *log = scratch_file(&dir, "full.jsonl");
  command c = train_into(out, MORE("--steps", "100000", "--save-every", "1"));
  const pid_t pid = cli_start(scratch_file(&dir, "output"), c.argument);
  wait_for(log, "\"event\":\"checkpoint\"", 1);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGINT);
  size_t before_size, after_size;
  char *before = file_in(out, "model.safetensors", &before_size);
  c = resume(out, MORE("--log", scratch_file(&dir, "full2.jsonl")));
  cli_result r = cli_run(&(cli_setup){.file_size_limit = 100000}, c.argument);
  cli_expect(&r, 1, "holds the checkpoint of step");
  char *after = file_in(out, "model.safetensors", &after_size);
  assert_int_equal(before_size, after_size);
  assert_memory_equal(before, after, after_size);
  free(before);
  free(after);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(progress_and_log),
      cmocka_unit_test(live_on_a_terminal_alone),
      cmocka_unit_test(bad_text),
      cmocka_unit_test(bad_places_and_sizes),
      cmocka_unit_test(a_loss_that_is_no_number_stops),
      cmocka_unit_test(resumes_bit_for_bit),
      cmocka_unit_test(resuming_something_else_is_refused),
      cmocka_unit_test(names_that_are_no_text),
      cmocka_unit_test(killed_at_any_moment_a_checkpoint_stands),
      cmocka_unit_test(a_second_interrupt_ends_at_once),
      cmocka_unit_test(a_full_disk_keeps_the_old_checkpoint),
  };
  return cmocka_run_group_tests(tests, make_text, remove_text);
}
