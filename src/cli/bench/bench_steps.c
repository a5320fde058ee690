/* Steps of training, prefill and decoding, timed one by one. */
#include "bench_steps.h"

#include "bench_dtype.h"
#include "cli/console.h"
#include "cli/generate/model_cost.h"
#include "cli/json_print.h"
#include "core/clock.h"
#include "core/error_record.h"
#include "tegula/device.h"
#include "tegula/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWarmUp = 2 };

/* ---- costs ---- */

/* Flops of a forward pass over `tokens` tokens that see `keys` keys on average, with `logits` rows
 * of logits. */
static double forward_flops(const tg_model *model, double tokens, double keys, double logits)
{
  const tg_model_info i = tg_model_get_info(model);
  const tgi_model_products p = tgi_model_count_products(model);
  const double attention = 4.0 * i.num_hidden_layers * i.num_attention_heads * i.head_dim * keys;
  return tokens * (2 * p.body + attention) + logits * 2 * p.head;
}

/* VmHWM of this process in bytes; 0 if unknown. */
static double peak_memory(void)
{
  char line[128];
  double kib = 0;
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) {
    if (sscanf(line, "VmHWM: %lf", &kib) == 1) {
      break;
    }
  }
  if (f) {
    (void)fclose(f);
  }
  return 1024 * kib;
}

/* Bytes of the device's memory that are free; 0 for the CPU. */
static double free_memory(const tgi_run_device *d)
{
  tg_device_info info;
  const bool found = d->backend == TG_BACKEND_CUDA && !tg_device_get_info(d->index, &info, NULL);
  return found ? (double)info.free_bytes : 0;
}

/* ---- one mode ---- */

typedef struct timing {
  const char *mode;
  double tokens, flops; /* of a step */
  double median, mean, least, most;
  double device_bytes; /* allocated on the GPU; the process caches freed blocks */
} timing;

typedef struct work {
  const tgi_bench_steps *o;
  tg_model *model;
  tg_trainer *trainer;
  tg_session *session;
  int32_t *ids, *targets; /* batch * seq + 1 */
  double free_before;     /* of the device, before a mode */
} work;

typedef tg_status one_step(work *w, tg_error *error);

static tg_status train_step(work *w, tg_error *error)
{
  tg_step_result result;
  return tg_trainer_step(w->trainer, &(tg_train_batch){.tokens = w->ids, .targets = w->targets},
                         &result, error);
}

static tg_status prefill_step(work *w, tg_error *error)
{
  const tg_status status = tg_session_truncate(w->session, 0);
  return status ? status : tg_session_feed(w->session, w->ids, w->o->seq, error);
}

static tg_status decode_step(work *w, tg_error *error)
{
  const tg_status status = tg_session_truncate(w->session, w->o->seq);
  return status ? status : tg_session_feed(w->session, w->ids + w->o->seq, 1, error);
}

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static tg_status time_steps(work *w, one_step *step, timing *t, tg_error *error)
{
  const int n = w->o->steps;
  double *seconds = malloc((size_t)n * sizeof *seconds);
  tg_status status = seconds ? TG_OK
                             : tgi_error_set(error, TG_NO_MEMORY,
                                             "bench: expected memory for %d times, got none", n);
  for (int i = -kWarmUp; i < n && status == TG_OK; i++) {
    const double start = tgi_clock();
    status = step(w, error);
    if (i >= 0) {
      seconds[i] = tgi_clock() - start;
    }
  }
  if (status == TG_OK) {
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    t->median = n % 2 ? seconds[n / 2] : 0.5 * (seconds[n / 2 - 1] + seconds[n / 2]);
    for (int i = 0; i < n; i++) {
      t->mean += seconds[i] / n;
    }
    t->least = seconds[0];
    t->most = seconds[n - 1];
    t->device_bytes = w->free_before - free_memory(&w->o->device);
  }
  free(seconds);
  return status;
}

static tg_status time_training(work *w, timing *t, tg_error *error)
{
  const tgi_bench_steps *o = w->o;
  const tg_trainer_options training = {.batch_size = o->batch,
                                       .sequence_length = o->seq,
                                       .num_threads = o->threads,
                                       .num_steps = (int64_t)kWarmUp + o->steps,
                                       .learning_rate = 1e-4,
                                       .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .eps = 1e-8,
                                       .weight_decay = 0.1,
                                       .max_grad_norm = 1,
                                       .dtype = o->training_dtype,
                                       .backend = w->o->device.backend,
                                       .device_index = w->o->device.index};
  tg_status status = tg_trainer_create(w->model, &training, &w->trainer, error);
  t->tokens = (double)o->batch * o->seq;
  t->flops = 3 * forward_flops(w->model, t->tokens, 0.5 * (o->seq + 1.0), t->tokens);
  status = status ? status : time_steps(w, train_step, t, error);
  tg_trainer_destroy(w->trainer);
  w->trainer = NULL;
  return status;
}

static tg_status time_session(work *w, timing *t, bool decode, tg_error *error)
{
  const tgi_bench_steps *o = w->o;
  const tg_session_options session = {.num_threads = o->threads,
                                      .backend = w->o->device.backend,
                                      .device_index = w->o->device.index};
  tg_status status = tg_session_create(w->model, &session, &w->session, error);
  t->tokens = decode ? 1 : o->seq;
  t->flops = forward_flops(w->model, t->tokens, decode ? o->seq + 1.0 : 0.5 * (o->seq + 1.0), 1);
  if (status == TG_OK && decode) {
    status = tg_session_feed(w->session, w->ids, o->seq, error);
  }
  status = status ? status : time_steps(w, decode ? decode_step : prefill_step, t, error);
  tg_session_destroy(w->session);
  w->session = NULL;
  return status;
}

static tg_status time_mode(work *w, timing *t, tg_error *error)
{
  const bool training = strcmp(t->mode, "train") == 0;
  const tg_status status =
      tgi_bench_convert(w->model, training ? TG_F32 : w->o->dtype, w->o->threads, error);
  w->free_before = free_memory(&w->o->device);
  if (status != TG_OK || training) {
    return status ? status : time_training(w, t, error);
  }
  return time_session(w, t, strcmp(t->mode, "decode") == 0, error);
}

static void print_timing(const work *w, const timing *t)
{
  const tg_model_info info = tg_model_get_info(w->model);
  const bool decode = strcmp(t->mode, "decode") == 0, training = strcmp(t->mode, "train") == 0;
  if (!w->o->json) {
    printf("%-8s %9.3f ms (%.3f to %.3f) | %.0f tok/s | %.1f GFLOP/s | ", t->mode, 1e3 * t->median,
           1e3 * t->least, 1e3 * t->most, t->tokens / t->median, 1e-9 * t->flops / t->median);
    if (decode) {
      printf("weights %.1f GB/s | ",
             1e-9 * tgi_model_pass_bytes(w->model, 0, TG_DTYPE_NONE) / t->median);
    }
    printf("peak memory %s", tgi_size(peak_memory()).text);
    if (t->device_bytes > 0) {
      printf(", GPU %s", tgi_size(t->device_bytes).text);
    }
    printf("\n");
    return;
  }
  json_t *j = tgi_json_new();
  json_object_set_new(j, "model", json_string(w->o->name));
  json_object_set_new(j, "mode", json_string(t->mode));
  json_object_set_new(j, "batch", json_integer(training ? w->o->batch : 1));
  json_object_set_new(j, "seq", json_integer(w->o->seq));
  json_object_set_new(j, "parameters", json_integer(info.num_parameters));
  json_object_set_new(j, "dtype",
                      json_string(tg_dtype_name(training ? w->o->training_dtype : info.dtype)));
  json_object_set_new(j, "device", json_string(w->o->device_name));
  json_object_set_new(j, "steps", json_integer(w->o->steps));
  json_object_set_new(j, "ms", json_real(1e3 * t->median));
  json_object_set_new(j, "ms_mean", json_real(1e3 * t->mean));
  json_object_set_new(j, "ms_min", json_real(1e3 * t->least));
  json_object_set_new(j, "ms_max", json_real(1e3 * t->most));
  json_object_set_new(j, "tokens_per_s", json_real(t->tokens / t->median));
  json_object_set_new(j, "gflops", json_real(1e-9 * t->flops / t->median));
  json_object_set_new(j, "peak_bytes", json_integer((int64_t)peak_memory()));
  if (t->device_bytes > 0) {
    json_object_set_new(j, "device_peak_bytes", json_integer((int64_t)t->device_bytes));
  }
  tgi_json_print(j, JSON_COMPACT);
}

/* ---- all modes ---- */

static tg_status fill_ids(work *w, bool decodes, tg_error *error)
{
  const tgi_bench_steps *o = w->o;
  const size_t n = (size_t)o->batch * (size_t)o->seq;
  const tg_model_info info = tg_model_get_info(w->model);
  if (o->seq + decodes > info.max_position_embeddings) {
    return tgi_error_set(
        error, TG_BAD_ARGUMENT, "--seq: expected at most %d of the model's %d positions, got %d",
        info.max_position_embeddings - decodes, info.max_position_embeddings, o->seq);
  }
  w->ids = malloc((n + 1) * sizeof *w->ids);
  w->targets = malloc(n * sizeof *w->targets);
  if (!w->ids || !w->targets) {
    return tgi_error_set(error, TG_NO_MEMORY, "bench: expected memory for %zu tokens, got none", n);
  }
  uint32_t state = 1;
  for (size_t i = 0; i <= n; i++) {
    state = state * 1664525u + 1013904223u;
    w->ids[i] = (int32_t)((state >> 8) % (uint32_t)info.vocab_size);
    if (i > 0) {
      w->targets[i - 1] = w->ids[i];
    }
  }
  return TG_OK;
}

static const char *const modes[] = {"train", "prefill", "decode"};

bool tgi_bench_is_step(const char *mode)
{
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    if (strcmp(modes[i], mode) == 0) {
      return true;
    }
  }
  return false;
}

tg_status tgi_bench_steps_run(const tgi_bench_steps *o, const char *mode, tg_model *model,
                              tg_error *error)
{
  work w = {.o = o, .model = model};
  tg_status status = fill_ids(&w, !mode || strcmp(mode, "decode") == 0, error);
  for (size_t i = 0; i < sizeof modes / sizeof modes[0] && status == TG_OK; i++) {
    timing t = {.mode = modes[i]};
    if (!mode || strcmp(mode, modes[i]) == 0) {
      status = time_mode(&w, &t, error);
      if (status == TG_OK) {
        print_timing(&w, &t);
        fflush(stdout);
      }
    }
  }
  free(w.ids);
  free(w.targets);
  return status;
}
