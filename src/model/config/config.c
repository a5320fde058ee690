#include "config.h"
#include "config_keys.h"
#include "files/file_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 20)

/** X(op's dtype, name in the file) */
#define WEIGHT_DTYPE_MAP(X)                                                                        \
  X(TG_F32, "float32")                                                                             \
  X(TG_F16, "float16")                                                                             \
  X(TG_BF16, "bfloat16")

typedef struct family {
  const char *name;
  void (*read)(tgi_config_keys *keys, tgi_config *config);
  tg_status (*write)(const tgi_config *config, const char *path, json_t *root, tg_error *error);
} family;

static const family families[TGI_MODEL_TYPES] = {
    [TGI_MODEL_GPT2] = {"gpt2", tgi_config_read_gpt2, tgi_config_write_gpt2},
    [TGI_MODEL_LLAMA] = {"llama", tgi_config_read_llama, tgi_config_write_llama},
    [TGI_MODEL_QWEN2] = {"qwen2", tgi_config_read_qwen2, tgi_config_write_qwen2},
    [TGI_MODEL_QWEN3] = {"qwen3", tgi_config_read_qwen3, tgi_config_write_qwen3},
    [TGI_MODEL_QWEN3_MOE] = {"qwen3_moe", tgi_config_read_qwen3_moe, tgi_config_write_qwen3_moe},
    [TGI_MODEL_MIXTRAL] = {"mixtral", tgi_config_read_mixtral, tgi_config_write_mixtral},
    [TGI_MODEL_GPT_OSS] = {"gpt_oss", tgi_config_read_gpt_oss, tgi_config_write_gpt_oss},
};

#define NAME_OR(code, name) " or \"" name "\""
static const char known_types[] = TGI_MODEL_TYPE_MAP(NAME_OR);
#undef NAME_OR

const char *tgi_model_type_name(tgi_model_type type)
{
  return families[type].name;
}

static tgi_model_type read_type(tgi_config_keys *keys)
{
  const char *name = json_string_value(tgi_config_find(keys, "model_type"));
  if (!name) {
    tgi_config_unexpected(keys, "model_type", "the name of a model family");
    return TGI_MODEL_TYPES;
  }
  for (int i = 0; i < TGI_MODEL_TYPES; i++) {
    if (strcmp(name, families[i].name) == 0) {
      return (tgi_model_type)i;
    }
  }
  tgi_config_unsupported(keys, "model_type", known_types + strlen(" or "));
  return TGI_MODEL_TYPES;
}

/** transformers 5 says dtype, earlier ones torch_dtype; files may have neither. */
static tg_dtype read_dtype(tgi_config_keys *keys)
{
  const char *key = tgi_config_find(keys, "dtype") ? "dtype" : "torch_dtype";
  const json_t *value = tgi_config_find(keys, key);
  if (!value) {
    return TG_F32;
  }
  if (!json_is_string(value)) {
    tgi_config_unexpected(keys, key, "the name of a dtype");
    return TG_F32;
  }
#define MATCH(dtype, name)                                                                         \
  if (strcmp(json_string_value(value), name) == 0)                                                 \
    return dtype;
  WEIGHT_DTYPE_MAP(MATCH)
#undef MATCH
  tgi_config_unsupported(keys, key, "float32, float16 or bfloat16");
  return TG_F32;
}

static tg_status read_config(const tgi_json *json, tgi_config *config, tg_error *error)
{
  if (!json_is_object(json->root)) {
    return tgi_json_refuse(json, TG_BAD_FILE, json->root, error, "expected an object");
  }
  tgi_config_keys keys = {.json = json, .object = json->root, .place = "", .error = error};
  *config = (tgi_config){.model_type = read_type(&keys)};
  if (keys.status != TG_OK) {
    return keys.status;
  }
  config->dtype = read_dtype(&keys);
  families[config->model_type].read(&keys, config);
  return keys.status;
}

tg_status tgi_config_parse(const char *path, const char *text, size_t size, tgi_config *config,
                           tg_error *error)
{
  tgi_json json;
  tg_status status = tgi_json_parse(path, text, size, 0, TGI_CONFIG_FLAGS, &json, error);
  if (status == TG_OK) {
    status = read_config(&json, config, error);
    json_decref(json.root);
  }
  return status;
}

tg_status tgi_config_read(const char *path, tgi_config *config, tg_error *error)
{
  tgi_json json;
  tg_status status = tgi_json_load(path, FILE_LIMIT, TGI_CONFIG_FLAGS, &json, error);
  if (status == TG_OK) {
    status = read_config(&json, config, error);
    json_decref(json.root);
  }
  return status;
}

static tg_status bad_field(tg_error *error, const char *field, const char *rule, double value)
{
  if (error) {
    error->status = TG_BAD_ARGUMENT;
    snprintf(error->text, sizeof error->text, "config: %s: expected %s, got %.15g", field, rule,
             value);
  }
  return TG_BAD_ARGUMENT;
}

static tg_status bad_extent(tg_error *error, const char *field, int limit, int value)
{
  char rule[64];
  snprintf(rule, sizeof rule, "an extent from 1 to %d", limit);
  return bad_field(error, field, rule, value);
}

#define CHECK(field, condition, rule)                                                              \
  if (!(condition))                                                                                \
    return bad_field(error, #field, rule, (double)config->field);
#define CHECK_ROPE(field, low)                                                                     \
  CHECK(rope.field, config->rope.field > (low) && config->rope.field <= TGI_MAX_ROPE,              \
        "a number above " #low ", at most 1e12")

static tg_status check_rope(const tgi_config *config, tg_error *error)
{
  const tg_rope_type type = config->rope.type;
  CHECK(rope.type, type >= TG_ROPE_DEFAULT && type <= TG_ROPE_YARN, "a type of rope")
  CHECK(head_dim, config->head_dim % 2 == 0 && (type != TG_ROPE_DYNAMIC || config->head_dim > 2),
        "an even width with rope (above 2 with dynamic)")
  CHECK(max_position_embeddings, config->max_position_embeddings <= TGI_MAX_ROPE_POSITIONS,
        "at most 2^24 with rope")
  CHECK_ROPE(theta, 1)
  if (type != TG_ROPE_DEFAULT) {
    CHECK_ROPE(factor, 0)
  }
  if (type == TG_ROPE_LLAMA3 || type == TG_ROPE_YARN) {
    CHECK_ROPE(original_max_position_embeddings, 0)
  }
  if (type == TG_ROPE_LLAMA3) {
    CHECK_ROPE(low_freq_factor, 0)
    CHECK(rope.high_freq_factor,
          config->rope.high_freq_factor > config->rope.low_freq_factor &&
              config->rope.high_freq_factor <= TGI_MAX_ROPE,
          "a number above low_freq_factor, at most 1e12")
  }
  if (type == TG_ROPE_YARN) {
    CHECK_ROPE(beta_fast, 0)
    CHECK_ROPE(beta_slow, 0)
    CHECK(rope.attention_factor,
          config->rope.attention_factor >= 0 && config->rope.attention_factor <= TGI_MAX_ROPE,
          "a number from 0, at most 1e12")
    CHECK(rope.mscale, isfinite(config->rope.mscale), "a finite number")
    CHECK(rope.mscale_all_dim, isfinite(config->rope.mscale_all_dim), "a finite number")
  }
  return TG_OK;
}

/** A window, and only then layers that slide, all of them layers of the model. */
static tg_status check_window(const tgi_config *config, tg_error *error)
{
  CHECK(sliding_window, config->sliding_window >= 0, "0 or a number of keys")
  bool any = false;
  for (int i = 0; i < TGI_MAX_LAYERS; i++) {
    const bool slides = tgi_config_slides(config, i);
    CHECK(num_hidden_layers, !slides || i < config->num_hidden_layers, "every layer that slides")
    any = any || slides;
  }
  CHECK(sliding_window, any == (config->sliding_window > 0),
        "a window where a layer slides, 0 elsewhere")
  return TG_OK;
}

static tg_status check_experts(const tgi_config *config, tg_error *error)
{
  const bool clamped = config->activation == TGI_SWIGLU_CLAMPED;
  CHECK(num_experts, config->num_experts >= 0, "0 or a number of experts")
  CHECK(num_experts,
        (int64_t)config->num_experts * config->intermediate_size <= TGI_MAX_INTERMEDIATE,
        "a number that fits intermediate_size")
  CHECK(experts_per_token,
        config->num_experts
            ? config->experts_per_token > 0 && config->experts_per_token <= config->num_experts
            : config->experts_per_token == 0,
        "1 to num_experts, 0 without experts")
  CHECK(router,
        config->num_experts
            ? config->router >= TG_ROUTER_SELECTED && config->router <= TG_ROUTER_RENORMALIZED
            : !config->router && !config->router_bias,
        "a scoring with experts, 0 without")
  CHECK(activation, config->num_experts ? config->activation >= TGI_SWIGLU : !clamped,
        "swiglu or swiglu_clamped with experts, another than swiglu_clamped without")
  CHECK(swiglu_alpha,
        clamped ? config->swiglu_alpha > 0 && config->swiglu_alpha <= TGI_MAX_REAL
                : config->swiglu_alpha == 0,
        "a number above 0, at most 1000, with swiglu_clamped; 0 without")
  CHECK(swiglu_limit,
        clamped ? config->swiglu_limit > 0 && config->swiglu_limit <= TGI_MAX_REAL
                : config->swiglu_limit == 0,
        "a number above 0, at most 1000, with swiglu_clamped; 0 without")
  CHECK(router_aux_loss_coef,
        config->router_aux_loss_coef >= 0 && config->router_aux_loss_coef <= TGI_MAX_REAL,
        "a number from 0 to 1000")
  return TG_OK;
}

tg_status tgi_config_check(const tgi_config *config, tg_error *error)
{
#define CHECK_EXTENT(field, limit)                                                                 \
  if (config->field < 1 || config->field > (limit))                                                \
    return bad_extent(error, #field, limit, config->field);
  CHECK(model_type, (unsigned)config->model_type < TGI_MODEL_TYPES, "a model type")
  CHECK(dtype, config->dtype == TG_F32 || config->dtype == TG_F16 || config->dtype == TG_BF16,
        "f32, f16 or bf16")
  CHECK_EXTENT(vocab_size, TGI_MAX_VOCAB)
  CHECK_EXTENT(num_hidden_layers, TGI_MAX_LAYERS)
  CHECK_EXTENT(hidden_size, TGI_MAX_HIDDEN)
  CHECK_EXTENT(num_attention_heads, TGI_MAX_HIDDEN)
  CHECK_EXTENT(num_key_value_heads, TGI_MAX_HIDDEN)
  CHECK_EXTENT(head_dim, TGI_MAX_HIDDEN)
  CHECK_EXTENT(intermediate_size, TGI_MAX_INTERMEDIATE)
  CHECK_EXTENT(max_position_embeddings, TGI_MAX_POSITIONS)
  CHECK(num_key_value_heads, config->num_attention_heads % config->num_key_value_heads == 0,
        "a divisor of num_attention_heads")
  CHECK(head_dim, (int64_t)config->head_dim * config->num_attention_heads <= TGI_MAX_INTERMEDIATE,
        "a width that fits its number of heads")
  CHECK(norm, config->norm == TGI_LAYER_NORM || config->norm == TGI_RMS_NORM, "a norm")
  CHECK(norm_eps, config->norm_eps > 0 && config->norm_eps <= TGI_MAX_REAL,
        "a number above 0, at most 1000")
  CHECK(position, config->position == TGI_LEARNED_POSITIONS || config->position == TGI_ROPE,
        "a position kind")
  CHECK(rope.type, config->position == TGI_ROPE || !config->rope.type, "0 without rope")
  CHECK(qk_norm, config->position == TGI_ROPE || !config->qk_norm, "false without rope")
  CHECK(activation, (unsigned)config->activation <= TGI_SWIGLU_CLAMPED, "an activation")
  CHECK(initializer_range,
        config->initializer_range > 0 && config->initializer_range <= TGI_MAX_REAL,
        "a number above 0, at most 1000")
  CHECK(bos_token_id, config->bos_token_id >= -1, "an id, or -1")
  CHECK(num_eos_token_ids,
        config->num_eos_token_ids >= 0 && config->num_eos_token_ids <= TGI_MAX_EOS_IDS,
        "a number from 0 to 8")
  for (int32_t i = 0; i < config->num_eos_token_ids; i++) {
    CHECK(eos_token_ids[i], config->eos_token_ids[i] >= 0, "an id")
  }
  tg_status status = config->position == TGI_ROPE ? check_rope(config, error) : TG_OK;
  status = status ? status : check_experts(config, error);
  return status ? status : check_window(config, error);
}

#undef CHECK_EXTENT
#undef CHECK_ROPE
#undef CHECK

static const char *dtype_name(tg_dtype dtype)
{
#define MATCH(value, name)                                                                         \
  if (dtype == (value))                                                                            \
    return name;
  WEIGHT_DTYPE_MAP(MATCH)
#undef MATCH
  return NULL;
}

/** Whether 15 digits read back as the same double; 17 always do, but say 1.0000000000000001e-5. */
static bool keeps_15_digits(double value)
{
  char text[32];
  snprintf(text, sizeof text, "%.15g", value);
  return strtod(text, NULL) == value;
}

/** As many digits as every real of the configuration needs. */
static size_t precision(const tgi_config *config)
{
  const tg_rope_parameters *r = &config->rope;
  const double reals[] = {
      config->norm_eps,
      config->initializer_range,
      r->theta,
      r->factor,
      r->low_freq_factor,
      r->high_freq_factor,
      r->beta_fast,
      r->beta_slow,
      r->attention_factor,
      r->mscale,
      r->mscale_all_dim,
      config->swiglu_alpha,
      config->swiglu_limit,
      config->router_aux_loss_coef,
  };
  bool brief = true;
  for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
    brief = brief && keeps_15_digits(reals[i]);
  }
  return JSON_REAL_PRECISION(brief ? 15 : 17);
}

/** The document; NULL with *status set. */
static json_t *make_root(const tgi_config *config, const char *path, tg_status *status,
                         tg_error *error)
{
  *status = tgi_config_check(config, error);
  if (*status != TG_OK) {
    return NULL;
  }
  json_t *root = tgi_json_new();
  json_object_set_new(root, "model_type", json_string(tgi_model_type_name(config->model_type)));
  json_object_set_new(root, "dtype", json_string(dtype_name(config->dtype)));
  *status = families[config->model_type].write(config, path, root, error);
  if (*status != TG_OK) {
    json_decref(root);
    return NULL;
  }
  return root;
}

tg_status tgi_config_write(const tgi_config *config, const char *path, tg_error *error)
{
  tg_status status;
  json_t *root = make_root(config, path, &status, error);
  return status ? status : tgi_json_save(path, root, precision(config), error);
}

tg_status tgi_config_text(const tgi_config *config, char **text, tg_error *error)
{
  tg_status status;
  *text = NULL;
  json_t *root = make_root(config, "config", &status, error);
  return status ? status
                : tgi_json_text("config", root, precision(config) | JSON_INDENT(2), text, error);
}

void tgi_config_free_text(char *text)
{
  tgi_json_free_text(text);
}
