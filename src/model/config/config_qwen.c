/* Qwen2 (arXiv:2412.15115) and Qwen3 (arXiv:2505.09388) as transformers' Qwen2Config and
 * Qwen3Config spell them, with their defaults for optional keys: Llama's keys and windows. */
#include "config_keys.h"
#include <string.h>

static const char full[] = "full_attention", sliding[] = "sliding_attention";

bool tgi_config_read_layer_types(tgi_config_keys *keys, tgi_config *config)
{
  static const char key[] = "layer_types";
  const json_t *list = tgi_config_find(keys, key);
  if (!list) {
    return false;
  }
  if (json_array_size(list) != (size_t)config->num_hidden_layers) {
    tgi_config_unexpected(keys, key, "a list of one name for each of num_hidden_layers");
    return true;
  }
  for (int32_t i = 0; i < config->num_hidden_layers; i++) {
    const char *name = json_string_value(json_array_get(list, (size_t)i));
    if (!name || (strcmp(name, full) != 0 && strcmp(name, sliding) != 0)) {
      tgi_config_unsupported(keys, key, "full_attention or sliding_attention for every layer");
      return true;
    }
    if (strcmp(name, sliding) == 0) {
      if (!config->sliding_window) {
        tgi_config_unexpected(keys, key, "full_attention in a model without sliding_window");
        return true;
      }
      tgi_config_set_sliding(config, i);
    }
  }
  return true;
}

json_t *tgi_config_layer_types_value(const tgi_config *config)
{
  json_t *types = json_array();
  for (int32_t i = 0; i < config->num_hidden_layers; i++) {
    json_array_append_new(types, json_string(tgi_config_slides(config, i) ? sliding : full));
  }
  return types;
}

void tgi_config_settle_window(tgi_config *config)
{
  bool any = false;
  for (int32_t i = 0; i < config->num_hidden_layers; i++) {
    any = any || tgi_config_slides(config, i);
  }
  config->sliding_window = any ? config->sliding_window : 0;
}

/** Which layers slide: `layer_types`, else those from `max_window_layers` on. */
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
  const int32_t first = tgi_config_integer(keys, "max_window_layers", 0, INT32_MAX, 28);
  if (!tgi_config_read_layer_types(keys, config)) {
    for (int32_t i = first; i < config->num_hidden_layers && config->sliding_window; i++) {
      tgi_config_set_sliding(config, i);
    }
  }
  tgi_config_settle_window(config);
}

/** Adds the keys of the sliding window. */
static void write_window(const tgi_config *config, json_t *root)
{
  int32_t first = config->num_hidden_layers;
  for (int32_t i = config->num_hidden_layers; i-- > 0;) {
    first = tgi_config_slides(config, i) ? i : first;
  }
  json_object_set_new(root, "layer_types", tgi_config_layer_types_value(config));
  json_object_set_new(root, "max_window_layers", json_integer(first));
  json_object_set_new(root, "sliding_window",
                      config->sliding_window ? json_integer(config->sliding_window) : json_null());
  json_object_set_new(root, "use_sliding_window", json_boolean(config->sliding_window > 0));
}

/* ---- Qwen2 ---- */

static const tgi_llama_kind kQwen2 = {
    .name = "Qwen2", .architecture = "Qwen2ForCausalLM", .bos = -1, .eos = -1};

void tgi_config_read_qwen2(tgi_config_keys *keys, tgi_config *config)
{
  tgi_config_read_llama_keys(keys, &kQwen2, config);
  config->attention_bias = true;
  read_window(keys, config);
}

static const char *foreign_to_qwen2(const tgi_config *config)
{
  if (config->qk_norm) {
    return "qk_norm";
  }
  if (!config->attention_bias) {
    return "attention_bias";
  }
  if (config->output_bias) {
    return "output_bias";
  }
  return config->mlp_bias ? "mlp_bias" : NULL;
}

tg_status tgi_config_write_qwen2(const tgi_config *config, const char *path, json_t *root,
                                 tg_error *error)
{
  write_window(config, root);
  return tgi_config_write_llama_keys(config, &kQwen2, foreign_to_qwen2(config), path, root, error);
}

/* ---- Qwen3 ---- */

static const tgi_llama_kind kQwen3 = {.name = "Qwen3",
                                      .architecture = "Qwen3ForCausalLM",
                                      .head_dim = 128,
                                      .bos = -1,
                                      .eos = -1,
                                      .has_head_dim = true};

void tgi_config_read_qwen3(tgi_config_keys *keys, tgi_config *config)
{
  tgi_config_read_llama_keys(keys, &kQwen3, config);
  config->qk_norm = true;
  config->attention_bias = tgi_config_bool(keys, "attention_bias", false);
  config->output_bias = config->attention_bias;
  read_window(keys, config);
}

static const char *foreign_to_qwen3(const tgi_config *config)
{
  if (!config->qk_norm) {
    return "qk_norm";
  }
  if (config->output_bias != config->attention_bias) {
    return "output_bias";
  }
  return config->mlp_bias ? "mlp_bias" : NULL;
}

tg_status tgi_config_write_qwen3(const tgi_config *config, const char *path, json_t *root,
                                 tg_error *error)
{
  json_object_set_new(root, "attention_bias", json_boolean(config->attention_bias));
  write_window(config, root);
  return tgi_config_write_llama_keys(config, &kQwen3, foreign_to_qwen3(config), path, root, error);
}
