/* `tegula train`: what it prints and logs, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <string.h>

#include "cli_training.h"

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
  expect(TRAIN(out, "--preset", "gpt_giant"), 2, "--preset: name: expected one of gpt_nano");
  expect(TRAIN(out, "--seq", "129"), 1, "128");
  expect(TRAIN(out, "--dtype", "f16"), 2, "--dtype: expected f32 or bf16, got f16");
  expect(TRAIN(out, "--log", scratch_file(&dir, "no/such.jsonl")), 1,
         "/such.jsonl: expected to open the log");
  expect(RESUME(out, "--quiet"), 1, "/never: expected to find this directory, got No such file");
  expect(RESUME(dir.path, "--quiet"), 1, "/trainer_state.json: expected to open it");
  expect(RESUME(scratch_file(&dir, "no/such/dir"), "--quiet"), 1, "no/such/dir");
  expect(run((command){.argument = {"train", "--train-file", text, "--out", out, "--model",
                                    scratch_file(&dir, "none")}}),
         1, "/none: expected to find this directory, got No such file");
  assert_false(file_exists(out));
}

/* Own data under the log's name are neither replaced nor appended to. */
static void a_log_replaces_logs_alone(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "logged"), *log = scratch_file(&dir, "logged.jsonl");
  static const char *const data[] = {"{\"event\":\"storm\"}\n", "x", "{\"event\":\"start\""};
  size_t size;
  for (int i = 0; i < 2; i++) {
    write_text(log, data[i]);
    expect(TRAIN(out, "--steps", "1"), 1, "logged.jsonl: expected a new name or a log");
    char *kept = read_file(log, &size);
    assert_string_equal(kept, data[i]);
    free(kept);
    assert_false(file_exists(out));
  }
  write_text(log, data[2]);
  expect(TRAIN(out, "--steps", "1"), 0, "all 1 steps");
  write_text(scratch_file(&dir, "mine"), data[1]);
  expect(RESUME(out, "--steps", "2", "--log", scratch_file(&dir, "mine")), 1,
         "/mine: expected a new name or a log");
  expect(RESUME(out, "--steps", "2"), 0, "all 2 steps");
  char *lines = read_file(log, &size);
  assert_int_equal(count(lines, "\"event\":\"start\""), 2);
  free(lines);
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(progress_and_log),
      cmocka_unit_test(live_on_a_terminal_alone),
      cmocka_unit_test(bad_text),
      cmocka_unit_test(bad_places_and_sizes),
      cmocka_unit_test(a_log_replaces_logs_alone),
      cmocka_unit_test(a_loss_that_is_no_number_stops),
  };
  return cmocka_run_group_tests(tests, make_text, remove_text);
}
