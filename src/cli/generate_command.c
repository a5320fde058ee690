/* tegula generate: continues a prompt and prints the text token by token. */
#include "command.h"
#include "console.h"
#include "core/clock.h"
#include "core/error_record.h"
#include "files/utf8_stream.h"
#include "interrupt.h"
#include "option_table.h"
#include "prompt.h"
#include "tegula/model.h"
#include "tegula/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula generate";

typedef struct options {
  int64_t max_tokens, seed;
  int32_t top_k, threads, ctx;
  double temperature, top_p, min_p;
  const char *model, *prompt, *tokens, *device, *dtype, *cache_dtype;
  bool echo, quiet;
} options;

#define ROW_LETTER(name, field, argument, kind, min, max, help, letter)                            \
  {                                                                                                \
    name, argument, TGI_AT(options, field), min, max, help, TGI_OPTION_##kind, letter              \
  }
#define ROW(name, field, argument, kind, min, max, help)                                           \
  ROW_LETTER(name, field, argument, kind, min, max, help, 0)

static const tgi_option rows[] = {
    ROW_LETTER("model", model, "DIR", TEXT, 0, 0, "the model's directory, instead of DIR", 'm'),
    ROW_LETTER("prompt", prompt, "TEXT", TEXT, 0, 0, "the prompt, instead of PROMPT", 'p'),
    ROW_LETTER("max-tokens", max_tokens, "N", I64, 1, TGI_ANY_I64,
               "largest number of tokens to generate (as many as fit)", 'n'),
    ROW("temperature", temperature, "X", F64, 0, 1000,
        "0: always the most probable token; 1: the model's probabilities (that of "
        "generation_config.json, else 1)"),
    ROW("top-k", top_k, "N", I32, 0, TGI_ANY_I32,
        "sample from the N most probable tokens; 0: all (likewise, else 0)"),
    ROW("top-p", top_p, "X", F64, 0, 1,
        "sample from the fewest tokens whose probabilities sum to X (likewise, else 1)"),
    ROW("min-p", min_p, "X", F64, 0, 1,
        "sample from the tokens with at least X times the largest probability (likewise, else 0)"),
    ROW("seed", seed, "N", I64, 0, TGI_ANY_I64,
        "seed of the sampling; the same seed gives the same text (0)"),
    ROW("threads", threads, "N", I32, 1, 4096, "CPU threads (one per CPU)"),
    ROW("device", device, "DEVICE", TEXT, 0, 0, "cpu, cuda or cuda:N (cpu)"),
    ROW("dtype", dtype, "DTYPE", TEXT, 0, 0,
        "dtype of the weights in memory: f32, f16 or bf16 (what the files hold)"),
    ROW("ctx", ctx, "N", I32, 1, TGI_ANY_I32,
        "largest number of tokens, prompt and text together (what the model's positions and half "
        "of the free memory allow)"),
    ROW("cache-dtype", cache_dtype, "DTYPE", TEXT, 0, 0,
        "dtype of the key-value cache: auto, f32, f16 or bf16 (auto: that of the weights)"),
    ROW("tokens", tokens, "IDS", TEXT, 0, 0,
        "token ids instead of PROMPT (\"1,2,3\"); prints ids too and needs no tokenizer"),
    ROW("echo", echo, NULL, FLAG, 0, 0, "print the prompt before the generated text"),
    ROW("quiet", quiet, NULL, FLAG, 0, 0, "print no statistics"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula generate",
    .positions = "[DIR] [PROMPT]",
    .help =
        "Generate text with the model in a Hugging Face directory.\vText goes to standard output "
        "and statistics go to standard error. With PROMPT \"-\" the prompt is read from standard "
        "input. Generation ends at any of the model's end tokens, after --max-tokens, or when "
        "the context is full. Ctrl-C ends it with exit code 130.",
    .options = rows,
    .most_positions = 2,
};

typedef struct generation {
  options o;
  tgi_run_device device;
  tg_tokenizer *tokenizer; /* NULL: raw ids */
  tg_model *model;
  tg_session *session;
  tgi_prompt prompt;
  tgi_utf8_stream stream;
  const int32_t *stops; /* the model's end tokens */
  int64_t num_stops;
  int64_t generated;
  const char *reason; /* why generation ended; NULL: it runs */
  tg_status status;   /* of the output of a token */
  tg_error *error;
  double prefill_seconds, decode_seconds;
} generation;

/* ---- the text ---- */

static tg_status put_token(generation *g, int32_t id, tg_error *error)
{
  if (!g->tokenizer) {
    printf(g->generated > 0 || g->o.echo ? " %d" : "%d", id);
    fflush(stdout);
    return TG_OK;
  }
  size_t size = 0;
  tg_status status =
      tg_tokenizer_decode(g->tokenizer, &id, 1, TG_TOKENIZER_SKIP_SPECIAL, NULL, 0, &size, error);
  if (status != TG_OK || size == 0) {
    return status;
  }
  char *bytes = malloc(size), *valid = malloc(TGI_UTF8_STREAM_BOUND(size));
  status = bytes && valid
               ? tg_tokenizer_decode(g->tokenizer, &id, 1, TG_TOKENIZER_SKIP_SPECIAL, bytes, size,
                                     &size, error)
               : tgi_error_set(error, TG_NO_MEMORY, "token %d: expected memory, got none", id);
  if (status == TG_OK) {
    (void)fwrite(valid, 1, tgi_utf8_stream_push(&g->stream, bytes, size, valid), stdout);
    fflush(stdout);
  }
  free(bytes);
  free(valid);
  return status;
}

static void end_text(generation *g)
{
  char valid[8];
  const size_t left = tgi_utf8_stream_finish(&g->stream, valid);
  (void)fwrite(valid, 1, left, stdout);
  putchar('\n');
}

static tg_status echo_prompt(generation *g, tg_error *error)
{
  tg_status status = TG_OK;
  for (int64_t i = 0; i < g->prompt.count && g->o.echo && status == TG_OK; i++) {
    if (!g->tokenizer && i == 0) {
      printf("%d", g->prompt.ids[i]);
    } else {
      status = put_token(g, g->prompt.ids[i], error);
    }
  }
  return status;
}

static bool ends_text(const generation *g, int32_t id)
{
  for (int64_t i = 0; i < g->num_stops; i++) {
    if (g->stops[i] == id) {
      return true;
    }
  }
  return false;
}

/* The tg_token_callback of the session. */
static bool take_token(void *user, int32_t id)
{
  generation *g = user;
  if (ends_text(g, id)) {
    g->reason = "end of text";
    return false;
  }
  g->status = put_token(g, id, g->error);
  g->generated++;
  if (tgi_interrupted()) {
    g->reason = "interrupted";
  } else if (ferror(stdout)) {
    g->reason = "standard output is closed";
  } else if (g->generated == g->o.max_tokens) {
    g->reason = "--max-tokens";
  }
  return g->status == TG_OK && !g->reason;
}

static tg_status generate(generation *g, tg_error *error)
{
  g->stops = tg_model_eos_token_ids(g->model, &g->num_stops);
  const tg_generate_options how = {.sampling = {.temperature = (float)g->o.temperature,
                                                .top_k = g->o.top_k,
                                                .top_p = (float)g->o.top_p,
                                                .min_p = (float)g->o.min_p,
                                                .seed = (uint64_t)g->o.seed},
                                   .max_new_tokens = g->o.max_tokens,
                                   .stop_ids = g->stops,
                                   .num_stop_ids = g->num_stops};
  g->error = error;
  double start = tgi_clock();
  tg_status status = tg_session_feed(g->session, g->prompt.ids, g->prompt.count, error);
  g->prefill_seconds = tgi_clock() - start;
  status = status ? status : echo_prompt(g, error);
  start = tgi_clock();
  status = status ? status : tg_session_generate(g->session, &how, take_token, g, error);
  g->decode_seconds = tgi_clock() - start;
  g->reason = g->reason ? g->reason : "the context is full";
  return status ? status : g->status;
}

/* What the context is limited by. */
static const char *context_reason(const generation *g)
{
  const int64_t capacity = tg_session_capacity(g->session);
  return g->o.ctx && capacity == g->o.ctx                                  ? "--ctx"
         : capacity == tg_model_get_info(g->model).max_position_embeddings ? "the model's positions"
         : g->o.max_tokens > 0 && capacity == g->prompt.count + g->o.max_tokens
             ? "the prompt and --max-tokens"
             : "half of the free memory; --ctx changes it";
}

static void print_context(const generation *g)
{
  const tg_generation_config c = tg_model_get_generation_config(g->model);
  fprintf(stderr, "context: %lld tokens (%s)\n", (long long)tg_session_capacity(g->session),
          context_reason(g));
  if (c.repetition_penalty != 1) {
    fprintf(stderr, "repetition_penalty: %g of generation_config.json is not applied\n",
            (double)c.repetition_penalty);
  }
}

static void print_statistics(const generation *g)
{
  const double prefill = (double)g->prompt.count / g->prefill_seconds;
  fprintf(stderr, "prompt: %lld tokens in %.1f ms (%.0f tok/s) | generated: %lld in %.1f ms",
          (long long)g->prompt.count, 1e3 * g->prefill_seconds, prefill, (long long)g->generated,
          1e3 * g->decode_seconds);
  if (g->generated > 0 && g->decode_seconds > 0) {
    fprintf(stderr, " (%.0f tok/s)", (double)g->generated / g->decode_seconds);
  }
  if (g->device.backend == TG_BACKEND_CUDA) {
    fprintf(stderr, " | passes: %s", tg_session_steps(g->session));
  }
  fprintf(stderr, " | ended: %s\n", g->reason);
}

/* ---- the command ---- */

/* On a GPU the cache is allocated at once: no larger than the tokens of this call need. */
static int32_t capacity(const generation *g)
{
  const int64_t positions = tg_model_get_info(g->model).max_position_embeddings;
  const int64_t most = g->o.ctx ? g->o.ctx : positions;
  const bool cut = g->device.backend == TG_BACKEND_CUDA && g->o.max_tokens > 0 &&
                   g->o.max_tokens < most - g->prompt.count;
  return cut ? (int32_t)(g->prompt.count + g->o.max_tokens) : g->o.ctx;
}

static tg_status make_session(generation *g, tg_error *error)
{
  const tg_session_options session = {
      .max_tokens = capacity(g),
      .num_threads = g->o.threads,
      .backend = g->device.backend,
      .device_index = g->device.index,
      .cache_dtype = g->o.cache_dtype ? tgi_option_dtype(g->o.cache_dtype) : TG_DTYPE_NONE};
  const tg_status status = tg_session_create(g->model, &session, &g->session, error);
  if (status == TG_OK && g->prompt.count > tg_session_capacity(g->session)) {
    return tgi_error_set(
        error, TG_BAD_ARGUMENT, "prompt: expected at most %lld tokens (%s), got %lld",
        (long long)tg_session_capacity(g->session), context_reason(g), (long long)g->prompt.count);
  }
  return status;
}

static tg_status prepare(generation *g, const char *directory, const char *prompt, tg_error *error)
{
  tg_status status = TG_OK;
  if (g->o.tokens) {
    status = tgi_prompt_parse(g->o.tokens, &g->prompt, error);
  } else {
    status = tg_tokenizer_load(directory, &g->tokenizer, error);
    if (status == TG_UNSUPPORTED) {
      const tg_error inner = *error;
      tgi_error_set(error, status, "%.400s (--tokens works without a tokenizer)", inner.text);
    }
    status = status ? status : tgi_prompt_encode(g->tokenizer, prompt, &g->prompt, error);
  }
  const tg_dtype dtype = g->o.dtype ? tgi_option_dtype(g->o.dtype) : TG_DTYPE_NONE;
  status = status ? status : tg_model_load(directory, dtype, &g->model, error);
  return status ? status : make_session(g, error);
}

/* What the command line leaves open, the model's directory says. */
static void fill_sampling(generation *g, const tgi_parsed *given)
{
  const tg_generation_config c = tg_model_get_generation_config(g->model);
  if (!tgi_option_given(&command_line, given, "temperature")) {
    g->o.temperature = (double)c.temperature;
  }
  if (!tgi_option_given(&command_line, given, "top-k")) {
    g->o.top_k = c.top_k;
  }
  if (!tgi_option_given(&command_line, given, "top-p")) {
    g->o.top_p = (double)c.top_p;
  }
  if (!tgi_option_given(&command_line, given, "min-p")) {
    g->o.min_p = (double)c.min_p;
  }
}

static int check_usage(generation *g)
{
  if (!tgi_option_device(g->o.device, &g->device)) {
    return tgi_usage_error(&command_line, "--device: expected cpu, cuda or cuda:N, got %s",
                           g->o.device);
  }
  if (g->o.dtype && tgi_option_dtype(g->o.dtype) == TG_DTYPE_NONE) {
    return tgi_usage_error(&command_line, "--dtype: expected f32, f16 or bf16, got %s", g->o.dtype);
  }
  if (g->o.cache_dtype && strcmp(g->o.cache_dtype, "auto") != 0 &&
      tgi_option_dtype(g->o.cache_dtype) == TG_DTYPE_NONE) {
    return tgi_usage_error(&command_line, "--cache-dtype: expected auto, f32, f16 or bf16, got %s",
                           g->o.cache_dtype);
  }
  return 0;
}

/* Directory and prompt come by options or, those that do not, as arguments in this order. */
static int place_arguments(options *o, const tgi_parsed *given)
{
  int used = 0;
  if (!o->model && used < given->num_positions) {
    o->model = given->position[used++];
  }
  if (!o->prompt && used < given->num_positions) {
    o->prompt = given->position[used++];
  }
  if (used < given->num_positions) {
    return tgi_usage_error(&command_line, "expected DIR and PROMPT once, got an extra \"%s\"",
                           given->position[used]);
  }
  if (!o->model) {
    return tgi_usage_error(&command_line, "expected DIR or --model DIR, got neither");
  }
  if (!o->prompt == !o->tokens) {
    return tgi_usage_error(&command_line, "expected one of PROMPT and --tokens, got %s",
                           o->tokens ? "both" : "neither");
  }
  return 0;
}

int tgi_generate_command(int argc, char **argv)
{
  generation g = {.o = {.top_p = 1}};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &g.o, &given);
  int code = place_arguments(&g.o, &given);
  code = code ? code : check_usage(&g);
  if (code != 0) {
    return code;
  }
  tg_status status = prepare(&g, g.o.model, g.o.prompt, &error);
  if (status == TG_OK) {
    fill_sampling(&g, &given);
    if (!g.o.quiet) {
      print_context(&g);
    }
    tgi_interrupt_catch();
    status = generate(&g, &error);
    end_text(&g);
    code = tgi_interrupted();
  }
  if (status != TG_OK) {
    fflush(stdout);
    code = tgi_console_fail_with(kName, &error);
  } else if (!g.o.quiet) {
    fflush(stdout);
    print_statistics(&g);
  }
  tg_session_destroy(g.session);
  tg_model_destroy(g.model);
  tg_tokenizer_destroy(g.tokenizer);
  tgi_prompt_free(&g.prompt);
  return code;
}
