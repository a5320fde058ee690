/* `tegula train`: micro-batches, schedules, samples and kept checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_training.h"
#include "expect.h"
#include "files/json_file.h"

/* ---- micro-batches ---- */

static void a_micro_batch_changes_the_rounding_alone(void **state)
{
  (void)state;
  const char *whole = scratch_file(&dir, "whole"), *parts = scratch_file(&dir, "parts");
  expect(TRAIN(whole, "--steps", "9", "--batch", "4"), 0, "all 9 steps are done");
  expect(TRAIN(parts, "--steps", "9", "--batch", "4", "--micro-batch", "1"), 0,
         "all 9 steps are done");
  for (int step = 1; step <= 9; step++) {
    const double want = logged(scratch_file(&dir, "whole.jsonl"), step, "loss");
    const double got = logged(scratch_file(&dir, "parts.jsonl"), step, "loss");
    assert_true(fabs(got - want) <= 1e-5 * want);
  }
  expect(TRAIN(parts, "--batch", "4", "--micro-batch", "3"), 2,
         "--micro-batch: expected a divisor of --batch 4, got 3");
  expect(RESUME(parts, "--steps", "12", "--micro-batch", "3"), 1,
         "micro_batch_size: expected a divisor of batch_size 4, got 3");
  expect(RESUME(parts, "--steps", "12", "--micro-batch", "2"), 0, "all 12 steps are done");
}

/* The auxiliary loss of routers is computed of each micro-batch. */
static void a_micro_batch_is_part_of_balanced_training(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "balanced");
  command c = {.count = 0};
  add(&c, MORE("train", "--preset", "gpt_oss_nano", "--train-file", text, "--out", out, "--steps",
               "1", "--batch", "2", "--seq", "8", "--router-aux-loss", "0.1"));
  expect(run(c), 0, "all 1 steps are done");
  expect(RESUME(out, "--steps", "2", "--micro-batch", "1"), 1,
         "--micro-batch: expected 2 (the checkpoint's: the auxiliary loss of routers depends on "
         "it), got 1");
  expect(RESUME(out, "--steps", "2", "--micro-batch", "2"), 0, "all 2 steps are done");
}

/* ---- schedules ---- */

static void expect_rate(const char *log, int step, double rate)
{
  const double got = logged(log, step, "lr");
  if (!(fabs(got - rate) <= 1e-9)) {
    fail_msg("%s, step %d: expected a learning rate of %g, got %g", log, step, rate, got);
  }
}

static void schedules(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    double at_3, at_7, at_8; /* of 8 steps, 2 of them warm-up, from 1e-3 to 1e-4 */
  } kinds[] = {{"constant", 1e-3, 1e-3, 1e-3},
               {"linear", 1e-4 + 9e-4 * 5 / 6, 1e-4 + 9e-4 / 6, 1e-4},
               {"wsd", 1e-3, 1e-4 + 9e-4 / 4, 1e-4}};
  for (int i = 0; i < 3; i++) {
    char log[32];
    snprintf(log, sizeof log, "%s.jsonl", kinds[i].name);
    const char *out = scratch_file(&dir, kinds[i].name);
    command c = train_into(out, MORE("--steps", "8", "--warmup", "2", "--schedule", kinds[i].name));
    if (i == 2) {
      add(&c, MORE("--decay-fraction", "0.5"));
    }
    expect(run(c), 0, "all 8 steps are done");
    expect_rate(scratch_file(&dir, log), 2, 1e-3);
    expect_rate(scratch_file(&dir, log), 3, kinds[i].at_3);
    expect_rate(scratch_file(&dir, log), 7, kinds[i].at_7);
    expect_rate(scratch_file(&dir, log), 8, kinds[i].at_8);
  }
  expect(TRAIN(scratch_file(&dir, "never"), "--schedule", "step"), 2,
         "--schedule: expected cosine, constant, linear or wsd, got step");
  expect(TRAIN(scratch_file(&dir, "never"), "--decay-fraction", "1.5"), 2,
         "--decay-fraction: expected a number above 0, at most 1, got 1.5");
}

/* What is not named stays the checkpoint's. */
static void a_schedule_changes_by_its_name(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "named"), *log = scratch_file(&dir, "named.jsonl");
  expect(TRAIN(out, "--steps", "4", "--warmup", "0", "--schedule", "constant"), 0, "all 4 steps");
  expect(RESUME(out, "--steps", "6"), 0, "all 6 steps are done");
  expect_rate(log, 6, 1e-3);
  expect(RESUME(out, "--steps", "10", "--schedule", "wsd", "--decay-fraction", "0.2"), 0,
         "all 10 steps are done");
  expect_rate(log, 7, 1e-3);
  expect_rate(log, 9, 5.5e-4);
  expect(RESUME(out, "--steps", "12"), 0, "all 12 steps are done");
  expect_rate(log, 11, 5.5e-4); /* still wsd */
}

/* A checkpoint from before there were these options goes on with their defaults. */
static void older_notes(void **state)
{
  (void)state;
  static const char *const keys[] = {
      "\\\"schedule\\\":", "\\\"decay-fraction\\\":", "\\\"micro-batch\\\":",
      "\\\"sample-every\\\":", "\\\"keep\\\":"};
  const char *out = scratch_file(&dir, "older");
  expect(TRAIN(out, "--steps", "3", "--warmup", "0"), 0, "all 3 steps are done");
  size_t size;
  char *note = file_in(out, "trainer_state.json", &size), path[SCRATCH_PATH * 2];
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    char *from = strstr(note, keys[i]);
    if (!from) {
      fail_msg("expected %s in %s", keys[i], note);
    }
    const char *end = strchr(from, ',') + 1;
    memmove(from, end, strlen(end) + 1);
  }
  snprintf(path, sizeof path, "%s/trainer_state.json", out);
  write_text(path, note);
  free(note);
  expect(RESUME(out, "--steps", "4"), 0, "all 4 steps are done");
  expect_rate(scratch_file(&dir, "older.jsonl"), 4, 1e-4);
}

/* ---- samples ---- */

static void samples_are_what_generate_prints(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "sampled"), *plain = scratch_file(&dir, "unsampled");
  cli_result r =
      TRAIN(out, "--steps", "7", "--sample-every", "3", "--sample-prompt", "the\n", "--seed", "4");
  assert_int_equal(r.code, 0);
  assert_int_equal(count(r.err, "| sample: the "), 3);
  assert_non_null(strstr(r.err, "step 7 | sample: the "));
  cli_free(&r);
  expect(TRAIN(plain, "--steps", "7", "--seed", "4"), 0, "all 7 steps are done");
  expect_same_weights(out, plain);
  /* The last text is of the weights that were saved. */
  r = CLI("generate", out, "the\n", "--echo", "--seed", "4", "--max-tokens", "64", "--quiet");
  assert_int_equal(r.code, 0);
  size_t size;
  char *log = read_file(scratch_file(&dir, "sampled.jsonl"), &size);
  assert_int_equal(count(log, "{\"event\":\"sample\",\"step\":"), 3);
  const char *line = strstr(log, "{\"event\":\"sample\",\"step\":7,");
  assert_non_null(line);
  tg_error error = {0};
  tgi_json json;
  EXPECT_OK(tgi_json_parse("log", line, strcspn(line, "\n"), JSON_ALLOW_NUL, 0, &json, &error),
            error);
  const json_t *sample = json_object_get(json.root, "text");
  assert_true(json_is_string(sample));
  assert_int_equal(r.out_size, json_string_length(sample) + 1);
  assert_memory_equal(r.out, json_string_value(sample), r.out_size - 1);
  assert_true(strncmp(r.out, "the\n", 4) == 0 && r.out_size > 5);
  json_decref(json.root);
  free(log);
  cli_free(&r);
}

static void samples_without_a_prompt(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "bare");
  cli_result r = TRAIN(out, "--steps", "2", "--sample-every", "1");
  assert_int_equal(r.code, 0);
  assert_int_equal(count(r.err, " | sample: "), 2);
  cli_free(&r);
  char longer[200];
  memset(longer, 'a', sizeof longer);
  longer[sizeof longer - 1] = '\0';
  expect(TRAIN(scratch_file(&dir, "never"), "--sample-every", "1", "--sample-prompt", longer), 1,
         "--sample-prompt: expected below 128 tokens (the model's positions), got 199");
  /* On a resumed run both may change. */
  r = RESUME(out, "--steps", "4", "--sample-every", "0");
  assert_int_equal(r.code, 0);
  assert_int_equal(count(r.err, " | sample: "), 0);
  cli_free(&r);
}

/* ---- kept checkpoints ---- */

static bool kept(const char *name)
{
  char path[SCRATCH_PATH * 2];
  snprintf(path, sizeof path, "%s/model.safetensors", scratch_file(&dir, name));
  return file_exists(path);
}

static void the_last_checkpoints_are_kept(void **state)
{
  (void)state;
  const char *out = scratch_file(&dir, "history");
  expect(TRAIN(out, "--steps", "7", "--save-every", "2", "--keep", "2"), 0, "all 7 steps");
  assert_false(kept("history-step-2") || kept("history-step-4"));
  assert_false(file_exists(scratch_file(&dir, "history-step-4")));
  assert_true(kept("history-step-6") && kept("history-step-7"));
  expect_same_weights(out, scratch_file(&dir, "history-step-7"));
  /* An earlier one goes on as the run did. */
  expect(RESUME(scratch_file(&dir, "history-step-6"), "--keep", "0"), 0, "all 7 steps are done");
  expect_same_weights(out, scratch_file(&dir, "history-step-6"));
  /* The note says how many are kept. */
  expect(RESUME(out, "--steps", "8"), 0, "all 8 steps are done");
  assert_false(kept("history-step-6"));
  assert_true(kept("history-step-7") && kept("history-step-8"));
  /* Another run of this name would replace them. */
  assert_int_equal(rename(out, scratch_file(&dir, "moved")), 0);
  expect(TRAIN(out, "--steps", "7", "--keep", "2"), 1, "got history-step-");
  assert_true(kept("history-step-7") && kept("history-step-8"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_micro_batch_changes_the_rounding_alone),
      cmocka_unit_test(a_micro_batch_is_part_of_balanced_training),
      cmocka_unit_test(schedules),
      cmocka_unit_test(a_schedule_changes_by_its_name),
      cmocka_unit_test(older_notes),
      cmocka_unit_test(samples_are_what_generate_prints),
      cmocka_unit_test(samples_without_a_prompt),
      cmocka_unit_test(the_last_checkpoints_are_kept),
  };
  return cmocka_run_group_tests(tests, make_text, remove_text);
}
