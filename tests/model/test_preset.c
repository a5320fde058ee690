/* The presets: sizes as documented. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/preset.h"
#include "model/weights/parameters.h"
#include <cmocka.h>

static tg_error error;

static void gpt2_presets_have_the_documented_sizes(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    int layers, heads, hidden, positions;
  } sizes[] = {{"gpt_nano", 3, 3, 48, 128},         {"gpt_micro", 4, 4, 128, 256},
               {"gpt_mini", 6, 6, 192, 256},        {"gpt2", 12, 12, 768, 1024},
               {"gpt2-medium", 24, 16, 1024, 1024}, {"gpt2-large", 36, 20, 1280, 1024},
               {"gpt2-xl", 48, 25, 1600, 1024},     {"gpt_tile_small", 4, 4, 64, 128},
               {"gpt_tile_medium", 6, 4, 128, 256}, {"gpt_tile_large", 8, 8, 256, 512}};
  const size_t count = sizeof sizes / sizeof sizes[0];
  tgi_config c;
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(tgi_preset_name(i), sizes[i].name);
    EXPECT_OK(tgi_preset(sizes[i].name, 0, &c, &error), error);
    assert_int_equal(c.num_hidden_layers, sizes[i].layers);
    assert_int_equal(c.num_attention_heads, sizes[i].heads);
    assert_int_equal(c.hidden_size, sizes[i].hidden);
    assert_int_equal(c.head_dim * c.num_attention_heads, c.hidden_size);
    assert_int_equal(c.intermediate_size, 4 * sizes[i].hidden);
    assert_int_equal(c.max_position_embeddings, sizes[i].positions);
    assert_int_equal(c.vocab_size, 50257);
    assert_int_equal(c.eos_token_ids[0], 50256);
  }
  EXPECT_OK(tgi_preset("gpt_mini", 257, &c, &error), error);
  assert_int_equal(c.vocab_size, 257);
  assert_int_equal(c.bos_token_id, 256);
  EXPECT_ERROR(
      tgi_preset("gpt3", 0, &c, &error), TG_BAD_ARGUMENT,
      "preset: name: expected one of gpt_nano, gpt_micro, gpt_mini, gpt2, gpt2-medium, gpt2-large, "
      "gpt2-xl, gpt_tile_small, gpt_tile_medium, gpt_tile_large, qwen3_nano, qwen3-0.6b, "
      "qwen3-1.7b, "
      "qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, qwen2.5-0.5b, llama-3.2-1b, llama-3.2-3b, "
      "llama-3.1-8b, qwen3_moe_nano, qwen3-30b-a3b, qwen3-235b-a22b, mixtral-8x7b, gpt_oss_nano, "
      "gpt-oss-20b, gpt-oss-120b, got gpt3",
      error);
  EXPECT_ERROR(tgi_preset("gpt2", -5, &c, &error), TG_BAD_ARGUMENT, "vocab_size", error);
  assert_int_equal(tgi_preset("gpt3", 0, &c, NULL), TG_BAD_ARGUMENT);
}

static void qwen3_presets_have_the_documented_sizes(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    int layers, heads, kv_heads, head_dim, hidden, intermediate, positions;
    bool tied;
    int64_t parameters; /* as transformers counts them, at the vocabulary of the family */
  } sizes[] = {
      {"qwen3_nano", 4, 4, 2, 32, 128, 384, 256, true, 20235648},
      {"qwen3-0.6b", 28, 16, 8, 128, 1024, 3072, 40960, true, 596049920},
      {"qwen3-1.7b", 28, 16, 8, 128, 2048, 6144, 40960, true, 1720574976},
      {"qwen3-4b", 36, 32, 8, 128, 2560, 9728, 40960, true, 4022468096},
      {"qwen3-8b", 36, 32, 8, 128, 4096, 12288, 40960, false, 8190735360},
      {"qwen3-14b", 40, 40, 8, 128, 5120, 17408, 40960, false, 14768307200},
      {"qwen3-32b", 64, 64, 8, 128, 5120, 25600, 40960, false, 32762123264},
  };
  const size_t count = sizeof sizes / sizeof sizes[0];
  tgi_config c;
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(tgi_preset_name(10 + i), sizes[i].name);
    EXPECT_OK(tgi_preset(sizes[i].name, 0, &c, &error), error);
    assert_int_equal(c.model_type, TGI_MODEL_QWEN3);
    assert_int_equal(c.num_hidden_layers, sizes[i].layers);
    assert_int_equal(c.num_attention_heads, sizes[i].heads);
    assert_int_equal(c.num_key_value_heads, sizes[i].kv_heads);
    assert_int_equal(c.head_dim, sizes[i].head_dim);
    assert_int_equal(c.hidden_size, sizes[i].hidden);
    assert_int_equal(c.intermediate_size, sizes[i].intermediate);
    assert_int_equal(c.max_position_embeddings, sizes[i].positions);
    assert_int_equal(c.tie_word_embeddings, sizes[i].tied);
    assert_true(c.rope.theta == 1e6 && c.norm_eps == 1e-6);
    assert_true(c.qk_norm && !c.attention_bias && c.sliding_window == 0);
    assert_int_equal(c.vocab_size, 151936);
    assert_int_equal(c.bos_token_id, 151643);
    assert_int_equal(c.eos_token_ids[0], 151645);
    tgi_parameters p;
    EXPECT_OK(tgi_parameters_create(&c, &p, &error), error);
    assert_int_equal(p.num_parameters, sizes[i].parameters);
    tgi_parameters_free(&p);
  }
  EXPECT_OK(tgi_preset("qwen3_nano", 257, &c, &error), error);
  assert_int_equal(c.vocab_size, 257);
  assert_int_equal(c.bos_token_id, 256);
  assert_int_equal(c.eos_token_ids[0], 256);
  EXPECT_ERROR(tgi_preset("qwen3_nano", -5, &c, &error), TG_BAD_ARGUMENT, "vocab_size", error);
}

static int64_t parameters_of(const tgi_config *config)
{
  tgi_parameters p;
  EXPECT_OK(tgi_parameters_create(config, &p, &error), error);
  const int64_t count = p.num_parameters;
  tgi_parameters_free(&p);
  return count;
}

static void qwen2_and_llama_presets_have_the_documented_sizes(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    int layers, heads, kv_heads, head_dim, hidden, intermediate, positions;
    bool tied, biased;
    int bos, eos;
    double factor;
    int64_t parameters;
  } sizes[] = {
      {"qwen2.5-0.5b", 24, 14, 2, 64, 896, 4864, 32768, true, true, 151643, 151645, 0, 494032768},
      {"llama-3.2-1b", 16, 32, 8, 64, 2048, 8192, 131072, true, false, 128000, 128001, 32,
       1235814400},
      {"llama-3.2-3b", 28, 24, 8, 128, 3072, 8192, 131072, true, false, 128000, 128001, 32,
       3212749824},
      {"llama-3.1-8b", 32, 32, 8, 128, 4096, 14336, 131072, false, false, 128000, 128001, 8,
       8030261248},
  };
  const size_t count = sizeof sizes / sizeof sizes[0];
  tgi_config c;
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(tgi_preset_name(17 + i), sizes[i].name);
    EXPECT_OK(tgi_preset(sizes[i].name, 0, &c, &error), error);
    assert_int_equal(c.num_hidden_layers, sizes[i].layers);
    assert_int_equal(c.num_attention_heads, sizes[i].heads);
    assert_int_equal(c.num_key_value_heads, sizes[i].kv_heads);
    assert_int_equal(c.head_dim, sizes[i].head_dim);
    assert_int_equal(c.hidden_size, sizes[i].hidden);
    assert_int_equal(c.intermediate_size, sizes[i].intermediate);
    assert_int_equal(c.max_position_embeddings, sizes[i].positions);
    assert_int_equal(c.tie_word_embeddings, sizes[i].tied);
    assert_int_equal(c.attention_bias, sizes[i].biased);
    assert_true(!c.output_bias && !c.mlp_bias && !c.qk_norm);
    assert_int_equal(c.bos_token_id, sizes[i].bos);
    assert_int_equal(c.eos_token_ids[0], sizes[i].eos);
    assert_true(c.rope.factor == sizes[i].factor);
    assert_int_equal(parameters_of(&c), sizes[i].parameters);
  }
  assert_int_equal(c.rope.original_max_position_embeddings, 8192);
  assert_true(c.rope.theta == 5e5 && c.norm_eps == 1e-5);
}

static void check_gpt_oss(const tgi_config *c)
{
  assert_true(c->sinks && c->norm_rounds_once && c->router_bias && c->interleaved_experts);
  assert_true(c->attention_bias && c->output_bias && c->mlp_bias && !c->qk_norm);
  assert_true(c->activation == TGI_SWIGLU_CLAMPED);
  assert_true(c->swiglu_alpha == 1.702 && c->swiglu_limit == 7 && c->norm_eps == 1e-5);
  assert_true(c->rope.type == TG_ROPE_YARN && c->rope.theta == 150000 && c->rope.factor == 32);
  assert_true(c->rope.beta_fast == 32 && c->rope.beta_slow == 1 && !c->rope.truncate);
  assert_true(c->router == TG_ROUTER_SELECTED && c->router_aux_loss_coef == 0.9);
  assert_int_equal(c->sliding_window, 128);
  for (int i = 0; i < c->num_hidden_layers; i++) {
    assert_int_equal(tgi_config_slides(c, i), i % 2 == 0);
  }
}

static void sparse_presets_have_the_documented_sizes(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    tgi_model_type type;
    int layers, heads, kv_heads, head_dim, hidden, intermediate, positions, experts, k;
    int vocab_size, bos, eos;
    int64_t parameters; /* as transformers counts them */
  } sizes[] = {
      {"qwen3_moe_nano", TGI_MODEL_QWEN3_MOE, 4, 4, 2, 32, 128, 192, 256, 8, 2, 151936, 151643,
       151645, 22009216},
      {"qwen3-30b-a3b", TGI_MODEL_QWEN3_MOE, 48, 32, 4, 128, 2048, 768, 40960, 128, 8, 151936,
       151643, 151645, 30532122624},
      {"qwen3-235b-a22b", TGI_MODEL_QWEN3_MOE, 94, 64, 4, 128, 4096, 1536, 40960, 128, 8, 151936,
       151643, 151645, 235093634560},
      {"mixtral-8x7b", TGI_MODEL_MIXTRAL, 32, 32, 8, 128, 4096, 14336, 32768, 8, 2, 32000, 1, 2,
       46702792704},
      {"gpt_oss_nano", TGI_MODEL_GPT_OSS, 4, 4, 2, 32, 128, 192, 256, 8, 2, 201088, 199998, 200002,
       28318384},
      {"gpt-oss-20b", TGI_MODEL_GPT_OSS, 24, 64, 8, 64, 2880, 2880, 131072, 32, 4, 201088, 199998,
       200002, 20914757184},
      {"gpt-oss-120b", TGI_MODEL_GPT_OSS, 36, 64, 8, 64, 2880, 2880, 131072, 128, 4, 201088, 199998,
       200002, 116829156672},
  };
  const size_t count = sizeof sizes / sizeof sizes[0];
  tgi_config c;
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(tgi_preset_name(21 + i), sizes[i].name);
    EXPECT_OK(tgi_preset(sizes[i].name, 0, &c, &error), error);
    assert_int_equal(c.model_type, sizes[i].type);
    assert_int_equal(c.num_hidden_layers, sizes[i].layers);
    assert_int_equal(c.num_attention_heads, sizes[i].heads);
    assert_int_equal(c.num_key_value_heads, sizes[i].kv_heads);
    assert_int_equal(c.head_dim, sizes[i].head_dim);
    assert_int_equal(c.hidden_size, sizes[i].hidden);
    assert_int_equal(c.intermediate_size, sizes[i].intermediate);
    assert_int_equal(c.max_position_embeddings, sizes[i].positions);
    assert_int_equal(c.num_experts, sizes[i].experts);
    assert_int_equal(c.experts_per_token, sizes[i].k);
    assert_int_equal(c.vocab_size, sizes[i].vocab_size);
    assert_int_equal(c.bos_token_id, sizes[i].bos);
    assert_int_equal(c.eos_token_ids[0], sizes[i].eos);
    assert_int_equal(parameters_of(&c), sizes[i].parameters);
    if (c.model_type == TGI_MODEL_GPT_OSS) {
      check_gpt_oss(&c);
    } else {
      assert_true(c.router == TG_ROUTER_RENORMALIZED && !c.router_bias && !c.sinks);
      assert_true(c.qk_norm == (c.model_type == TGI_MODEL_QWEN3_MOE) && c.sliding_window == 0);
    }
  }
  assert_null(tgi_preset_name(21 + count));
}

static void other_spellings_mean_the_same(void **state)
{
  (void)state;
  static const char *const pairs[][2] = {{"nano", "gpt_nano"},
                                         {"micro", "gpt_micro"},
                                         {"mini", "gpt_mini"},
                                         {"gpt2_medium", "gpt2-medium"},
                                         {"gpt2_large", "gpt2-large"},
                                         {"gpt2_xl", "gpt2-xl"},
                                         {"tile-small", "gpt_tile_small"},
                                         {"tile-medium", "gpt_tile_medium"},
                                         {"tile-large", "gpt_tile_large"}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    tgi_config a, b;
    EXPECT_OK(tgi_preset(pairs[i][0], 0, &a, &error), error);
    EXPECT_OK(tgi_preset(pairs[i][1], 0, &b, &error), error);
    assert_int_equal(a.num_hidden_layers, b.num_hidden_layers);
    assert_int_equal(a.hidden_size, b.hidden_size);
    assert_int_equal(a.max_position_embeddings, b.max_position_embeddings);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_presets_have_the_documented_sizes),
      cmocka_unit_test(qwen3_presets_have_the_documented_sizes),
      cmocka_unit_test(qwen2_and_llama_presets_have_the_documented_sizes),
      cmocka_unit_test(sparse_presets_have_the_documented_sizes),
      cmocka_unit_test(other_spellings_mean_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
