#include "preset.h"

#include "core/error_record.h"
#include "model/weights/parameters.h"
#include "tegula/model.h"
#include <stdio.h>
#include <string.h>

/** What the presets of a family share. */
typedef struct family {
  tgi_model_type type;
  int32_t vocab_size, bos, eos; /* of its own tokenizer */
  double eps;                   /* of norms */
  tg_rope_parameters rope;      /* a type of 0: learned positions */
  bool attention_bias, output_bias, mlp_bias, qk_norm;
  tg_router_scoring router; /* 0: no experts */
  double router_aux_loss_coef;
} family;

static const family gpt2 = {.type = TGI_MODEL_GPT2,
                            .vocab_size = 50257,
                            .bos = 50256,
                            .eos = 50256,
                            .eps = 1e-5,
                            .attention_bias = true,
                            .output_bias = true,
                            .mlp_bias = true};

static const family qwen3 = {.type = TGI_MODEL_QWEN3,
                             .vocab_size = 151936,
                             .bos = 151643,
                             .eos = 151645,
                             .eps = 1e-6,
                             .rope = {.type = TG_ROPE_DEFAULT, .theta = 1e6},
                             .qk_norm = true};

static const family qwen2 = {.type = TGI_MODEL_QWEN2,
                             .vocab_size = 151936,
                             .bos = 151643,
                             .eos = 151645,
                             .eps = 1e-6,
                             .rope = {.type = TG_ROPE_DEFAULT, .theta = 1e6},
                             .attention_bias = true};

#define LLAMA3(times)                                                                              \
  {                                                                                                \
    .type = TGI_MODEL_LLAMA, .vocab_size = 128256, .bos = 128000, .eos = 128001, .eps = 1e-5,      \
    .rope = {                                                                                      \
      .type = TG_ROPE_LLAMA3,                                                                      \
      .theta = 5e5,                                                                                \
      .factor = (times),                                                                           \
      .low_freq_factor = 1,                                                                        \
      .high_freq_factor = 4,                                                                       \
      .original_max_position_embeddings = 8192                                                     \
    }                                                                                              \
  }

static const family llama31 = LLAMA3(8), llama32 = LLAMA3(32);

static const family qwen3_moe = {.type = TGI_MODEL_QWEN3_MOE,
                                 .vocab_size = 151936,
                                 .bos = 151643,
                                 .eos = 151645,
                                 .eps = 1e-6,
                                 .rope = {.type = TG_ROPE_DEFAULT, .theta = 1e6},
                                 .qk_norm = true,
                                 .router = TG_ROUTER_RENORMALIZED,
                                 .router_aux_loss_coef = 0.001};

static const family mixtral = {.type = TGI_MODEL_MIXTRAL,
                               .vocab_size = 32000,
                               .bos = 1,
                               .eos = 2,
                               .eps = 1e-5,
                               .rope = {.type = TG_ROPE_DEFAULT, .theta = 1e6},
                               .router = TG_ROUTER_RENORMALIZED,
                               .router_aux_loss_coef = 0.02};

static const family gpt_oss = {.type = TGI_MODEL_GPT_OSS,
                               .vocab_size = 201088,
                               .bos = 199998,
                               .eos = 200002,
                               .eps = 1e-5,
                               .rope = {.type = TG_ROPE_YARN,
                                        .theta = 150000,
                                        .factor = 32,
                                        .original_max_position_embeddings = 4096,
                                        .beta_fast = 32,
                                        .beta_slow = 1},
                               .attention_bias = true,
                               .output_bias = true,
                               .mlp_bias = true,
                               .router = TG_ROUTER_SELECTED,
                               .router_aux_loss_coef = 0.9};

typedef struct preset {
  const char *name;
  const family *family;
  int32_t layers, heads, kv_heads, head_dim, hidden, intermediate, positions;
  bool tied;
  int32_t experts, experts_per_token; /* 0: none */
} preset;

#define GPT2(name, layers, heads, hidden, positions)                                               \
  {                                                                                                \
    name, &gpt2, layers, heads, heads, (hidden) / (heads), hidden, 4 * (hidden), positions, true,  \
        0, 0                                                                                       \
  }

static const preset presets[] = {
    GPT2("gpt_nano", 3, 3, 48, 128),
    GPT2("gpt_micro", 4, 4, 128, 256),
    GPT2("gpt_mini", 6, 6, 192, 256),
    GPT2("gpt2", 12, 12, 768, 1024),
    GPT2("gpt2-medium", 24, 16, 1024, 1024),
    GPT2("gpt2-large", 36, 20, 1280, 1024),
    GPT2("gpt2-xl", 48, 25, 1600, 1024),
    GPT2("gpt_tile_small", 4, 4, 64, 128),
    GPT2("gpt_tile_medium", 6, 4, 128, 256),
    GPT2("gpt_tile_large", 8, 8, 256, 512),
    {"qwen3_nano", &qwen3, 4, 4, 2, 32, 128, 384, 256, true},
    {"qwen3-0.6b", &qwen3, 28, 16, 8, 128, 1024, 3072, 40960, true},
    {"qwen3-1.7b", &qwen3, 28, 16, 8, 128, 2048, 6144, 40960, true},
    {"qwen3-4b", &qwen3, 36, 32, 8, 128, 2560, 9728, 40960, true},
    {"qwen3-8b", &qwen3, 36, 32, 8, 128, 4096, 12288, 40960, false},
    {"qwen3-14b", &qwen3, 40, 40, 8, 128, 5120, 17408, 40960, false},
    {"qwen3-32b", &qwen3, 64, 64, 8, 128, 5120, 25600, 40960, false},
    {"qwen2.5-0.5b", &qwen2, 24, 14, 2, 64, 896, 4864, 32768, true},
    {"llama-3.2-1b", &llama32, 16, 32, 8, 64, 2048, 8192, 131072, true},
    {"llama-3.2-3b", &llama32, 28, 24, 8, 128, 3072, 8192, 131072, true},
    {"llama-3.1-8b", &llama31, 32, 32, 8, 128, 4096, 14336, 131072, false},
    {"qwen3_moe_nano", &qwen3_moe, 4, 4, 2, 32, 128, 192, 256, true, 8, 2},
    {"qwen3-30b-a3b", &qwen3_moe, 48, 32, 4, 128, 2048, 768, 40960, false, 128, 8},
    {"qwen3-235b-a22b", &qwen3_moe, 94, 64, 4, 128, 4096, 1536, 40960, false, 128, 8},
    {"mixtral-8x7b", &mixtral, 32, 32, 8, 128, 4096, 14336, 32768, false, 8, 2},
    {"gpt_oss_nano", &gpt_oss, 4, 4, 2, 32, 128, 192, 256, true, 8, 2},
    {"gpt-oss-20b", &gpt_oss, 24, 64, 8, 64, 2880, 2880, 131072, false, 32, 4},
    {"gpt-oss-120b", &gpt_oss, 36, 64, 8, 64, 2880, 2880, 131072, false, 128, 4},
};

#define PRESETS (sizeof presets / sizeof presets[0])

/** Other names: those of minGPT and of cutileGPT. */
static const struct {
  const char *name, *means;
} aliases[] = {
    {"nano", "gpt_nano"},
    {"micro", "gpt_micro"},
    {"mini", "gpt_mini"},
    {"gpt2_medium", "gpt2-medium"},
    {"gpt2_large", "gpt2-large"},
    {"gpt2_xl", "gpt2-xl"},
    {"tile-small", "gpt_tile_small"},
    {"tile-medium", "gpt_tile_medium"},
    {"tile-large", "gpt_tile_large"},
};

const char *tgi_preset_name(size_t index)
{
  return index < PRESETS ? presets[index].name : NULL;
}

static tg_status unknown_name(const char *name, tg_error *error)
{
  if (!error) {
    return TG_BAD_ARGUMENT;
  }
  error->status = TG_BAD_ARGUMENT;
  size_t used = (size_t)snprintf(error->text, sizeof error->text, "preset: name: expected one of");
  for (size_t i = 0; i < PRESETS; i++) {
    used += (size_t)snprintf(error->text + used, sizeof error->text - used, "%s %s",
                             i > 0 ? "," : "", presets[i].name);
  }
  snprintf(error->text + used, sizeof error->text - used, ", got %.64s", name);
  return TG_BAD_ARGUMENT;
}

static const preset *find(const char *name)
{
  for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
    if (strcmp(aliases[i].name, name) == 0) {
      name = aliases[i].means;
    }
  }
  for (size_t i = 0; i < PRESETS; i++) {
    if (strcmp(presets[i].name, name) == 0) {
      return &presets[i];
    }
  }
  return NULL;
}

/* What GPT-OSS has and no other family. */
static void make_gpt_oss(tgi_config *config)
{
  config->norm_rounds_once = true;
  config->activation = TGI_SWIGLU_CLAMPED;
  config->swiglu_alpha = 1.702;
  config->swiglu_limit = 7;
  config->router_bias = config->interleaved_experts = config->sinks = true;
  config->sliding_window = 128;
  for (int32_t i = 0; i < config->num_hidden_layers; i += 2) {
    tgi_config_set_sliding(config, i);
  }
}

tg_status tgi_preset(const char *name, int32_t vocab_size, tgi_config *config, tg_error *error)
{
  const preset *chosen = find(name);
  if (!chosen) {
    return unknown_name(name, error);
  }
  const family *f = chosen->family;
  const bool own = vocab_size == 0, rope = f->rope.type != 0;
  *config = (tgi_config){
      .model_type = f->type,
      .dtype = TG_F32,
      .vocab_size = own ? f->vocab_size : vocab_size,
      .num_hidden_layers = chosen->layers,
      .hidden_size = chosen->hidden,
      .num_attention_heads = chosen->heads,
      .num_key_value_heads = chosen->kv_heads,
      .head_dim = chosen->head_dim,
      .intermediate_size = chosen->intermediate,
      .max_position_embeddings = chosen->positions,
      .norm = rope ? TGI_RMS_NORM : TGI_LAYER_NORM,
      .norm_eps = f->eps,
      .position = rope ? TGI_ROPE : TGI_LEARNED_POSITIONS,
      .rope = f->rope,
      .activation = rope ? TGI_SWIGLU : TGI_GELU_TANH,
      .scale_attn_weights = true,
      .attention_bias = f->attention_bias,
      .output_bias = f->output_bias,
      .mlp_bias = f->mlp_bias,
      .qk_norm = f->qk_norm,
      .tie_word_embeddings = chosen->tied,
      .num_experts = chosen->experts,
      .experts_per_token = chosen->experts_per_token,
      .router = f->router,
      .router_aux_loss_coef = f->router_aux_loss_coef,
      .initializer_range = 0.02,
      .bos_token_id = own ? f->bos : vocab_size - 1,
      .eos_token_ids = {own ? f->eos : vocab_size - 1},
      .num_eos_token_ids = 1,
  };
  if (f->type == TGI_MODEL_GPT_OSS) {
    make_gpt_oss(config);
  }
  return tgi_config_check(config, error);
}

static tg_status count_parameters(const tgi_config *config, int64_t *count)
{
  tgi_parameters parameters = {0};
  const tg_status status = tgi_parameters_create(config, &parameters, NULL);
  *count = parameters.num_parameters;
  tgi_parameters_free(&parameters);
  return status;
}

tg_status tg_preset_get(size_t index, tg_preset *out)
{
  tgi_config config = {.vocab_size = 0};
  int64_t num_parameters = 0;
  if (!out || index >= PRESETS) {
    return TG_BAD_ARGUMENT;
  }
  tg_status status = tgi_preset(presets[index].name, 0, &config, NULL);
  status = status ? status : count_parameters(&config, &num_parameters);
  if (status != TG_OK) {
    return status;
  }
  *out = (tg_preset){.name = presets[index].name,
                     .model_type = tgi_model_type_name(config.model_type),
                     .vocab_size = config.vocab_size,
                     .num_hidden_layers = config.num_hidden_layers,
                     .hidden_size = config.hidden_size,
                     .num_attention_heads = config.num_attention_heads,
                     .num_key_value_heads = config.num_key_value_heads,
                     .head_dim = config.head_dim,
                     .intermediate_size = config.intermediate_size,
                     .max_position_embeddings = config.max_position_embeddings,
                     .tie_word_embeddings = config.tie_word_embeddings,
                     .num_parameters = num_parameters};
  return TG_OK;
}

tg_status tg_preset_config(const char *name, int32_t vocab_size, char *text, size_t capacity,
                           size_t *size, tg_error *error)
{
  tgi_config config = {.vocab_size = 0};
  char *whole = NULL;
  if (!name || !size || (capacity > 0 && !text)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "preset_config: preset, size, text: expected pointers, got NULL");
  }
  tg_status status = tgi_preset(name, vocab_size, &config, error);
  status = status ? status : tgi_config_text(&config, &whole, error);
  if (status != TG_OK) {
    return status;
  }
  *size = strlen(whole);
  if (capacity >= *size) {
    memcpy(text, whole, *size);
  } else if (capacity > 0) {
    status = tgi_error_set(error, TG_BAD_ARGUMENT,
                           "preset_config: capacity: expected 0, or %zu bytes, got %zu", *size,
                           capacity);
  }
  tgi_config_free_text(whole);
  return status;
}
