/* config.json of Llama and Qwen2: where they differ from Qwen3, whose keys test_config_qwen3 has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/config/config.h"
#include "model/preset.h"
#include "model/weights/parameters.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static tg_error error;

#define BASE(type)                                                                                 \
  "\"model_type\":\"" type "\",\"vocab_size\":97,\"hidden_size\":64,\"intermediate_size\":96,"     \
  "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"max_position_embeddings\":40"
#define QWEN2 BASE("qwen2") ",\"num_key_value_heads\":2"

static tgi_config good(const char *text)
{
  tgi_config c;
  EXPECT_OK(tgi_config_parse("c.json", text, strlen(text), &c, &error), error);
  EXPECT_OK(tgi_config_check(&c, &error), error);
  return c;
}

static void expect_refusal(const char *text, tg_status status, const char *part)
{
  tgi_config c;
  EXPECT_ERROR(tgi_config_parse("c.json", text, strlen(text), &c, &error), status, part, error);
}

static void llama_has_the_defaults_of_transformers(void **state)
{
  (void)state;
  tgi_config c = good("{" BASE("llama") "}");
  assert_int_equal(c.model_type, TGI_MODEL_LLAMA);
  assert_int_equal(c.num_key_value_heads, 4);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.norm, TGI_RMS_NORM);
  assert_true(c.norm_eps == 1e-6 && c.rope.theta == 1e4);
  assert_int_equal(c.activation, TGI_SWIGLU);
  assert_true(!c.attention_bias && !c.output_bias && !c.mlp_bias && !c.qk_norm);
  assert_true(c.scale_attn_weights && !c.tie_word_embeddings);
  assert_int_equal(c.sliding_window, 0);
  assert_int_equal(c.bos_token_id, 1);
  assert_int_equal(c.num_eos_token_ids, 1);
  assert_int_equal(c.eos_token_ids[0], 2);
  c = good("{" BASE("llama") ",\"num_key_value_heads\":null,\"bos_token_id\":null,"
                             "\"eos_token_id\":null}");
  assert_int_equal(c.num_key_value_heads, 4);
  assert_int_equal(c.bos_token_id, -1);
  assert_int_equal(c.num_eos_token_ids, 0);
}

static void llama_3_is_read(void **state)
{
  (void)state;
  const tgi_config c =
      good("{" BASE("llama") ",\"num_key_value_heads\":2,\"head_dim\":32,\"attention_bias\":true,"
                             "\"mlp_bias\":true,\"pretraining_tp\":1,\"tie_word_embeddings\":true,"
                             "\"rms_norm_eps\":1e-5,\"bos_token_id\":7,\"eos_token_id\":[8,9,10],"
                             "\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":32.0,"
                             "\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
                             "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
                             "\"torch_dtype\":\"bfloat16\"}");
  assert_int_equal(c.head_dim, 32);
  assert_true(c.attention_bias && c.output_bias && c.mlp_bias && c.tie_word_embeddings);
  assert_int_equal(c.num_eos_token_ids, 3);
  assert_int_equal(c.eos_token_ids[2], 10);
  assert_int_equal(c.rope.type, TG_ROPE_LLAMA3);
  assert_true(c.rope.factor == 32 && c.rope.theta == 5e5 && c.norm_eps == 1e-5);
  assert_int_equal(c.dtype, TG_BF16);
}

static void qwen2_has_biases_of_q_k_and_v_alone(void **state)
{
  (void)state;
  tgi_config c = good("{" QWEN2 "}");
  assert_int_equal(c.model_type, TGI_MODEL_QWEN2);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.bos_token_id, -1);
  assert_int_equal(c.num_eos_token_ids, 0);
  assert_true(c.attention_bias && !c.output_bias && !c.mlp_bias && !c.qk_norm);
  tgi_parameters p;
  EXPECT_OK(tgi_parameters_create(&c, &p, &error), error);
  int biases = 0;
  for (int i = 0; i < p.count; i++) {
    biases += strstr(p.list[i].name, ".bias") != NULL;
    assert_null(strstr(p.list[i].name, "o_proj.bias"));
    assert_null(strstr(p.list[i].name, "q_norm"));
  }
  assert_int_equal(biases, 3 * 3);
  tgi_parameters_free(&p);
  c = good("{" QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":7,\"max_window_layers\":2}");
  assert_int_equal(c.sliding_window, 7);
  assert_int_equal(c.sliding_layers[0], 4);
  c = good("{" QWEN2 ",\"use_sliding_window\":false,\"sliding_window\":7,"
           "\"max_window_layers\":2}");
  assert_int_equal(c.sliding_window, 0);
}

static void wrong_keys_are_named(void **state)
{
  (void)state;
  expect_refusal("{" BASE("llama") ",\"mlp_bias\":1}", TG_BAD_FILE,
                 "mlp_bias: expected true or false, got 1");
  expect_refusal("{" BASE("llama") ",\"hidden_act\":\"gelu\"}", TG_UNSUPPORTED,
                 "hidden_act: expected silu");
  expect_refusal("{" BASE("llama") ",\"quantization_config\":{}}", TG_UNSUPPORTED,
                 "quantization_config: expected none");
  expect_refusal("{" BASE("qwen2") "}", TG_BAD_FILE,
                 "num_key_value_heads: expected an integer from 1 to 4, got none");
  expect_refusal("{\"model_type\":\"llama\",\"vocab_size\":97,\"hidden_size\":64,"
                 "\"intermediate_size\":96,\"num_hidden_layers\":3,\"num_attention_heads\":5,"
                 "\"max_position_embeddings\":40}",
                 TG_BAD_FILE,
                 "num_attention_heads: expected a divisor of hidden_size (or a head_dim), got 5");
}

static void assert_reads_back(const tgi_config *config, const char *path)
{
  tgi_config back;
  EXPECT_OK(tgi_config_write(config, path, &error), error);
  EXPECT_OK(tgi_config_read(path, &back, &error), error);
  assert_int_equal(back.model_type, config->model_type);
  assert_int_equal(back.head_dim, config->head_dim);
  assert_int_equal(back.num_key_value_heads, config->num_key_value_heads);
  assert_int_equal(back.attention_bias, config->attention_bias);
  assert_int_equal(back.output_bias, config->output_bias);
  assert_int_equal(back.mlp_bias, config->mlp_bias);
  assert_int_equal(back.sliding_window, config->sliding_window);
  assert_int_equal(back.sliding_layers[0], config->sliding_layers[0]);
  assert_true(back.rope.factor == config->rope.factor);
}

static void written_biases_and_heads_read_back(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "config.json");
  tgi_config c;
  EXPECT_OK(tgi_preset("llama-3.2-1b", 257, &c, &error), error);
  c.head_dim = 22;
  for (int bits = 0; bits < 4; bits++) {
    c.attention_bias = c.output_bias = bits & 1;
    c.mlp_bias = bits & 2;
    assert_reads_back(&c, path);
  }
  EXPECT_OK(tgi_preset("qwen2.5-0.5b", 257, &c, &error), error);
  assert_reads_back(&c, path);
  c.head_dim = 22;
  c.sliding_window = 5;
  tgi_config_set_sliding(&c, 3);
  assert_reads_back(&c, path);
  scratch_remove(&dir);
}

static void unwritable_configs_are_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "config.json");
  tgi_config llama, qwen2;
  EXPECT_OK(tgi_preset("llama-3.1-8b", 257, &llama, &error), error);
  EXPECT_OK(tgi_preset("qwen2.5-0.5b", 257, &qwen2, &error), error);
#define REFUSED(start, change, part)                                                               \
  do {                                                                                             \
    tgi_config c = start;                                                                          \
    change;                                                                                        \
    EXPECT_ERROR(tgi_config_write(&c, path, &error), TG_UNSUPPORTED, part, error);                 \
  } while (0)
  REFUSED(llama, c.qk_norm = true, "the keys of Llama describe, got another qk_norm");
  REFUSED(llama, c.attention_bias = true, "another output_bias");
  REFUSED(llama, (c.sliding_window = 4, tgi_config_set_sliding(&c, 1)), "another sliding_window");
  REFUSED(llama, c.norm = TGI_LAYER_NORM, "another norm");
  REFUSED(qwen2, c.qk_norm = true, "the keys of Qwen2 describe, got another qk_norm");
  REFUSED(qwen2, c.attention_bias = false, "another attention_bias");
  REFUSED(qwen2, c.output_bias = true, "another output_bias");
  REFUSED(qwen2, c.mlp_bias = true, "another mlp_bias");
#undef REFUSED
  assert_int_equal(count_entries(dir.path), 0);
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(llama_has_the_defaults_of_transformers),
      cmocka_unit_test(llama_3_is_read),
      cmocka_unit_test(qwen2_has_biases_of_q_k_and_v_alone),
      cmocka_unit_test(wrong_keys_are_named),
      cmocka_unit_test(written_biases_and_heads_read_back),
      cmocka_unit_test(unwritable_configs_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
