/* config.json of GPT-OSS, Qwen3-MoE and Mixtral: defaults, both spellings, what is refused, what
 * is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/config/config.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdio.h>

static tg_error error;

#define SIZES                                                                                      \
  "\"vocab_size\":97,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":3,"         \
  "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":40"
#define OSS "\"model_type\":\"gpt_oss\"," SIZES
#define MIX "\"model_type\":\"mixtral\"," SIZES
#define MOE "\"model_type\":\"qwen3_moe\"," SIZES

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

static void gpt_oss_has_the_defaults_of_transformers(void **state)
{
  (void)state;
  const tgi_config c = good("{" OSS "}"); /* neither spelling of rope */
  assert_int_equal(c.model_type, TGI_MODEL_GPT_OSS);
  assert_int_equal(c.num_experts, 128);
  assert_int_equal(c.experts_per_token, 4);
  assert_int_equal(c.intermediate_size, 96);
  assert_int_equal(c.head_dim, 64);
  assert_int_equal(c.router, TG_ROUTER_SELECTED);
  assert_int_equal(c.activation, TGI_SWIGLU_CLAMPED);
  assert_true(c.swiglu_alpha == 1.702 && c.swiglu_limit == 7 && c.norm_eps == 1e-5);
  assert_true(c.attention_bias && c.output_bias && c.mlp_bias && c.router_bias);
  assert_true(c.sinks && c.norm_rounds_once && c.interleaved_experts && !c.qk_norm);
  assert_true(c.router_aux_loss_coef == 0.001 && !c.output_router_logits);
  assert_int_equal(c.sliding_window, 128);
  assert_int_equal(c.sliding_layers[0], 5);
  assert_int_equal(c.rope.type, TG_ROPE_YARN);
  assert_true(c.rope.theta == 150000 && c.rope.factor == 32 && !c.rope.truncate);
  assert_true(c.rope.original_max_position_embeddings == 4096);
  assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
}

static void every_key_of_gpt_oss_is_read(void **state)
{
  (void)state;
  tgi_config c = good(
      "{" OSS ",\"num_local_experts\":8,\"experts_per_token\":3,\"num_experts_per_tok\":3,"
      "\"head_dim\":10,\"attention_bias\":false,\"swiglu_limit\":2,\"swiglu_alpha\":1,"
      "\"sliding_window\":7,\"layer_types\":[\"full_attention\",\"sliding_attention\","
      "\"sliding_attention\"],\"router_aux_loss_coef\":0.9,\"output_router_logits\":true,"
      "\"tie_word_embeddings\":true,\"eos_token_id\":200002,\"rope_theta\":5e5,\"rope_scaling\":{"
      "\"rope_type\":\"yarn\",\"factor\":8,\"beta_fast\":30,\"beta_slow\":2,\"truncate\":false,"
      "\"original_max_position_embeddings\":20},\"initial_context_length\":20,"
      "\"quantization_config\":{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"a\"]}}");
  assert_int_equal(c.num_experts, 8);
  assert_int_equal(c.experts_per_token, 3);
  assert_true(!c.attention_bias && !c.output_bias && c.mlp_bias && c.tie_word_embeddings);
  assert_true(c.swiglu_limit == 2 && c.swiglu_alpha == 1);
  assert_true(c.router_aux_loss_coef == 0.9 && c.output_router_logits);
  assert_int_equal(c.sliding_window, 7);
  assert_int_equal(c.sliding_layers[0], 6);
  assert_true(c.rope.theta == 5e5 && c.rope.factor == 8 && c.rope.beta_fast == 30);
  assert_int_equal(c.rope.original_max_position_embeddings, 20);
  assert_int_equal(good("{" OSS ",\"experts_per_token\":2}").experts_per_token, 2);
  assert_int_equal(good("{" OSS ",\"num_experts\":9}").num_experts, 9);
  c = good("{" OSS ",\"rope_parameters\":{\"rope_type\":\"default\"},\"sliding_window\":null}");
  assert_true(c.rope.type == TG_ROPE_DEFAULT && c.rope.theta == 150000 && !c.sliding_window);
  c = good("{" OSS ",\"rope_theta\":7,\"rope_scaling\":null}");
  assert_true(c.rope.type == TG_ROPE_YARN && c.rope.theta == 7);
}

static void keys_of_qwen3_moe_are_read(void **state)
{
  (void)state;
  tgi_config c = good("{" MOE "}");
  assert_int_equal(c.model_type, TGI_MODEL_QWEN3_MOE);
  assert_int_equal(c.num_experts, 128);
  assert_int_equal(c.experts_per_token, 8);
  assert_int_equal(c.intermediate_size, 768);
  assert_int_equal(c.head_dim, 16); /* its class has no such key: the heads divide the width */
  assert_int_equal(c.router, TG_ROUTER_ALL);
  assert_int_equal(c.activation, TGI_SWIGLU);
  assert_true(c.qk_norm && !c.attention_bias && !c.mlp_bias && !c.router_bias && !c.sinks);
  assert_true(!c.norm_rounds_once && !c.interleaved_experts && c.sliding_window == 0);
  c = good("{" MOE ",\"num_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":24,"
           "\"norm_topk_prob\":true,\"decoder_sparse_step\":1,\"mlp_only_layers\":[],"
           "\"use_sliding_window\":true,\"sliding_window\":9,\"attention_bias\":true,"
           "\"head_dim\":32}");
  assert_int_equal(c.num_experts, 6);
  assert_int_equal(c.experts_per_token, 2);
  assert_int_equal(c.intermediate_size, 24);
  assert_int_equal(c.head_dim, 32);
  assert_int_equal(c.router, TG_ROUTER_RENORMALIZED);
  assert_int_equal(c.sliding_window, 9);
  assert_int_equal(c.sliding_layers[0], 7);
  assert_true(c.attention_bias && c.output_bias);
}

/* As in transformers: absent or null, it is YaRN's; an empty object is the default type. */
static void rope_of_gpt_oss_is_that_of_transformers(void **state)
{
  (void)state;
  assert_int_equal(good("{" OSS "}").rope.type, TG_ROPE_YARN);
  assert_int_equal(good("{" OSS ",\"rope_parameters\":null}").rope.type, TG_ROPE_YARN);
  assert_int_equal(good("{" OSS ",\"rope_scaling\":{}}").rope.type, TG_ROPE_YARN);
  tgi_config c = good("{" OSS ",\"rope_parameters\":{}}");
  assert_true(c.rope.type == TG_ROPE_DEFAULT && c.rope.theta == 150000);
  c = good("{" OSS ",\"rope_parameters\":{},\"rope_theta\":500}");
  assert_true(c.rope.type == TG_ROPE_DEFAULT && c.rope.theta == 500);
  c = good("{" MIX ",\"rope_parameters\":{}}");
  assert_true(c.rope.type == TG_ROPE_DEFAULT && c.rope.theta == 1e6);
}

static void keys_of_mixtral_are_read(void **state)
{
  (void)state;
  tgi_config c = good("{" MIX "}");
  assert_int_equal(c.num_experts, 8);
  assert_int_equal(c.experts_per_token, 2);
  assert_int_equal(c.intermediate_size, 96);
  assert_int_equal(c.router, TG_ROUTER_RENORMALIZED);
  assert_true(c.rope.type == TG_ROPE_DEFAULT && c.rope.theta == 1e6 && c.norm_eps == 1e-5);
  assert_true(!c.qk_norm && !c.attention_bias && !c.mlp_bias && !c.sinks && !c.sliding_window);
  assert_int_equal(c.bos_token_id, 1);
  assert_int_equal(c.eos_token_ids[0], 2);
  c = good("{" MIX ",\"sliding_window\":6,\"rope_theta\":500,\"rope_scaling\":null}");
  assert_int_equal(c.sliding_window, 6);
  assert_int_equal(c.sliding_layers[0], 7);
  assert_true(c.rope.theta == 500);
}

static void wrong_keys_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    tg_status status;
    const char *message;
  } cases[] = {
      {OSS ",\"num_local_experts\":4,\"num_experts_per_tok\":5", TG_BAD_FILE,
       "num_experts_per_tok: expected at most the number of experts, got 5"},
      {OSS ",\"num_local_experts\":4,\"experts_per_token\":5", TG_BAD_FILE,
       "experts_per_token: expected at most the number of experts, got 5"},
      {OSS ",\"num_local_experts\":3", TG_BAD_FILE,
       "c.json: num_experts_per_tok: expected at most the number of experts, 3 (the default is 4), "
       "got none"},
      {OSS ",\"num_local_experts\":0", TG_BAD_FILE, "num_local_experts: expected an integer from"},
      {OSS ",\"num_local_experts\":1000000", TG_BAD_FILE,
       "num_local_experts: expected a number that fits the width of experts"},
      {OSS ",\"num_experts_per_tok\":2,\"experts_per_token\":4", TG_BAD_FILE,
       "experts_per_token: expected the same number as num_experts_per_tok, got 4"},
      {OSS ",\"swiglu_limit\":0", TG_BAD_FILE, "swiglu_limit: expected a number above 0"},
      {OSS ",\"router_aux_loss_coef\":-1", TG_BAD_FILE,
       "router_aux_loss_coef: expected a number from 0 to 1000"},
      {OSS ",\"quantization_config\":{\"quant_method\":\"awq\"}", TG_UNSUPPORTED,
       "quantization_config.quant_method: expected mxfp4, got \"awq\""},
      {OSS ",\"quantization_config\":{}", TG_BAD_FILE,
       "quantization_config.quant_method: expected the name of a method"},
      {OSS ",\"quantization_config\":\"mxfp4\"", TG_BAD_FILE,
       "quantization_config: expected an object"},
      {OSS ",\"hidden_act\":\"gelu\"", TG_UNSUPPORTED, "hidden_act: expected silu"},
      {OSS ",\"layer_types\":[\"full_attention\"]", TG_BAD_FILE, "layer_types: expected a list"},
      {MOE ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}", TG_UNSUPPORTED,
       "quantization_config: expected none"},
      {MOE ",\"decoder_sparse_step\":2", TG_UNSUPPORTED,
       "decoder_sparse_step: expected 1 (experts in every layer), got 2"},
      {MOE ",\"mlp_only_layers\":[1]", TG_UNSUPPORTED,
       "mlp_only_layers: expected an empty list (experts in every layer), got [1]"},
      {MOE ",\"mlp_only_layers\":1", TG_BAD_FILE, "mlp_only_layers: expected a list of layers"},
      {MIX ",\"router_jitter_noise\":0.1", TG_UNSUPPORTED,
       "router_jitter_noise: expected 0, got 0.1"},
      {MIX ",\"num_local_experts\":1", TG_BAD_FILE, "expected at most the number of experts"},
      {MOE ",\"num_experts\":7", TG_BAD_FILE,
       "num_experts_per_tok: expected at most the number of experts, 7 (the default is 8), got "
       "none"},
      {MOE ",\"norm_topk_prob\":1", TG_BAD_FILE, "norm_topk_prob: expected true or false"},
  };
  char text[1024];
  tgi_config c;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    snprintf(text, sizeof text, "{%s}", cases[i].text);
    EXPECT_ERROR(parse(text, &c), cases[i].status, cases[i].message, error);
  }
}

static void assert_reads_back(const char *text, const char *path)
{
  const tgi_config c = good(text);
  tgi_config back;
  EXPECT_OK(tgi_config_write(&c, path, &error), error);
  EXPECT_OK(tgi_config_read(path, &back, &error), error);
#define SAME(field) assert_true(c.field == back.field)
  SAME(model_type);
  SAME(num_experts);
  SAME(experts_per_token);
  SAME(intermediate_size);
  SAME(head_dim);
  SAME(router);
  SAME(router_bias);
  SAME(router_aux_loss_coef);
  SAME(output_router_logits);
  SAME(activation);
  SAME(swiglu_alpha);
  SAME(swiglu_limit);
  SAME(attention_bias);
  SAME(output_bias);
  SAME(mlp_bias);
  SAME(sinks);
  SAME(qk_norm);
  SAME(norm_eps);
  SAME(norm_rounds_once);
  SAME(interleaved_experts);
  SAME(sliding_window);
  SAME(sliding_layers[0]);
  SAME(rope.type);
  SAME(rope.theta);
  SAME(rope.factor);
  SAME(rope.truncate);
#undef SAME
}

static void what_is_written_reads_back(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "config.json");
  assert_reads_back("{" OSS "}", path);
  assert_reads_back("{" OSS ",\"num_local_experts\":5,\"num_experts_per_tok\":2,\"swiglu_limit\":"
                    "0.1,\"swiglu_alpha\":1.3,\"attention_bias\":false,\"router_aux_loss_coef\":"
                    "0.9,\"output_router_logits\":true,\"sliding_window\":null}",
                    path);
  assert_reads_back("{" MOE "}", path);
  assert_reads_back("{" MOE ",\"num_experts\":9,\"num_experts_per_tok\":3,\"norm_topk_prob\":true,"
                    "\"use_sliding_window\":true,\"attention_bias\":true}",
                    path);
  assert_reads_back("{" MIX ",\"sliding_window\":6,\"num_local_experts\":5}", path);
  const tgi_config mix = good("{" MIX "}");
  const tgi_config oss = good("{" OSS "}"), moe = good("{" MOE "}");
#define REFUSED(from, change, status, part)                                                        \
  do {                                                                                             \
    tgi_config c = from;                                                                           \
    change;                                                                                        \
    EXPECT_ERROR(tgi_config_write(&c, path, &error), status, part, error);                         \
  } while (0)
  REFUSED(oss, c.sinks = false, TG_UNSUPPORTED, "another sinks");
  REFUSED(oss, c.router = TG_ROUTER_ALL, TG_UNSUPPORTED, "another router");
  REFUSED(oss, c.interleaved_experts = false, TG_UNSUPPORTED, "another layout of experts");
  REFUSED(oss, c.mlp_bias = false, TG_UNSUPPORTED, "another mlp_bias");
  REFUSED(oss, c.norm_rounds_once = false, TG_UNSUPPORTED, "another rounding of norms");
  REFUSED(moe, c.router = TG_ROUTER_SELECTED, TG_UNSUPPORTED, "another router");
  REFUSED(moe, c.sinks = true, TG_UNSUPPORTED, "another sinks");
  REFUSED(moe, c.mlp_bias = true, TG_UNSUPPORTED, "another mlp_bias");
  REFUSED(moe, (c.sliding_window = 4, tgi_config_set_sliding(&c, 1)), TG_UNSUPPORTED,
          "another sliding_window");
  REFUSED(mix, c.router = TG_ROUTER_ALL, TG_UNSUPPORTED, "another router");
  REFUSED(mix, c.qk_norm = true, TG_UNSUPPORTED, "another qk_norm");
  REFUSED(mix, c.attention_bias = true, TG_UNSUPPORTED, "another attention_bias");
  REFUSED(oss, c.experts_per_token = 129, TG_BAD_ARGUMENT, "experts_per_token: expected 1 to");
  REFUSED(oss, c.swiglu_alpha = 0, TG_BAD_ARGUMENT, "swiglu_alpha: expected a number above 0");
  REFUSED(moe, c.swiglu_limit = 1, TG_BAD_ARGUMENT, "swiglu_limit: expected");
  REFUSED(moe, c.activation = TGI_GELU_ERF, TG_BAD_ARGUMENT, "activation: expected swiglu or");
  REFUSED(moe, c.num_experts = 1 << 20, TG_BAD_ARGUMENT, "num_experts: expected a number that");
  REFUSED(moe, c.num_experts = 0, TG_BAD_ARGUMENT, "experts_per_token: expected");
#undef REFUSED
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt_oss_has_the_defaults_of_transformers),
      cmocka_unit_test(every_key_of_gpt_oss_is_read),
      cmocka_unit_test(keys_of_qwen3_moe_are_read),
      cmocka_unit_test(rope_of_gpt_oss_is_that_of_transformers),
      cmocka_unit_test(keys_of_mixtral_are_read),
      cmocka_unit_test(wrong_keys_are_named),
      cmocka_unit_test(what_is_written_reads_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
