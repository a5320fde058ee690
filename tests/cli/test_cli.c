/* The command line: its usage, what it says of wrong input and of broken models, info, explain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_model.h"
#include "ops/spec.h"

/* ---- usage ---- */

static void help_and_version(void **state)
{
  (void)state;
  static const char *const commands[] = {"train", "generate", "chat", "info",
                                         "bench", "explain",  "tune"};
  expect_out(CLI("--help"), 0, "Usage: tegula COMMAND");
  expect_out(CLI("--version"), 0, "tegula " TEGULA_VERSION);
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    char usage[64];
    snprintf(usage, sizeof usage, "Usage: tegula %s", commands[i]);
    expect_out(CLI(commands[i], "--help"), 0, usage);
    expect_out(CLI(commands[i], "--version"), 0, "tegula " TEGULA_VERSION);
    EXPECT_CLI(2, "--no-such-option", commands[i], "--no-such-option");
    expect_out(CLI(commands[i], "-h"), 0, usage);
    expect_out(CLI("help", commands[i]), 0, usage);
    expect_out(CLI("--help", commands[i]), 0, usage);
  }
  expect_out(CLI("-h"), 0, "Usage: tegula COMMAND");
  expect_out(CLI("help"), 0, "`tegula help COMMAND'");
  expect_out(CLI("-V"), 0, "tegula " TEGULA_VERSION);
  EXPECT_CLI(2, "expected a command, got \"trian\"", "help", "trian");
}

static void wrong_command_lines(void **state)
{
  (void)state;
  cli_result none = cli_run(&(cli_setup){0}, (const char *const[]){NULL});
  cli_expect(&none, 2, "expected a command, got none\n");
  EXPECT_CLI(2, "expected a command, got \"tr\\x0aain\\x1b[31m\"\n", "tr\nain\x1b[31m");
  EXPECT_CLI(2, "got an extra \"\\x0a\"\n", "info", "a", "\n");
  EXPECT_CLI(1, "a\\x0ab: expected to find this directory", "info", "a\nb");
  EXPECT_CLI(2, "expected a command, got \"trian\"", "trian");
  EXPECT_CLI(2, "expected --out DIR", "train");
  EXPECT_CLI(2, "expected --train-file FILE", "train", "--out", "x");
  EXPECT_CLI(2, "got neither", "train", "--out", "x", "--train-file", "y");
  EXPECT_CLI(2, "got both", "train", "--out", "x", "--train-file", "y", "--preset", "gpt_nano",
             "-m", "z");
  EXPECT_CLI(2, "--steps: expected a whole number of at least 1, got 0", "train", "--steps", "0");
  EXPECT_CLI(2, "--steps: expected a whole number of at least 1, got 3x", "train", "--steps", "3x");
  EXPECT_CLI(2, "--batch: expected a whole number", "train", "--batch", "99999999999");
  EXPECT_CLI(2, "--lr: expected a number above 0, got nan", "train", "--lr", "nan");
  EXPECT_CLI(2, "--lr: expected a number above 0, got 0", "train", "--lr", "0");
  EXPECT_CLI(2, "--val-fraction: expected a number from 0 to 0.5, got 0.6", "train",
             "--val-fraction", "0.6");
  EXPECT_CLI(2, "--out: expected DIR, got an empty text", "train", "--out", "");
  EXPECT_CLI(2, "--warmup: expected at most --steps 10", "train", "--out", "x", "--train-file", "y",
             "--preset", "gpt_nano", "--steps", "10", "--warmup", "11");
  EXPECT_CLI(2, "--min-lr: expected at most --lr", "train", "--out", "x", "--train-file", "y",
             "--preset", "gpt_nano", "--min-lr", "1");
  EXPECT_CLI(2, "requires an argument", "train", "--steps");
  EXPECT_CLI(2, "expected DIR", "generate");
  EXPECT_CLI(2, "got neither", "generate", model);
  EXPECT_CLI(2, "got both", "generate", model, "a", "--tokens", "1");
  EXPECT_CLI(2, "got both", "generate", model, "-p", "a", "--tokens", "1");
  EXPECT_CLI(2, "got an extra \"a\"", "generate", "-m", model, "-p", "b", "a");
  EXPECT_CLI(2, "expected DIR or --model DIR", "generate", "-p", "b");
  EXPECT_CLI(2, "expected at most 2 arguments", "generate", model, "a", "b");
  EXPECT_CLI(2, "--temperature: expected a number from 0", "generate", model, "a",
             "--temperature=-1");
  EXPECT_CLI(2, "--top-p: expected a number from 0 to 1", "generate", model, "a", "--top-p", "1.5");
  EXPECT_CLI(2, "got neither", "bench");
  EXPECT_CLI(2, "expected train, prefill, decode, forward or table", "bench", "--preset",
             "gpt_nano", "chew");
  EXPECT_CLI(2, "--op: expected linear_fwd or linear_bwd, got \"nope\"", "tune", "--op", "nope",
             "--shape", "1x1x1");
  EXPECT_CLI(2, "--op: expected linear_fwd or linear_bwd, got \"gelu_fwd\"", "tune", "--op",
             "gelu_fwd", "--shape", "16x16");
  EXPECT_CLI(2, "expected --shape beside --op, got none", "tune", "--op", "linear_fwd");
  EXPECT_CLI(2, "--dtype: expected f16 or bf16, got f32", "tune", "--dtype", "f32");
  EXPECT_CLI(2, "--device: expected cuda or cuda:N, got cpu", "tune", "--device", "cpu");
  EXPECT_CLI(2, "OP and SHAPE", "explain", "rms_norm");
  EXPECT_CLI(2, "got \"no_such_op\"", "explain", "no_such_op", "1x1");
  EXPECT_CLI(2, "--dir", "explain", "rms_norm", "1x1", "--dir", "up");
  EXPECT_CLI(2, "--dtype: expected f32, f16 or bf16, got f8", "explain", "rms_norm", "1x1",
             "--dtype", "f8");
}

/* ---- info, explain ---- */

static void info(void **state)
{
  (void)state;
  expect_out(CLI("info"), 0,
             access("/dev/nvidiactl", F_OK) ? "devices    none\n" : "devices    none (");
  expect_out(CLI("info", "--json"), 0, "\"devices\": []");
  expect_out(CLI("info", model), 0, "positions  128");
  expect_out(CLI("info", model, "--json"), 0, "\"vocab_size\": 257");
  EXPECT_CLI(1, "config.json", "info", dir.path);
  expect_out(CLI("info", broken_copy("i1", "tokenizer.json", NULL, 0)), 0, "  tokenizer  none\n");
  expect_out(CLI("info", broken_copy("i2", "tokenizer.json", "{", 1)), 0,
             "  tokenizer  unsupported: ");
}

static void explain_knows_every_op(void **state)
{
  (void)state;
  cli_result list = CLI("explain");
  assert_int_equal(list.code, 0);
  for (size_t i = 0; i < spec_count; i++) {
    const spec *s = spec_list[i];
    cli_result r = CLI("explain", s->name, s->cases[0].shape);
    if (!strstr(list.out, s->name) || r.code != 0 || !strstr(r.out, "plan ") ||
        !strstr(r.out, "time ")) {
      fail_msg("%s %s: got code %d, \"%s\" and \"%s\"", s->name, s->cases[0].shape, r.code, r.out,
               r.err);
    }
    cli_free(&r);
  }
  cli_free(&list);
  expect_out(CLI("explain", "rms_norm", "64x128", "--entry", "generic", "--json"), 0,
             "\"entry\": \"generic\"");
  expect_out(CLI("explain", "rms_norm", "64x128", "--dir", "bwd", "--dtype", "bf16"), 0,
             "rms_norm_bwd");
  /* y does not replace x, and is too large for any cache. */
  expect_out(CLI("explain", "rms_norm", "1048576x4096"), 0, "streaming stores");
  EXPECT_CLI(1, "rms_norm_fwd: shape:", "explain", "rms_norm", "64xq");
  EXPECT_CLI(1, "got the byte 0x0a\n", "explain", "rms_norm", "5x5\n5");
  EXPECT_CLI(1, "entry", "explain", "rms_norm", "64x128", "--entry", "sse9");
}

/* test_shapes.c has every op and many more strings. */
static void explain_of_nothing(void **state)
{
  (void)state;
  static const char *const calls[][2] = {{"rms_norm", "5x0"},
                                         {"softmax_bwd", "0x0"},
                                         {"quantize_int4", "5x0"},
                                         {"embedding", "2x3x0"},
                                         {"rope", "b1_s1_h1_d0"}};
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    expect_out(CLI("explain", calls[i][0], calls[i][1]), 0, "plan       nothing to compute");
  }
}

/* ---- model directories ---- */

static void bad_directories(void **state)
{
  (void)state;
  size_t size;
  char path[SCRATCH_PATH * 2];
  /* The directory is what is missing, and not a file in it. */
  static const char kMissing[] = "/none: expected to find this directory, got No such file";
  EXPECT_CLI(1, kMissing, "generate", scratch_file(&dir, "none"), "a");
  EXPECT_CLI(1, kMissing, "generate", scratch_file(&dir, "none"), "--tokens", "1");
  EXPECT_CLI(1, kMissing, "info", scratch_file(&dir, "none"));
  EXPECT_CLI(1, kMissing, "bench", "--model", scratch_file(&dir, "none"));
  EXPECT_CLI(1, "/text: expected a directory, got a file", "generate", scratch_file(&dir, "text"),
             "a");
  EXPECT_CLI(1, "model.safetensors", "generate", broken_copy("c1", "model.safetensors", NULL, 0),
             "a");
  snprintf(path, sizeof path, "%s/model.safetensors", model);
  char *weights = read_file(path, &size);
  EXPECT_CLI(1, "model.safetensors: tensor", "generate",
             broken_copy("c2", "model.safetensors", weights, size - 100), "a");
  EXPECT_CLI(1, "c2/model.safetensors: tensor", "info", scratch_file(&dir, "c2"));
  EXPECT_CLI(1, "byte ", "generate", broken_copy("c3", "model.safetensors", weights, 5), "a");
  free(weights);
  snprintf(path, sizeof path, "%s/config.json", model);
  char *config = read_file(path, &size);
  char *wider = replace(config, "\"n_embd\": 48", "\"n_embd\": 96");
  char *stranger = replace(config, "\"gpt2\"", "\"gpt9\"");
  EXPECT_CLI(1, "[257, 96]", "generate", broken_copy("c4", "config.json", wider, strlen(wider)),
             "a");
  EXPECT_CLI(1, "[257, 96]", "info", scratch_file(&dir, "c4"));
  EXPECT_CLI(1, "gpt9", "info", broken_copy("c5", "config.json", stranger, strlen(stranger)));
  EXPECT_CLI(1, "config.json", "info", broken_copy("c6", "config.json", "{", 1));
  EXPECT_CLI(1, "tokenizer.json", "generate", broken_copy("c7", "tokenizer.json", NULL, 0), "a");
  EXPECT_CLI(0, "generated", "generate", scratch_file(&dir, "c7"), "--tokens", "1", "--max-tokens",
             "1");
  free(config);
  free(wider);
  free(stranger);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_and_version),
      cmocka_unit_test(wrong_command_lines),
      cmocka_unit_test(info),
      cmocka_unit_test(explain_knows_every_op),
      cmocka_unit_test(explain_of_nothing),
      cmocka_unit_test(bad_directories),
  };
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
