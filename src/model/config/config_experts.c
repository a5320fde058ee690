/* Families with experts as transformers' Qwen3MoeConfig (arXiv:2505.09388), MixtralConfig
 * (arXiv:2401.04088) and GptOssConfig (arXiv:2508.10925) spell them, with their defaults for
 * optional keys. */
#include "config_keys.h"
#include <stdio.h>

/* ---- what the families share ---- */

/** Experts, and how many each token has. */
static void read_experts(tgi_config_keys *keys, const char *count, int32_t num_experts,
                         int32_t per_token, tgi_config *config)
{
  static const char key[] = "num_experts_per_tok", old[] = "experts_per_token";
  config->num_experts = tgi_config_integer(keys, count, 1, TGI_MAX_INTERMEDIATE, num_experts);
  if ((int64_t)config->num_experts * config->intermediate_size > TGI_MAX_INTERMEDIATE) {
    tgi_config_unexpected(keys, count, "a number that fits the width of experts");
  }
  const int32_t same = tgi_config_integer(keys, old, 1, INT32_MAX, per_token);
  config->experts_per_token = tgi_config_integer(keys, key, 1, INT32_MAX, same);
  if (config->experts_per_token > config->num_experts) {
    const char *given = tgi_config_find(keys, key) ? key : tgi_config_find(keys, old) ? old : NULL;
    char rule[96] = "at most the number of experts";
    if (!given) {
      snprintf(rule, sizeof rule, "at most the number of experts, %d (the default is %d)",
               config->num_experts, per_token);
    }
    tgi_config_unexpected(keys, given ? given : key, rule);
  }
  if (tgi_config_find(keys, old) && same != config->experts_per_token) {
    tgi_config_unexpected(keys, old, "the same number as num_experts_per_tok");
  }
  config->router_aux_loss_coef =
      tgi_config_number(keys, "router_aux_loss_coef", 0, TGI_MAX_REAL, 0.001);
  config->output_router_logits = tgi_config_bool(keys, "output_router_logits", false);
}

static void write_experts(const tgi_config *config, const char *count, json_t *root)
{
  json_object_set_new(root, count, json_integer(config->num_experts));
  json_object_set_new(root, "num_experts_per_tok", json_integer(config->experts_per_token));
  json_object_set_new(root, "router_aux_loss_coef", json_real(config->router_aux_loss_coef));
  json_object_set_new(root, "output_router_logits", json_boolean(config->output_router_logits));
}

/* ---- Qwen3-MoE ---- */

static const tgi_llama_kind kQwen3Moe = {.name = "Qwen3-MoE",
                                         .architecture = "Qwen3MoeForCausalLM",
                                         .bos = -1,
                                         .eos = -1,
                                         .has_head_dim = true,
                                         .has_experts = true};

/** Layers with an MLP instead of experts are not served. */
static void refuse_dense_layers(tgi_config_keys *keys)
{
  static const char key[] = "mlp_only_layers";
  const json_t *list = tgi_config_find(keys, key);
  if (list && !json_is_array(list)) {
    tgi_config_unexpected(keys, key, "a list of layers");
  } else if (json_array_size(list) > 0) {
    tgi_config_unsupported(keys, key, "an empty list (experts in every layer)");
  }
  if (tgi_config_integer(keys, "decoder_sparse_step", 1, INT32_MAX, 1) != 1) {
    tgi_config_unsupported(keys, "decoder_sparse_step", "1 (experts in every layer)");
  }
}

/** Every layer slides, or none does: window 0. */
static void set_one_window(tgi_config *config, int32_t window)
{
  config->sliding_window = window;
  for (int32_t i = 0; i < config->num_hidden_layers && config->sliding_window; i++) {
    tgi_config_set_sliding(config, i);
  }
}

void tgi_config_read_qwen3_moe(tgi_config_keys *keys, tgi_config *config)
{
  tgi_config_read_llama_keys(keys, &kQwen3Moe, config);
  config->intermediate_size =
      tgi_config_integer(keys, "moe_intermediate_size", 1, TGI_MAX_INTERMEDIATE, 768);
  const char *count =
      tgi_config_find(keys, "num_local_experts") ? "num_local_experts" : "num_experts";
  read_experts(keys, count, 128, 8, config);
  config->router =
      tgi_config_bool(keys, "norm_topk_prob", false) ? TG_ROUTER_RENORMALIZED : TG_ROUTER_ALL;
  config->qk_norm = true;
  config->attention_bias = tgi_config_bool(keys, "attention_bias", false);
  config->output_bias = config->attention_bias;
  refuse_dense_layers(keys);
  const bool given = json_object_get(keys->object, "sliding_window") != NULL;
  const int32_t window =
      tgi_config_integer(keys, "sliding_window", 1, TGI_MAX_POSITIONS, given ? 0 : 4096);
  set_one_window(config, tgi_config_bool(keys, "use_sliding_window", false) ? window : 0);
}

static bool slides_as_one(const tgi_config *config)
{
  for (int32_t i = 1; i < config->num_hidden_layers; i++) {
    if (tgi_config_slides(config, i) != tgi_config_slides(config, 0)) {
      return false;
    }
  }
  return true;
}

static const char *foreign_to_qwen3_moe(const tgi_config *config)
{
  if (!config->qk_norm) {
    return "qk_norm";
  }
  if (config->output_bias != config->attention_bias) {
    return "output_bias";
  }
  if (config->mlp_bias || config->router_bias) {
    return config->mlp_bias ? "mlp_bias" : "router_bias";
  }
  if (config->router == TG_ROUTER_SELECTED || config->interleaved_experts) {
    return config->interleaved_experts ? "layout of experts" : "router";
  }
  return slides_as_one(config) ? NULL : "sliding_window";
}

tg_status tgi_config_write_qwen3_moe(const tgi_config *config, const char *path, json_t *root,
                                     tg_error *error)
{
  const tg_status status = tgi_config_write_llama_keys(
      config, &kQwen3Moe, foreign_to_qwen3_moe(config), path, root, error);
  write_experts(config, "num_experts", root);
  json_object_set_new(root, "attention_bias", json_boolean(config->attention_bias));
  json_object_set_new(root, "decoder_sparse_step", json_integer(1));
  json_object_set_new(root, "mlp_only_layers", json_array());
  json_object_set_new(root, "moe_intermediate_size", json_integer(config->intermediate_size));
  json_object_set_new(root, "norm_topk_prob",
                      json_boolean(config->router == TG_ROUTER_RENORMALIZED));
  json_object_set_new(root, "sliding_window",
                      config->sliding_window ? json_integer(config->sliding_window) : json_null());
  json_object_set_new(root, "use_sliding_window", json_boolean(config->sliding_window > 0));
  return status;
}

/* ---- Mixtral ---- */

static const tg_rope_parameters kMixtralRope = {.type = TG_ROPE_DEFAULT, .theta = 1e6};

static const tgi_llama_kind kMixtral = {.name = "Mixtral",
                                        .architecture = "MixtralForCausalLM",
                                        .bos = 1,
                                        .eos = 2,
                                        .has_head_dim = true,
                                        .has_experts = true,
                                        .eps = 1e-5,
                                        .rope = &kMixtralRope};

void tgi_config_read_mixtral(tgi_config_keys *keys, tgi_config *config)
{
  tgi_config_read_llama_keys(keys, &kMixtral, config);
  const char *count = tgi_config_find(keys, "num_experts") ? "num_experts" : "num_local_experts";
  read_experts(keys, count, 8, 2, config);
  config->router = TG_ROUTER_RENORMALIZED;
  set_one_window(config, tgi_config_integer(keys, "sliding_window", 1, TGI_MAX_POSITIONS, 0));
  if (tgi_config_number(keys, "router_jitter_noise", 0, TGI_MAX_REAL, 0) != 0) {
    tgi_config_unsupported(keys, "router_jitter_noise", "0");
  }
}

static const char *foreign_to_mixtral(const tgi_config *config)
{
  if (config->qk_norm) {
    return "qk_norm";
  }
  if (config->attention_bias || config->output_bias) {
    return config->attention_bias ? "attention_bias" : "output_bias";
  }
  if (config->mlp_bias || config->router_bias) {
    return config->mlp_bias ? "mlp_bias" : "router_bias";
  }
  if (config->router != TG_ROUTER_RENORMALIZED || config->interleaved_experts) {
    return config->interleaved_experts ? "layout of experts" : "router";
  }
  return slides_as_one(config) ? NULL : "sliding_window";
}

tg_status tgi_config_write_mixtral(const tgi_config *config, const char *path, json_t *root,
                                   tg_error *error)
{
  const tg_status status =
      tgi_config_write_llama_keys(config, &kMixtral, foreign_to_mixtral(config), path, root, error);
  write_experts(config, "num_local_experts", root);
  json_object_set_new(root, "router_jitter_noise", json_real(0));
  json_object_set_new(root, "sliding_window",
                      config->sliding_window ? json_integer(config->sliding_window) : json_null());
  return status;
}

/* ---- GPT-OSS ---- */

static const tg_rope_parameters kGptOssRope = {.type = TG_ROPE_YARN,
                                               .theta = 150000,
                                               .factor = 32,
                                               .original_max_position_embeddings = 4096,
                                               .beta_fast = 32,
                                               .beta_slow = 1};

static const tgi_llama_kind kGptOss = {.name = "GPT-OSS",
                                       .architecture = "GptOssForCausalLM",
                                       .head_dim = 64,
                                       .bos = -1,
                                       .eos = -1,
                                       .has_head_dim = true,
                                       .has_experts = true,
                                       .is_gpt_oss = true,
                                       .eps = 1e-5,
                                       .rope = &kGptOssRope};

/** By `layer_types`; without, every other layer slides, the first one too. */
static void read_windows(tgi_config_keys *keys, tgi_config *config)
{
  const bool given = json_object_get(keys->object, "sliding_window") != NULL;
  config->sliding_window =
      tgi_config_integer(keys, "sliding_window", 1, TGI_MAX_POSITIONS, given ? 0 : 128);
  if (!tgi_config_read_layer_types(keys, config)) {
    for (int32_t i = 0; i < config->num_hidden_layers && config->sliding_window; i += 2) {
      tgi_config_set_sliding(config, i);
    }
  }
  tgi_config_settle_window(config);
}

void tgi_config_read_gpt_oss(tgi_config_keys *keys, tgi_config *config)
{
  tgi_config_read_llama_keys(keys, &kGptOss, config);
  const char *count = tgi_config_find(keys, "num_experts") ? "num_experts" : "num_local_experts";
  read_experts(keys, count, 128, 4, config);
  config->router = TG_ROUTER_SELECTED;
  config->router_bias = config->mlp_bias = config->interleaved_experts = true;
  config->swiglu_alpha = tgi_config_positive(keys, "swiglu_alpha", TGI_MAX_REAL, 1.702);
  config->swiglu_limit = tgi_config_positive(keys, "swiglu_limit", TGI_MAX_REAL, 7);
  config->attention_bias = tgi_config_bool(keys, "attention_bias", true);
  config->output_bias = config->attention_bias;
  read_windows(keys, config);
}

static const char *foreign_to_gpt_oss(const tgi_config *config)
{
  if (config->qk_norm) {
    return "qk_norm";
  }
  if (config->output_bias != config->attention_bias) {
    return "output_bias";
  }
  if (!config->mlp_bias || !config->router_bias) {
    return config->mlp_bias ? "router_bias" : "mlp_bias";
  }
  if (!config->interleaved_experts) {
    return "layout of experts";
  }
  return config->router == TG_ROUTER_SELECTED ? NULL : "router";
}

/* As OpenAI's: all but the experts' matrices are elements. */
static json_t *mxfp4_value(void)
{
  static const char *const others[] = {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"};
  json_t *value = json_object(), *list = json_array();
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    json_array_append_new(list, json_string(others[i]));
  }
  json_object_set_new(value, "quant_method", json_string("mxfp4"));
  json_object_set_new(value, "modules_to_not_convert", list);
  return value;
}

tg_status tgi_config_write_gpt_oss(const tgi_config *config, const char *path, json_t *root,
                                   tg_error *error)
{
  const tg_status status =
      tgi_config_write_llama_keys(config, &kGptOss, foreign_to_gpt_oss(config), path, root, error);
  write_experts(config, "num_local_experts", root);
  json_object_set_new(root, "experts_per_token", json_integer(config->experts_per_token));
  json_object_set_new(root, "attention_bias", json_boolean(config->attention_bias));
  json_object_set_new(root, "layer_types", tgi_config_layer_types_value(config));
  json_object_set_new(root, "sliding_window",
                      config->sliding_window ? json_integer(config->sliding_window) : json_null());
  json_object_set_new(root, "swiglu_alpha", json_real(config->swiglu_alpha));
  json_object_set_new(root, "swiglu_limit", json_real(config->swiglu_limit));
  if (config->mxfp4_experts) {
    json_object_set_new(root, "quantization_config", mxfp4_value());
  }
  return status;
}
