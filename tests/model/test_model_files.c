/* Models to directories and back: every dtype, one file and shards, what stays of an old
 * directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/json_file.h"
#include "files/safetensors/safetensors_writer.h"
#include "model/weights/weights.h"
#include "rounded_model.h"
#include "scratch_directory.h"

static const char *const kPresets[] = {"gpt_nano", "qwen3_nano"};

static tg_model *new_model(const char *preset)
{
  tg_model *model = NULL;
  EXPECT_OK(tg_model_create(preset, 257, 5, &model, &error), error);
  return model;
}

static void every_dtype_goes_to_files_and_back(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  for (size_t m = 0; m < sizeof kPresets / sizeof kPresets[0]; m++) {
    tg_model *model = new_model(kPresets[m]);
    for (int f = 0; f < 3; f++) {
      const tg_save_options o = {.dtype = kDtypes[f]};
      EXPECT_OK(tg_model_save(model, &o, path, &error), error);
      tg_model *as_filed = load(path, TG_DTYPE_NONE);
      assert_int_equal(tg_model_get_info(as_filed).dtype, kDtypes[f]);
      assert_rounded(as_filed, model, kDtypes[f]);
      tg_model_destroy(as_filed);
      for (int d = 0; d < 3; d++) {
        tg_model *back = load(path, kDtypes[d]);
        assert_int_equal(tg_model_get_info(back).dtype, kDtypes[d]);
        assert_rounded(back, model, kDtypes[f]);
        tg_model_destroy(back);
      }
    }
    tg_model_destroy(model);
  }
  scratch_remove(&dir);
}

/* What a file holds counts, not what config.json says; of several dtypes, that of most bytes. */
static void the_dtype_is_that_of_the_files(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  const char *file = scratch_file(&dir, "model/model.safetensors");
  tg_model *model = new_model("qwen3_nano");
  EXPECT_OK(tg_model_save(model, &(tg_save_options){.dtype = TG_BF16}, path, &error), error);
  EXPECT_OK(tgi_config_write(&model->config, scratch_file(&dir, "model/config.json"), &error),
            error); /* float32 */
  tg_model *back = load(path, TG_DTYPE_NONE);
  assert_int_equal(tg_model_get_info(back).dtype, TG_BF16);
  tg_model_destroy(back);

  /* One norm in f32. */
  tgi_safetensors *old;
  EXPECT_OK(tgi_safetensors_open(file, &old, &error), error);
  const size_t count = tgi_safetensors_count(old);
  tgi_tensor_source *sources = calloc(count, sizeof *sources);
  float norm[128];
  for (int i = 0; i < 128; i++) {
    norm[i] = (float)i;
  }
  for (size_t i = 0; i < count; i++) {
    const tgi_file_tensor *t = tgi_safetensors_at(old, i);
    const bool chosen = strcmp(t->name, "model.norm.weight") == 0;
    sources[i] = (tgi_tensor_source){t->name, chosen ? TGI_FILE_F32 : t->dtype, t->ndim, t->shape,
                                     chosen ? norm : t->data};
  }
  const char *mixed = scratch_file(&dir, "mixed.safetensors");
  EXPECT_OK(tgi_safetensors_write(mixed, sources, count, NULL, 0, &error), error);
  tgi_safetensors_close(old);
  free(sources);
  assert_int_equal(rename(mixed, file), 0);
  back = load(path, TG_DTYPE_NONE);
  assert_int_equal(tg_model_get_info(back).dtype, TG_BF16);
  const tg_tensor view = tgi_weight(back, back->parameters.final_norm);
  for (int i = 0; i < 128; i++) {
    assert_true(tgi_load(view.data, view.dtype, i) == i);
  }
  tg_model_destroy(back);
  tg_model_destroy(model);
  scratch_remove(&dir);
}

static int64_t size_of(const char *path)
{
  struct stat info;
  return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

static void shards_hold_what_one_file_holds(void **state)
{
  (void)state;
  static const int64_t sizes[] = {1, 30000, 100000, 300000};
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  for (size_t m = 0; m < sizeof kPresets / sizeof kPresets[0]; m++) {
    tg_model *model = new_model(kPresets[m]);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
      const tg_save_options o = {.max_shard_bytes = sizes[k]};
      EXPECT_OK(tg_model_save(model, &o, path, &error), error);
      assert_int_equal(size_of(scratch_file(&dir, "model/model.safetensors")), -1);
      tgi_json json;
      EXPECT_OK(tgi_json_load(scratch_file(&dir, "model/model.safetensors.index.json"), 1 << 20, 0,
                              &json, &error),
                error);
      assert_int_equal(
          json_integer_value(json_object_get(json_object_get(json.root, "metadata"), "total_size")),
          4 * model->parameters.num_parameters);
      assert_int_equal(json_object_size(json_object_get(json.root, "weight_map")),
                       model->parameters.count);
      json_decref(json.root);
      tg_model *back = load(path, TG_DTYPE_NONE);
      assert_rounded(back, model, TG_F32);
      tg_model_destroy(back);
    }
    tg_model_destroy(model);
  }
  /* Of 300000 bytes at most, but for the header; the files of smaller shards are gone. */
  const size_t shards = count_entries(path) - 2; /* config.json, the index */
  assert_true(shards > 2);
  for (size_t n = 1; n <= shards; n++) {
    char name[64];
    snprintf(name, sizeof name, "model/model-%05zu-of-%05zu.safetensors", n, shards);
    const int64_t size = size_of(scratch_file(&dir, name));
    assert_true(size > 0 && size < 300000 + 8192);
  }
  scratch_remove(&dir);
}

/* A tensor above the limit has a shard for itself, wherever it stands. */
static void a_large_tensor_has_its_own_shard(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  tg_model *model = new_model("gpt_nano"); /* wte: 49344 bytes, the first */
  EXPECT_OK(tg_model_save(model, &(tg_save_options){.max_shard_bytes = 49343}, path, &error),
            error);
  tgi_weight_files *files;
  EXPECT_OK(tgi_weight_files_open(path, &files, &error), error);
  const tgi_safetensors *home =
      tgi_weight_files_home(files, tgi_weight_files_find(files, "transformer.wte.weight"));
  assert_int_equal(tgi_safetensors_count(home), 1);
  tgi_weight_files_close(files);
  tg_model_destroy(model);
  scratch_remove(&dir);
}

static void other_files_of_a_directory_stay(void **state)
{
  (void)state;
  static const char says[] = "{\"top_k\": 7, \"eos_token_id\": [256, 3], \"anyone's\": null}";
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  const char *generation = scratch_file(&dir, "model/generation_config.json");
  tg_model *model = new_model("gpt_nano");
  EXPECT_OK(tg_model_save(model, &(tg_save_options){.max_shard_bytes = 100000}, path, &error),
            error);
  write_text(scratch_file(&dir, "model/notes.txt"), "mine");
  write_text(generation, says);
  tg_model *back = load(path, TG_DTYPE_NONE);
  const tg_generation_config c = tg_model_get_generation_config(back);
  assert_int_equal(c.top_k, 7);
  int64_t stops = 0;
  const int32_t *ids = tg_model_eos_token_ids(back, &stops);
  assert_int_equal(stops, 2);
  assert_int_equal(ids[0], 256);
  assert_int_equal(ids[1], 3);
  assert_int_equal(unlink(generation), 0);
  EXPECT_OK(tg_model_save(back, &(tg_save_options){0}, path, &error), error);
  assert_int_equal(count_entries(path), 4); /* config, generation, weights, notes */
  assert_int_equal(size_of(scratch_file(&dir, "model/notes.txt")), 4);
  assert_int_equal(size_of(generation), sizeof says - 1);
  tg_model_destroy(back);
  back = load(path, TG_DTYPE_NONE);
  assert_rounded(back, model, TG_F32);
  assert_int_equal(tg_model_get_generation_config(back).top_k, 7);
  tg_model_destroy(back);
  tg_model_destroy(model);
  scratch_remove(&dir);
}

static void bad_saves_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_model *model = new_model("gpt_nano");
  const tg_save_options good = {0};
  EXPECT_ERROR(tg_model_save(NULL, &good, dir.path, &error), TG_BAD_ARGUMENT, "expected pointers",
               error);
  EXPECT_ERROR(tg_model_save(model, &(tg_save_options){.dtype = TG_I32}, dir.path, &error),
               TG_BAD_ARGUMENT, "model_save: dtype: expected f32|f16|bf16, got i32", error);
  EXPECT_ERROR(tg_model_save(model, &(tg_save_options){.max_shard_bytes = -1}, dir.path, &error),
               TG_BAD_ARGUMENT, "max_shard_bytes: expected 0 or more, got -1", error);
  EXPECT_ERROR(tg_model_save(model, &good, scratch_file(&dir, "no/model"), &error), TG_IO,
               "find the parent directory", error);
  assert_int_equal(count_entries(dir.path), 0);
  tg_model_destroy(model);
  scratch_remove(&dir);
}

/* Tensors at odd bytes, which the format allows. */
static void unaligned_tensors_are_read(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  const char *file = scratch_file(&dir, "model/model.safetensors");
  tg_model *model = new_model("gpt_nano");
  EXPECT_OK(tg_model_save(model, &(tg_save_options){0}, path, &error), error);
  size_t size;
  char *bytes = read_file(file, &size), *moved = malloc(size + 1);
  uint64_t length = 0;
  memcpy(&length, bytes, sizeof length);
  const size_t data = sizeof length + (size_t)length;
  length++; /* one more space of padding */
  memcpy(moved, &length, sizeof length);
  memcpy(moved + sizeof length, bytes + sizeof length, data - sizeof length);
  moved[data] = ' ';
  memcpy(moved + data + 1, bytes + data, size - data);
  write_file(file, moved, size + 1);
  free(bytes);
  free(moved);
  for (int d = 0; d < 3; d++) {
    tg_model *back = load(path, kDtypes[d]);
    assert_rounded(back, model, TG_F32);
    tg_model_destroy(back);
  }
  tg_model_destroy(model);
  scratch_remove(&dir);
}

/* Puts one more tensor into the model in `dir`. */
static void add_tensor(const scratch *dir, const tgi_tensor_source *extra)
{
  const char *file = scratch_file(dir, "model/model.safetensors");
  const char *other = scratch_file(dir, "other.safetensors");
  tgi_safetensors *old;
  EXPECT_OK(tgi_safetensors_open(file, &old, &error), error);
  const size_t count = tgi_safetensors_count(old);
  tgi_tensor_source *sources = calloc(count + 1, sizeof *sources);
  for (size_t i = 0; i < count; i++) {
    const tgi_file_tensor *t = tgi_safetensors_at(old, i);
    sources[i] = (tgi_tensor_source){t->name, t->dtype, t->ndim, t->shape, t->data};
  }
  sources[count] = *extra;
  EXPECT_OK(tgi_safetensors_write(other, sources, count + 1, NULL, 0, &error), error);
  tgi_safetensors_close(old);
  free(sources);
  assert_int_equal(rename(other, file), 0);
}

static void a_head_of_other_values_unties(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  for (size_t m = 0; m < sizeof kPresets / sizeof kPresets[0]; m++) {
    tg_model *model = new_model(kPresets[m]), *back;
    const tgi_parameters *p = &model->parameters;
    assert_int_equal(p->head, p->tokens);
    const tg_tensor table = tgi_weight(model, p->tokens);
    const int64_t n = elements_of(&table);
    float *values = malloc((size_t)n * sizeof *values);
    memcpy(values, table.data, (size_t)n * sizeof *values);
    const tgi_tensor_source head = {"lm_head.weight", TGI_FILE_F32, 2, table.shape, values};

    EXPECT_OK(tg_model_save(model, &(tg_save_options){0}, path, &error), error);
    add_tensor(&dir, &head); /* the same values: many files have them */
    back = load(path, TG_DTYPE_NONE);
    assert_int_equal(back->parameters.head, back->parameters.tokens);
    assert_rounded(back, model, TG_F32);
    tg_model_destroy(back);

    values[n - 1] += 1;
    EXPECT_OK(tg_model_save(model, &(tg_save_options){0}, path, &error), error);
    add_tensor(&dir, &head);
    for (int again = 0; again < 2; again++) { /* then as the model itself was saved */
      back = load(path, TG_DTYPE_NONE);
      assert_false(back->config.tie_word_embeddings);
      assert_memory_equal(tgi_weight(back, back->parameters.head).data, values,
                          (size_t)n * sizeof *values);
      assert_memory_equal(tgi_weight(back, back->parameters.tokens).data, table.data,
                          (size_t)n * sizeof *values);
      EXPECT_OK(tg_model_save(back, &(tg_save_options){0}, path, &error), error);
      tg_model_destroy(back);
    }

    const int64_t fewer[] = {table.shape[0] - 1, table.shape[1]};
    const tgi_tensor_source cut = {"lm_head.weight", TGI_FILE_F32, 2, fewer, values};
    EXPECT_OK(tg_model_save(model, &(tg_save_options){0}, path, &error), error);
    add_tensor(&dir, &cut);
    EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &back, &error), TG_BAD_FILE,
                 "lm_head.weight: expected F32|F16|BF16 [257, ", error);
    free(values);
    tg_model_destroy(model);
  }
  scratch_remove(&dir);
}

static void tensors_beyond_the_configuration_are_refused(void **state)
{
  (void)state;
  static const char only[] = ": expected only tensors that config.json calls for, got another",
                    layers[] = " layers that config.json has, got those of another";
  static const struct {
    const char *preset, *name, *rule; /* NULL: it is passed over */
  } cases[] = {
      {"qwen3_nano", "model.layers.0.self_attn.v_proj.bias", only},
      {"qwen3_nano", "model.layers.1.self_attn.qproj.weight", only},
      {"qwen3_nano", "layers.1.mlp.down_proj.weight", only}, /* without the prefix, once more */
      {"qwen3_nano", "model.layers.96.mlp.up_proj.weight", layers},
      {"qwen3_nano", "layers.96.input_layernorm.weight", layers},
      {"gpt_nano", "transformer.h.0.attn.c_atn.bias", only},
      {"gpt_nano", "h.99.mlp.c_fc.weight", layers},
      {"gpt_oss_nano", "model.layers.0.mlp.experts.down_proj_blocks", only},
      {"qwen3_moe_nano", "model.layers.0.mlp.experts.99.down_proj.weight", only},
      {"qwen3_nano", "model.layers.0.self_attn.rotary_emb.inv_freq", NULL},
      {"qwen3_nano", "model.layers_of_others.0.weight", NULL},
      {"qwen3_nano", "mtp.layers.0.input_layernorm.weight", NULL},
      {"qwen3_nano", "visual.blocks.0.weight", NULL},
      {"gpt_nano", "transformer.h.0.attn.bias", NULL},
      {"gpt_nano", "h.1.attn.masked_bias", NULL},
      {"gpt_nano", "score.weight", NULL},
  };
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "model");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tg_model *model = new_model(cases[i].preset), *back;
    EXPECT_OK(tg_model_save(model, &(tg_save_options){0}, path, &error), error);
    add_tensor(&dir, &(tgi_tensor_source){cases[i].name, TGI_FILE_U8, 1, (int64_t[]){3}, "abc"});
    if (cases[i].rule) {
      EXPECT_ERROR(tg_model_load(path, TG_DTYPE_NONE, &back, &error), TG_BAD_FILE, cases[i].rule,
                   error);
      assert_non_null(strstr(error.text, cases[i].name));
    } else {
      EXPECT_OK(tg_model_load(path, TG_DTYPE_NONE, &back, &error), error);
    }
    tg_model_destroy(back);
    tg_model_destroy(model);
  }
  scratch_remove(&dir);
}

static void pickled_weights_are_named(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  tg_model *model = new_model("gpt_nano"), *back;
  EXPECT_OK(tgi_config_write(&model->config, scratch_file(&dir, "config.json"), &error), error);
  EXPECT_ERROR(tg_model_load(dir.path, TG_DTYPE_NONE, &back, &error), TG_IO,
               "/model.safetensors: expected to open it for reading, got No such file", error);
  write_text(scratch_file(&dir, "pytorch_model.bin"), "PK");
  EXPECT_ERROR(tg_model_load(dir.path, TG_DTYPE_NONE, &back, &error), TG_UNSUPPORTED,
               "/pytorch_model.bin: expected model.safetensors beside it (python -m "
               "tegula.convert writes it), got pickled weights alone",
               error);
  tg_model_destroy(model);
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_dtype_goes_to_files_and_back),
      cmocka_unit_test(the_dtype_is_that_of_the_files),
      cmocka_unit_test(shards_hold_what_one_file_holds),
      cmocka_unit_test(a_large_tensor_has_its_own_shard),
      cmocka_unit_test(other_files_of_a_directory_stay),
      cmocka_unit_test(bad_saves_are_refused),
      cmocka_unit_test(unaligned_tensors_are_read),
      cmocka_unit_test(a_head_of_other_values_unties),
      cmocka_unit_test(tensors_beyond_the_configuration_are_refused),
      cmocka_unit_test(pickled_weights_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
