#include "generator.h"

#include "core/error_record.h"
#include "core/machine/clock.h"
#include "files/hub_name.h"
#include "generation/session_state.h"
#include "roof/gpu_roof.h"
#include "roof/roof.h"
#include <stdlib.h>

enum { kReadRuns = 3, kMostReadBytes = 512 << 20 };

static tg_status load_tokenizer(tgi_generator *g, const char *directory, tg_error *error)
{
  const tg_status status = tg_tokenizer_load(directory, &g->tokenizer, error);
  if (status == TG_UNSUPPORTED) {
    const tg_error inner = *error;
    return tgi_error_set(error, status, "%.400s (generate --tokens works without a tokenizer)",
                         inner.text);
  }
  return status;
}

tg_status tgi_generator_load(tgi_generator *g, const char *model, bool ids_alone,
                             tgi_generation_options *o, const tgi_command *command,
                             const tgi_parsed *given, tg_error *error)
{
  tgi_model_path path;
  const double start = tgi_clock();
  g->o = o;
  tg_status status = tgi_model_path_find(model, &path, error);
  if (status == TG_OK && !ids_alone) {
    status = load_tokenizer(g, path.text, error);
  }
  status = status ? status : tg_model_load(path.text, tgi_generation_dtype(o), &g->model, error);
  if (status != TG_OK) {
    return status;
  }
  const int32_t positions = tg_model_get_info(g->model).max_position_embeddings;
  if (o->ctx > positions) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "--ctx: expected at most %d (the model's positions), got %d", positions,
                         o->ctx);
  }
  tgi_generation_fill(o, command, given, g->model);
  status = tgi_generation_bias(o, g->model, &g->bias, error);
  status = status ? status
                  : tgi_stop_strings_create(o->stop.items, (size_t)o->stop.count, &g->stops, error);
  g->load_seconds = tgi_clock() - start;
  return status;
}

void tgi_generator_expect(tgi_generator *g, int64_t count, const tgi_generation_numbers *numbers)
{
  const int64_t most = tg_model_get_info(g->model).max_position_embeddings;
  const bool limited = numbers->max_tokens > 0 && numbers->max_tokens < most - count;
  const int64_t needed = limited ? count + numbers->max_tokens : most;
  g->needed = needed > g->needed ? needed : g->needed;
}

tg_status tgi_generator_open(tgi_generator *g, tg_error *error)
{
  const double start = tgi_clock();
  const tg_session_options session = tgi_generation_session(g->o, g->model, g->needed);
  const tg_status status = tg_session_create(g->model, &session, &g->session, error);
  g->load_seconds += tgi_clock() - start;
  return status;
}

tg_status tgi_generator_open_engine(tgi_generator *g, size_t count, int32_t parallel,
                                    tg_error *error)
{
  const double start = tgi_clock();
  const tg_engine_options o = tgi_generation_engine(g->o, g->model, g->needed, count, parallel);
  const tg_status status = tg_engine_create(g->model, &o, &g->engine, error);
  g->load_seconds += tgi_clock() - start;
  return status;
}

int64_t tgi_generator_capacity(const tgi_generator *g)
{
  return g->engine ? tg_engine_get_info(g->engine).max_tokens : tg_session_capacity(g->session);
}

const char *tgi_generator_limit(const tgi_generator *g)
{
  return tgi_generation_limit(g->o, g->model, tgi_generator_capacity(g), g->needed);
}

tg_status tgi_generator_fits(const tgi_generator *g, const char *name, int64_t count,
                             tg_error *error)
{
  const int64_t capacity = tgi_generator_capacity(g);
  return count <= capacity
             ? TG_OK
             : tgi_error_set(error, TG_BAD_ARGUMENT,
                             "%s: expected at most %lld tokens (%s), got "
                             "%lld",
                             name, (long long)capacity, tgi_generator_limit(g), (long long)count);
}

static double cpu_read_speed(const tgi_generator *g)
{
  const size_t bytes = (size_t)g->model->parameters.elements * tg_dtype_bytes(g->model->dtype);
  const size_t most = kMostReadBytes;
  roof *r = roof_read(tg_context_num_threads(g->session->ctx), g->model->block,
                      bytes < most ? bytes : most);
  double least = 0;
  for (int i = 0; r && i < kReadRuns; i++) {
    const double seconds = roof_run(r);
    least = i == 0 || seconds < least ? seconds : least;
  }
  const double speed = least > 0 ? roof_bytes(r) / least : 0;
  roof_close(r);
  return speed;
}

double tgi_generator_read_speed(const tgi_generator *g)
{
  const tgi_run_device device = tgi_generation_device(g->o);
  double speed = 0;
  if (device.backend != TG_BACKEND_CUDA) {
    return cpu_read_speed(g);
  }
  return tgi_gpu_roof_measure_copy(device.index, &speed, NULL) == TG_OK ? speed : 0;
}

void tgi_generator_close(tgi_generator *g)
{
  tgi_stop_strings_destroy(g->stops);
  tg_session_destroy(g->session);
  tg_engine_destroy(g->engine);
  tg_model_destroy(g->model);
  tg_tokenizer_destroy(g->tokenizer);
  free(g->bias.items);
  *g = (tgi_generator){0};
}
