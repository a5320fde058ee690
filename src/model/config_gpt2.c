/* GPT-2 (Radford et al. 2019) as transformers' GPT2Config spells it, with its defaults for optional
 * keys. */
#include "config_keys.h"
#include "file_error.h"

/** Names in config.json; the first of a kind is the one that is written. */
static const struct {
  const char *name;
  tgi_activation activation;
} activations[] = {
    {"gelu_new", TGI_GELU_TANH},
    {"gelu_pytorch_tanh", TGI_GELU_TANH},
    {"gelu", TGI_GELU_ERF},
};

#define ACTIVATIONS (sizeof activations / sizeof activations[0])

static tgi_activation read_activation(tgi_config_keys *keys)
{
  static const char key[] = "activation_function";
  const uint32_t node = tgi_config_find(keys, key);
  if (!node) {
    return TGI_GELU_TANH;
  }
  for (size_t i = 0; i < ACTIVATIONS; i++) {
    if (tgi_json_equals(keys->json, node, activations[i].name)) {
      return activations[i].activation;
    }
  }
  if (tgi_json_kind_of(keys->json, node) == TGI_JSON_STRING) {
    tgi_config_unsupported(keys, key, "gelu_new, gelu_pytorch_tanh or gelu");
  } else {
    tgi_config_unexpected(keys, key, "the name of an activation");
  }
  return TGI_GELU_TANH;
}

/** Files before transformers 3 call the context length n_ctx alone; later ones may carry both. */
static int32_t read_positions(tgi_config_keys *keys)
{
  const bool old = !tgi_config_find(keys, "n_positions") && tgi_config_find(keys, "n_ctx");
  return tgi_config_required(keys, old ? "n_ctx" : "n_positions", 1, TGI_MAX_POSITIONS);
}

void tgi_config_read_gpt2(tgi_config_keys *keys, tgi_config *config)
{
  config->hidden_size = tgi_config_required(keys, "n_embd", 1, TGI_MAX_HIDDEN);
  config->num_hidden_layers = tgi_config_required(keys, "n_layer", 1, TGI_MAX_LAYERS);
  config->num_attention_heads = tgi_config_required(keys, "n_head", 1, TGI_MAX_HIDDEN);
  config->vocab_size = tgi_config_required(keys, "vocab_size", 1, TGI_MAX_VOCAB);
  config->max_position_embeddings = read_positions(keys);
  config->intermediate_size =
      tgi_config_integer(keys, "n_inner", 1, TGI_MAX_INTERMEDIATE, 4 * config->hidden_size);
  if (config->hidden_size % config->num_attention_heads != 0) {
    tgi_config_unexpected(keys, "n_head", "a divisor of n_embd");
  }
  config->num_key_value_heads = config->num_attention_heads;
  config->head_dim = config->hidden_size / config->num_attention_heads;

  config->norm = TGI_LAYER_NORM;
  config->norm_eps = tgi_config_positive(keys, "layer_norm_epsilon", TGI_MAX_REAL, 1e-5);
  config->position = TGI_LEARNED_POSITIONS;
  config->activation = read_activation(keys);
  config->scale_attn_weights = tgi_config_bool(keys, "scale_attn_weights", true);
  config->scale_attn_by_inverse_layer_idx =
      tgi_config_bool(keys, "scale_attn_by_inverse_layer_idx", false);
  config->attention_bias = true;
  config->mlp_bias = true;
  config->tie_word_embeddings = tgi_config_bool(keys, "tie_word_embeddings", true);
  config->initializer_range = tgi_config_positive(keys, "initializer_range", TGI_MAX_REAL, 0.02);
  if (tgi_config_bool(keys, "add_cross_attention", false)) {
    tgi_config_unsupported(keys, "add_cross_attention", "false");
  }

  const bool has_bos = tgi_json_member(keys->json, TGI_JSON_ROOT, "bos_token_id") != 0;
  config->bos_token_id =
      tgi_config_integer(keys, "bos_token_id", 0, INT32_MAX, has_bos ? -1 : 50256);
  tgi_config_eos(keys, 50256, config);
}

/** The first field that GPT-2 has no key for, or NULL. */
static const char *foreign_field(const tgi_config *config)
{
  if (config->norm != TGI_LAYER_NORM) {
    return "norm";
  }
  if (config->position != TGI_LEARNED_POSITIONS) {
    return "position";
  }
  if (config->activation == TGI_SWIGLU) {
    return "activation";
  }
  if (config->num_key_value_heads != config->num_attention_heads) {
    return "num_key_value_heads";
  }
  if ((int64_t)config->head_dim * config->num_attention_heads != config->hidden_size) {
    return "head_dim";
  }
  if (!config->attention_bias || !config->mlp_bias) {
    return "attention_bias and mlp_bias";
  }
  if (config->qk_norm) {
    return "qk_norm";
  }
  if (config->sliding_window != 0) {
    return "sliding_window";
  }
  return NULL;
}

static void put_eos(tgi_json_writer *writer, const tgi_config *config)
{
  static const char key[] = "eos_token_id";
  if (config->num_eos_token_ids == 0) {
    tgi_json_put_null(writer, key);
  } else if (config->num_eos_token_ids == 1) {
    tgi_json_put_integer(writer, key, config->eos_token_ids[0]);
  } else {
    tgi_json_open_array(writer, key);
    for (int32_t i = 0; i < config->num_eos_token_ids; i++) {
      tgi_json_put_integer(writer, NULL, config->eos_token_ids[i]);
    }
    tgi_json_close_array(writer);
  }
}

static void put_activation(tgi_json_writer *writer, const tgi_config *config)
{
  for (size_t i = 0; i < ACTIVATIONS; i++) {
    if (activations[i].activation == config->activation) {
      tgi_json_put_string(writer, "activation_function", activations[i].name);
      return;
    }
  }
}

tg_status tgi_config_write_gpt2(const tgi_config *config, const char *path, tgi_json_writer *writer,
                                tg_error *error)
{
  const char *foreign = foreign_field(config);
  if (foreign) {
    return tgi_file_error(error, TG_UNSUPPORTED, path, 0,
                          "a model that the keys of GPT-2 describe, got another %s", foreign);
  }
  put_activation(writer, config);
  tgi_json_open_array(writer, "architectures");
  tgi_json_put_string(writer, NULL, "GPT2LMHeadModel");
  tgi_json_close_array(writer);
  /* GPT2Config's dropouts default to 0.1; these weights were trained without any. */
  tgi_json_put_real(writer, "attn_pdrop", 0);
  tgi_json_put_real(writer, "embd_pdrop", 0);
  tgi_json_put_real(writer, "resid_pdrop", 0);
  if (config->bos_token_id >= 0) {
    tgi_json_put_integer(writer, "bos_token_id", config->bos_token_id);
  } else {
    tgi_json_put_null(writer, "bos_token_id");
  }
  put_eos(writer, config);
  tgi_json_put_real(writer, "initializer_range", config->initializer_range);
  tgi_json_put_real(writer, "layer_norm_epsilon", config->norm_eps);
  tgi_json_put_integer(writer, "n_embd", config->hidden_size);
  tgi_json_put_integer(writer, "n_head", config->num_attention_heads);
  if (config->intermediate_size == 4 * config->hidden_size) {
    tgi_json_put_null(writer, "n_inner");
  } else {
    tgi_json_put_integer(writer, "n_inner", config->intermediate_size);
  }
  tgi_json_put_integer(writer, "n_layer", config->num_hidden_layers);
  tgi_json_put_integer(writer, "n_positions", config->max_position_embeddings);
  tgi_json_put_bool(writer, "scale_attn_by_inverse_layer_idx",
                    config->scale_attn_by_inverse_layer_idx);
  tgi_json_put_bool(writer, "scale_attn_weights", config->scale_attn_weights);
  tgi_json_put_bool(writer, "tie_word_embeddings", config->tie_word_embeddings);
  tgi_json_put_bool(writer, "use_cache", true);
  tgi_json_put_integer(writer, "vocab_size", config->vocab_size);
  return TG_OK;
}
