/* GPT-2 (Radford et al. 2019) as transformers' GPT2Config spells it, with its defaults for optional
 * keys. */
#include "config_keys.h"
#include "files/file_error.h"
#include <string.h>

/** Names in config.json and what they mean; the first of a meaning is the one that is written. */
static const char *const activation_names[] = {"gelu_new", "gelu_pytorch_tanh", "gelu"};
static const tgi_activation activations[] = {TGI_GELU_TANH, TGI_GELU_TANH, TGI_GELU_ERF};

#define ACTIVATIONS (sizeof activations / sizeof activations[0])

static tgi_activation read_activation(tgi_config_keys *keys)
{
  return activations[tgi_config_choice(keys, "activation_function", activation_names, ACTIVATIONS,
                                       0, "gelu_new, gelu_pytorch_tanh or gelu")];
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
  config->output_bias = true;
  config->mlp_bias = true;
  config->tie_word_embeddings = tgi_config_bool(keys, "tie_word_embeddings", true);
  config->initializer_range = tgi_config_positive(keys, "initializer_range", TGI_MAX_REAL, 0.02);
  if (tgi_config_bool(keys, "add_cross_attention", false)) {
    tgi_config_unsupported(keys, "add_cross_attention", "false");
  }

  const bool has_bos = json_object_get(keys->json->root, "bos_token_id") != NULL;
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
  if (!config->attention_bias || !config->output_bias || !config->mlp_bias) {
    return "attention_bias, output_bias and mlp_bias";
  }
  if (config->sliding_window != 0) {
    return "sliding_window";
  }
  return NULL;
}

static const char *activation_name(tgi_activation activation)
{
  size_t i = 0;
  while (i < ACTIVATIONS - 1 && activations[i] != activation) {
    i++;
  }
  return activation_names[i];
}

tg_status tgi_config_write_gpt2(const tgi_config *config, const char *path, json_t *root,
                                tg_error *error)
{
  const char *foreign = foreign_field(config);
  if (foreign) {
    return tgi_file_error(error, TG_UNSUPPORTED, path, TGI_NO_BYTE,
                          "a model that the keys of GPT-2 describe, got another %s", foreign);
  }
  const struct {
    const char *key;
    json_t *value;
  } members[] = {
      {"activation_function", json_string(activation_name(config->activation))},
      {"architectures", json_pack("[s]", "GPT2LMHeadModel")},
      /* GPT2Config's dropouts default to 0.1; these weights were trained without any. */
      {"attn_pdrop", json_real(0)},
      {"embd_pdrop", json_real(0)},
      {"resid_pdrop", json_real(0)},
      {"bos_token_id", tgi_config_bos_value(config)},
      {"eos_token_id", tgi_config_eos_value(config)},
      {"initializer_range", json_real(config->initializer_range)},
      {"layer_norm_epsilon", json_real(config->norm_eps)},
      {"n_embd", json_integer(config->hidden_size)},
      {"n_head", json_integer(config->num_attention_heads)},
      {"n_inner", config->intermediate_size == 4 * config->hidden_size
                      ? json_null()
                      : json_integer(config->intermediate_size)},
      {"n_layer", json_integer(config->num_hidden_layers)},
      {"n_positions", json_integer(config->max_position_embeddings)},
      {"scale_attn_by_inverse_layer_idx", json_boolean(config->scale_attn_by_inverse_layer_idx)},
      {"scale_attn_weights", json_boolean(config->scale_attn_weights)},
      {"tie_word_embeddings", json_boolean(config->tie_word_embeddings)},
      {"use_cache", json_true()},
      {"vocab_size", json_integer(config->vocab_size)},
  };
  for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
    json_object_set_new(root, members[i].key, members[i].value);
  }
  return TG_OK;
}
