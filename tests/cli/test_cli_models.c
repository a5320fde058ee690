#define _DEFAULT_SOURCE /* mincore */
/* The command line with models as their makers publish them: sampling and end tokens of
 * generation_config.json, dtypes, contexts, shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli_process.h"
#include "expect.h"
#include "model/preset.h"
#include "model/weights/parameters.h"
#include "scratch_directory.h"
#include "tegula/model.h"
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A directory with small models of random weights. */
static scratch dir;
static char gpt[SCRATCH_PATH], qwen[SCRATCH_PATH];

static void make_model(const char *preset, const char *path)
{
  tg_model *model = NULL;
  tg_tokenizer *tokenizer = NULL;
  tg_error error = {0};
  EXPECT_OK(tg_model_create(preset, 257, 3, &model, &error), error);
  EXPECT_OK(tg_tokenizer_create_bytes(&tokenizer, &error), error);
  EXPECT_OK(tg_model_save(model, &(tg_save_options){.tokenizer = tokenizer}, path, &error), error);
  tg_tokenizer_destroy(tokenizer);
  tg_model_destroy(model);
}

static int make_models(void **state)
{
  (void)state;
  dir = scratch_make();
  snprintf(gpt, sizeof gpt, "%s", scratch_file(&dir, "gpt"));
  snprintf(qwen, sizeof qwen, "%s", scratch_file(&dir, "qwen"));
  make_model("gpt_nano", gpt);
  make_model("qwen3_nano", qwen);
  return 0;
}

static int remove_models(void **state)
{
  (void)state;
  scratch_remove(&dir);
  return 0;
}

static void expect_out(cli_result r, const char *part)
{
  if (r.code != 0 || !strstr(r.out, part)) {
    fail_msg("expected code 0 and \"%s\" on standard output, got code %d, \"%s\" and \"%s\"", part,
             r.code, r.out, r.err);
  }
  cli_free(&r);
}

static void expect_same(cli_result a, cli_result b)
{
  assert_int_equal(a.code, 0);
  assert_string_equal(a.out, b.out);
  cli_free(&a);
  cli_free(&b);
}

#define TOKENS "--tokens", "116,104,101,32", "--max-tokens", "20"

/* What the directory says and what the command line says give the same text. */
static void sampling_comes_from_the_directory(void **state)
{
  (void)state;
  const char *path = scratch_file(&dir, "gpt/generation_config.json");
  expect_same(CLI("generate", gpt, TOKENS, "--seed", "5"),
              CLI("generate", gpt, TOKENS, "--seed", "5", "--temperature", "1"));
  write_text(path, "{\"temperature\": 0.5, \"top_k\": 9, \"top_p\": 0.75, \"min_p\": 0.125}");
  expect_same(CLI("generate", gpt, TOKENS, "--seed", "5"),
              CLI("generate", gpt, TOKENS, "--seed", "5", "--temperature", "0.5", "--top-k", "9",
                  "--top-p", "0.75", "--min-p", "0.125"));
  expect_out(CLI("info", gpt), "temperature 0.5, top-k 9, top-p 0.75, min-p 0.125, repetition "
                               "penalty 1 (generation_config.json)");
  write_text(path, "{\"do_sample\": false, \"top_k\": 9, \"repetition_penalty\": 1.5}");
  expect_same(CLI("generate", gpt, TOKENS, "--seed", "6"),
              CLI("generate", gpt, TOKENS, "--seed", "5", "--temperature", "0",
                  "--repetition-penalty", "1.5"));
  expect_same(CLI("generate", gpt, TOKENS, "--temperature", "2", "--top-k", "0"),
              CLI("generate", gpt, TOKENS, "--temperature", "2", "--top-k", "0", "--top-p", "1"));
  write_text(path, "{\"max_new_tokens\": 7}");
  EXPECT_CLI(0, "generated: 7 ", "generate", gpt, "--tokens", "1", "--temperature", "0");
  EXPECT_CLI(0, "ended: max_new_tokens of generation_config.json\n", "generate", gpt, "--tokens",
             "1", "--temperature", "0");
  EXPECT_CLI(0, "ended: --max-tokens\n", "generate", gpt, TOKENS, "--temperature", "0");
  EXPECT_CLI(0, "ended: the context is full\n", "generate", gpt, "--tokens", "1", "-n", "-1",
             "--temperature", "0", "--ignore-eos");
  write_text(path, "{\"top_k\": -9}");
  EXPECT_CLI(1, "gpt/generation_config.json: top_k: expected an integer from 0", "generate", gpt,
             TOKENS);
  write_text(path, "{}");
}

static void end_tokens_come_from_both_files(void **state)
{
  (void)state;
  const char *path = scratch_file(&dir, "gpt/generation_config.json");
  cli_result r = CLI("generate", gpt, TOKENS, "--temperature", "3", "--quiet");
  int third = 0;
  assert_int_equal(sscanf(r.out, "%*d %*d %d", &third), 1);
  char says[64];
  snprintf(says, sizeof says, "{\"eos_token_id\": [%d, 256]}", third);
  write_text(path, says);
  cli_result cut = CLI("generate", gpt, TOKENS, "--temperature", "3");
  assert_non_null(strstr(cut.err, "generated: 2 "));
  assert_non_null(strstr(cut.err, "ended: end of text"));
  assert_int_equal(strncmp(cut.out, r.out, strlen(cut.out) - 1), 0);
  snprintf(says, sizeof says, "end of text 256, %d\n", third);
  expect_out(CLI("info", gpt), says);
  cli_free(&r);
  cli_free(&cut);
  write_text(path, "{}");
}

static void contexts_are_printed_and_kept(void **state)
{
  (void)state;
  EXPECT_CLI(0, "context: 128 tokens (the model's positions)\n", "generate", gpt, TOKENS);
  EXPECT_CLI(0, "context: 10 tokens (--ctx)\n", "generate", gpt, TOKENS, "--ctx", "10");
  EXPECT_CLI(0, "generated: 7 ", "generate", gpt, TOKENS, "--ctx", "10");
  EXPECT_CLI(0, "ended: the context is full", "generate", gpt, TOKENS, "--ctx", "10");
  EXPECT_CLI(1, "prompt: expected at most 3 tokens (--ctx), got 4", "generate", gpt, TOKENS,
             "--ctx", "3");
  EXPECT_CLI(1, "--ctx: expected at most 128 (the model's positions), got 129", "generate", gpt,
             TOKENS, "--ctx", "129");
  EXPECT_CLI(2, "--ctx: expected", "generate", gpt, TOKENS, "--ctx", "0");
}

static void dtypes_are_chosen(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    const char *from = i ? qwen : gpt;
    EXPECT_CLI(0, "generated: 20 ", "generate", from, TOKENS, "--dtype", "bf16");
    EXPECT_CLI(0, "generated: 20 ", "generate", from, TOKENS, "--cache-dtype", "f16");
    expect_same(CLI("generate", from, TOKENS, "--cache-dtype", "auto"),
                CLI("generate", from, TOKENS, "--cache-dtype", "f32", "--dtype", "f32"));
  }
  EXPECT_CLI(2, "--dtype: expected f32, f16 or bf16, got f8", "generate", gpt, TOKENS, "--dtype",
             "f8");
  EXPECT_CLI(2, "--cache-dtype: expected auto, f32, f16 or bf16, got q8", "generate", gpt, TOKENS,
             "--cache-dtype", "q8");
}

static void models_are_converted(void **state)
{
  (void)state;
  for (int i = 0; i < 2; i++) {
    const char *from = i ? qwen : gpt;
    char half[SCRATCH_PATH], shards[SCRATCH_PATH], back[SCRATCH_PATH];
    snprintf(half, sizeof half, "%s", scratch_file(&dir, i ? "qwen16" : "gpt16"));
    snprintf(shards, sizeof shards, "%s", scratch_file(&dir, i ? "qwens" : "gpts"));
    snprintf(back, sizeof back, "%s", scratch_file(&dir, i ? "qwenb" : "gptb"));
    EXPECT_CLI(0, "in bf16", "convert", from, half, "--dtype", "bf16");
    expect_out(CLI("info", half), "in bf16");
    expect_out(CLI("info", half), "byte-level BPE, 257 ids");
    EXPECT_CLI(0, "", "convert", half, shards, "--max-shard-size", "60KB", "--quiet");
    EXPECT_CLI(0, "", "convert", shards, back, "--max-shard-size", "1GiB", "--quiet");
    expect_same(CLI("generate", half, TOKENS), CLI("generate", shards, TOKENS));
    char one[SCRATCH_PATH + 32], other[SCRATCH_PATH + 32];
    size_t n, m;
    snprintf(one, sizeof one, "%s/model.safetensors", half);
    snprintf(other, sizeof other, "%s/model.safetensors", back);
    char *a = read_file(one, &n), *b = read_file(other, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    snprintf(one, sizeof one, "%s/model.safetensors.index.json", shards);
    assert_true(file_exists(one));
  }
}

/* ---- info ---- */

/* A directory as that of a model of 8 billion weights, whose tensors are a hole in the file. */
static void write_large_model(const char *path, uint64_t *bytes)
{
  tgi_config config;
  tgi_parameters parameters;
  tg_error error = {0};
  char file[SCRATCH_PATH + 32];
  EXPECT_OK(tgi_preset("qwen3-8b", 0, &config, &error), error);
  EXPECT_OK(tgi_parameters_create(&config, &parameters, &error), error);
  assert_int_equal(mkdir(path, 0777), 0);
  snprintf(file, sizeof file, "%s/config.json", path);
  EXPECT_OK(tgi_config_write(&config, file, &error), error);
  snprintf(file, sizeof file, "%s/model.safetensors", path);
  FILE *out = fopen(file, "wb");
  assert_non_null(out);
  uint64_t header = 0, data = 0;
  fwrite(&header, 8, 1, out);
  for (int i = 0; i < parameters.count; i++) {
    const tgi_parameter *q = &parameters.list[i];
    const uint64_t size = 2 * (uint64_t)q->shape[0] * (uint64_t)(q->ndim == 2 ? q->shape[1] : 1);
    fprintf(out, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%lld", i ? ',' : '{', q->name,
            (long long)q->shape[0]);
    if (q->ndim == 2) {
      fprintf(out, ",%lld", (long long)q->shape[1]);
    }
    fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)data,
            (unsigned long long)(data + size));
    data += size;
  }
  fputc('}', out);
  header = (uint64_t)ftell(out) - 8;
  rewind(out);
  fwrite(&header, 8, 1, out);
  assert_int_equal(fclose(out), 0);
  *bytes = 8 + header + data;
  assert_int_equal(truncate(file, (off_t)*bytes), 0);
  tgi_parameters_free(&parameters);
}

/* Bytes of a file that are in the page cache. */
static uint64_t cached_bytes(const char *path, uint64_t bytes)
{
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  unsigned char *in_memory = malloc(pages);
  uint64_t count = 0;
  assert_true(map != MAP_FAILED);
  assert_int_equal(mincore(map, bytes, in_memory), 0);
  for (size_t i = 0; i < pages; i++) {
    count += in_memory[i] & 1;
  }
  free(in_memory);
  munmap(map, bytes);
  close(fd);
  return count * page;
}

static void info_reads_no_weights(void **state)
{
  (void)state;
  uint64_t bytes;
  char path[SCRATCH_PATH], file[SCRATCH_PATH + 32];
  snprintf(path, sizeof path, "%s", scratch_file(&dir, "large"));
  snprintf(file, sizeof file, "%s/model.safetensors", path);
  write_large_model(path, &bytes);
  assert_true(bytes > (uint64_t)15 << 30);
  expect_out(CLI("info", path), "large: qwen3, 8190.74 M parameters, 15.3 GiB in bf16\n");
  expect_out(CLI("info", path), "  tokenizer  none\n");
  const uint64_t read = cached_bytes(file, bytes);
  if (read > 8 << 20) { /* the header, and what the kernel reads ahead */
    fail_msg("expected a few MB of the file to be read, got %llu", (unsigned long long)read);
  }
  /* The header is checked against the size of the file, and against config.json. */
  assert_int_equal(truncate(file, (off_t)bytes - 1), 0);
  EXPECT_CLI(1, "large/model.safetensors: tensor", "info", path);
  assert_int_equal(truncate(file, 1000), 0);
  EXPECT_CLI(1, "large/model.safetensors: byte 0: expected", "info", path);
}

static void wrong_conversions_are_refused(void **state)
{
  (void)state;
  EXPECT_CLI(1, "OUT: expected a directory without a model (or --overwrite), got the model in",
             "convert", gpt, qwen);
  const char *out = scratch_file(&dir, "over");
  EXPECT_CLI(0, "", "convert", gpt, out, "--quiet");
  EXPECT_CLI(0, "in f16", "convert", qwen, out, "--overwrite", "--dtype", "f16");
  expect_out(CLI("info", out), "qwen3");
  EXPECT_CLI(1, "/nowhere: expected to find this directory", "convert",
             scratch_file(&dir, "nowhere"), scratch_file(&dir, "new"));
  EXPECT_CLI(2, "expected DIR and OUT, got 1 of them", "convert", gpt);
  EXPECT_CLI(2, "--dtype: expected f32, f16 or bf16, got int8", "convert", gpt, out, "--dtype",
             "int8");
  static const char *const sizes[] = {"0", "GB", "5XB", "-1MB", "1e30"};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    EXPECT_CLI(2, "--max-shard-size: expected a size such as 5GB, got", "convert", gpt, out,
               "--max-shard-size", sizes[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sampling_comes_from_the_directory),
      cmocka_unit_test(end_tokens_come_from_both_files),
      cmocka_unit_test(contexts_are_printed_and_kept),
      cmocka_unit_test(dtypes_are_chosen),
      cmocka_unit_test(models_are_converted),
      cmocka_unit_test(wrong_conversions_are_refused),
      cmocka_unit_test(info_reads_no_weights),
  };
  return cmocka_run_group_tests(tests, make_models, remove_models);
}
