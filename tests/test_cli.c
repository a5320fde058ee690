/* The command line: its usage, what it says of wrong input, info, explain, bench and generate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include "files/utf8.h"
#include "ops/spec.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A directory with a small model in it, made once by `tegula train`. */
static scratch dir;
static const char *model;

static int make_model(void **state)
{
  (void)state;
  dir = scratch_make();
  char text[4096] = "";
  for (int i = 0; i < 80; i++) {
    strcat(text, "the cat sat on the mat and the dog. ");
  }
  write_text(scratch_file(&dir, "text"), text);
  model = strdup(scratch_file(&dir, "model"));
  EXPECT_CLI(0, "all 20 steps are done", "train", "--preset", "gpt_nano", "--train-file",
             scratch_file(&dir, "text"), "--out", model, "--steps", "20", "--batch", "2", "--seq",
             "32", "--lr", "0.01", "--threads", "1");
  return 0;
}

static int remove_model(void **state)
{
  (void)state;
  scratch_remove(&dir);
  free((void *)(uintptr_t)model);
  return 0;
}

static void expect_out(cli_result r, int code, const char *part)
{
  if (r.code != code || !strstr(r.out, part)) {
    fail_msg("expected code %d and \"%s\" on standard output, got code %d, \"%s\" and \"%s\"", code,
             part, r.code, r.out, r.err);
  }
  cli_free(&r);
}

/* Copies the model, with one file replaced (NULL: left out). */
static const char *broken_copy(const char *name, const char *file, const char *bytes, size_t size)
{
  static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
  char from[SCRATCH_PATH * 2], to[SCRATCH_PATH * 2];
  const char *copy = scratch_file(&dir, name);
  assert_int_equal(mkdir(copy, 0700), 0);
  for (int i = 0; i < 3; i++) {
    snprintf(from, sizeof from, "%s/%s", model, files[i]);
    snprintf(to, sizeof to, "%s/%s", copy, files[i]);
    if (strcmp(files[i], file) != 0) {
      size_t n;
      char *content = read_file(from, &n);
      write_file(to, content, n);
      free(content);
    } else if (bytes) {
      write_file(to, bytes, size);
    }
  }
  return copy;
}

static char *replace(const char *text, const char *old, const char *new_text)
{
  const char *at = strstr(text, old);
  assert_non_null(at);
  char *out = malloc(strlen(text) + strlen(new_text) + 1);
  sprintf(out, "%.*s%s%s", (int)(at - text), text, new_text, at + strlen(old));
  return out;
}

static char *read_in(const char *directory, const char *name)
{
  char path[SCRATCH_PATH * 2];
  size_t size;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return read_file(path, &size);
}

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

/* ---- info, explain, bench ---- */

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

/* ---- generate ---- */

static void generates_the_same_text_again(void **state)
{
  (void)state;
  static const char *const seeds[] = {"1", "2", "3"};
  for (int i = 0; i < 3; i++) {
    cli_result a = CLI("generate", model, "the ", "--seed", seeds[i], "--max-tokens", "60",
                       "--temperature", "3", "--threads", "1");
    cli_result b = CLI("generate", model, "the ", "--seed", seeds[i], "--max-tokens", "60",
                       "--temperature", "3", "--threads", "3");
    assert_int_equal(a.code, 0);
    assert_string_equal(a.out, b.out);
    /* So hot a model makes bytes of every kind; what comes out is UTF-8 all the same. */
    assert_int_equal(tgi_utf8_valid_bytes(a.out, a.out_size), a.out_size);
    assert_non_null(strstr(a.err, "tok/s"));
    cli_free(&a);
    cli_free(&b);
  }
  cli_result a = CLI("generate", model, "the ", "--temperature", "0", "--max-tokens", "5");
  cli_result b = CLI("generate", model, "--tokens", "116, 104,101,32", "--temperature", "0",
                     "--max-tokens", "5", "--seed", "9", "--quiet");
  char ids[64] = "";
  for (const char *c = a.out; *c && *c != '\n'; c++) {
    snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s%d", c == a.out ? "" : " ", *c);
  }
  strcat(ids, "\n");
  assert_string_equal(b.out, ids);
  assert_string_equal(b.err, "");
  cli_free(&a);
  cli_free(&b);
}

/* Models of Qwen3 and Llama 3 end a turn by one of several ids. */
static void every_end_token_ends_the_text(void **state)
{
  (void)state;
  enum { kTokens = 24, kAbsent = 200 };
  cli_result r = CLI("generate", model, "--tokens", "116,104,101,32", "--temperature", "2",
                     "--max-tokens", "24", "--quiet");
  assert_int_equal(r.code, 0);
  int id[kTokens], n = 0, stop = 0;
  for (char *at = r.out; n < kTokens; n++) {
    id[n] = (int)strtol(at, &at, 10);
    assert_int_not_equal(id[n], kAbsent);
  }
  for (bool seen = true; seen; stop++) { /* the first id behind the fourth that is a new one */
    seen = stop < 4;
    for (int i = 0; i < stop; i++) {
      seen = seen || id[i] == id[stop];
    }
    assert_true(stop < kTokens - 1);
  }
  stop--;
  char *config = read_in(model, "config.json"), *until = r.out, expected[256];
  for (int i = 0; i < stop; i++) {
    (void)strtol(until, &until, 10);
  }
  snprintf(expected, sizeof expected, "%.*s\n", (int)(until - r.out), r.out);
  for (int last = 0; last < 2; last++) {
    char list[64], name[8];
    snprintf(list, sizeof list, "\"eos_token_id\": [%d, %d]", last ? kAbsent : id[stop],
             last ? id[stop] : kAbsent);
    snprintf(name, sizeof name, "ends%d", last);
    char *ends = replace(config, "\"eos_token_id\": 256", list);
    const char *copy = broken_copy(name, "config.json", ends, strlen(ends));
    cli_result cut = CLI("generate", copy, "--tokens", "116,104,101,32", "--temperature", "2",
                         "--max-tokens", "24");
    assert_string_equal(cut.out, expected);
    assert_non_null(strstr(cut.err, "ended: end of text"));
    cli_free(&cut);
    expect_out(CLI("info", copy), 0, last ? "end of text 200, " : ", 200\n");
    expect_out(CLI("info", copy, "--json"), 0, "\"eos_token_ids\": [");
    free(ends);
  }
  free(config);
  cli_free(&r);
}

/* Ids that no token has, as the rows that pad a vocabulary: text of no bytes. */
static void a_vocabulary_wider_than_the_tokenizer(void **state)
{
  (void)state;
  const char *wide = scratch_file(&dir, "wide");
  EXPECT_CLI(0, "320 ids", "train", "--preset", "gpt_nano", "--vocab-size", "320", "--train-file",
             scratch_file(&dir, "text"), "--out", wide, "--steps", "1", "--batch", "1", "--seq",
             "16", "--threads", "1");
  char *config = read_in(wide, "config.json");
  assert_non_null(strstr(config, "\"eos_token_id\": 256,"));
  free(config);
  cli_result ids = CLI("generate", wide, "--tokens", "116", "--temperature", "9", "--seed", "4",
                       "--max-tokens", "60", "--quiet");
  bool drawn = false;
  for (char *at = ids.out; *at && *at != '\n';) {
    drawn = strtol(at, &at, 10) > 256 || drawn;
  }
  assert_true(drawn);
  cli_free(&ids);
  EXPECT_CLI(0, "generated: ", "generate", wide, "t", "--temperature", "9", "--seed", "4",
             "--max-tokens", "60");
}

/* An added word may be as long as it likes. */
static void a_token_of_two_thousand_bytes(void **state)
{
  (void)state;
  char word[2001], more[2200], path[SCRATCH_PATH * 2];
  memset(word, 'z', sizeof word - 1);
  word[sizeof word - 1] = '\0';
  snprintf(more, sizeof more, "\"special\": true}, {\"id\": 257, \"content\": \"%s\"}", word);
  snprintf(path, sizeof path, "%s/tokenizer.json", scratch_file(&dir, "wide"));
  char *tokenizer = read_in(scratch_file(&dir, "wide"), "tokenizer.json");
  char *longer = replace(tokenizer, "\"special\": true\n    }", more);
  write_text(path, longer);
  cli_result r = CLI("generate", scratch_file(&dir, "wide"), word, "--echo", "--max-tokens", "1");
  assert_int_equal(r.code, 0);
  assert_memory_equal(r.out, word, sizeof word - 1);
  assert_non_null(strstr(r.err, "prompt: 1 tokens"));
  cli_free(&r);
  free(tokenizer);
  free(longer);
}

/* The other family, from its first weights to its text. */
static void qwen3(void **state)
{
  (void)state;
  const char *qwen = scratch_file(&dir, "qwen");
  EXPECT_CLI(0, "model: qwen3, 4 layers, width 128, 257 ids, 0.82 M parameters", "train",
             "--preset", "qwen3_nano", "--train-file", scratch_file(&dir, "text"), "--out", qwen,
             "--steps", "4", "--batch", "2", "--seq", "32", "--threads", "2");
  EXPECT_CLI(0, "all 6 steps are done", "train", "--model", qwen, "--train-file",
             scratch_file(&dir, "text"), "--out", scratch_file(&dir, "tuned"), "--steps", "6",
             "--batch", "2", "--seq", "32", "--threads", "1");
  expect_out(CLI("info", qwen), 0, "qwen: qwen3, 0.82 M parameters");
  expect_out(CLI("info", qwen), 0, "heads      4 of size 32, 2 for keys and values");
  expect_out(CLI("info", qwen, "--json"), 0, "\"model_type\": \"qwen3\"");
  cli_result a = CLI("generate", qwen, "the ", "--max-tokens", "40", "--threads", "1");
  cli_result b = CLI("generate", qwen, "the ", "--max-tokens", "40", "--threads", "3");
  assert_int_equal(a.code, 0);
  assert_string_equal(a.out, b.out);
  cli_free(&a);
  cli_free(&b);
}

/* -m, -p and -n, as other programs for models have them. */
static void the_customary_letters(void **state)
{
  (void)state;
  cli_result plain = CLI("generate", model, "the ", "--max-tokens", "9", "--quiet");
  assert_int_equal(plain.code, 0);
  static const char *const orders[][7] = {{"-m", "MODEL", "-p", "the ", "-n", "9", NULL},
                                          {"-n9", "-pthe ", "MODEL", NULL},
                                          {"--model", "MODEL", "the ", "-n", "9", NULL},
                                          {"MODEL", "--prompt=the ", "-n", "9", NULL}};
  for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
    const char *arguments[16] = {"generate", "--quiet"};
    for (int k = 0; orders[i][k]; k++) {
      arguments[k + 2] = strcmp(orders[i][k], "MODEL") == 0 ? model : orders[i][k];
    }
    cli_result r = cli_run(&(cli_setup){0}, arguments);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, plain.out);
    cli_free(&r);
  }
  cli_free(&plain);
  expect_out(CLI("bench", "-m", model, "decode", "--seq", "16", "--steps", "1"), 0, "tok/s");
}

static void context_ends(void **state)
{
  (void)state;
  char prompt[130];
  memset(prompt, 'a', sizeof prompt);
  prompt[129] = '\0';
  EXPECT_CLI(1, "prompt: expected at most 128 tokens", "generate", model, prompt);
  prompt[126] = '\0';
  EXPECT_CLI(0, "the context is full", "generate", model, prompt, "--temperature", "0");
  prompt[128] = '\0';
  prompt[127] = 'a';
  prompt[126] = 'a';
  EXPECT_CLI(0, "generated: 1 ", "generate", model, prompt, "--temperature", "0");
}

static void bad_prompts(void **state)
{
  (void)state;
  EXPECT_CLI(1, "prompt: expected text, got none", "generate", model, "");
  EXPECT_CLI(1, "expected UTF-8", "generate", model, "ab\xff");
  EXPECT_CLI(1, "prompt: expected text, got none", "generate", model, "-");
  EXPECT_CLI(1, "--tokens: byte 2: expected ids", "generate", model, "--tokens", "1,x");
  EXPECT_CLI(1, "--tokens: byte 0: expected ids", "generate", model, "--tokens", " ");
  EXPECT_CLI(1, "257", "generate", model, "--tokens", "257");
  cli_result r = cli_run(&(cli_setup){.input = "the "},
                         (const char *const[]){"generate", model, "-", "--max-tokens", "3",
                                               "--echo", "--temperature", "0", NULL});
  assert_int_equal(r.code, 0);
  assert_memory_equal(r.out, "the ", 4);
  cli_free(&r);
}

static void closed_output(void **state)
{
  (void)state;
  cli_result r = cli_run(&(cli_setup){.closed_output = 1},
                         (const char *const[]){"generate", model, "the ", "--quiet", NULL});
  assert_int_equal(r.code, 1);
  assert_string_equal(r.err, "");
  cli_free(&r);
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
      cmocka_unit_test(bench),
      cmocka_unit_test(table_fills_the_positions),
      cmocka_unit_test(bench_forward),
      cmocka_unit_test(bench_ops_of_windows),
      cmocka_unit_test(generates_the_same_text_again),
      cmocka_unit_test(every_end_token_ends_the_text),
      cmocka_unit_test(a_vocabulary_wider_than_the_tokenizer),
      cmocka_unit_test(a_token_of_two_thousand_bytes),
      cmocka_unit_test(qwen3),
      cmocka_unit_test(the_customary_letters),
      cmocka_unit_test(context_ends),
      cmocka_unit_test(bad_prompts),
      cmocka_unit_test(closed_output),
      cmocka_unit_test(bad_directories),
  };
  return cmocka_run_group_tests(tests, make_model, remove_model);
}
