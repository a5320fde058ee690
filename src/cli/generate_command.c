/* tegula generate: continues a prompt and prints the text token by token. */
#include "command.h"
#include "console.h"
#include "core/clock.h"
#include "core/error_record.h"
#include "files/utf8_stream.h"
#include "generation_options.h"
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
  const char *model, *prompt, *tokens;
  bool echo, quiet;
  tgi_generation_options generation;
} options;

#define ROW(name, letter, field, argument, kind, help)                                             \
  {                                                                                                \
    name, argument, TGI_AT(options, field), 0, 0, help, TGI_OPTION_##kind, letter                  \
  }

static const tgi_option rows[] = {
    ROW("model", 'm', model, "DIR", TEXT, "the model's directory, instead of DIR"),
    ROW("prompt", 'p', prompt, "TEXT", TEXT, "the prompt, instead of PROMPT"),
    ROW("tokens", 0, tokens, "IDS", TEXT,
        "token ids instead of PROMPT (\"1,2,3\"); prints ids too and needs no tokenizer"),
    ROW("echo", 0, echo, NULL, FLAG, "print the prompt before the generated text"),
    ROW("quiet", 0, quiet, NULL, FLAG, "print no statistics"),
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
    .shared = tgi_generation_rows,
    .shared_at = TGI_AT(options, generation),
};

typedef struct generation {
  options o;
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
  } else if (g->generated == g->o.generation.max_tokens) {
    g->reason = "--max-tokens";
  }
  return g->status == TG_OK && !g->reason;
}

static tg_status generate(generation *g, tg_error *error)
{
  const tg_generate_options how = tgi_generation_how(&g->o.generation, g->model);
  g->stops = how.stop_ids;
  g->num_stops = how.num_stop_ids;
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

/* Tokens that prompt and text take at most; 0: not known. */
static int64_t needed(const generation *g)
{
  const int64_t most = g->o.generation.max_tokens;
  return most > 0 && most < INT32_MAX - g->prompt.count ? g->prompt.count + most : 0;
}

static const char *context_reason(const generation *g)
{
  return tgi_generation_limit(&g->o.generation, g->model, g->session, needed(g));
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
  if (tgi_generation_device(&g->o.generation).backend == TG_BACKEND_CUDA) {
    fprintf(stderr, " | passes: %s", tg_session_steps(g->session));
  }
  fprintf(stderr, " | ended: %s\n", g->reason);
}

/* ---- the command ---- */

static tg_status make_session(generation *g, tg_error *error)
{
  const tg_session_options session = tgi_generation_session(&g->o.generation, g->model, needed(g));
  const tg_status status = tg_session_create(g->model, &session, &g->session, error);
  if (status == TG_OK && g->prompt.count > tg_session_capacity(g->session)) {
    return tgi_error_set(
        error, TG_BAD_ARGUMENT, "prompt: expected at most %lld tokens (%s), got %lld",
        (long long)tg_session_capacity(g->session), context_reason(g), (long long)g->prompt.count);
  }
  return status;
}

static tg_status prepare(generation *g, const tgi_parsed *given, tg_error *error)
{
  tg_status status = TG_OK;
  if (g->o.tokens) {
    status = tgi_prompt_parse(g->o.tokens, &g->prompt, error);
  } else {
    status = tg_tokenizer_load(g->o.model, &g->tokenizer, error);
    if (status == TG_UNSUPPORTED) {
      const tg_error inner = *error;
      tgi_error_set(error, status, "%.400s (--tokens works without a tokenizer)", inner.text);
    }
    status = status ? status : tgi_prompt_encode(g->tokenizer, g->o.prompt, &g->prompt, error);
  }
  const tg_dtype dtype = tgi_generation_dtype(&g->o.generation);
  status = status ? status : tg_model_load(g->o.model, dtype, &g->model, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_generation_fill(&g->o.generation, &command_line, given, g->model);
  return make_session(g, error);
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
  generation g = {.o = {.generation = tgi_generation_defaults()}};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &g.o, &given);
  int code = place_arguments(&g.o, &given);
  code = code ? code : tgi_generation_check(&command_line, &g.o.generation);
  if (code != 0) {
    return code;
  }
  tg_status status = prepare(&g, &given, &error);
  if (status == TG_OK) {
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
