#include "generation_options.h"

#include <string.h>

#define ROW(option, letter, field, argument, kind, min, max, help)                                 \
  {                                                                                                \
    option, argument, TGI_AT(tgi_generation_options, field), min, max, help, TGI_OPTION_##kind,    \
        letter                                                                                     \
  }
/* The name that llama.cpp's programs have for the row above. */
#define ALSO(option)                                                                               \
  {                                                                                                \
    .name = option                                                                                 \
  }

const tgi_option tgi_generation_rows[] = {
    ROW("max-tokens", 'n', max_tokens, "N", I64, -1, TGI_ANY_I64,
        "largest number of tokens to generate; -1: as many as fit (that of "
        "generation_config.json, else -1)"),
    ALSO("n-predict"),
    ALSO("predict"),
    ROW("temperature", 0, temperature, "X", F64, 0, 1000,
        "0: always the most probable token; 1: the model's probabilities (likewise, else 1)"),
    ALSO("temp"),
    ROW("top-k", 0, top_k, "N", I32, 0, TGI_ANY_I32,
        "sample from the N most probable tokens; 0: all (likewise, else 0)"),
    ROW("top-p", 0, top_p, "X", F64, 0, 1,
        "sample from the fewest tokens whose probabilities sum to X (likewise, else 1)"),
    ROW("min-p", 0, min_p, "X", F64, 0, 1,
        "sample from the tokens with at least X times the largest probability (likewise, else 0)"),
    ROW("seed", 's', seed, "N", I64, 0, TGI_ANY_I64,
        "seed of the sampling; the same seed gives the same text (0)"),
    ROW("threads", 't', threads, "N", I32, 1, 4096, "CPU threads (one per CPU)"),
    ROW("device", 0, device, "DEVICE", TEXT, 0, 0, "cpu, cuda or cuda:N (cpu)"),
    ROW("dtype", 0, dtype, "DTYPE", TEXT, 0, 0,
        "dtype of the weights in memory: f32, f16 or bf16 (what the files hold)"),
    ROW("ctx", 'c', ctx, "N", I32, 1, TGI_ANY_I32,
        "largest number of tokens, prompt and text together (what the model's positions and half "
        "of the free memory allow)"),
    ALSO("ctx-size"),
    ROW("cache-dtype", 0, cache_dtype, "DTYPE", TEXT, 0, 0,
        "dtype of the key-value cache: auto, f32, f16 or bf16 (auto: that of the weights)"),
    {0},
};

tgi_generation_options tgi_generation_defaults(void)
{
  return (tgi_generation_options){.max_tokens = -1, .temperature = 1, .top_p = 1};
}

int tgi_generation_check(const tgi_command *command, const tgi_generation_options *o)
{
  tgi_run_device device;
  if (o->max_tokens == 0) {
    return tgi_usage_error(command, "--max-tokens: expected -1 or at least 1, got 0");
  }
  if (!tgi_option_device(o->device, &device)) {
    return tgi_usage_error(command, "--device: expected cpu, cuda or cuda:N, got %s", o->device);
  }
  if (o->dtype && tgi_option_dtype(o->dtype) == TG_DTYPE_NONE) {
    return tgi_usage_error(command, "--dtype: expected f32, f16 or bf16, got %s", o->dtype);
  }
  if (o->cache_dtype && strcmp(o->cache_dtype, "auto") != 0 &&
      tgi_option_dtype(o->cache_dtype) == TG_DTYPE_NONE) {
    return tgi_usage_error(command, "--cache-dtype: expected auto, f32, f16 or bf16, got %s",
                           o->cache_dtype);
  }
  return 0;
}

tgi_run_device tgi_generation_device(const tgi_generation_options *o)
{
  tgi_run_device device;
  (void)tgi_option_device(o->device, &device);
  return device;
}

tg_dtype tgi_generation_dtype(const tgi_generation_options *o)
{
  return o->dtype ? tgi_option_dtype(o->dtype) : TG_DTYPE_NONE;
}

tg_session_options tgi_generation_session(const tgi_generation_options *o, const tg_model *model,
                                          int64_t needed)
{
  const tgi_run_device device = tgi_generation_device(o);
  const int64_t most = o->ctx ? o->ctx : tg_model_get_info(model).max_position_embeddings;
  const bool cut = device.backend == TG_BACKEND_CUDA && needed > 0 && needed < most;
  return (tg_session_options){.max_tokens = cut ? (int32_t)needed : o->ctx,
                              .num_threads = o->threads,
                              .backend = device.backend,
                              .device_index = device.index,
                              .cache_dtype = o->cache_dtype ? tgi_option_dtype(o->cache_dtype)
                                                            : TG_DTYPE_NONE};
}

const char *tgi_generation_limit(const tgi_generation_options *o, const tg_model *model,
                                 const tg_session *session, int64_t needed)
{
  const int64_t capacity = tg_session_capacity(session);
  return o->ctx && capacity == o->ctx                                   ? "--ctx"
         : capacity == tg_model_get_info(model).max_position_embeddings ? "the model's positions"
         : needed > 0 && capacity == needed ? "the prompt and --max-tokens"
                                            : "half of the free memory; --ctx changes it";
}

void tgi_generation_fill(tgi_generation_options *o, const tgi_command *command,
                         const tgi_parsed *given, const tg_model *model)
{
  const tg_generation_config c = tg_model_get_generation_config(model);
  if (!tgi_option_given(command, given, "max-tokens") && c.max_new_tokens > 0) {
    o->max_tokens = c.max_new_tokens;
  }
  if (!tgi_option_given(command, given, "temperature")) {
    o->temperature = (double)c.temperature;
  }
  if (!tgi_option_given(command, given, "top-k")) {
    o->top_k = c.top_k;
  }
  if (!tgi_option_given(command, given, "top-p")) {
    o->top_p = (double)c.top_p;
  }
  if (!tgi_option_given(command, given, "min-p")) {
    o->min_p = (double)c.min_p;
  }
}

tg_generate_options tgi_generation_how(const tgi_generation_options *o, const tg_model *model)
{
  tg_generate_options how = {.sampling = {.temperature = (float)o->temperature,
                                          .top_k = o->top_k,
                                          .top_p = (float)o->top_p,
                                          .min_p = (float)o->min_p,
                                          .seed = (uint64_t)o->seed},
                             .max_new_tokens = o->max_tokens > 0 ? o->max_tokens : 0};
  how.stop_ids = tg_model_eos_token_ids(model, &how.num_stop_ids);
  return how;
}
