#include "bench_table.h"

#include "cli/console.h"
#include "cli/json_print.h"
#include "core/error_record.h"
#include "core/machine/clock.h"
#include "generation/session_state.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPlanText = 1280 };

/* A row at work. */
typedef struct work {
  const tgi_bench_table *t;
  double *rates; /* [runs]: tokens per second */
  const tg_model *model;
  tg_session *session;
  tg_engine *engine;
  int32_t *ids; /* [depth + prompt or 1] */
  int64_t started, ended;
  int32_t threads; /* that there are */
} work;

static tg_status fill_ids(work *w, tg_error *error)
{
  const int64_t count = (int64_t)w->t->depth + w->t->prompt + 1;
  const uint32_t vocab = (uint32_t)tg_model_get_info(w->model).vocab_size;
  uint32_t state = 1;
  w->ids = malloc((size_t)count * sizeof *w->ids);
  w->rates = malloc((size_t)w->t->runs * sizeof *w->rates);
  if (!w->ids || !w->rates) {
    return tgi_error_set(error, TG_NO_MEMORY, "bench: expected memory for %lld tokens, got none",
                         (long long)count);
  }
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    w->ids[i] = (int32_t)((state >> 8) % vocab);
  }
  return TG_OK;
}

/* ---- one sequence: a session ---- */

static tg_status session_prompt(work *w, double *seconds, tg_error *error)
{
  const tgi_bench_table *t = w->t;
  tg_status status = tg_session_truncate(w->session, 0);
  if (status == TG_OK && t->depth > 0) {
    status = tg_session_feed(w->session, w->ids, t->depth, error);
  }
  const double start = tgi_clock();
  status = status ? status : tg_session_feed(w->session, w->ids + t->depth, t->prompt, error);
  *seconds = tgi_clock() - start;
  return status;
}

static bool go_on(void *user, int32_t id)
{
  (void)user;
  (void)id;
  return true;
}

/* As many passes as tokens. Without a depth the first one feeds the token before; the last token
 * has none. */
static tg_status session_generate(work *w, double *seconds, tg_error *error)
{
  const tgi_bench_table *t = w->t;
  const int64_t before = t->depth;
  const tg_generate_options how = {.max_new_tokens = (int64_t)t->generated + (before > 0)};
  tg_status status = tg_session_length(w->session) < before
                         ? tg_session_feed(w->session, w->ids, before, error)
                         : tg_session_truncate(w->session, before > 0 ? before - 1 : 0);
  if (status == TG_OK && tg_session_length(w->session) < before) {
    status = tg_session_feed(w->session, w->ids + before - 1, 1, error);
  }
  const double start = tgi_clock();
  if (status == TG_OK && before == 0) {
    status = tg_session_feed(w->session, w->ids, 1, error);
  }
  status = status ? status : tg_session_generate(w->session, &how, go_on, NULL, error);
  *seconds = tgi_clock() - start;
  return status;
}

/* ---- several: an engine ---- */

static bool note_event(void *user, const tg_event *event)
{
  work *w = user;
  w->ended += event->finish != TG_FINISH_NONE;
  return true;
}

static bool note_start(void *user, const tg_event *event)
{
  work *w = user;
  w->started += event->finish == TG_FINISH_NONE;
  return true;
}

static tg_status submit_all(work *w, int64_t count, int64_t tokens, tg_event_callback *on_event,
                            int64_t *numbers, tg_error *error)
{
  tg_status status = TG_OK;
  w->started = w->ended = 0;
  for (int32_t i = 0; i < w->t->batch && status == TG_OK; i++) {
    const tg_request r = {.ids = w->ids,
                          .count = count,
                          .how = {.max_new_tokens = tokens},
                          .on_event = on_event,
                          .user = w};
    status = tg_engine_submit(w->engine, &r, &numbers[i], error);
  }
  return status;
}

/* Prompts end with their first token. A piece at a time: those behind the depth are timed. */
static tg_status engine_prompt(work *w, double *seconds, tg_error *error)
{
  const tgi_bench_table *t = w->t;
  const int64_t length = (int64_t)t->depth + t->prompt;
  const int64_t first = tg_engine_get_info(w->engine).prompt_tokens;
  int64_t numbers[TG_ENGINE_MAX_BATCH];
  tg_status status = submit_all(w, length, 1, note_event, numbers, error);
  *seconds = 0;
  while (status == TG_OK && w->ended < t->batch) {
    const int64_t done = tg_engine_get_info(w->engine).prompt_tokens - first;
    const double start = tgi_clock();
    status = tg_engine_step(w->engine, NULL, error);
    *seconds += done % length >= t->depth ? tgi_clock() - start : 0;
  }
  return status;
}

/* From the step on in which all prompts are done. */
static tg_status engine_generate(work *w, double *seconds, tg_error *error)
{
  const tgi_bench_table *t = w->t;
  int64_t numbers[TG_ENGINE_MAX_BATCH];
  const int64_t prompt = t->depth > 0 ? t->depth : 1;
  tg_status status = submit_all(w, prompt, 0, note_start, numbers, error);
  const int64_t all = prompt * t->batch, first = tg_engine_get_info(w->engine).prompt_tokens;
  while (status == TG_OK && tg_engine_get_info(w->engine).prompt_tokens - first < all) {
    status = tg_engine_step(w->engine, NULL, error);
  }
  const double start = tgi_clock();
  for (int32_t i = 0; i < t->generated && status == TG_OK; i++) {
    status = tg_engine_step(w->engine, NULL, error);
  }
  *seconds = tgi_clock() - start;
  for (int32_t i = 0; i < t->batch && status == TG_OK; i++) {
    (void)tg_engine_cancel(w->engine, numbers[i]); /* one at the last position has ended */
  }
  return status ? status : tg_engine_step(w->engine, NULL, error);
}

/* ---- rows ---- */

static const char *upper_dtype(tg_dtype dtype, char text[16])
{
  snprintf(text, 16, "%s", tg_dtype_name(dtype));
  for (char *c = text; *c; c++) {
    *c = (char)toupper((unsigned char)*c);
  }
  return text;
}

static const char *count_text(double count, char text[32])
{
  snprintf(text, 32, count < 1e9 ? "%.2f M" : "%.2f B", count < 1e9 ? 1e-6 * count : 1e-9 * count);
  return text;
}

/* How passes over one token run, and on a GPU why no decoder has them. */
static const char *plan_text(const work *w, char text[kPlanText])
{
  const bool gpu = w->t->device.backend == TG_BACKEND_CUDA;
  const char *why = !w->session            ? "decoder: an engine shares passes among its rows"
                    : !w->session->decoder ? w->session->no_decoder
                                           : "";
  snprintf(text, kPlanText, gpu && why[0] ? "%s (%s)" : "%s",
           w->session ? tg_session_steps(w->session) : tg_engine_steps(w->engine), why);
  return text;
}

static json_t *rates_of(const work *w)
{
  json_t *list = json_array();
  for (int32_t i = 0; i < w->t->runs; i++) {
    json_array_append_new(list, json_real(w->rates[i]));
  }
  return list;
}

static void print_row(const work *w, const char *test, double mean, double deviation)
{
  const tgi_bench_table *t = w->t;
  const tg_model_info info = tg_model_get_info(w->model);
  const bool gpu = t->device.backend == TG_BACKEND_CUDA;
  char type[16], count[32], plan[kPlanText];
  if (t->json) {
    json_t *j = tgi_json_new();
    json_object_set_new(j, "model", json_string(t->name));
    json_object_set_new(j, "mode", json_string("table"));
    json_object_set_new(j, "test", json_string(test));
    json_object_set_new(j, "dtype", json_string(tg_dtype_name(info.dtype)));
    json_object_set_new(j, "device", json_string(gpu ? "cuda" : "cpu"));
    json_object_set_new(j, "threads", json_integer(w->threads));
    json_object_set_new(j, "batch", json_integer(t->batch));
    json_object_set_new(j, "depth", json_integer(t->depth));
    json_object_set_new(j, "runs", json_integer(t->runs));
    json_object_set_new(j, "tokens_per_s", json_real(mean));
    json_object_set_new(j, "deviation", json_real(deviation));
    json_object_set_new(j, "rates", rates_of(w));
    json_object_set_new(j, "plan", json_string(plan_text(w, plan)));
    tgi_json_print(j, JSON_COMPACT);
    return;
  }
  printf("| %s %s | %s | %s | %s | %d | %d | %s | %.2f \xc2\xb1 %.2f |\n", t->name,
         upper_dtype(info.dtype, type), tgi_size((double)info.weight_bytes).text,
         count_text((double)info.num_parameters, count), gpu ? "CUDA" : "CPU", w->threads, t->batch,
         test, mean, deviation);
  fflush(stdout);
}

typedef tg_status one_run(work *w, double *seconds, tg_error *error);

/* One run to warm up, then `runs`. */
static tg_status measure(work *w, one_run *run, const char *kind, int32_t tokens, tg_error *error)
{
  const tgi_bench_table *t = w->t;
  double sum = 0, squares = 0, seconds;
  tg_status status = tokens > 0 ? run(w, &seconds, error) : TG_OK;
  if (status != TG_OK || tokens == 0) {
    return status;
  }
  for (int32_t i = 0; i < t->runs && status == TG_OK; i++) {
    status = run(w, &seconds, error);
    const double rate = w->rates[i] = (double)tokens * t->batch / seconds;
    sum += rate;
    squares += rate * rate;
  }
  const double mean = sum / t->runs, spread = squares / t->runs - mean * mean;
  char test[64], depth[32] = "";
  snprintf(depth, sizeof depth, " @ d%d", t->depth);
  snprintf(test, sizeof test, "%s%d%s", kind, tokens, t->depth > 0 ? depth : "");
  if (status == TG_OK) {
    print_row(w, test, mean, spread > 0 ? sqrt(spread) : 0);
  }
  return status;
}

static tg_status check_positions(const work *w, int64_t most, tg_error *error)
{
  const int32_t positions = tg_model_get_info(w->model).max_position_embeddings;
  return most <= positions
             ? TG_OK
             : tgi_error_set(error, TG_BAD_ARGUMENT,
                             "table: expected at most %d tokens in a sequence, got %lld", positions,
                             (long long)most);
}

/* Positions before the first generated token is timed. In an engine each sequence has one, and
 * those whose prompts are done early grow while others begin. */
static int64_t tokens_before(const tgi_bench_table *t)
{
  const int64_t pieces = t->depth / TGI_BENCH_PIECE + 1;
  return t->batch > 1 ? (t->depth > 0 ? t->depth : 1) + (t->batch - 1) * pieces : t->depth;
}

/* llama-bench's count, or what the model's positions leave. */
static int32_t usual_count(int64_t usual, int64_t left)
{
  return (int32_t)(left >= usual ? usual : left > 0 ? left : 1);
}

static tgi_bench_table with_usual_counts(const tgi_bench_table *t, const tg_model *model)
{
  const int64_t positions = tg_model_get_info(model).max_position_embeddings;
  tgi_bench_table all = *t;
  all.prompt = t->prompt >= 0 ? t->prompt : usual_count(512, positions - t->depth);
  all.generated = t->generated >= 0 ? t->generated : usual_count(128, positions - tokens_before(t));
  return all;
}

/* Tokens of the longest sequence. */
static int64_t most_tokens(const tgi_bench_table *t)
{
  const int64_t grown = t->generated > 0 ? tokens_before(t) + t->generated : 0;
  const int64_t fed = (int64_t)t->depth + t->prompt;
  return fed > grown ? fed : grown;
}

/* How many threads a context with these options has. */
static tg_status count_threads(work *w, tg_error *error)
{
  tg_context *ctx = NULL;
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = w->t->threads};
  const tg_status status = tg_context_create(&o, &ctx, error);
  w->threads = status ? 0 : tg_context_num_threads(ctx);
  tg_context_destroy(ctx);
  return status;
}

static tg_status open_runner(work *w, int64_t most, tg_error *error)
{
  const tgi_bench_table *t = w->t;
  if (t->batch == 1) {
    const tg_session_options o = {.max_tokens = (int32_t)most,
                                  .num_threads = t->threads,
                                  .backend = t->device.backend,
                                  .device_index = t->device.index};
    return tg_session_create(w->model, &o, &w->session, error);
  }
  const tg_engine_options o = {.batch = t->batch,
                               .max_tokens = (int32_t)most,
                               .no_sharing = true,
                               .num_threads = t->threads,
                               .backend = t->device.backend,
                               .device_index = t->device.index};
  return tg_engine_create(w->model, &o, &w->engine, error);
}

tg_status tgi_bench_table_run(const tgi_bench_table *given, const tg_model *model, tg_error *error)
{
  const tgi_bench_table all = with_usual_counts(given, model), *t = &all;
  work w = {.t = t, .model = model};
  const int64_t most = most_tokens(t);
  tg_status status = check_positions(&w, most, error);
  status = status ? status : fill_ids(&w, error);
  status = status ? status : count_threads(&w, error);
  status = status ? status : open_runner(&w, most, error);
  if (status == TG_OK && t->device.backend == TG_BACKEND_CUDA) {
    char plan[kPlanText];
    fprintf(stderr, "passes over one token: %s\n", plan_text(&w, plan));
  }
  if (status == TG_OK && !t->json) {
    printf("| model | size | params | backend | threads | batch | test | t/s |\n"
           "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |\n");
  }
  const bool one = t->batch == 1;
  status =
      status ? status : measure(&w, one ? session_prompt : engine_prompt, "pp", t->prompt, error);
  status = status
               ? status
               : measure(&w, one ? session_generate : engine_generate, "tg", t->generated, error);
  tg_session_destroy(w.session);
  tg_engine_destroy(w.engine);
  free(w.ids);
  free(w.rates);
  return status;
}
