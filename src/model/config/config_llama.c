/* Llama (arXiv:2407.21783) as transformers' LlamaConfig spells it, with its defaults for optional
 * keys; Qwen2 and Qwen3 share all but a few of the keys. */
#include "config_keys.h"
#include "files/file_error.h"
#include <string.h>

/* ---- what the families share ---- */

static void read_head_dim(tgi_config_keys *keys, const tgi_llama_kind *kind, tgi_config *config)
{
  static const char key[] = "head_dim";
  int32_t otherwise = kind->head_dim;
  if (otherwise == 0) {
    otherwise = config->hidden_size / config->num_attention_heads;
    if (!tgi_config_find(keys, key) && config->hidden_size % config->num_attention_heads != 0) {
      tgi_config_unexpected(keys, "num_attention_heads",
                            "a divisor of hidden_size (or a head_dim)");
    }
  }
  config->head_dim = tgi_config_integer(keys, key, 1, TGI_MAX_HIDDEN, otherwise);
  if (config->head_dim % 2 != 0 || (config->rope.type == TG_ROPE_DYNAMIC && config->head_dim < 4)) {
    tgi_config_unexpected(keys, key, "an even width (with dynamic rope above 2)");
  }
  if ((int64_t)config->head_dim * config->num_attention_heads > TGI_MAX_INTERMEDIATE) {
    tgi_config_unexpected(keys, key, "a width that fits num_attention_heads");
  }
}

static void read_heads(tgi_config_keys *keys, const tgi_llama_kind *kind, tgi_config *config)
{
  static const char kv[] = "num_key_value_heads";
  config->num_attention_heads = tgi_config_required(keys, "num_attention_heads", 1, TGI_MAX_HIDDEN);
  const json_t *value = json_object_get(keys->object, kv);
  const bool as_queries = json_is_null(value) || (!value && kind->has_key_heads);
  config->num_key_value_heads = as_queries
                                    ? config->num_attention_heads
                                    : tgi_config_required(keys, kv, 1, config->num_attention_heads);
  if (config->num_attention_heads % config->num_key_value_heads != 0) {
    tgi_config_unexpected(keys, kv, "a divisor of num_attention_heads");
  }
  read_head_dim(keys, kind, config);
}

static void refuse_unsupported(tgi_config_keys *keys, const tgi_llama_kind *kind)
{
  static const char *const activations[] = {"silu"}, *const methods[] = {"mxfp4"};
  static const char quantized[] = "quantization_config";
  (void)tgi_config_choice(keys, "hidden_act", activations, 1, 0, "silu");
  const json_t *found = tgi_config_find(keys, quantized);
  if (found && !kind->is_gpt_oss) {
    tgi_config_unsupported(keys, quantized, "none");
  } else if (found && !json_is_object(found)) {
    tgi_config_unexpected(keys, quantized, "an object");
  } else if (found) {
    tgi_config_keys inner = *keys;
    inner.object = found;
    inner.place = "quantization_config.";
    if (!tgi_config_find(&inner, "quant_method")) {
      tgi_config_unexpected(&inner, "quant_method", "the name of a method");
    }
    (void)tgi_config_choice(&inner, "quant_method", methods, 1, 0, "mxfp4");
    keys->status = keys->status ? keys->status : inner.status;
  }
}

void tgi_config_read_llama_keys(tgi_config_keys *keys, const tgi_llama_kind *kind,
                                tgi_config *config)
{
  config->vocab_size = tgi_config_required(keys, "vocab_size", 1, TGI_MAX_VOCAB);
  config->hidden_size = tgi_config_required(keys, "hidden_size", 1, TGI_MAX_HIDDEN);
  config->intermediate_size =
      tgi_config_required(keys, "intermediate_size", 1, TGI_MAX_INTERMEDIATE);
  config->num_hidden_layers = tgi_config_required(keys, "num_hidden_layers", 1, TGI_MAX_LAYERS);
  config->max_position_embeddings =
      tgi_config_required(keys, "max_position_embeddings", 1, TGI_MAX_ROPE_POSITIONS);
  config->position = TGI_ROPE;
  tgi_config_read_rope(keys, config->max_position_embeddings, kind->rope, &config->rope);
  read_heads(keys, kind, config);

  config->norm = TGI_RMS_NORM;
  config->norm_eps =
      tgi_config_positive(keys, "rms_norm_eps", TGI_MAX_REAL, kind->eps ? kind->eps : 1e-6);
  config->activation = kind->is_gpt_oss ? TGI_SWIGLU_CLAMPED : TGI_SWIGLU;
  config->sinks = config->norm_rounds_once = kind->is_gpt_oss;
  config->scale_attn_weights = true;
  config->tie_word_embeddings = tgi_config_bool(keys, "tie_word_embeddings", false);
  config->initializer_range = tgi_config_positive(keys, "initializer_range", TGI_MAX_REAL, 0.02);
  const bool has_bos = json_object_get(keys->object, "bos_token_id") != NULL;
  config->bos_token_id =
      tgi_config_integer(keys, "bos_token_id", 0, INT32_MAX, has_bos ? -1 : kind->bos);
  tgi_config_eos(keys, kind->eos, config);
  refuse_unsupported(keys, kind);
}

/** The first shared field that Llama's keys cannot say, or NULL. */
static const char *foreign_field(const tgi_config *config, const tgi_llama_kind *kind)
{
  if (config->norm != TGI_RMS_NORM) {
    return "norm";
  }
  if (config->position != TGI_ROPE) {
    return "position";
  }
  if (config->activation != (kind->is_gpt_oss ? TGI_SWIGLU_CLAMPED : TGI_SWIGLU)) {
    return "activation";
  }
  if (config->norm_rounds_once != kind->is_gpt_oss) {
    return "rounding of norms";
  }
  if (config->sinks != kind->is_gpt_oss) {
    return "sinks";
  }
  if ((config->num_experts > 0) != kind->has_experts) {
    return "num_experts";
  }
  if (!config->scale_attn_weights || config->scale_attn_by_inverse_layer_idx) {
    return "scale of attention";
  }
  return NULL;
}

tg_status tgi_config_write_llama_keys(const tgi_config *config, const tgi_llama_kind *kind,
                                      const char *foreign, const char *path, json_t *root,
                                      tg_error *error)
{
  const char *shared = foreign_field(config, kind);
  if (shared || foreign) {
    return tgi_file_error(error, TG_UNSUPPORTED, path, TGI_NO_BYTE,
                          "a model that the keys of %s describe, got another %s", kind->name,
                          shared ? shared : foreign);
  }
  const struct {
    const char *key;
    json_t *value;
  } members[] = {
      {"architectures", json_pack("[s]", kind->architecture)},
      {"attention_dropout", json_real(0)},
      {"bos_token_id", tgi_config_bos_value(config)},
      {"eos_token_id", tgi_config_eos_value(config)},
      {"hidden_act", json_string("silu")},
      {"hidden_size", json_integer(config->hidden_size)},
      {"initializer_range", json_real(config->initializer_range)},
      {"intermediate_size", json_integer(config->intermediate_size)},
      {"max_position_embeddings", json_integer(config->max_position_embeddings)},
      {"num_attention_heads", json_integer(config->num_attention_heads)},
      {"num_hidden_layers", json_integer(config->num_hidden_layers)},
      {"num_key_value_heads", json_integer(config->num_key_value_heads)},
      {"rms_norm_eps", json_real(config->norm_eps)},
      {"tie_word_embeddings", json_boolean(config->tie_word_embeddings)},
      {"use_cache", json_true()},
      {"vocab_size", json_integer(config->vocab_size)},
  };
  for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
    json_object_set_new(root, members[i].key, members[i].value);
  }
  /* Qwen2Config declares no such key, but Qwen2's layers read it. */
  if (kind->has_head_dim ||
      (int64_t)config->head_dim * config->num_attention_heads != config->hidden_size) {
    json_object_set_new(root, "head_dim", json_integer(config->head_dim));
  }
  tgi_config_write_rope(&config->rope, root);
  return TG_OK;
}

/* ---- Llama ---- */

static const tgi_llama_kind kLlama = {.name = "Llama",
                                      .architecture = "LlamaForCausalLM",
                                      .bos = 1,
                                      .eos = 2,
                                      .has_head_dim = true,
                                      .has_key_heads = true};

void tgi_config_read_llama(tgi_config_keys *keys, tgi_config *config)
{
  tgi_config_read_llama_keys(keys, &kLlama, config);
  config->attention_bias = tgi_config_bool(keys, "attention_bias", false);
  config->output_bias = config->attention_bias;
  config->mlp_bias = tgi_config_bool(keys, "mlp_bias", false);
}

static const char *foreign_to_llama(const tgi_config *config)
{
  if (config->qk_norm) {
    return "qk_norm";
  }
  if (config->output_bias != config->attention_bias) {
    return "output_bias";
  }
  return config->sliding_window ? "sliding_window" : NULL;
}

tg_status tgi_config_write_llama(const tgi_config *config, const char *path, json_t *root,
                                 tg_error *error)
{
  json_object_set_new(root, "attention_bias", json_boolean(config->attention_bias));
  json_object_set_new(root, "mlp_bias", json_boolean(config->mlp_bias));
  return tgi_config_write_llama_keys(config, &kLlama, foreign_to_llama(config), path, root, error);
}
