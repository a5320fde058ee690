/* config.json in and out; GPT-2's keys. */
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
#include <stdlib.h>

static tg_error error;

#define BASE                                                                                       \
  "\"model_type\":\"gpt2\",\"n_embd\":48,\"n_layer\":3,\"n_head\":3,\"n_positions\":128,\"vocab_"  \
  "size\":257"

static tg_status parse(const char *text, tgi_config *config)
{
  return tgi_config_parse("c.json", text, strlen(text), config, &error);
}

static void optional_keys_have_the_defaults_of_transformers(void **state)
{
  (void)state;
  tgi_config c;
  EXPECT_OK(parse("{" BASE "}", &c), error);
  assert_int_equal(c.model_type, TGI_MODEL_GPT2);
  assert_int_equal(c.dtype, TG_F32);
  assert_int_equal(c.vocab_size, 257);
  assert_int_equal(c.num_hidden_layers, 3);
  assert_int_equal(c.hidden_size, 48);
  assert_int_equal(c.num_attention_heads, 3);
  assert_int_equal(c.num_key_value_heads, 3);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.intermediate_size, 192);
  assert_int_equal(c.max_position_embeddings, 128);
  assert_int_equal(c.norm, TGI_LAYER_NORM);
  assert_true(c.norm_eps == 1e-5);
  assert_int_equal(c.position, TGI_LEARNED_POSITIONS);
  assert_int_equal(c.activation, TGI_GELU_TANH);
  assert_true(c.scale_attn_weights && !c.scale_attn_by_inverse_layer_idx);
  assert_true(c.attention_bias && c.output_bias && c.mlp_bias);
  assert_true(c.tie_word_embeddings && !c.qk_norm);
  assert_true(c.initializer_range == 0.02);
  assert_int_equal(c.sliding_window, 0);
  assert_int_equal(c.bos_token_id, 50256);
  assert_int_equal(c.num_eos_token_ids, 1);
  assert_int_equal(c.eos_token_ids[0], 50256);
  EXPECT_OK(tgi_config_check(&c, &error), error);
}

static void every_key_is_read(void **state)
{
  (void)state;
  tgi_config c;
  EXPECT_OK(parse("{" BASE
                  ",\"n_inner\":100,\"layer_norm_epsilon\":1e-6,\"activation_function\":\"gelu\","
                  "\"scale_attn_weights\":false,\"scale_attn_by_inverse_layer_idx\":true,"
                  "\"tie_word_embeddings\":false,\"initializer_range\":1,\"bos_token_id\":null,"
                  "\"eos_token_id\":[3,5],\"dtype\":\"bfloat16\",\"model_max_length\":"
                  "1000000000000000019884624838656}",
                  &c),
            error);
  assert_int_equal(c.intermediate_size, 100);
  assert_true(c.norm_eps == 1e-6);
  assert_int_equal(c.activation, TGI_GELU_ERF);
  assert_true(!c.scale_attn_weights && c.scale_attn_by_inverse_layer_idx && !c.tie_word_embeddings);
  assert_true(c.initializer_range == 1);
  assert_int_equal(c.bos_token_id, -1);
  assert_int_equal(c.num_eos_token_ids, 2);
  assert_int_equal(c.eos_token_ids[1], 5);
  assert_int_equal(c.dtype, TG_BF16);
  EXPECT_OK(parse("{" BASE ",\"n_inner\":null,\"eos_token_id\":null,\"torch_dtype\":\"float16\","
                  "\"activation_function\":\"gelu_pytorch_tanh\"}",
                  &c),
            error);
  assert_int_equal(c.intermediate_size, 192);
  assert_int_equal(c.num_eos_token_ids, 0);
  assert_int_equal(c.dtype, TG_F16);
  assert_int_equal(c.activation, TGI_GELU_TANH);
  EXPECT_OK(parse("{\"model_type\":\"gpt2\",\"n_embd\":48,\"n_layer\":3,\"n_head\":3,\"n_ctx\":64,"
                  "\"vocab_size\":9}",
                  &c),
            error);
  assert_int_equal(c.max_position_embeddings, 64);
}

static void wrong_keys_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    tg_status status;
    const char *message;
  } cases[] = {
      {"[]", TG_BAD_FILE, "c.json: expected an object, got []"},
      {"{}", TG_BAD_FILE, "c.json: model_type: expected the name of a model family, got none"},
      {"{\"model_type\":7}", TG_BAD_FILE, "model_type: expected the name of a model family, got 7"},
      {"{\"model_type\":\"bert\"}", TG_UNSUPPORTED,
       "model_type: expected \"gpt2\" or \"llama\" or \"qwen2\" or \"qwen3\" or "
       "\"qwen3_moe\" or \"mixtral\" or \"gpt_oss\", got \"bert\""},
      {"{\"model_type\":\"gpt2\"}", TG_BAD_FILE,
       "n_embd: expected an integer from 1 to 1048576, got none"},
      {"{" BASE ",\"n_inner\":0}", TG_BAD_FILE,
       "n_inner: expected an integer from 1 to 16777216, got 0"},
      {"{" BASE ",\"n_inner\":1.5}", TG_BAD_FILE,
       "n_inner: expected an integer from 1 to 16777216, got 1.5"},
      {"{" BASE ",\"n_inner\":\"12\"}", TG_BAD_FILE, "got \"12\""},
      {"{" BASE ",\"n_inner\":99999999999}", TG_BAD_FILE, "got 99999999999"},
      {"{" BASE ",\"layer_norm_epsilon\":0}", TG_BAD_FILE,
       "layer_norm_epsilon: expected a number above 0, at most 1000, got 0"},
      {"{" BASE ",\"layer_norm_epsilon\":1e400}", TG_BAD_FILE, "real number overflow near '1e400'"},
      {"{" BASE ",\"layer_norm_epsilon\":\"x\"}", TG_BAD_FILE, "layer_norm_epsilon"},
      {"{" BASE ",\"initializer_range\":-1}", TG_BAD_FILE, "initializer_range"},
      {"{" BASE ",\"activation_function\":\"relu\"}", TG_UNSUPPORTED,
       "activation_function: expected gelu_new, gelu_pytorch_tanh or gelu, got \"relu\""},
      {"{" BASE ",\"activation_function\":3}", TG_BAD_FILE, "activation_function"},
      {"{" BASE ",\"tie_word_embeddings\":1}", TG_BAD_FILE,
       "tie_word_embeddings: expected true or false, got 1"},
      {"{" BASE ",\"scale_attn_weights\":\"yes\"}", TG_BAD_FILE, "scale_attn_weights"},
      {"{" BASE ",\"scale_attn_by_inverse_layer_idx\":[]}", TG_BAD_FILE,
       "scale_attn_by_inverse_layer_idx"},
      {"{" BASE ",\"add_cross_attention\":true}", TG_UNSUPPORTED,
       "add_cross_attention: expected false, got true"},
      {"{" BASE ",\"dtype\":\"float8\"}", TG_UNSUPPORTED,
       "dtype: expected float32, float16 or bfloat16, got \"float8\""},
      {"{" BASE ",\"torch_dtype\":8}", TG_BAD_FILE,
       "torch_dtype: expected the name of a dtype, got 8"},
      {"{" BASE ",\"bos_token_id\":-1}", TG_BAD_FILE, "bos_token_id"},
      {"{" BASE ",\"eos_token_id\":\"x\"}", TG_BAD_FILE, "eos_token_id"},
      {"{" BASE ",\"eos_token_id\":[1,-2]}", TG_BAD_FILE,
       "eos_token_id: expected at most 8 integers"},
      {"{" BASE ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", TG_BAD_FILE,
       "eos_token_id: expected at most 8 integers"},
      {"{\"model_type\":\"gpt2\",\"n_embd\":48,\"n_layer\":3,\"n_head\":5,\"n_positions\":1,"
       "\"vocab_size\":1}",
       TG_BAD_FILE, "n_head: expected a divisor of n_embd, got 5"},
      {"{\"model_type\":\"gpt2\",\"n_embd\":48,\"n_layer\":3,\"n_head\":0,\"n_positions\":1,"
       "\"vocab_size\":1}",
       TG_BAD_FILE, "n_head: expected an integer from 1"},
      {"{\"model_type\":\"gpt2\",\"n_embd\":48,\"n_layer\":3,\"n_head\":3,\"vocab_size\":1}",
       TG_BAD_FILE, "n_positions: expected an integer from 1 to 268435456, got none"},
      {"{\"model_type\":\"gpt2\",\"n_embd\":null,\"n_layer\":3}", TG_BAD_FILE,
       "n_embd: expected an integer from 1 to 1048576, got null"},
      {"{" BASE, TG_BAD_FILE, "expected JSON, got this error: '}' expected near end of file"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_config c;
    EXPECT_ERROR(parse(cases[i].text, &c), cases[i].status, cases[i].message, error);
  }
}

/** Field by field: padding has no say. */
static void assert_same(const tgi_config *a, const tgi_config *b)
{
#define SAME(field)                                                                                \
  if (a->field != b->field)                                                                        \
    fail_msg(#field ": expected %.17g, got %.17g", (double)a->field, (double)b->field);
  SAME(model_type)
  SAME(dtype)
  SAME(vocab_size)
  SAME(num_hidden_layers)
  SAME(hidden_size)
  SAME(num_attention_heads)
  SAME(num_key_value_heads)
  SAME(head_dim)
  SAME(intermediate_size)
  SAME(max_position_embeddings)
  SAME(norm)
  SAME(norm_eps)
  SAME(position)
  SAME(rope.type)
  SAME(rope.theta)
  SAME(rope.factor)
  SAME(rope.original_max_position_embeddings)
  SAME(rope.low_freq_factor)
  SAME(rope.high_freq_factor)
  SAME(rope.beta_fast)
  SAME(rope.beta_slow)
  SAME(rope.attention_factor)
  SAME(rope.mscale)
  SAME(rope.mscale_all_dim)
  SAME(rope.truncate)
  SAME(activation)
  SAME(scale_attn_weights)
  SAME(scale_attn_by_inverse_layer_idx)
  SAME(attention_bias)
  SAME(output_bias)
  SAME(mlp_bias)
  SAME(qk_norm)
  SAME(tie_word_embeddings)
  SAME(sliding_window)
  SAME(initializer_range)
  SAME(bos_token_id)
  SAME(num_eos_token_ids)
  for (int i = 0; i < a->num_eos_token_ids; i++) {
    SAME(eos_token_ids[i])
  }
  for (int i = 0; i < TGI_MAX_LAYERS / 64; i++) {
    SAME(sliding_layers[i])
  }
#undef SAME
}

static void assert_reads_back(const tgi_config *config, const char *path)
{
  tgi_config back;
  EXPECT_OK(tgi_config_write(config, path, &error), error);
  EXPECT_OK(tgi_config_read(path, &back, &error), error);
  assert_same(config, &back);
}

static void written_configs_read_back(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "config.json");
  tgi_config c = {0};
  for (size_t i = 0; tgi_preset_name(i); i++) {
    EXPECT_OK(tgi_preset(tgi_preset_name(i), i % 2 ? 257 : 0, &c, &error), error);
    assert_reads_back(&c, path);
  }
  EXPECT_OK(tgi_preset("gpt2", 0, &c, &error), error);
  c.intermediate_size = 77;
  c.dtype = TG_BF16;
  c.activation = TGI_GELU_ERF;
  c.norm_eps = 1.25e-7;
  c.initializer_range = 0.1 / 3;
  c.scale_attn_weights = false;
  c.scale_attn_by_inverse_layer_idx = true;
  c.tie_word_embeddings = false;
  c.bos_token_id = -1;
  for (c.num_eos_token_ids = 0; c.num_eos_token_ids <= TGI_MAX_EOS_IDS; c.num_eos_token_ids++) {
    assert_reads_back(&c, path);
  }
  assert_int_equal(count_entries(dir.path), 1);
  scratch_remove(&dir);
}

static void written_ropes_and_windows_read_back(void **state)
{
  (void)state;
  static const tg_rope_parameters ropes[] = {
      {.type = TG_ROPE_DEFAULT, .theta = 1.5},
      {.type = TG_ROPE_LINEAR, .theta = 1e4, .factor = 0.1 / 3},
      {.type = TG_ROPE_DYNAMIC, .theta = 5e5, .factor = 2},
      {.type = TG_ROPE_LLAMA3,
       .theta = 5e5,
       .factor = 8,
       .original_max_position_embeddings = 8192,
       .low_freq_factor = 1,
       .high_freq_factor = 4},
      {.type = TG_ROPE_YARN,
       .theta = 1e6,
       .factor = 4,
       .original_max_position_embeddings = 32768,
       .beta_fast = 32,
       .beta_slow = 1,
       .truncate = true},
      {.type = TG_ROPE_YARN,
       .theta = 1.5e5,
       .factor = 32,
       .original_max_position_embeddings = 4096,
       .beta_fast = 16,
       .beta_slow = 0.5,
       .attention_factor = 1.25,
       .mscale = 1,
       .mscale_all_dim = 0.707},
  };
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "config.json");
  tgi_config c;
  EXPECT_OK(tgi_preset("qwen3_nano", 257, &c, &error), error);
  for (size_t i = 0; i < sizeof ropes / sizeof ropes[0]; i++) {
    c.rope = ropes[i];
    assert_reads_back(&c, path);
  }
  c.attention_bias = true;
  c.output_bias = true;
  c.tie_word_embeddings = false;
  c.num_key_value_heads = 1;
  c.head_dim = 6;
  c.num_hidden_layers = 130;
  c.sliding_window = 9;
  for (int first = 0; first < 130; first += 64) { /* one layer, and all from there on */
    memset(c.sliding_layers, 0, sizeof c.sliding_layers);
    tgi_config_set_sliding(&c, first);
    assert_reads_back(&c, path);
    for (int i = first; i < 130; i++) {
      tgi_config_set_sliding(&c, i);
    }
    assert_reads_back(&c, path);
  }
  scratch_remove(&dir);
}

static void unwritable_configs_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "config.json");
  tgi_config good;
  EXPECT_OK(tgi_preset("gpt_nano", 257, &good, &error), error);
#define REFUSED(change, status, part)                                                              \
  do {                                                                                             \
    tgi_config c = good;                                                                           \
    change;                                                                                        \
    EXPECT_ERROR(tgi_config_write(&c, path, &error), status, part, error);                         \
  } while (0)
  REFUSED(c.model_type = TGI_MODEL_TYPES, TG_BAD_ARGUMENT, "config: model_type: expected");
  REFUSED(c.dtype = TG_F64, TG_BAD_ARGUMENT, "config: dtype: expected f32, f16 or bf16, got 4");
  REFUSED(c.vocab_size = 0, TG_BAD_ARGUMENT, "config: vocab_size: expected an extent from 1 to");
  REFUSED(c.num_hidden_layers = -1, TG_BAD_ARGUMENT, "num_hidden_layers");
  REFUSED(c.hidden_size = 0, TG_BAD_ARGUMENT, "hidden_size");
  REFUSED(c.num_attention_heads = 0, TG_BAD_ARGUMENT, "num_attention_heads");
  REFUSED(c.num_key_value_heads = 0, TG_BAD_ARGUMENT, "num_key_value_heads");
  REFUSED(c.num_key_value_heads = 2, TG_BAD_ARGUMENT, "a divisor of num_attention_heads, got 2");
  REFUSED(c.head_dim = 0, TG_BAD_ARGUMENT, "head_dim");
  REFUSED(c.head_dim = 1 << 20, TG_UNSUPPORTED, "another head_dim");
  REFUSED((c.head_dim = 1 << 20, c.num_attention_heads = 1 << 20, c.num_key_value_heads = 1),
          TG_BAD_ARGUMENT, "a width that fits its number of heads");
  REFUSED(c.intermediate_size = 0, TG_BAD_ARGUMENT, "intermediate_size");
  REFUSED(c.max_position_embeddings = 0, TG_BAD_ARGUMENT, "max_position_embeddings");
  REFUSED(c.norm = (tgi_norm)7, TG_BAD_ARGUMENT, "norm: expected");
  REFUSED(c.norm_eps = NAN, TG_BAD_ARGUMENT, "norm_eps");
  REFUSED(c.norm_eps = 0, TG_BAD_ARGUMENT, "norm_eps");
  REFUSED(c.position = (tgi_position)7, TG_BAD_ARGUMENT, "position: expected");
  REFUSED(c.rope.type = TG_ROPE_DEFAULT, TG_BAD_ARGUMENT, "rope.type: expected 0 without rope");
  REFUSED(c.activation = (tgi_activation)7, TG_BAD_ARGUMENT, "activation");
  REFUSED(c.sliding_window = -1, TG_BAD_ARGUMENT, "sliding_window");
  REFUSED(c.initializer_range = INFINITY, TG_BAD_ARGUMENT, "initializer_range");
  REFUSED(c.bos_token_id = -2, TG_BAD_ARGUMENT, "bos_token_id");
  REFUSED(c.num_eos_token_ids = 9, TG_BAD_ARGUMENT, "num_eos_token_ids");
  REFUSED(c.eos_token_ids[0] = -1, TG_BAD_ARGUMENT, "eos_token_ids[i]: expected an id");
  REFUSED(c.norm = TGI_RMS_NORM, TG_UNSUPPORTED, "the keys of GPT-2 describe, got another norm");
  REFUSED((c.position = TGI_ROPE, c.rope.type = TG_ROPE_DEFAULT, c.rope.theta = 1e4),
          TG_UNSUPPORTED, "another position");
  REFUSED(c.activation = TGI_SWIGLU, TG_UNSUPPORTED, "another activation");
  REFUSED(c.num_key_value_heads = 1, TG_UNSUPPORTED, "another num_key_value_heads");
  REFUSED(c.head_dim = 8, TG_UNSUPPORTED, "another head_dim");
  REFUSED(c.mlp_bias = false, TG_UNSUPPORTED, "mlp_bias");
  REFUSED(c.output_bias = false, TG_UNSUPPORTED, "output_bias");
  REFUSED(c.qk_norm = true, TG_BAD_ARGUMENT, "qk_norm: expected false without rope");
  REFUSED(c.sliding_window = 4, TG_BAD_ARGUMENT, "a window where a layer slides, 0 elsewhere");
  REFUSED((c.sliding_window = 4, tgi_config_set_sliding(&c, 1)), TG_UNSUPPORTED, "sliding_window");
#undef REFUSED
  assert_int_equal(count_entries(dir.path), 0);
  EXPECT_ERROR(tgi_config_write(&good, scratch_file(&dir, "no/config.json"), &error), TG_IO,
               "create a temporary file", error);
  tgi_config c;
  EXPECT_ERROR(tgi_config_read(path, &c, &error), TG_IO, "/config.json: expected to open it",
               error);
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(optional_keys_have_the_defaults_of_transformers),
      cmocka_unit_test(every_key_is_read),
      cmocka_unit_test(wrong_keys_are_named),
      cmocka_unit_test(written_configs_read_back),
      cmocka_unit_test(written_ropes_and_windows_read_back),
      cmocka_unit_test(unwritable_configs_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
