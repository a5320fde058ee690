/* Models of any shape: from the text of a config.json, with parameters from memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "core/values/half.h"
#include "expect.h"
#include "model/preset.h"
#include "model/weights/weights.h"
#include "tegula/tegula.h"
#include <stdlib.h>
#include <string.h>

static tg_error error;

static tg_model *create_from(const char *text, uint64_t seed)
{
  tg_model *model = NULL;
  EXPECT_OK(tg_model_create_from(text, seed, &model, &error), error);
  return model;
}

/* Every preset that fits a test's memory, with 257 ids: the same model as by its name. */
static void a_presets_config_makes_the_preset(void **state)
{
  (void)state;
  char text[4096];
  tg_preset preset;
  size_t size, compared = 0;
  for (size_t i = 0; tg_preset_get(i, &preset) == TG_OK; i++) {
    EXPECT_OK(tg_preset_config(preset.name, 257, NULL, 0, &size, &error), error);
    EXPECT_OK(tg_preset_config(preset.name, 257, text, sizeof text, &size, &error), error);
    text[size] = '\0';
    EXPECT_ERROR(tg_preset_config(preset.name, 257, text, size - 1, &size, &error), TG_BAD_ARGUMENT,
                 "capacity", error);
    tgi_config by_text, by_name;
    EXPECT_OK(tgi_config_parse("config", text, size, &by_text, &error), error);
    EXPECT_OK(tgi_preset(preset.name, 257, &by_name, &error), error);
    char *again; /* not the structures: their padding may differ */
    EXPECT_OK(tgi_config_text(&by_text, &again, &error), error);
    assert_string_equal(again, text);
    tgi_config_free_text(again);
    assert_int_equal(by_text.model_type, by_name.model_type);
    if (preset.hidden_size > 256) {
      continue;
    }
    tg_model *shaped = create_from(text, 5), *named = NULL;
    EXPECT_OK(tg_model_create(preset.name, 257, 5, &named, &error), error);
    assert_int_equal(shaped->parameters.elements, named->parameters.elements);
    assert_memory_equal(shaped->block, named->block,
                        (size_t)named->parameters.elements * sizeof(float));
    tg_model_destroy(shaped);
    tg_model_destroy(named);
    compared++;
  }
  assert_int_equal(compared, 9);
}

static void the_table_has_every_preset(void **state)
{
  (void)state;
  tg_preset p;
  size_t count = 0;
  while (tg_preset_get(count, &p) == TG_OK) {
    assert_string_equal(p.name, tgi_preset_name(count));
    count++;
  }
  assert_null(tgi_preset_name(count));
  assert_int_equal(tg_preset_get(0, NULL), TG_BAD_ARGUMENT);
  EXPECT_OK(tg_preset_get(3, &p), error);
  assert_string_equal(p.name, "gpt2");
  assert_string_equal(p.model_type, "gpt2");
  assert_int_equal(p.num_parameters, 124439808);
  assert_int_equal(p.head_dim, 64);
  EXPECT_ERROR(tg_preset_config("gpt3", 0, NULL, 0, &count, &error), TG_BAD_ARGUMENT,
               "expected one of", error);
}

static const char kGpt[] = "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, "
                           "\"n_embd\": 16, \"n_positions\": 32, \"vocab_size\": 100}";

static void any_shape_of_a_family(void **state)
{
  (void)state;
  tg_model *a = create_from(kGpt, 1), *b = create_from(kGpt, 1), *c = create_from(kGpt, 2);
  const tg_model_info info = tg_model_get_info(a);
  const size_t bytes = info.weight_bytes;
  assert_int_equal(info.dtype, TG_F32);
  assert_int_equal(info.num_hidden_layers, 2);
  assert_int_equal(info.max_position_embeddings, 32);
  assert_int_equal(info.intermediate_size, 64);
  assert_memory_equal(a->block, b->block, bytes);
  assert_true(memcmp(a->block, c->block, bytes) != 0);
  tg_model_destroy(a);
  tg_model_destroy(b);
  tg_model_destroy(c);
}

static void wrong_configs_are_refused(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
    tg_status status;
  } wrong[] = {
      {"", "config", TG_BAD_ARGUMENT},
      {"[]", "expected an object", TG_BAD_ARGUMENT},
      {"{\"model_type\": \"gpt2\", \"n_embd\": 0}", "got 0", TG_BAD_ARGUMENT},
      {"{\"model_type\": \"gpt2\", \"n_layer\": 2}", "n_embd", TG_BAD_ARGUMENT},
      {"{\"model_type\": \"bert\"}", "model_type", TG_UNSUPPORTED},
  };
  tg_model *model = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    EXPECT_ERROR(tg_model_create_from(wrong[i].text, 0, &model, &error), wrong[i].status,
                 wrong[i].message, error);
    assert_null(model);
  }
  assert_int_equal(tg_model_create_from(NULL, 0, &model, NULL), TG_BAD_ARGUMENT);
}

static void parameters_come_from_any_dtype_and_strides(void **state)
{
  (void)state;
  enum { rows = 48, cols = 16 };
  static const char name[] = "transformer.h.1.attn.c_attn.weight";
  static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  tg_model *model = create_from(kGpt, 1);
  const int64_t elements = model->parameters.elements;
  float *before = malloc((size_t)elements * sizeof *before);
  assert_non_null(before);
  for (size_t d = 0; d < 3; d++) {
    for (int transposed = 0; transposed < 2; transposed++) {
      _Alignas(8) unsigned char values[rows * cols * 4];
      tg_tensor from = tg_tensor_2d(values, dtypes[d], rows, cols);
      from.stride[0] = transposed ? 1 : cols;
      from.stride[1] = transposed ? rows : 1;
      for (int64_t i = 0; i < (int64_t)rows * cols; i++) {
        const int64_t at = i / cols * from.stride[0] + i % cols * from.stride[1];
        tgi_store(values, dtypes[d], at, (double)(i % 64) / 4 + (double)d);
      }
      memcpy(before, model->block, (size_t)elements * sizeof *before);
      EXPECT_OK(tg_model_set_parameter(model, name, from, &error), error);
      const tgi_parameter *q = model->parameters.list;
      while (strcmp(q->name, name) != 0) {
        q++;
      }
      const float *after = model->block;
      for (int64_t i = 0; i < elements; i++) {
        const int64_t k = i - q->offset;
        const bool inside = k >= 0 && k < (int64_t)rows * cols;
        const double want = inside ? (double)(k % 64) / 4 + (double)d : (double)before[i];
        assert_true((double)after[i] == want);
      }
    }
  }
  free(before);
  tg_model_destroy(model);
}

static void wrong_parameters_are_refused(void **state)
{
  (void)state;
  static const char name[] = "transformer.h.1.attn.c_attn.weight";
  tg_model *model = create_from(kGpt, 1);
  static double memory[48 * 16];
  tg_tensor t = tg_tensor_2d(memory, TG_F32, 16, 48);
  EXPECT_ERROR(tg_model_set_parameter(model, name, t, &error), TG_BAD_SHAPE,
               "c_attn.weight: expected [48, 16], got [16, 48]", error);
  EXPECT_ERROR(tg_model_set_parameter(model, name, tg_tensor_1d(memory, TG_F32, 48), &error),
               TG_BAD_SHAPE, "got [48]", error);
  t = tg_tensor_2d(memory, TG_F64, 48, 16);
  EXPECT_ERROR(tg_model_set_parameter(model, name, t, &error), TG_BAD_DTYPE, "got f64", error);
  t = tg_tensor_2d(NULL, TG_F32, 48, 16);
  EXPECT_ERROR(tg_model_set_parameter(model, name, t, &error), TG_BAD_ARGUMENT, "got NULL", error);
  t.data = memory;
  t.device = TG_DEVICE_CUDA(0);
  EXPECT_ERROR(tg_model_set_parameter(model, name, t, &error), TG_BAD_ARGUMENT, "a GPU's", error);
  t.device = 0;
  EXPECT_ERROR(tg_model_set_parameter(model, "wte", t, &error), TG_BAD_ARGUMENT,
               "such as transformer.wte.weight, got wte", error);
  EXPECT_OK(tg_model_set_parameter(model, name, t, &error), error);
  tgi_parameter *q = model->parameters.list;
  while (strcmp(q->name, name) != 0) {
    q++;
  }
  q->mxfp4_at = 0;
  EXPECT_ERROR(tg_model_set_parameter(model, name, t, &error), TG_BAD_ARGUMENT,
               "stays in MXFP4 (tg_model_dequantize)", error);
  tg_model_destroy(model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_presets_config_makes_the_preset),
      cmocka_unit_test(the_table_has_every_preset),
      cmocka_unit_test(any_shape_of_a_family),
      cmocka_unit_test(wrong_configs_are_refused),
      cmocka_unit_test(parameters_come_from_any_dtype_and_strides),
      cmocka_unit_test(wrong_parameters_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
