/* Qwen3 (arXiv:2505.09388) as transformers' Qwen3Config spells it, with its defaults for optional
 * keys. */
#include "config_keys.h"
#include "files/file_error.h"
#include <string.h>

static const char full[] = "full_attention", sliding[] = "sliding_attention";

/** Which layers slide: `layer_types`, else those from `max_window_layers` on. */
static void read_layer_types(tgi_config_keys *keys, tgi_config *config)
{
  static const char key[] = "layer_types";
  const json_t *list = tgi_config_find(keys, key);
  const int32_t first = tgi_config_integer(keys, "max_window_layers", 0, INT32_MAX, 28);
  if (!list) {
    for (int32_t i = first; i < config->num_hidden_layers && config->sliding_window; i++) {
      tgi_config_set_sliding(config, i);
    }
    return;
  }
  if (json_array_size(list) != (size_t)config->num_hidden_layers) {
    tgi_config_unexpected(keys, key, "a list of one name for each of num_hidden_layers");
    return;
  }
  for (int32_t i = 0; i < config->num_hidden_layers; i++) {
    const char *name = json_string_value(json_array_get(list, (size_t)i));
    if (!name || (strcmp(name, full) != 0 && strcmp(name, sliding) != 0)) {
      tgi_config_unsupported(keys, key, "full_attention or sliding_attention for every layer");
      return;
    }
    if (strcmp(name, sliding) == 0) {
      if (!config->sliding_window) {
        tgi_config_unexpected(keys, key, "full_attention in a model without sliding_window");
        return;
      }
      tgi_config_set_sliding(config, i);
    }
  }
}

static void read_window(tgi_config_keys *keys, tgi_config *config)
{
  const int32_t window = tgi_config_integer(keys, "sliding_window", 1, TGI_MAX_POSITIONS, 0);
  const bool used = tgi_config_bool(keys, "use_sliding_window", false);
  if (used && !window) { /* transformers' default is 4096; null means none */
    const bool given = json_object_get(keys->object, "sliding_window") != NULL;
    config->sliding_window = given ? 0 : 4096;
  } else {
    config->sliding_window = used ? window : 0;
  }
  read_layer_types(keys, config);
  bool any = false;
  for (int32_t i = 0; i < config->num_hidden_layers; i++) {
    any = any || tgi_config_slides(config, i);
  }
  config->sliding_window = any ? config->sliding_window : 0;
}

static void read_heads(tgi_config_keys *keys, tgi_config *config)
{
  static const char kv[] = "num_key_value_heads";
  config->num_attention_heads = tgi_config_required(keys, "num_attention_heads", 1, TGI_MAX_HIDDEN);
  config->num_key_value_heads = json_is_null(json_object_get(keys->object, kv))
                                    ? config->num_attention_heads
                                    : tgi_config_required(keys, kv, 1, config->num_attention_heads);
  if (config->num_attention_heads % config->num_key_value_heads != 0) {
    tgi_config_unexpected(keys, kv, "a divisor of num_attention_heads");
  }
  config->head_dim = tgi_config_integer(keys, "head_dim", 1, TGI_MAX_HIDDEN, 128);
  if (config->head_dim % 2 != 0 || (config->rope.type == TG_ROPE_DYNAMIC && config->head_dim < 4)) {
    tgi_config_unexpected(keys, "head_dim", "an even width (with dynamic rope above 2)");
  }
  if ((int64_t)config->head_dim * config->num_attention_heads > TGI_MAX_INTERMEDIATE) {
    tgi_config_unexpected(keys, "head_dim", "a width that fits num_attention_heads");
  }
}

static void refuse_unsupported(tgi_config_keys *keys)
{
  static const char *const activations[] = {"silu"};
  static const char quantized[] = "quantization_config";
  (void)tgi_config_choice(keys, "hidden_act", activations, 1, 0, "silu");
  if (tgi_config_find(keys, quantized)) {
    tgi_config_unsupported(keys, quantized, "none");
  }
}

void tgi_config_read_qwen3(tgi_config_keys *keys, tgi_config *config)
{
  config->vocab_size = tgi_config_required(keys, "vocab_size", 1, TGI_MAX_VOCAB);
  config->hidden_size = tgi_config_required(keys, "hidden_size", 1, TGI_MAX_HIDDEN);
  config->intermediate_size =
      tgi_config_required(keys, "intermediate_size", 1, TGI_MAX_INTERMEDIATE);
  config->num_hidden_layers = tgi_config_required(keys, "num_hidden_layers", 1, TGI_MAX_LAYERS);
  config->max_position_embeddings =
      tgi_config_required(keys, "max_position_embeddings", 1, TGI_MAX_ROPE_POSITIONS);
  config->position = TGI_ROPE;
  tgi_config_read_rope(keys, config->max_position_embeddings, &config->rope);
  read_heads(keys, config);
  read_window(keys, config);

  config->norm = TGI_RMS_NORM;
  config->norm_eps = tgi_config_positive(keys, "rms_norm_eps", TGI_MAX_REAL, 1e-6);
  config->activation = TGI_SWIGLU;
  config->scale_attn_weights = true;
  config->qk_norm = true;
  config->attention_bias = tgi_config_bool(keys, "attention_bias", false);
  config->tie_word_embeddings = tgi_config_bool(keys, "tie_word_embeddings", false);
  config->initializer_range = tgi_config_positive(keys, "initializer_range", TGI_MAX_REAL, 0.02);
  config->bos_token_id = tgi_config_integer(keys, "bos_token_id", 0, INT32_MAX, -1);
  tgi_config_eos(keys, -1, config);
  refuse_unsupported(keys);
}

/** The first field that Qwen3 has no key for, or NULL. */
static const char *foreign_field(const tgi_config *config)
{
  if (config->norm != TGI_RMS_NORM) {
    return "norm";
  }
  if (config->position != TGI_ROPE) {
    return "position";
  }
  if (config->activation != TGI_SWIGLU) {
    return "activation";
  }
  if (!config->scale_attn_weights || config->scale_attn_by_inverse_layer_idx) {
    return "scale of attention";
  }
  if (config->mlp_bias) {
    return "mlp_bias";
  }
  return config->qk_norm ? NULL : "qk_norm";
}

/** Adds the keys of the sliding window. */
static void write_window(const tgi_config *config, json_t *root)
{
  json_t *types = json_array();
  int32_t first = config->num_hidden_layers;
  for (int32_t i = config->num_hidden_layers; i-- > 0;) {
    const bool slides = tgi_config_slides(config, i);
    json_array_insert_new(types, 0, json_string(slides ? sliding : full));
    first = slides ? i : first;
  }
  json_object_set_new(root, "layer_types", types);
  json_object_set_new(root, "max_window_layers", json_integer(first));
  json_object_set_new(root, "sliding_window",
                      config->sliding_window ? json_integer(config->sliding_window) : json_null());
  json_object_set_new(root, "use_sliding_window", json_boolean(config->sliding_window > 0));
}

tg_status tgi_config_write_qwen3(const tgi_config *config, const char *path, json_t *root,
                                 tg_error *error)
{
  const char *foreign = foreign_field(config);
  if (foreign) {
    return tgi_file_error(error, TG_UNSUPPORTED, path, TGI_NO_BYTE,
                          "a model that the keys of Qwen3 describe, got another %s", foreign);
  }
  const struct {
    const char *key;
    json_t *value;
  } members[] = {
      {"architectures", json_pack("[s]", "Qwen3ForCausalLM")},
      {"attention_bias", json_boolean(config->attention_bias)},
      {"attention_dropout", json_real(0)},
      {"bos_token_id", tgi_config_bos_value(config)},
      {"eos_token_id", tgi_config_eos_value(config)},
      {"head_dim", json_integer(config->head_dim)},
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
  write_window(config, root);
  tgi_config_write_rope(&config->rope, root);
  return TG_OK;
}
