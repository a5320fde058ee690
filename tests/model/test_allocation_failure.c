/*
 * Every allocation of the file layer, of tokenizers and of chat templates fails once, and from
 * there on for good: the call returns NO_MEMORY with a message, nothing leaks (memory, descriptors,
 * temporary files), and old files stay. Linked with --wrap for the allocating functions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/directories/atomic_directory.h"
#include "files/safetensors/safetensors.h"
#include "files/safetensors/safetensors_writer.h"
#include "model/config/config.h"
#include "model/preset.h"
#include "model/weights/weight_files.h"
#include "scratch_directory.h"
#include "small_tokenizer.h"
#include "tegula/chat_template.h"
#include "text/tokenizer_state.h"
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static bool counting;  /* inside the call under test */
static bool for_good;  /* every allocation from the failing one on */
static long fail_at;   /* the allocation that fails, from 1; 0: none */
static long allocated; /* allocations so far */
static long alive;     /* blocks not yet freed */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void __wrap_free(void *block);
char *__wrap_strdup(const char *text);

static bool refuse(void)
{
  if (!counting) {
    return false;
  }
  allocated++;
  return fail_at > 0 && (allocated == fail_at || (for_good && allocated > fail_at));
}

static void *count_block(void *block)
{
  alive += counting && block;
  return block;
}

void *__wrap_malloc(size_t size)
{
  return refuse() ? NULL : count_block(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
  return refuse() ? NULL : count_block(__real_calloc(count, size));
}

void *__wrap_realloc(void *block, size_t size)
{
  if (refuse()) {
    return NULL;
  }
  void *fresh = __real_realloc(block, size);
  return block ? fresh : count_block(fresh);
}

void __wrap_free(void *block)
{
  alive -= counting && block;
  __real_free(block);
}

char *__wrap_strdup(const char *text)
{
  const size_t size = strlen(text) + 1;
  char *copy = __wrap_malloc(size);
  return copy ? memcpy(copy, text, size) : NULL;
}

/* ---- the calls under test: each frees what it gets ---- */

static scratch dir;
static tg_error error;

static const char *in_dir(const char *name)
{
  return scratch_file(&dir, name);
}

enum { TENSORS = 40 };
static char names[TENSORS][40];
static tgi_tensor_source sources[TENSORS];
static const int64_t shape[2] = {2, 3};
static const float values[6] = {1, 2, 3, 4, 5, 6};

static tg_status read_weights(void)
{
  tgi_safetensors *file;
  const tg_status status = tgi_safetensors_open(in_dir("model-1.safetensors"), &file, &error);
  tgi_safetensors_close(file);
  return status;
}

static tg_status read_sharded(void)
{
  tgi_weight_files *files;
  const tg_status status = tgi_weight_files_open(dir.path, &files, &error);
  tgi_weight_files_close(files);
  return status;
}

static tg_status read_single(void)
{
  tgi_weight_files *files;
  const tg_status status = tgi_weight_files_open(in_dir("single"), &files, &error);
  tgi_weight_files_close(files);
  return status;
}

static tg_status write_weights(void)
{
  return tgi_safetensors_write(in_dir("written"), sources, TENSORS, NULL, 0, &error);
}

static tg_status read_config(void)
{
  tgi_config config;
  return tgi_config_read(in_dir("config.json"), &config, &error);
}

static tg_status write_config(void)
{
  tgi_config config;
  const tg_status status = tgi_preset("gpt_mini", 257, &config, &error);
  return status == TG_OK ? tgi_config_write(&config, in_dir("written"), &error) : status;
}

/* Nested objects and lists too. */
static tg_status write_and_read_qwen3(void)
{
  tgi_config config;
  tg_status status = tgi_preset("qwen3_nano", 257, &config, &error);
  config.rope.type = TG_ROPE_LINEAR;
  config.rope.factor = 2;
  if (status == TG_OK) {
    status = tgi_config_write(&config, in_dir("written"), &error);
  }
  return status ? status : tgi_config_read(in_dir("written"), &config, &error);
}

static tg_status make_tokenizer(void)
{
  tg_tokenizer *tokenizer;
  const tg_status status = tg_tokenizer_create_bytes(&tokenizer, &error);
  tg_tokenizer_destroy(tokenizer);
  return status;
}

static tg_status load_tokenizer_of(const char *directory)
{
  tg_tokenizer *tokenizer;
  const tg_status status = tg_tokenizer_load(directory, &tokenizer, &error);
  tg_tokenizer_destroy(tokenizer);
  return status;
}

static tg_status load_tokenizer(void)
{
  return load_tokenizer_of(dir.path);
}

/* With merges, patterns, normalising and added tokens. */
static const small_tokenizer whole_tokenizer = {
    .tokens = ", \"th\": 256, \"the\": 257",
    .merges = "[\"t h\", [\"th\", \"e\"]]",
    .normalizer = "{\"type\": \"NFC\"}",
    .added = "[{\"id\": 258, \"content\": \"<\\u00e9>\"}, {\"id\": 259, \"content\": \"<b>\", "
             "\"special\": true}]",
};

static tg_status load_whole_tokenizer(void)
{
  return load_tokenizer_of(in_dir("whole"));
}

/* vocab.json and merges.txt. */
static tg_status load_paired_tokenizer(void)
{
  return load_tokenizer_of(in_dir("pair"));
}

static tg_tokenizer *loaded_tokenizer;

static tg_status encode_text(void)
{
  static const char text[] =
      "the the<b>e\xcc\x81 <e\xcc\x81> \xf0\x9f\xab\xa8 "
      "theththetthetheththetthetheththetthetheththetthetheththetthetheththet";
  int32_t *ids;
  size_t count;
  const tg_status status =
      tgi_tokenizer_encode_all(loaded_tokenizer, text, sizeof text - 1, 0, &ids, &count, &error);
  free(ids);
  return status;
}

static tg_tokenizer *saved_tokenizer;

static tg_status save_tokenizer(void)
{
  return tg_tokenizer_save(saved_tokenizer, dir.path, &error);
}

/* Two templates of a list, special tokens of both files. */
static tg_status load_chat_template(void)
{
  tg_chat_template *t;
  const tg_status status = tg_chat_template_load(in_dir("chat"), NULL, &t, &error);
  tg_chat_template_destroy(t);
  return status;
}

static tg_chat_template *loaded_template;

static tg_status render_chat(void)
{
  static const tg_chat_request request = {.messages =
                                              "[{\"role\": \"user\", \"content\": \"a <b>\"}]",
                                          .tools = "[{\"name\": \"f\"}]",
                                          .documents = "[{\"text\": \"d\"}]",
                                          .arguments = "{\"n\": 40000}",
                                          .name = "default",
                                          .date = "2026-11-27"};
  tg_chat_text text;
  const tg_status status = tg_chat_template_render(loaded_template, &request, &text, &error);
  tg_chat_text_release(&text);
  return status;
}

static tg_status replace_directory(void)
{
  tgi_atomic_directory *d;
  tg_status status = tgi_atomic_directory_begin(in_dir("single"), &d, &error);
  if (status != TG_OK) {
    return status;
  }
  char path[1024];
  snprintf(path, sizeof path, "%s/model.safetensors", tgi_atomic_directory_path(d));
  status = tgi_safetensors_write(path, sources, TENSORS, NULL, 0, &error);
  if (status == TG_OK) {
    return tgi_atomic_directory_commit(d, &error);
  }
  tgi_atomic_directory_drop(d);
  return status;
}

static tg_status recover_directory(void)
{
  return tgi_atomic_directory_recover(in_dir("single"), &error);
}

/* ---- the driver ---- */

static tg_status run(tg_status (*call)(void), long at, bool sticky)
{
  memset(&error, 0, sizeof error);
  fail_at = at;
  for_good = sticky;
  allocated = 0;
  alive = 0;
  counting = true;
  const tg_status status = call();
  counting = false;
  return status;
}

static void fail_every_allocation(tg_status (*call)(void))
{
  const tg_status clean = run(call, 0, false);
  if (clean != TG_OK) {
    fail_msg("without a failure: %s: %s", tg_status_name(clean), error.text);
  }
  assert_int_equal(alive, 0);
  const long total = allocated;
  assert_true(total > 0);
  const size_t files = count_entries(dir.path), inner = count_entries(in_dir("single"));
  const size_t descriptors = count_entries("/proc/self/fd");
  for (int sticky = 0; sticky < 2; sticky++) {
    for (long at = 1; at <= total; at++) {
      const tg_status status = run(call, at, sticky);
      if (status != TG_NO_MEMORY || error.status != TG_NO_MEMORY ||
          !strstr(error.text, "bytes of memory, got none")) {
        fail_msg("allocation %ld of %ld failed: got %s: %s", at, total, tg_status_name(status),
                 error.text);
      }
      if (alive != 0) {
        fail_msg("allocation %ld of %ld failed: %ld blocks leak", at, total, alive);
      }
      assert_int_equal(count_entries(dir.path), files);
      assert_int_equal(count_entries(in_dir("single")), inner);
      assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    }
  }
  EXPECT_OK(run(call, 0, false), error);
  assert_int_equal(alive, 0);
  print_message("%ld allocations\n", total);
}

#define FAILS(call)                                                                                \
  static void call##_survives(void **state)                                                        \
  {                                                                                                \
    (void)state;                                                                                   \
    fail_every_allocation(call);                                                                   \
  }
FAILS(read_weights)
FAILS(read_sharded)
FAILS(read_single)
FAILS(write_weights)
FAILS(read_config)
FAILS(write_config)
FAILS(write_and_read_qwen3)
FAILS(make_tokenizer)
FAILS(load_tokenizer)
FAILS(load_whole_tokenizer)
FAILS(load_paired_tokenizer)
FAILS(encode_text)
FAILS(save_tokenizer)
FAILS(load_chat_template)
FAILS(render_chat)
FAILS(replace_directory)
FAILS(recover_directory)

static void write_tokenizers(void)
{
  char *text = small_tokenizer_text(&whole_tokenizer);
  mkdir(in_dir("whole"), 0777);
  mkdir(in_dir("pair"), 0777);
  write_text(in_dir("whole/tokenizer.json"), text);
  char *vocabulary = strstr(text, "\"vocab\": ") + strlen("\"vocab\": ");
  *strstr(vocabulary, ", \"merges\"") = '\0';
  write_text(in_dir("pair/vocab.json"), vocabulary);
  write_text(in_dir("pair/merges.txt"), "t h\nth e\n");
  write_text(in_dir("pair/tokenizer_config.json"),
             "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"added_tokens_decoder\": {\"258\": "
             "{\"content\": \"<b>\"}}, \"eos_token\": \"<b>\"}");
  free(text);
}

/* A text of more than a block of memory, with both kinds of ranges. */
static tg_status write_chat(void)
{
  mkdir(in_dir("chat"), 0777);
  write_text(in_dir("chat/tokenizer_config.json"),
             "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{% for m in messages "
             "%}{{ m.content }}{% generation %}{{ tools|tojson }}{% endgeneration %}{% endfor %}"
             "{{ documents }}{{ 'x' * n }}{{ strftime_now('%Y') }}{{ bos_token }}\"}, {\"name\": "
             "\"tool_use\", \"template\": \"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1) }}\"}], "
             "\"bos_token\": \"<s>\"}");
  write_text(in_dir("chat/special_tokens_map.json"), "{\"pad_token\": {\"content\": \"<p>\"}}");
  return tg_chat_template_load(in_dir("chat"), NULL, &loaded_template, &error);
}

static int set_up(void **state)
{
  (void)state;
  json_set_alloc_funcs(malloc, free); /* the wrapped ones of this program */
  dir = scratch_make();
  for (int i = 0; i < TENSORS; i++) {
    snprintf(names[i], sizeof names[i], "transformer.h.%d.weight", i);
    sources[i] = (tgi_tensor_source){names[i], TGI_FILE_F32, 2, shape, values};
  }
  const tgi_metadata_source metadata = {"step", "1"};
  tgi_config config;
  tgi_atomic_directory *d;
  char path[1024];
  if (tgi_safetensors_write(in_dir("model-1.safetensors"), sources, TENSORS, &metadata, 1,
                            &error) != TG_OK ||
      tgi_preset("gpt_mini", 257, &config, &error) != TG_OK ||
      tgi_config_write(&config, in_dir("config.json"), &error) != TG_OK ||
      tg_tokenizer_create_bytes(&saved_tokenizer, &error) != TG_OK ||
      tg_tokenizer_save(saved_tokenizer, dir.path, &error) != TG_OK ||
      tgi_atomic_directory_begin(in_dir("single"), &d, &error) != TG_OK) {
    return -1;
  }
  snprintf(path, sizeof path, "%s/model.safetensors", tgi_atomic_directory_path(d));
  if (tgi_safetensors_write(path, sources, 1, NULL, 0, &error) != TG_OK ||
      tgi_atomic_directory_commit(d, &error) != TG_OK) {
    return -1;
  }
  write_tokenizers();
  if (tg_tokenizer_load(in_dir("whole"), &loaded_tokenizer, &error) != TG_OK ||
      write_chat() != TG_OK) {
    return -1;
  }
  char index[TENSORS * 88], *at = index;
  at += sprintf(at, "{\"weight_map\":");
  for (int i = 0; i < TENSORS; i++) {
    at += sprintf(at, "%c\"%s\":\"model-1.safetensors\"", i ? ',' : '{', names[i]);
  }
  sprintf(at, "}}");
  write_text(in_dir("model.safetensors.index.json"), index);
  write_text(in_dir("written"), "old"); /* the file that the writers replace */
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  tg_tokenizer_destroy(saved_tokenizer);
  tg_tokenizer_destroy(loaded_tokenizer);
  tg_chat_template_destroy(loaded_template);
  scratch_remove(&dir);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(read_weights_survives),
      cmocka_unit_test(read_sharded_survives),
      cmocka_unit_test(read_single_survives),
      cmocka_unit_test(write_weights_survives),
      cmocka_unit_test(read_config_survives),
      cmocka_unit_test(write_config_survives),
      cmocka_unit_test(write_and_read_qwen3_survives),
      cmocka_unit_test(make_tokenizer_survives),
      cmocka_unit_test(load_tokenizer_survives),
      cmocka_unit_test(load_whole_tokenizer_survives),
      cmocka_unit_test(load_paired_tokenizer_survives),
      cmocka_unit_test(encode_text_survives),
      cmocka_unit_test(save_tokenizer_survives),
      cmocka_unit_test(load_chat_template_survives),
      cmocka_unit_test(render_chat_survives),
      cmocka_unit_test(replace_directory_survives),
      cmocka_unit_test(recover_directory_survives),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
