/* `tegula bench`: what it measures in each mode, its table, and the positions and options that it
 * refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cli_model.h"

static void bench(void **state)
{
  (void)state;
  cli_result r = CLI("bench", "--preset", "gpt_nano", "--vocab-size", "300", "--seq", "16",
                     "--steps", "2", "--batch", "2", "--json");
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "\"mode\":\"train\""));
  assert_non_null(strstr(r.out, "\"mode\":\"prefill\""));
  assert_non_null(strstr(r.out, "\"mode\":\"decode\""));
  assert_non_null(strstr(r.out, "\"peak_bytes\":"));
  cli_free(&r);
  expect_out(CLI("bench", "--model", model, "decode", "--seq", "16", "--steps", "3"), 0, "tok/s");
  /* 16-bit weights in every mode; training has f32 masters. */
  r = CLI("bench", "--model", model, "--dtype", "bf16", "--seq", "16", "--steps", "1", "--json");
  assert_int_equal(r.code, 0);
  for (int i = 0; i < 3; i++) {
    const char *at = strstr(i == 0 ? r.out : strchr(r.out, '\n'), "\"dtype\":\"bf16\"");
    assert_non_null(at);
  }
  cli_free(&r);
  expect_out(CLI("bench", "--model", model, "table", "-p", "9", "-n", "7", "--steps", "2"), 0,
             "| pp9 | ");
  expect_out(CLI("bench", "--model", model, "table", "-p", "9", "-n", "7", "-d", "5", "--steps",
                 "2", "--dtype", "f16"),
             0, " F16 | ");
  expect_out(
      CLI("bench", "--model", model, "table", "-p", "9", "-n", "7", "-d", "5", "--steps", "1"), 0,
      "| tg7 @ d5 | ");
  expect_out(CLI("bench", "--model", model, "table", "-p", "9", "-n", "7", "--steps", "2",
                 "--batch", "3", "--threads", "1"),
             0, " CPU | 1 | 3 | tg7 | ");
  expect_out(
      CLI("bench", "--model", model, "table", "-p", "0", "-n", "7", "--steps", "1", "--json"), 0,
      "\"test\":\"tg7\"");
  expect_out(
      CLI("bench", "--model", model, "table", "-p", "0", "-n", "7", "--steps", "1", "--json"), 0,
      "\"plan\":\"op by op\"");
  EXPECT_CLI(2, "--n-depth: expected a multiple of 256 with --batch, got 5", "bench", "--model",
             model, "table", "-d", "5", "--batch", "2");
  EXPECT_CLI(2, "--batch: expected at most 64 in the table, got 65", "bench", "--model", model,
             "table", "--batch", "65");
  EXPECT_CLI(2, "--n-prompt, --n-gen: expected one above 0, got 0 and 0", "bench", "--model", model,
             "table", "-p", "0", "-n", "0");
  EXPECT_CLI(2, "--dtype: expected f32 or bf16, got f16", "bench", "--model", model, "--dtype",
             "f16");
  EXPECT_CLI(1, "--seq: expected at most 127 of the model's 128 positions, got 128", "bench",
             "--preset", "gpt_nano", "--seq", "128");
  expect_out(CLI("bench", "--preset", "gpt_nano", "prefill", "--seq", "128", "--steps", "1"), 0,
             "prefill");
  EXPECT_CLI(1, "--seq: expected at most 128 of the model's 128 positions, got 129", "bench",
             "--preset", "gpt_nano", "train", "--seq", "129");
  EXPECT_CLI(2, "expected one of gpt_nano", "bench", "--preset", "gpt_giant");
  EXPECT_CLI(1, "vocab_size: expected an extent from 1 to 268435456, got 2147483647\n", "bench",
             "--preset", "gpt_nano", "--vocab-size", "2147483647");
}

/* The model has 128 positions. Counts that were not given are as large as they can be. */
static void table_fills_the_positions(void **state)
{
  (void)state;
  static const struct {
    const char *option[6], *test; /* NULL: refused */
  } rows[] = {
      {{"-p", "128", "-n", "0"}, "| pp128 |"},
      {{"-p", "129", "-n", "0"}, NULL},
      {{"-p", "0", "-n", "128"}, "| tg128 |"},
      {{"-p", "0", "-n", "129"}, NULL},
      {{"-n", "0"}, "| pp128 |"},
      {{"-p", "0", "-d", "100"}, "| tg28 @ d100 |"},
      {{"-p", "0", "-n", "28", "-d", "100"}, "| tg28 @ d100 |"},
      {{"-p", "0", "-n", "29", "-d", "100"}, NULL},
      {{"-p", "0", "-d", "128"}, NULL},
      {{"-p", "128", "-n", "0", "--batch", "3"}, "| pp128 |"},
      {{"-p", "0", "--batch", "3"}, "| tg125 |"}, /* the first has two before the third begins */
      {{"-p", "0", "-n", "126", "--batch", "3"}, NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const char *line[13] = {"bench", "--model", model, "table", "--steps", "1"};
    memcpy(line + 6, rows[i].option, sizeof rows[i].option);
    cli_result r = cli_run(&(cli_setup){0}, line);
    if (rows[i].test) {
      expect_out(r, 0, rows[i].test);
    } else {
      cli_expect(&r, 1, "table: expected at most 128 tokens in a sequence, got 129");
    }
  }
  expect_out(CLI("bench", "--model", model, "table", "--steps", "1"), 0, "| pp128 | ");
}

static void bench_forward(void **state)
{
  (void)state;
  cli_result r = CLI("bench", "forward", "--model", model, "--batch", "3", "--seq", "16",
                     "--iterations", "4", "--ops", "--json");
  assert_int_equal(r.code, 0);
  static const char *const keys[] = {
      "\"mode\":\"forward\"", "\"batch\":3",          "\"steps\":4", "\"ms\":",
      "\"ms_std\":",          "\"ms_p95\":",          "\"ms_p99\":", "\"config\":{",
      "\"share\":",           "\"op\":\"attention\"", "\"gflops\":", "\"peak_bytes\":"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    if (!strstr(r.out, keys[i])) {
      fail_msg("expected %s, got %s", keys[i], r.out);
    }
  }
  cli_free(&r);
  expect_out(CLI("bench", "forward", "--model", model, "--seq", "8", "--steps", "2", "--dtype",
                 "bf16", "--logits-dtype", "bf16", "--ops"),
             0, "% of the roof");
  EXPECT_CLI(1, "logits: expected f32, got bf16", "bench", "forward", "--model", model,
             "--logits-dtype", "bf16");
  EXPECT_CLI(2, "--ops: expected the mode forward", "bench", "--model", model, "--ops");
  EXPECT_CLI(2, "--logits-dtype: expected f32, f16 or bf16, got i8", "bench", "forward", "--model",
             model, "--logits-dtype", "i8");
  EXPECT_CLI(2, "--nvtx: expected the mode prefill, decode or forward", "bench", "train", "--model",
             model, "--nvtx");
  r = CLI("bench", "forward", "--model", model, "--seq", "8", "--steps", "1", "--nvtx");
  const char *said = r.code ? "expected a build with nvtx3/nvToolsExt.h" : "no profiler listens";
  if (!strstr(r.err, said)) {
    fail_msg("expected %s, got %s", said, r.err);
  }
  cli_free(&r);
}

static long long number_after(const char *json, const char *key)
{
  const char *at = strstr(json, key);
  assert_non_null(at);
  return (long long)strtod(at + strlen(key), NULL);
}

/* Layers with and without a window have equal shapes: a row's flops are those of each of them. */
static void bench_ops_of_windows(void **state)
{
  (void)state;
  cli_result r = CLI("bench", "forward", "--preset", "gpt_oss_nano", "--vocab-size", "300",
                     "--batch", "1", "--seq", "256", "--steps", "1", "--ops", "--json");
  assert_int_equal(r.code, 0);
  const char *row = strstr(r.out, "\"op\":\"attention\"");
  assert_non_null(row);
  assert_int_equal(number_after(row, "\"calls\":"), 4);
  /* Every pair of a query and a key: 2 flops for each of 4 heads' 32 + 32 numbers. */
  const long long all = 256 * 257 / 2, windowed = 128 * 129 / 2 + 128 * 128;
  assert_int_equal(number_after(row, "\"flops\":"), 2 * (all + windowed) * 2 * 4 * (32 + 32));
  cli_free(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bench),
      cmocka_unit_test(table_fills_the_positions),
      cmocka_unit_test(bench_forward),
      cmocka_unit_test(bench_ops_of_windows),
  };
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
