/** A small f32 model of each family, with what is particular to it. After cmocka.h. */
#ifndef TEGULA_TESTS_SMALL_FAMILIES_H
#define TEGULA_TESTS_SMALL_FAMILIES_H

#include "expect.h"
#include "model/weights/weights.h"

#include <stdlib.h>

enum { kFamilyVocab = 61, kFamilyPositions = 24, kFamilyWindow = 4 };

static const tgi_model_type kEveryFamily[] = {TGI_MODEL_GPT2,      TGI_MODEL_LLAMA,
                                              TGI_MODEL_QWEN2,     TGI_MODEL_QWEN3,
                                              TGI_MODEL_QWEN3_MOE, TGI_MODEL_GPT_OSS};

static const tgi_model_type kSparse[] = {TGI_MODEL_QWEN3_MOE, TGI_MODEL_GPT_OSS};

enum { kSparseFamilies = 2 };

/* Five experts, of which each token has two. */
static inline void give_experts(tgi_config *c)
{
  const bool oss = c->model_type == TGI_MODEL_GPT_OSS;
  c->num_experts = 5;
  c->experts_per_token = 2;
  c->intermediate_size = 24;
  c->initializer_range = 0.25;
  c->router = oss ? TG_ROUTER_SELECTED : TG_ROUTER_RENORMALIZED;
  if (oss) {
    c->activation = TGI_SWIGLU_CLAMPED;
    c->swiglu_alpha = 1.702;
    c->swiglu_limit = 0.5;
    c->attention_bias = c->output_bias = c->mlp_bias = c->router_bias = true;
    c->sinks = c->norm_rounds_once = c->interleaved_experts = true;
    c->qk_norm = c->tie_word_embeddings = false;
  }
}

/* Layer 1 of the dense Qwens and of GPT-OSS slides. */
static inline tgi_config family_config(tgi_model_type type)
{
  const bool rope = type != TGI_MODEL_GPT2, qwen = rope && type != TGI_MODEL_LLAMA;
  const bool experts = type == TGI_MODEL_QWEN3_MOE || type == TGI_MODEL_GPT_OSS;
  tgi_config c = {.model_type = type,
                  .dtype = TG_F32,
                  .vocab_size = kFamilyVocab,
                  .num_hidden_layers = 2,
                  .hidden_size = 32,
                  .num_attention_heads = 4,
                  .num_key_value_heads = rope ? 2 : 4,
                  .head_dim = 8,
                  .intermediate_size = 48,
                  .max_position_embeddings = kFamilyPositions,
                  .norm = rope ? TGI_RMS_NORM : TGI_LAYER_NORM,
                  .norm_eps = 1e-5,
                  .position = rope ? TGI_ROPE : TGI_LEARNED_POSITIONS,
                  .activation = rope ? TGI_SWIGLU : TGI_GELU_TANH,
                  .scale_attn_weights = true,
                  .attention_bias = type < TGI_MODEL_QWEN3,
                  .output_bias = !qwen,
                  .mlp_bias = !qwen,
                  .qk_norm = type >= TGI_MODEL_QWEN3,
                  .tie_word_embeddings = type != TGI_MODEL_LLAMA,
                  .initializer_range = 0.15,
                  .bos_token_id = kFamilyVocab - 1,
                  .eos_token_ids = {kFamilyVocab - 1},
                  .num_eos_token_ids = 1};
  if (rope) {
    c.rope = (tg_rope_parameters){.type = TG_ROPE_DEFAULT, .theta = 1e3};
  }
  if (qwen && type != TGI_MODEL_QWEN3_MOE) {
    c.sliding_window = kFamilyWindow;
    tgi_config_set_sliding(&c, 1);
  }
  if (experts) {
    give_experts(&c);
  }
  return c;
}

static inline tg_model *model_of(tgi_config config)
{
  tg_model *model = calloc(1, sizeof *model);
  tg_error error = {0};
  assert_non_null(model);
  model->dtype = TG_F32;
  model->config = config;
  EXPECT_OK(tgi_config_check(&model->config, &error), error);
  EXPECT_OK(tgi_parameters_create(&model->config, &model->parameters, &error), error);
  EXPECT_OK(tgi_weights_allocate(model, &error), error);
  tgi_generation_config_start(&model->config, &model->generation);
  tgi_weights_initialise(model, 3);
  return model;
}

static inline tg_model *family_model(tgi_model_type type)
{
  return model_of(family_config(type));
}

#endif
