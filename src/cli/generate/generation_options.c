#include "generation_options.h"

#include "core/error_record.h"
#include "files/file_error.h"
#include "files/utf8.h"
#include <math.h>
#include <stdlib.h>
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
    ROW("max-tokens", 'n', numbers.max_tokens, "N", I64, -1, TGI_ANY_I64,
        "largest number of tokens to generate; -1: as many as fit (the directory's, else -1)"),
    ALSO("n-predict"),
    ALSO("predict"),
    ROW("temperature", 0, numbers.temperature, "X", F64, 0, 1000,
        "0: always the most probable token; 1: the model's probabilities (the directory's, else "
        "1)"),
    ALSO("temp"),
    ROW("top-k", 0, numbers.top_k, "N", I32, 0, TGI_ANY_I32,
        "sample from the N most probable tokens; 0: all (the directory's, else 0)"),
    ROW("top-p", 0, numbers.top_p, "X", F64, 0, 1,
        "sample from the fewest tokens whose probabilities sum to X (the directory's, else 1)"),
    ROW("min-p", 0, numbers.min_p, "X", F64, 0, 1,
        "sample from the tokens with at least X times the largest probability (the "
        "directory's, else 0)"),
    ROW("repetition-penalty", 0, numbers.repetition_penalty, "X", F64, TGI_ABOVE_0, 1000,
        "divide the logits of tokens of prompt and text by X, or multiply those below 0 (the "
        "directory's, else 1)"),
    ALSO("repeat-penalty"),
    ROW("presence-penalty", 0, numbers.presence_penalty, "X", F64, -1000, 1000,
        "subtract X from the logits of tokens that the text has (0)"),
    ROW("frequency-penalty", 0, numbers.frequency_penalty, "X", F64, -1000, 1000,
        "subtract X from the logit of a token each time that the text has it (0)"),
    ROW("repeat-last-n", 0, numbers.repeat_last_n, "N", I32, -1, TGI_ANY_I32,
        "the penalties look at the last N tokens; -1: all, 0: none (-1)"),
    ROW("logit-bias", 'l', logit_bias, "ID=X", LIST, 0, 0,
        "add X to the logit of a token; -inf: never pick it. Several with commas, or given several "
        "times"),
    ROW("ignore-eos", 0, ignore_eos, NULL, FLAG, 0, 0, "never pick a token that ends the text"),
    ROW("stop", 0, stop, "TEXT", LIST, 0, 0,
        "end the text before TEXT, which is not printed; may be given several times"),
    ROW("seed", 's', numbers.seed, "N", I64, 0, TGI_ANY_I64,
        "seed of the sampling; the same seed gives the same text (0)"),
    ROW("threads", 't', threads, "N", I32, 1, 4096, "CPU threads (one per CPU)"),
    ROW("device", 0, device, "DEVICE", TEXT, 0, 0, "cpu, cuda or cuda:N (cpu)"),
    ROW("dtype", 0, dtype, "DTYPE", TEXT, 0, 0,
        "dtype of the weights in memory: f32, f16 or bf16 (what the files hold)"),
    ROW("ctx", 'c', ctx, "N", I32, 1, TGI_ANY_I32,
        "largest number of tokens in the cache, prompt and text together; the last one of a text "
        "is "
        "in no cache, and may be one beyond N (what the model's positions and half of the free "
        "memory allow)"),
    ALSO("ctx-size"),
    ROW("cache-dtype", 0, cache_dtype, "DTYPE", TEXT, 0, 0,
        "dtype of the key-value cache: auto, f32, f16 or bf16 (auto: that of the weights)"),
    {0},
};

enum { kNumbersEnd = sizeof(tgi_generation_numbers) }; /* offsets below it are a prompt's own */

tgi_generation_options tgi_generation_defaults(void)
{
  return (tgi_generation_options){.numbers = {.max_tokens = -1,
                                              .repeat_last_n = -1,
                                              .temperature = 1,
                                              .top_p = 1,
                                              .repetition_penalty = 1}};
}

/* All but whether the model has the ids. */
static int check_biases(const tgi_command *command, const tgi_option_list *given)
{
  tgi_bias_list list = {0};
  tg_error error = {TG_OK, ""};
  tg_status status = TG_OK;
  for (int i = 0; i < given->count && status == TG_OK; i++) {
    status = tgi_bias_parse(given->items[i], INT32_MAX, &list, &error);
  }
  free(list.items);
  return status == TG_BAD_ARGUMENT ? tgi_usage_error(command, "%s", error.text) : 0;
}

int tgi_generation_check(const tgi_command *command, const tgi_generation_options *o)
{
  tgi_run_device device;
  if (o->numbers.max_tokens == 0) {
    return tgi_usage_error(command, "--max-tokens: expected -1 or at least 1, got 0");
  }
  for (int i = 0; i < o->stop.count; i++) {
    const size_t size = strlen(o->stop.items[i]);
    if (tgi_utf8_valid_bytes(o->stop.items[i], size) != size) {
      return tgi_usage_error(command, "--stop: expected UTF-8, got %s",
                             tgi_quote(o->stop.items[i], size).text);
    }
  }
  if (check_biases(command, &o->logit_bias)) {
    return TGI_EXIT_USAGE;
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

void tgi_generation_fill(tgi_generation_options *o, const tgi_command *command,
                         const tgi_parsed *given, const tg_model *model)
{
  const tg_generation_config c = tg_model_get_generation_config(model);
  tgi_generation_numbers *n = &o->numbers;
  if (!tgi_option_given(command, given, "max-tokens") && c.max_new_tokens > 0) {
    n->max_tokens = c.max_new_tokens;
    o->config_limits = true;
  }
  if (!tgi_option_given(command, given, "temperature")) {
    n->temperature = (double)c.temperature;
  }
  if (!tgi_option_given(command, given, "top-k")) {
    n->top_k = c.top_k;
  }
  if (!tgi_option_given(command, given, "top-p")) {
    n->top_p = (double)c.top_p;
  }
  if (!tgi_option_given(command, given, "min-p")) {
    n->min_p = (double)c.min_p;
  }
  if (!tgi_option_given(command, given, "repetition-penalty")) {
    n->repetition_penalty = (double)c.repetition_penalty;
  }
}

/* ---- numbers as JSON ---- */

/* "top_k" is "top-k". */
static bool same_name(const char *option, const char *key)
{
  for (; *option && *key; option++, key++) {
    if (*option != *key && !(*option == '-' && *key == '_')) {
      return false;
    }
  }
  return *option == *key;
}

static const tgi_option *find_number(const char *key)
{
  const tgi_option *main_row = NULL;
  for (const tgi_option *row = tgi_generation_rows; row->name; row++) {
    main_row = row->help ? row : main_row;
    if (same_name(row->name, key)) {
      return main_row->offset < kNumbersEnd ? main_row : NULL;
    }
  }
  return NULL;
}

tg_status tgi_generation_number(tgi_generation_numbers *numbers, const char *key,
                                const json_t *value, const tgi_json *json, uint64_t *given,
                                tg_error *error)
{
  const tgi_option *row = find_number(key);
  if (!row) {
    return TG_OK;
  }
  const uint64_t bit = 1ull << (row - tgi_generation_rows);
  if (*given & bit) {
    return tgi_error_set(error, TG_BAD_FILE, "%s: %s: expected one of its names, got two",
                         json->path, key);
  }
  *given |= bit;
  const bool whole = row->kind != TGI_OPTION_F64;
  const double number = json_number_value(value);
  if (!(whole ? json_is_integer(value) : json_is_number(value)) || number < row->min ||
      number > row->max) {
    return tgi_json_refuse(json, TG_BAD_FILE, value, error, "%s: expected %s from %.15g to %.15g",
                           key, whole ? "a whole number" : "a number",
                           row->min == TGI_ABOVE_0 ? 0 : row->min, row->max);
  }
  void *at = (char *)numbers + row->offset;
  if (row->kind == TGI_OPTION_I32) {
    *(int32_t *)at = (int32_t)json_integer_value(value);
  } else if (row->kind == TGI_OPTION_I64) {
    *(int64_t *)at = json_integer_value(value);
  } else {
    *(double *)at = number;
  }
  return numbers->max_tokens != 0 ? TG_OK
                                  : tgi_json_refuse(json, TG_BAD_FILE, value, error,
                                                    "%s: expected -1 or at least 1", key);
}

/* ---- for the session ---- */

tg_status tgi_generation_bias(const tgi_generation_options *o, const tg_model *model,
                              tgi_bias_list *out, tg_error *error)
{
  const int32_t vocab_size = tg_model_get_info(model).vocab_size;
  int64_t num_ends;
  const int32_t *ends = tg_model_eos_token_ids(model, &num_ends);
  tg_status status = TG_OK;
  for (int i = 0; i < o->logit_bias.count && status == TG_OK; i++) {
    status = tgi_bias_parse(o->logit_bias.items[i], vocab_size, out, error);
  }
  for (int64_t i = 0; i < num_ends && o->ignore_eos && status == TG_OK; i++) {
    if (ends[i] >= 0 && ends[i] < vocab_size) {
      status = tgi_bias_add(out, ends[i], -INFINITY, error);
    }
  }
  return status;
}

tg_generate_options tgi_generation_how(const tgi_generation_options *o,
                                       const tgi_generation_numbers *n, const tgi_bias_list *bias,
                                       const tg_model *model)
{
  const bool penalises = n->repeat_last_n != 0;
  tg_generate_options how = {
      .sampling = {.temperature = (float)n->temperature,
                   .top_k = n->top_k,
                   .top_p = (float)n->top_p,
                   .min_p = (float)n->min_p,
                   .seed = (uint64_t)n->seed,
                   .repetition_penalty = penalises ? (float)n->repetition_penalty : 1,
                   .presence_penalty = penalises ? (float)n->presence_penalty : 0,
                   .frequency_penalty = penalises ? (float)n->frequency_penalty : 0,
                   .penalty_window = n->repeat_last_n > 0 ? n->repeat_last_n : 0,
                   .logit_bias = bias->items,
                   .num_logit_bias = (int64_t)bias->count},
      .max_new_tokens = n->max_tokens > 0 ? n->max_tokens : 0};
  if (!o->ignore_eos) {
    how.stop_ids = tg_model_eos_token_ids(model, &how.num_stop_ids);
  }
  return how;
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

tg_engine_options tgi_generation_engine(const tgi_generation_options *o, const tg_model *model,
                                        int64_t needed, size_t count, int32_t parallel)
{
  const tg_session_options session = tgi_generation_session(o, model, needed);
  const int32_t most = o->ctx ? o->ctx : tg_model_get_info(model).max_position_embeddings;
  const bool cut = needed > 0 && needed < most;
  return (tg_engine_options){.batch = count < (size_t)parallel ? (int32_t)count : parallel,
                             .max_tokens = cut ? (int32_t)needed : o->ctx,
                             .num_threads = session.num_threads,
                             .backend = session.backend,
                             .device_index = session.device_index,
                             .cache_dtype = session.cache_dtype};
}

const char *tgi_generation_limit(const tgi_generation_options *o, const tg_model *model,
                                 int64_t capacity, int64_t needed)
{
  return o->ctx && capacity == o->ctx                                   ? "--ctx"
         : capacity == tg_model_get_info(model).max_position_embeddings ? "the model's positions"
         : needed > 0 && capacity == needed ? "the prompt and --max-tokens"
                                            : "half of the free memory; --ctx changes it";
}
