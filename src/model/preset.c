#include "preset.h"
#include <stdio.h>
#include <string.h>

enum { kGpt2Vocab = 50257, kQwen3Vocab = 151936, kQwen3Begin = 151643, kQwen3End = 151645 };

typedef struct preset {
  const char *name;
  tgi_model_type type;
  int32_t layers, heads, kv_heads, head_dim, hidden, intermediate, positions;
  bool tied;
} preset;

#define GPT2(name, layers, heads, hidden, positions)                                               \
  {                                                                                                \
    name, TGI_MODEL_GPT2, layers, heads, heads, (hidden) / (heads), hidden, 4 * (hidden),          \
        positions, true                                                                            \
  }
#define QWEN3(name, ...)                                                                           \
  {                                                                                                \
    name, TGI_MODEL_QWEN3, __VA_ARGS__                                                             \
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
    QWEN3("qwen3_nano", 4, 4, 2, 32, 128, 384, 256, true),
    QWEN3("qwen3-0.6b", 28, 16, 8, 128, 1024, 3072, 40960, true),
    QWEN3("qwen3-1.7b", 28, 16, 8, 128, 2048, 6144, 40960, true),
    QWEN3("qwen3-4b", 36, 32, 8, 128, 2560, 9728, 40960, true),
    QWEN3("qwen3-8b", 36, 32, 8, 128, 4096, 12288, 40960, false),
};

#define PRESETS (sizeof presets / sizeof presets[0])

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

static void fill_gpt2(tgi_config *config, int32_t vocab_size)
{
  config->vocab_size = vocab_size == 0 ? kGpt2Vocab : vocab_size;
  config->norm = TGI_LAYER_NORM;
  config->norm_eps = 1e-5;
  config->position = TGI_LEARNED_POSITIONS;
  config->activation = TGI_GELU_TANH;
  config->attention_bias = true;
  config->mlp_bias = true;
  config->bos_token_id = config->vocab_size - 1;
  config->eos_token_ids[0] = config->vocab_size - 1;
}

static void fill_qwen3(tgi_config *config, int32_t vocab_size)
{
  const bool own = vocab_size == 0;
  config->vocab_size = own ? kQwen3Vocab : vocab_size;
  config->norm = TGI_RMS_NORM;
  config->norm_eps = 1e-6;
  config->position = TGI_ROPE;
  config->rope = (tg_rope_parameters){.type = TG_ROPE_DEFAULT, .theta = 1e6};
  config->activation = TGI_SWIGLU;
  config->qk_norm = true;
  config->bos_token_id = own ? kQwen3Begin : vocab_size - 1;
  config->eos_token_ids[0] = own ? kQwen3End : vocab_size - 1;
}

tg_status tgi_preset(const char *name, int32_t vocab_size, tgi_config *config, tg_error *error)
{
  const preset *chosen = NULL;
  for (size_t i = 0; i < PRESETS; i++) {
    if (strcmp(presets[i].name, name) == 0) {
      chosen = &presets[i];
    }
  }
  if (!chosen) {
    return unknown_name(name, error);
  }
  *config = (tgi_config){
      .model_type = chosen->type,
      .dtype = TG_F32,
      .num_hidden_layers = chosen->layers,
      .hidden_size = chosen->hidden,
      .num_attention_heads = chosen->heads,
      .num_key_value_heads = chosen->kv_heads,
      .head_dim = chosen->head_dim,
      .intermediate_size = chosen->intermediate,
      .max_position_embeddings = chosen->positions,
      .scale_attn_weights = true,
      .tie_word_embeddings = chosen->tied,
      .initializer_range = 0.02,
      .num_eos_token_ids = 1,
  };
  if (chosen->type == TGI_MODEL_QWEN3) {
    fill_qwen3(config, vocab_size);
  } else {
    fill_gpt2(config, vocab_size);
  }
  return tgi_config_check(config, error);
}
