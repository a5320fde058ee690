/* Directories of small models with damaged bytes: whatever is in a file, it is read or refused with
 * a message that names the file and what was expected in it. The program takes the number of
 * damages; `make nightly` asks for 10,000 under the address sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/preset.h"
#include "model/weights/weights.h"
#include "scratch_directory.h"
#include "tegula/tokenizer.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { kUsual = 1000, kFiles = 8 };

static long damages = kUsual;
static tg_error error;

/* ---- the directories ---- */

/* One layer, 16 wide. */
static tgi_config small(const char *preset)
{
  tgi_config c;
  EXPECT_OK(tgi_preset(preset, 257, &c, &error), error);
  c.num_hidden_layers = 1;
  c.hidden_size = 16;
  c.num_attention_heads = 2;
  c.num_key_value_heads = c.position == TGI_ROPE ? 1 : 2;
  c.head_dim = 8;
  c.intermediate_size = 24;
  c.max_position_embeddings = 64;
  return c;
}

static void make_directory(tgi_config config, int64_t shard_bytes, const char *path)
{
  tg_model *model = calloc(1, sizeof *model);
  tg_tokenizer *tokenizer = NULL;
  model->config = config;
  model->dtype = TG_F32;
  EXPECT_OK(tgi_parameters_create(&model->config, &model->parameters, &error), error);
  EXPECT_OK(tgi_weights_allocate(model, &error), error);
  tgi_weights_initialise(model, 1);
  EXPECT_OK(tg_tokenizer_create_bytes(&tokenizer, &error), error);
  const tg_save_options o = {.max_shard_bytes = shard_bytes, .tokenizer = tokenizer};
  EXPECT_OK(tg_model_save(model, &o, path, &error), error);
  tg_tokenizer_destroy(tokenizer);
  tg_model_destroy(model);
}

typedef struct file {
  char path[SCRATCH_PATH];
  char *bytes;
  size_t size;
} file;

/* A directory and what its files should hold. */
typedef struct victim {
  char path[SCRATCH_PATH];
  file files[kFiles];
  int count;
} victim;

static void add_file(victim *v, const scratch *dir, const char *name, const char *in_it)
{
  file *f = &v->files[v->count];
  char below[128];
  snprintf(below, sizeof below, "%s/%s", name, in_it);
  snprintf(f->path, sizeof f->path, "%s", scratch_file(dir, below));
  if (file_exists(f->path)) {
    f->bytes = read_file(f->path, &f->size);
    v->count++;
  }
}

static victim make_victim(const scratch *dir, const char *name, tgi_config config,
                          int64_t shard_bytes)
{
  static const char says[] =
      "{\"bos_token_id\": 1, \"do_sample\": true, \"eos_token_id\": [256, 7], \"temperature\": "
      "0.6, "
      "\"top_k\": 20, \"top_p\": 0.95, \"repetition_penalty\": 1.1, \"pad_token_id\": null}";
  static const char *const names[] = {"config.json",
                                      "generation_config.json",
                                      "tokenizer.json",
                                      "model.safetensors",
                                      "model.safetensors.index.json",
                                      "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors"};
  victim v = {.count = 0};
  char text[SCRATCH_PATH + 64];
  snprintf(v.path, sizeof v.path, "%s", scratch_file(dir, name));
  make_directory(config, shard_bytes, v.path);
  snprintf(text, sizeof text, "%s/generation_config.json", v.path);
  write_text(text, says);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    add_file(&v, dir, name, names[i]);
  }
  return v;
}

static void free_victim(victim *v)
{
  for (int i = 0; i < v->count; i++) {
    free(v->files[i].bytes);
  }
}

/* ---- damage ---- */

static uint64_t state = 1;

static size_t draw(size_t below)
{
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (size_t)(state >> 11) % below;
}

/* Bytes that mean something where JSON and numbers are read. */
static char telling_byte(void)
{
  static const char bytes[] = "0123456789-+.eE\"{}[],: \\\n\0truefalsn";
  return draw(3) ? bytes[draw(sizeof bytes)] : (char)draw(256);
}

/* Where a file is damaged: mostly in its head, for the rest of a file of weights is numbers. */
static size_t draw_place(size_t size)
{
  const size_t head = size < 2048 ? size : 2048;
  return draw(8) ? draw(head) : draw(size);
}

/* A damaged copy, of at most 64 bytes more. */
static size_t damage(const file *f, char *out)
{
  size_t size = f->size;
  memcpy(out, f->bytes, size);
  const size_t at = draw_place(size), rest = size - at, few = 1 + draw(8);
  switch (draw(7)) {
  case 0: /* cut off */
    return at;
  case 1: /* left out */
    size -= few < rest ? few : rest;
    memmove(out + at, f->bytes + at + (f->size - size), size - at);
    return size;
  case 2: /* put in */
    memmove(out + at + few, f->bytes + at, rest);
    for (size_t i = 0; i < few; i++) {
      out[at + i] = telling_byte();
    }
    return size + few;
  case 3: { /* a piece from elsewhere */
    const size_t from = draw_place(size);
    const size_t most = size - (from > at ? from : at), n = 1 + draw(64);
    memmove(out + at, f->bytes + from, n < most ? n : most);
    return size;
  }
  case 4: /* a run of one byte */
    memset(out + at, telling_byte(), few < rest ? few : rest);
    return size;
  default: /* a few bytes here and there */
    for (size_t i = 0; i < 1 + few / 4; i++) {
      out[draw_place(size)] = telling_byte();
    }
    return size;
  }
}

/* ---- what comes of it ---- */

static void expect_refusal(const victim *v, const char *what, tg_status status)
{
  const bool known = status == TG_BAD_FILE || status == TG_UNSUPPORTED || status == TG_IO;
  const size_t size = strlen(v->path);
  if (!known || error.status != status || strncmp(error.text, v->path, size) != 0 ||
      error.text[size] != '/' || !strstr(error.text, ": expected ") ||
      !strstr(error.text, ", got ")) {
    fail_msg(
        "%s: expected a refusal that names a file of %s and what was expected, got %s (%s): %s",
        what, v->path, tg_status_name(status), tg_status_name(error.status), error.text);
  }
}

/* A model that was read can be run. */
static void run_model(const tg_model *model)
{
  static const int32_t ids[3] = {0, 65, 256};
  tg_session *s = NULL;
  const tg_session_options o = {.max_tokens = 4, .num_threads = 1};
  const int32_t positions = tg_model_get_info(model).max_position_embeddings;
  if (positions >= 4 && tg_model_get_info(model).vocab_size >= 257) {
    EXPECT_OK(tg_session_create(model, &o, &s, &error), error);
    EXPECT_OK(tg_session_feed(s, ids, 3, &error), error);
    tg_session_destroy(s);
  }
}

static void read_directory(const victim *v, long counts[2])
{
  tg_model *model = NULL;
  tg_tokenizer *tokenizer = NULL;
  memset(&error, 0, sizeof error);
  tg_status status = tg_model_load(v->path, TG_DTYPE_NONE, &model, &error);
  counts[status != TG_OK]++;
  if (status == TG_OK) {
    run_model(model);
    tg_model_destroy(model);
  } else {
    expect_refusal(v, "model", status);
  }
  memset(&error, 0, sizeof error);
  status = tg_tokenizer_load(v->path, &tokenizer, &error);
  if (status == TG_OK) {
    tg_tokenizer_destroy(tokenizer);
  } else {
    expect_refusal(v, "tokenizer", status);
  }
}

static void damaged_bytes_are_read_or_refused(void **nothing)
{
  (void)nothing;
  const scratch dir = scratch_make();
  tgi_config yarn = small("qwen3_nano");
  yarn.rope = (tg_rope_parameters){.type = TG_ROPE_YARN,
                                   .theta = 1e4,
                                   .factor = 4,
                                   .original_max_position_embeddings = 16,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .mscale = 1,
                                   .mscale_all_dim = 0.5,
                                   .truncate = true};
  yarn.sliding_window = 8;
  tgi_config_set_sliding(&yarn, 0);
  victim victims[] = {
      make_victim(&dir, "gpt2", small("gpt_nano"), 0),
      make_victim(&dir, "llama", small("llama-3.2-1b"), 17000), /* two shards */
      make_victim(&dir, "qwen2", small("qwen2.5-0.5b"), 0),
      make_victim(&dir, "qwen3", yarn, 0),
  };
  const size_t kinds = sizeof victims / sizeof victims[0];
  long counts[2] = {0, 0};
  assert_int_equal(victims[0].count, 4);
  assert_int_equal(victims[1].count, 6);
  for (long i = 0; i < damages; i++) {
    const victim *v = &victims[draw(kinds)];
    const file *f = &v->files[draw((size_t)v->count)];
    char *bytes = malloc(f->size + 64);
    write_file(f->path, bytes, damage(f, bytes));
    read_directory(v, counts);
    write_file(f->path, f->bytes, f->size);
    free(bytes);
  }
  /* Both kinds occur: damage that is none, and damage that is found. */
  assert_true(counts[0] > damages / 20 && counts[1] > damages / 4);
  for (size_t i = 0; i < kinds; i++) {
    free_victim(&victims[i]);
  }
  scratch_remove(&dir);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(damaged_bytes_are_read_or_refused),
  };
  damages = argc > 1 ? atol(argv[1]) : kUsual;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
