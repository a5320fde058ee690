/* config.json of Qwen3: both spellings of its rope, its windows, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/config/config.h"
#include "model/preset.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

static tg_error error;

#define SIZES(layers)                                                                              \
  "\"model_type\":\"qwen3\",\"vocab_size\":97,\"hidden_size\":64,\"intermediate_size\":96,"        \
  "\"num_hidden_layers\":" #layers ",\"num_attention_heads\":4,\"max_position_embeddings\":40"
#define BASE SIZES(3) ",\"num_key_value_heads\":2"

static tg_status parse(const char *text, tgi_config *config)
{
  return tgi_config_parse("c.json", text, strlen(text), config, &error);
}

static tgi_config good(const char *text)
{
  tgi_config c;
  EXPECT_OK(parse(text, &c), error);
  EXPECT_OK(tgi_config_check(&c, &error), error);
  return c;
}

static void optional_keys_have_the_defaults_of_transformers(void **state)
{
  (void)state;
  const tgi_config c = good("{" BASE "}");
  assert_int_equal(c.model_type, TGI_MODEL_QWEN3);
  assert_int_equal(c.dtype, TG_F32);
  assert_int_equal(c.vocab_size, 97);
  assert_int_equal(c.hidden_size, 64);
  assert_int_equal(c.intermediate_size, 96);
  assert_int_equal(c.num_hidden_layers, 3);
  assert_int_equal(c.num_attention_heads, 4);
  assert_int_equal(c.num_key_value_heads, 2);
  assert_int_equal(c.head_dim, 128);
  assert_int_equal(c.max_position_embeddings, 40);
  assert_int_equal(c.norm, TGI_RMS_NORM);
  assert_true(c.norm_eps == 1e-6);
  assert_int_equal(c.position, TGI_ROPE);
  assert_int_equal(c.rope.type, TG_ROPE_DEFAULT);
  assert_true(c.rope.theta == 1e4);
  assert_int_equal(c.activation, TGI_SWIGLU);
  assert_true(c.scale_attn_weights && !c.scale_attn_by_inverse_layer_idx && c.qk_norm);
  assert_true(!c.attention_bias && !c.output_bias && !c.mlp_bias && !c.tie_word_embeddings);
  assert_int_equal(c.sliding_window, 0);
  assert_true(c.initializer_range == 0.02);
  assert_int_equal(c.bos_token_id, -1);
  assert_int_equal(c.num_eos_token_ids, 0);
  assert_int_equal(good("{" SIZES(3) ",\"num_key_value_heads\":null}").num_key_value_heads, 4);
}

static void every_key_is_read(void **state)
{
  (void)state;
  const tgi_config c =
      good("{" BASE ",\"head_dim\":10,\"rms_norm_eps\":1e-5,\"attention_bias\":true,\"hidden_act\":"
           "\"silu\",\"tie_word_embeddings\":true,\"initializer_range\":0.5,\"bos_token_id\":1,"
           "\"eos_token_id\":[2,3],\"torch_dtype\":\"bfloat16\",\"quantization_config\":null}");
  assert_int_equal(c.head_dim, 10);
  assert_true(c.norm_eps == 1e-5 && c.attention_bias && c.output_bias && c.tie_word_embeddings);
  assert_true(c.initializer_range == 0.5);
  assert_int_equal(c.bos_token_id, 1);
  assert_int_equal(c.num_eos_token_ids, 2);
  assert_int_equal(c.eos_token_ids[1], 3);
  assert_int_equal(c.dtype, TG_BF16);
}

static void rope_is_read_in_both_spellings(void **state)
{
  (void)state;
  tgi_config c = good("{" BASE ",\"rope_theta\":5e5,\"rope_scaling\":null}");
  assert_int_equal(c.rope.type, TG_ROPE_DEFAULT);
  assert_true(c.rope.theta == 5e5);
  c = good("{" BASE ",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
  assert_int_equal(c.rope.type, TG_ROPE_LINEAR);
  assert_true(c.rope.theta == 5e5 && c.rope.factor == 2);
  c = good("{" BASE
           ",\"rope_parameters\":{\"rope_type\":\"dynamic\",\"rope_theta\":100,\"factor\":3}}");
  assert_int_equal(c.rope.type, TG_ROPE_DYNAMIC);
  assert_true(c.rope.theta == 100 && c.rope.factor == 3);
  c = good("{" BASE
           ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
           "\"high_freq_factor\":4,\"original_max_position_embeddings\":20}}");
  assert_int_equal(c.rope.type, TG_ROPE_LLAMA3);
  assert_true(c.rope.theta == 1e4 && c.rope.factor == 8);
  assert_true(c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
  assert_int_equal(c.rope.original_max_position_embeddings, 20);
  c = good("{" BASE ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4}}");
  assert_int_equal(c.rope.type, TG_ROPE_YARN);
  assert_int_equal(c.rope.original_max_position_embeddings, 40); /* the model's positions */
  assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && c.rope.truncate);
  assert_true(c.rope.attention_factor == 0 && c.rope.mscale == 0 && c.rope.mscale_all_dim == 0);
  c = good("{" BASE
           ",\"original_max_position_embeddings\":16,\"rope_parameters\":{\"rope_type\":\"yarn\","
           "\"factor\":4,\"original_max_position_embeddings\":20,\"beta_fast\":16,\"beta_slow\":2,"
           "\"attention_factor\":1.5,\"mscale\":1,\"mscale_all_dim\":0.5,\"truncate\":false}}");
  assert_int_equal(c.rope.original_max_position_embeddings,
                   16); /* as transformers: outside first */
  assert_true(c.rope.beta_fast == 16 && c.rope.beta_slow == 2 && !c.rope.truncate);
  assert_true(c.rope.attention_factor == 1.5);
  assert_true(c.rope.mscale == 1 && c.rope.mscale_all_dim == 0.5);
  /* Of both, rope_scaling counts; an empty one does not. */
  c = good("{" BASE
           ",\"rope_parameters\":{\"rope_theta\":7},\"rope_scaling\":{\"rope_type\":\"default\"}}");
  assert_true(c.rope.theta == 1e4);
  c = good("{" BASE ",\"rope_parameters\":{\"rope_theta\":7},\"rope_scaling\":{}}");
  assert_true(c.rope.theta == 7);
}

/* Which of a model's three layers slide, as bits. */
static unsigned sliding(const char *keys, int32_t window)
{
  char text[1024];
  snprintf(text, sizeof text, "{" BASE ",%s}", keys);
  const tgi_config c = good(text);
  assert_int_equal(c.sliding_window, window);
  return (unsigned)c.sliding_layers[0];
}

static void windows_are_read(void **state)
{
  (void)state;
  assert_int_equal(sliding("\"sliding_window\":7,\"max_window_layers\":0", 0), 0);
  assert_int_equal(sliding("\"use_sliding_window\":true,\"sliding_window\":7", 0),
                   0); /* from 28 on */
#define USED "\"use_sliding_window\":true,"
  assert_int_equal(sliding(USED "\"sliding_window\":7,\"max_window_layers\":0", 7), 7);
  assert_int_equal(sliding(USED "\"sliding_window\":7,\"max_window_layers\":2", 7), 4);
  assert_int_equal(sliding(USED "\"sliding_window\":7,\"max_window_layers\":3", 0), 0);
  assert_int_equal(sliding(USED "\"max_window_layers\":1", 4096), 6);
  assert_int_equal(sliding(USED "\"sliding_window\":null,\"max_window_layers\":1", 0), 0);
  assert_int_equal(sliding(USED "\"sliding_window\":5,\"max_window_layers\":2,\"layer_types\":["
                                "\"sliding_attention\",\"full_attention\",\"sliding_attention\"]",
                           5),
                   5);
#undef USED
}

static void wrong_keys_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *keys;
    tg_status status;
    const char *message;
  } cases[] = {
      {"\"head_dim\":9", TG_BAD_FILE, "head_dim: expected an even width"},
      {"\"head_dim\":2,\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":2}", TG_BAD_FILE,
       "head_dim: expected an even width (with dynamic rope above 2), got 2"},
      {"\"hidden_act\":\"gelu\"", TG_UNSUPPORTED, "hidden_act: expected silu, got \"gelu\""},
      {"\"hidden_act\":3", TG_BAD_FILE, "hidden_act: expected a name, got 3"},
      {"\"rms_norm_eps\":0", TG_BAD_FILE, "rms_norm_eps: expected a number above 0"},
      {"\"attention_bias\":0", TG_BAD_FILE, "attention_bias: expected true or false, got 0"},
      {"\"quantization_config\":{\"quant_method\":\"fp8\"}", TG_UNSUPPORTED,
       "quantization_config: expected none, got {\"quant_method\":\"fp8\"}"},
      {"\"rope_theta\":1", TG_BAD_FILE,
       "rope_theta: expected a number above 1, at most 1e+12, got 1"},
      {"\"rope_scaling\":\"yarn\"", TG_BAD_FILE, "rope_scaling: expected an object, got \"yarn\""},
      {"\"rope_parameters\":[1]", TG_BAD_FILE, "rope_parameters: expected an object"},
      {"\"rope_parameters\":{\"rope_type\":\"longrope\"}", TG_UNSUPPORTED,
       "rope_parameters.rope_type: expected default, linear, dynamic, llama3 or yarn, got "
       "\"longrope\""},
      {"\"rope_scaling\":{\"type\":\"mrope\"}", TG_UNSUPPORTED,
       "rope_scaling.type: expected default"},
      {"\"rope_scaling\":{\"type\":4}", TG_BAD_FILE, "rope_scaling.type: expected a name, got 4"},
      {"\"rope_parameters\":{\"rope_theta\":0.5}", TG_BAD_FILE,
       "rope_parameters.rope_theta: expected a number above 1"},
      {"\"rope_parameters\":{\"rope_type\":\"linear\"}", TG_BAD_FILE,
       "rope_parameters.factor: expected a number, got none"},
      {"\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":0}", TG_BAD_FILE,
       "rope_parameters.factor: expected a number above 0"},
      {"\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2,\"beta_fast\":-1}", TG_BAD_FILE,
       "rope_parameters.beta_fast: expected a number above 0"},
      {"\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2,\"truncate\":1}", TG_BAD_FILE,
       "rope_parameters.truncate: expected true or false"},
      {"\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2,"
       "\"original_max_position_embeddings\":0.5}",
       TG_BAD_FILE, "rope_parameters.original_max_position_embeddings: expected an integer from 1"},
      {"\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":2,\"low_freq_factor\":4,"
       "\"high_freq_factor\":4}",
       TG_BAD_FILE, "rope_parameters.high_freq_factor: expected a number above 4"},
      {"\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":2,\"high_freq_factor\":4}",
       TG_BAD_FILE, "rope_parameters.low_freq_factor: expected a number, got none"},
      {"\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7}}", TG_UNSUPPORTED,
       "rope_parameters.full_attention: expected the same parameters for every layer"},
      {"\"rope_parameters\":{\"partial_rotary_factor\":0.5}", TG_UNSUPPORTED,
       "rope_parameters.partial_rotary_factor: expected 1, got 0.5"},
      {"\"partial_rotary_factor\":0.5", TG_UNSUPPORTED, "partial_rotary_factor: expected 1"},
      {"\"use_sliding_window\":1", TG_BAD_FILE, "use_sliding_window: expected true or false"},
      {"\"sliding_window\":-1", TG_BAD_FILE, "sliding_window: expected an integer from 1"},
      {"\"max_window_layers\":-1", TG_BAD_FILE, "max_window_layers: expected an integer from 0"},
      {"\"layer_types\":[\"full_attention\"]", TG_BAD_FILE,
       "layer_types: expected a list of one name for each of num_hidden_layers"},
      {"\"layer_types\":[\"full_attention\",\"full_attention\",\"linear_attention\"]",
       TG_UNSUPPORTED, "layer_types: expected full_attention or sliding_attention for every layer"},
      {"\"layer_types\":[\"full_attention\",\"full_attention\",\"sliding_attention\"]", TG_BAD_FILE,
       "layer_types: expected full_attention in a model without sliding_window"},
  };
  char text[1024];
  tgi_config c;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    snprintf(text, sizeof text, "{" BASE ",%s}", cases[i].keys);
    EXPECT_ERROR(parse(text, &c), cases[i].status, cases[i].message, error);
  }
  EXPECT_ERROR(parse("{" SIZES(3) "}", &c), TG_BAD_FILE,
               "num_key_value_heads: expected an integer from 1 to 4, got none", error);
  EXPECT_ERROR(parse("{" SIZES(3) ",\"num_key_value_heads\":3}", &c), TG_BAD_FILE,
               "num_key_value_heads: expected a divisor of num_attention_heads, got 3", error);
  EXPECT_ERROR(parse("{\"model_type\":\"qwen3\"}", &c), TG_BAD_FILE,
               "vocab_size: expected an integer from 1", error);
}

static void unwritable_configs_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "config.json");
  tgi_config start;
  EXPECT_OK(tgi_preset("qwen3_nano", 257, &start, &error), error);
#define REFUSED(change, status, part)                                                              \
  do {                                                                                             \
    tgi_config c = start;                                                                          \
    change;                                                                                        \
    EXPECT_ERROR(tgi_config_write(&c, path, &error), status, part, error);                         \
  } while (0)
  REFUSED(c.norm = TGI_LAYER_NORM, TG_UNSUPPORTED, "the keys of Qwen3 describe, got another norm");
  REFUSED((c.position = TGI_LEARNED_POSITIONS, c.rope.type = 0, c.qk_norm = false), TG_UNSUPPORTED,
          "another position");
  REFUSED(c.activation = TGI_GELU_ERF, TG_UNSUPPORTED, "another activation");
  REFUSED(c.scale_attn_weights = false, TG_UNSUPPORTED, "another scale of attention");
  REFUSED(c.scale_attn_by_inverse_layer_idx = true, TG_UNSUPPORTED, "another scale of attention");
  REFUSED(c.mlp_bias = true, TG_UNSUPPORTED, "another mlp_bias");
  REFUSED(c.output_bias = true, TG_UNSUPPORTED, "another output_bias");
  REFUSED(c.qk_norm = false, TG_UNSUPPORTED, "another qk_norm");
#define WRONG(change, part) REFUSED(change, TG_BAD_ARGUMENT, part)
  WRONG(c.head_dim = 9, "head_dim: expected an even width");
  WRONG(c.max_position_embeddings = 1 << 25, "max_position_embeddings: expected at most 2^24");
  WRONG(c.rope.type = 0, "rope.type: expected a type of rope");
  WRONG(c.rope.type = (tg_rope_type)6, "rope.type");
  WRONG(c.rope.theta = 1, "rope.theta: expected a number above 1");
  WRONG(c.rope.type = TG_ROPE_LINEAR, "rope.factor: expected a number above 0");
  WRONG((c.rope.type = TG_ROPE_DYNAMIC, c.rope.factor = 2, c.head_dim = 2), "head_dim: expected");
  start.rope.factor = 2;
  start.rope.type = TG_ROPE_LLAMA3;
  WRONG(c.rope.low_freq_factor = 1, "rope.original_max_position_embeddings: expected");
  start.rope.original_max_position_embeddings = 64;
  WRONG(c.rope.high_freq_factor = 1, "rope.low_freq_factor: expected a number above 0");
  WRONG(c.rope.low_freq_factor = c.rope.high_freq_factor = 2,
        "rope.high_freq_factor: expected a number above low_freq_factor");
  start.rope.type = TG_ROPE_YARN;
  WRONG(c.rope.beta_slow = 1, "rope.beta_fast: expected");
  WRONG(c.rope.beta_fast = 1, "rope.beta_slow: expected");
  start.rope.beta_fast = start.rope.beta_slow = 1;
  WRONG(c.rope.attention_factor = -1, "rope.attention_factor: expected");
  WRONG(c.rope.mscale = INFINITY, "rope.mscale: expected a finite number");
  WRONG(c.rope.mscale_all_dim = NAN, "rope.mscale_all_dim: expected a finite number");
  start.rope.type = TG_ROPE_DEFAULT;
  WRONG((c.sliding_window = 4, tgi_config_set_sliding(&c, 4)),
        "num_hidden_layers: expected every layer that slides, got 4");
  WRONG(tgi_config_set_sliding(&c, 3), "a window where a layer slides, 0 elsewhere");
#undef WRONG
#undef REFUSED
  assert_int_equal(count_entries(dir.path), 0);
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(optional_keys_have_the_defaults_of_transformers),
      cmocka_unit_test(every_key_is_read),
      cmocka_unit_test(rope_is_read_in_both_spellings),
      cmocka_unit_test(windows_are_read),
      cmocka_unit_test(wrong_keys_are_named),
      cmocka_unit_test(unwritable_configs_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
