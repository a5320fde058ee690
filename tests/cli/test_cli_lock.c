/* `tegula train`: one process at a time writes a directory, and a log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli_training.h"

static pid_t start(command c)
{
  return cli_start(scratch_file(&dir, "output"), c.argument);
}

static pid_t start_long_run(const char *out)
{
  return start(
      train_into(out, MORE("--steps", "100000", "--save-every", "0", "--eval-every", "0")));
}

static void expect_refusal(cli_result r, pid_t holder)
{
  char part[96];
  snprintf(part, sizeof part, "that no other process writes, got process %ld\n", (long)holder);
  cli_expect(&r, 1, part);
}

/* However the directory is spelled, and before it exists. */
static void the_other_process_is_named(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "both"), *lock = scratch_file(&dir, ".both.tegula-lock");
  const pid_t pid = start_long_run(out);
  wait_for(scratch_file(&dir, "both.jsonl"), "\"event\":\"step\"", 1);
  assert_true(file_exists(lock));
  assert_int_equal(symlink(dir.path, scratch_file(&dir, "here")), 0);
  expect_refusal(TRAIN(out, "--steps", "2"), pid);
  expect_refusal(TRAIN(scratch_file(&dir, "both//"), "--steps", "2"), pid);
  expect_refusal(TRAIN(scratch_file(&dir, "here/both"), "--steps", "2"), pid);
  expect_refusal(RESUME(out, "--quiet"), pid);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGINT);
  assert_false(file_exists(lock));
  unlink(scratch_file(&dir, "here"));
}

/* What a killed run leaves blocks nobody: neither a new run nor a resumed one. */
static void a_killed_run_holds_nothing(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "dead"), *lock = scratch_file(&dir, ".dead.tegula-lock");
  pid_t pid = start_long_run(out);
  wait_for(scratch_file(&dir, "dead.jsonl"), "\"event\":\"step\"", 1);
  assert_int_equal(kill(pid, SIGKILL), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGKILL);
  assert_true(file_exists(lock));
  expect(TRAIN(out, "--steps", "2"), 0, "all 2 steps are done");
  assert_false(file_exists(lock));

  write_text(lock, "");
  pid = start(resume(out, MORE("--steps", "100000", "--save-every", "1")));
  wait_for(scratch_file(&dir, "dead.jsonl"), "\"event\":\"checkpoint\"", 2);
  expect_refusal(RESUME(out, "--quiet"), pid);
  expect_refusal(TRAIN(out, "--steps", "2"), pid);
  assert_int_equal(kill(pid, SIGKILL), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGKILL);
  pid = start(resume(out, MORE("--quiet")));
  wait_for(scratch_file(&dir, "dead.jsonl"), "\"event\":\"start\"", 3);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGINT);
  assert_false(file_exists(lock));
}

static void of_runs_begun_together_one_goes_on(void **state)
{
  (void)state;
  enum { kRuns = 4 };
  for (int round = 0; round < 3; round++) {
    char name[16];
    snprintf(name, sizeof name, "race%d", round);
    const command c = train_into(scratch_file(&dir, name), MORE("--steps", "3", "--quiet"));
    pid_t pid[kRuns];
    int done = 0;
    for (int i = 0; i < kRuns; i++) {
      pid[i] = start(c);
    }
    for (int i = 0; i < kRuns; i++) {
      const int code = cli_wait(pid[i]);
      assert_true(code == 0 || code == 1);
      done += code == 0;
    }
    assert_int_equal(done, 1);
  }
}

static void a_log_has_one_writer(void **state)
{
  (void)state;
  const char *log = scratch_file(&dir, "shared.jsonl");
  const pid_t pid = start(train_into(scratch_file(&dir, "first"),
                                     MORE("--steps", "100000", "--eval-every", "0", "--log", log)));
  wait_for(log, "\"event\":\"step\"", 2);
  expect_refusal(TRAIN(scratch_file(&dir, "second"), "--steps", "2", "--log", log), pid);
  size_t size;
  char *lines = read_file(log, &size);
  assert_int_equal(count(lines, "\"event\":\"start\""), 1);
  assert_true(count(lines, "\"event\":\"step\"") >= 2); /* nobody cut it off */
  free(lines);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(cli_wait(pid), 128 + SIGINT);
  expect(TRAIN(scratch_file(&dir, "third"), "--steps", "2", "--log", log), 0, "all 2 steps");
  lines = read_file(log, &size);
  assert_int_equal(count(lines, "\"event\":\"step\""), 2);
  free(lines);
  expect(TRAIN(scratch_file(&dir, "fourth"), "--steps", "2", "--log", "/dev/null"), 0, "all 2");
}

/* Rights do not keep root from a directory in which nothing can be made. */
static void a_place_for_no_checkpoint_is_refused_at_once(void **state)
{
  (void)state;
  cli_result r =
      TRAIN("/proc/model", "--steps", "2", "--log", scratch_file(&dir, "placeless.jsonl"));
  assert_int_equal(r.code, 1);
  assert_non_null(strstr(r.err, "/proc"));
  assert_null(strstr(r.err, "step 1/2"));
  cli_free(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_other_process_is_named),
      cmocka_unit_test(a_killed_run_holds_nothing),
      cmocka_unit_test(of_runs_begun_together_one_goes_on),
      cmocka_unit_test(a_log_has_one_writer),
      cmocka_unit_test(a_place_for_no_checkpoint_is_refused_at_once),
  };
  return cmocka_run_group_tests(tests, make_text, remove_text);
}
