#include "preset.h"
#include <stdio.h>
#include <string.h>

#define GPT2_VOCAB 50257

typedef struct preset {
  const char *name;
  int32_t layers, heads, hidden, positions;
} preset;

static const preset presets[] = {
    {"gpt_nano", 3, 3, 48, 128},         {"gpt_micro", 4, 4, 128, 256},
    {"gpt_mini", 6, 6, 192, 256},        {"gpt2", 12, 12, 768, 1024},
    {"gpt2-medium", 24, 16, 1024, 1024}, {"gpt2-large", 36, 20, 1280, 1024},
    {"gpt2-xl", 48, 25, 1600, 1024},     {"gpt_tile_small", 4, 4, 64, 128},
    {"gpt_tile_medium", 6, 4, 128, 256}, {"gpt_tile_large", 8, 8, 256, 512},
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
  const int32_t vocab = vocab_size == 0 ? GPT2_VOCAB : vocab_size;
  *config = (tgi_config){
      .model_type = TGI_MODEL_GPT2,
      .dtype = TG_F32,
      .vocab_size = vocab,
      .num_hidden_layers = chosen->layers,
      .hidden_size = chosen->hidden,
      .num_attention_heads = chosen->heads,
      .num_key_value_heads = chosen->heads,
      .head_dim = chosen->hidden / chosen->heads,
      .intermediate_size = 4 * chosen->hidden,
      .max_position_embeddings = chosen->positions,
      .norm = TGI_LAYER_NORM,
      .norm_eps = 1e-5,
      .position = TGI_LEARNED_POSITIONS,
      .activation = TGI_GELU_TANH,
      .scale_attn_weights = true,
      .attention_bias = true,
      .mlp_bias = true,
      .tie_word_embeddings = true,
      .initializer_range = 0.02,
      .bos_token_id = vocab - 1,
      .eos_token_ids = {vocab - 1},
      .num_eos_token_ids = 1,
  };
  return tgi_config_check(config, error);
}
