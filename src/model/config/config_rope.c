/* The parameters of rotary positions in a config.json: `rope_parameters` (transformers 5), or
 * `rope_scaling` beside `rope_theta` (before). */
#include "config_keys.h"

static const double kDefaultTheta = 1e4;

/** In the order of tg_rope_type, from TG_ROPE_DEFAULT. */
static const char *const type_names[] = {"default", "linear", "dynamic", "llama3", "yarn"};

#define TYPES (sizeof type_names / sizeof type_names[0])

/** The object of that key; NULL: it is empty or absent, and all its keys are. */
static const json_t *find_object(tgi_config_keys *keys, const char *key)
{
  const json_t *value = tgi_config_find(keys, key);
  if (value && !json_is_object(value)) {
    tgi_config_unexpected(keys, key, "an object");
    return NULL;
  }
  return json_object_size(value) ? value : NULL;
}

static tg_rope_type read_type(tgi_config_keys *keys)
{
  const char *key = tgi_config_find(keys, "rope_type") ? "rope_type" : "type";
  return (tg_rope_type)(TG_ROPE_DEFAULT +
                        tgi_config_choice(keys, key, type_names, TYPES, 0,
                                          "default, linear, dynamic, llama3 or yarn"));
}

static double required(tgi_config_keys *keys, const char *key, double low)
{
  if (!tgi_config_find(keys, key)) {
    tgi_config_unexpected(keys, key, "a number");
  }
  return tgi_config_above(keys, key, low, TGI_MAX_ROPE, low + 1);
}

static void read_yarn(tgi_config_keys *keys, tg_rope_parameters *rope)
{
  rope->beta_fast = tgi_config_above(keys, "beta_fast", 0, TGI_MAX_ROPE, 32);
  rope->beta_slow = tgi_config_above(keys, "beta_slow", 0, TGI_MAX_ROPE, 1);
  rope->attention_factor = tgi_config_above(keys, "attention_factor", 0, TGI_MAX_ROPE, 0);
  rope->mscale = tgi_config_above(keys, "mscale", 0, TGI_MAX_ROPE, 0);
  rope->mscale_all_dim = tgi_config_above(keys, "mscale_all_dim", 0, TGI_MAX_ROPE, 0);
  rope->truncate = tgi_config_bool(keys, "truncate", true);
}

static void refuse_unknown(tgi_config_keys *keys)
{
  static const char *const per_layer[] = {"full_attention", "sliding_attention"};
  for (int i = 0; i < 2; i++) {
    if (tgi_config_find(keys, per_layer[i])) {
      tgi_config_unsupported(keys, per_layer[i], "the same parameters for every layer");
    }
  }
  if (tgi_config_above(keys, "partial_rotary_factor", 0, TGI_MAX_ROPE, 1) != 1) {
    tgi_config_unsupported(keys, "partial_rotary_factor", "1");
  }
}

void tgi_config_read_rope(tgi_config_keys *keys, int32_t positions,
                          const tg_rope_parameters *otherwise, tg_rope_parameters *rope)
{
  static const char original[] = "original_max_position_embeddings";
  const json_t *scaling = find_object(keys, "rope_scaling");
  const json_t *parameters = find_object(keys, "rope_parameters");
  const double theta = tgi_config_above(keys, "rope_theta", 1, TGI_MAX_ROPE,
                                        otherwise ? otherwise->theta : kDefaultTheta);
  refuse_unknown(keys);
  /* transformers takes a family's own only where rope_parameters is absent or null. */
  if (otherwise && !scaling && !tgi_config_find(keys, "rope_parameters")) {
    *rope = *otherwise;
    rope->theta = theta;
    return;
  }
  tgi_config_keys inner = *keys;
  inner.object = scaling ? scaling : parameters;
  inner.place = scaling ? "rope_scaling." : "rope_parameters.";
  refuse_unknown(&inner);
  *rope = (tg_rope_parameters){.type = read_type(&inner)};
  rope->theta = tgi_config_above(&inner, "rope_theta", 1, TGI_MAX_ROPE, theta);
  if (rope->type != TG_ROPE_DEFAULT) {
    rope->factor = required(&inner, "factor", 0);
  }
  if (rope->type == TG_ROPE_LLAMA3 || rope->type == TG_ROPE_YARN) {
    /* Where the key stands outside too, transformers takes that one. */
    tgi_config_keys *place = tgi_config_find(keys, original) ? keys : &inner;
    rope->original_max_position_embeddings =
        tgi_config_integer(place, original, 1, TGI_MAX_POSITIONS, positions);
  }
  if (rope->type == TG_ROPE_LLAMA3) {
    rope->low_freq_factor = required(&inner, "low_freq_factor", 0);
    rope->high_freq_factor = required(&inner, "high_freq_factor", rope->low_freq_factor);
  } else if (rope->type == TG_ROPE_YARN) {
    read_yarn(&inner, rope);
  }
  if (keys->status == TG_OK) {
    keys->status = inner.status;
  }
}

static void set_unless_0(json_t *object, const char *key, double value)
{
  if (value != 0) {
    json_object_set_new(object, key, json_real(value));
  }
}

/** Everything but theta. */
static json_t *spell(const tg_rope_parameters *rope)
{
  json_t *object = json_object();
  json_object_set_new(object, "rope_type", json_string(type_names[rope->type - TG_ROPE_DEFAULT]));
  if (rope->type != TG_ROPE_DEFAULT) {
    json_object_set_new(object, "factor", json_real(rope->factor));
  }
  if (rope->type == TG_ROPE_LLAMA3 || rope->type == TG_ROPE_YARN) {
    json_object_set_new(object, "original_max_position_embeddings",
                        json_integer(rope->original_max_position_embeddings));
  }
  if (rope->type == TG_ROPE_LLAMA3) {
    json_object_set_new(object, "low_freq_factor", json_real(rope->low_freq_factor));
    json_object_set_new(object, "high_freq_factor", json_real(rope->high_freq_factor));
  } else if (rope->type == TG_ROPE_YARN) {
    json_object_set_new(object, "beta_fast", json_real(rope->beta_fast));
    json_object_set_new(object, "beta_slow", json_real(rope->beta_slow));
    set_unless_0(object, "attention_factor", rope->attention_factor);
    set_unless_0(object, "mscale", rope->mscale);
    set_unless_0(object, "mscale_all_dim", rope->mscale_all_dim);
    json_object_set_new(object, "truncate", json_boolean(rope->truncate));
  }
  return object;
}

void tgi_config_write_rope(const tg_rope_parameters *rope, json_t *root)
{
  json_t *parameters = spell(rope);
  json_object_set_new(parameters, "rope_theta", json_real(rope->theta));
  json_object_set_new(root, "rope_parameters", parameters);
  json_object_set_new(root, "rope_theta", json_real(rope->theta));
  json_object_set_new(root, "rope_scaling",
                      rope->type == TG_ROPE_DEFAULT ? json_null() : spell(rope));
}
