/* `tegula train --resume`: nothing is lost when a run is interrupted, killed or out of disk, and
 * only the same run goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#include "cli_training.h"

static bool has(const char *directory, const char *name)
{
  char path[SCRATCH_PATH * 2];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return file_exists(path);
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
    assert_non_null(strstr(said, ", saved; resume with: tegula train --out"));
    free(said);
    expect(RESUME(out, "--threads", threads[i]), 0, "all 120 steps are done");
    expect_same_weights(whole, out);
    char *lines = read_file(log, &size);
    assert_int_equal(count(lines, "\"event\":\"step\""), 120); /* every step once */
    free(lines);
  }
}

static void a_finished_run_is_extended(void **state)
{
  (void)state;
  const char *whole = scratch_file(&dir, "longer"), *parts = scratch_file(&dir, "longer2");
  const char *log = scratch_file(&dir, "longer2.jsonl");
  expect(TRAIN(whole, "--steps", "4"), 0, "all 4 steps are done");
  expect(TRAIN(parts, "--steps", "4"), 0, "all 4 steps are done");
  expect(RESUME(whole, "--steps", "120"), 0, "all 120 steps are done");
  /* The learning rate is that of a run of 120 steps from there on: cosine from 1e-3 to 1e-4. */
  const double expected = 1e-4 + 9e-4 * 0.5 * (1 + cos(3.141592653589793 * 5 / 120));
  const double got = logged(scratch_file(&dir, "longer.jsonl"), 5, "lr");
  assert_true(fabs(got - expected) < 1e-9);

  pid_t pid =
      cli_start(scratch_file(&dir, "output"), resume(parts, MORE("--steps", "120")).argument);
  wait_for(log, "\"event\":\"step\"", 7);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGINT);
  expect(RESUME(parts, "--steps", "121"), 1, "only a finished run can be extended), got 121");
  expect(RESUME(parts, "--steps", "119"), 1, "--steps: expected 120");
  expect(RESUME(parts, "--quiet"), 0, "");
  expect_same_weights(whole, parts);
  expect(RESUME(parts, "--steps", "119"), 1, "--steps: expected at least 120");
  expect(RESUME(parts, "--steps", "121"), 0, "all 121 steps are done");
}

static void resuming_something_else_is_refused(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "fixed"), *other = scratch_file(&dir, "edited");
  expect(TRAIN(out, "--steps", "4", "--lr", "0.002", "--seed", "5"), 0, "all 4 steps");
  expect(TRAIN(out, "--steps", "4"), 1, "expected a directory without a model (or --resume)");
  expect(RESUME(out, "--dtype", "bf16"), 1, "--dtype: expected f32 (the checkpoint's value)");
  expect(RESUME(out, "--seed", "6"), 1, "--seed: expected 5");
  expect(RESUME(out, "--lr", "0.001"), 1, "--lr: expected 0.002");
  expect(RESUME(out, "--steps", "3"), 1, "--steps: expected at least 4 (the checkpoint's, all");
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
      cmocka_unit_test(resumes_bit_for_bit),
      cmocka_unit_test(a_finished_run_is_extended),
      cmocka_unit_test(resuming_something_else_is_refused),
      cmocka_unit_test(names_that_are_no_text),
      cmocka_unit_test(killed_at_any_moment_a_checkpoint_stands),
      cmocka_unit_test(a_second_interrupt_ends_at_once),
      cmocka_unit_test(a_full_disk_keeps_the_old_checkpoint),
  };
  return cmocka_run_group_tests(tests, make_text, remove_text);
}
