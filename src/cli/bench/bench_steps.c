/* Steps of training, prefill and decoding, and forward passes, timed one by one. */
#include "bench_steps.h"

#include "bench_dtype.h"
#include "bench_memory.h"
#include "bench_spread.h"
#include "bench_watch.h"
#include "cli/console.h"
#include "cli/generate/model_cost.h"
#include "cli/json_print.h"
#include "core/error_record.h"
#include "core/machine/clock.h"
#include "generation/session_state.h"
#include "op_times.h"
#include "tegula/device.h"
#include "tegula/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWarmUp = 2 };

/* ---- one mode ---- */

typedef struct timing {
  const char *mode;
  double tokens, flops; /* of a step */
  tgi_spread spread;
  double peak_bytes;   /* of the process so far */
  double device_bytes; /* allocated on the GPU; the process caches freed blocks */
  json_t *ops;         /* with --ops: what tgi_bench_ops_run gives */
} timing;

typedef struct work {
  const tgi_bench_steps *o;
  tg_model *model;
  tg_trainer *trainer;
  tg_session *session;
  int32_t *ids, *targets; /* batch * seq + 1 */
  tg_tensor logits;       /* of forward, in the session's memory */
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

static tg_status forward_step(work *w, tg_error *error)
{
  return tg_session_forward(w->session, w->ids, w->o->batch, w->o->seq, 0, w->logits, error);
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
    t->spread = tgi_spread_of(seconds, (size_t)n);
    t->peak_bytes = tgi_bench_peak_memory();
    t->device_bytes = w->free_before - tgi_bench_free_memory(&w->o->device);
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
  t->flops = 3 * tgi_bench_forward_flops(w->model, t->tokens, 0.5 * (o->seq + 1.0), t->tokens);
  status = status ? status : time_steps(w, train_step, t, error);
  tg_trainer_destroy(w->trainer);
  w->trainer = NULL;
  return status;
}

static tg_status open_session(work *w, tg_error *error)
{
  const tgi_bench_steps *o = w->o;
  const tg_session_options session = {
      .num_threads = o->threads, .backend = o->device.backend, .device_index = o->device.index};
  const tg_status status = tg_session_create(w->model, &session, &w->session, error);
  if (status == TG_OK) {
    w->session->watch = o->nvtx ? tgi_bench_nvtx() : NULL;
  }
  return status;
}

static void close_session(work *w)
{
  tg_session_destroy(w->session);
  w->session = NULL;
}

static tg_status time_session(work *w, timing *t, bool decode, tg_error *error)
{
  const tgi_bench_steps *o = w->o;
  tg_status status = open_session(w, error);
  t->tokens = decode ? 1 : o->seq;
  t->flops =
      tgi_bench_forward_flops(w->model, t->tokens, decode ? o->seq + 1.0 : 0.5 * (o->seq + 1.0), 1);
  if (status == TG_OK && decode) {
    status = tg_session_feed(w->session, w->ids, o->seq, error);
  }
  status = status ? status : time_steps(w, decode ? decode_step : prefill_step, t, error);
  close_session(w);
  return status;
}

static tg_status watched_step(void *user, tg_error *error)
{
  return forward_step(user, error);
}

/* Logits of all tokens, to memory of the session's device. */
static tg_status time_forward(work *w, timing *t, tg_error *error)
{
  const tgi_bench_steps *o = w->o;
  const int64_t rows = (int64_t)o->batch * o->seq, vocab = tg_model_get_info(w->model).vocab_size;
  const tg_dtype dtype = o->logits_dtype ? o->logits_dtype : TG_F32;
  void *memory = NULL;
  tg_status status = open_session(w, error);
  t->tokens = (double)rows;
  t->flops = tgi_bench_forward_flops(w->model, t->tokens, 0.5 * (o->seq + 1.0), t->tokens);
  if (status != TG_OK) {
    return status;
  }
  tg_context *ctx = w->session->ctx;
  status = tg_memory_allocate(ctx, (size_t)(rows * vocab) * tg_dtype_bytes(dtype), &memory);
  status = status ? tgi_error_set(error, status, "forward: %s", tg_context_message(ctx)) : TG_OK;
  w->logits = tg_tensor_2d(memory, dtype, rows, vocab);
  if (o->device.backend == TG_BACKEND_CUDA) {
    w->logits.device = TG_DEVICE_CUDA(o->device.index);
  }
  status = status ? status : time_steps(w, forward_step, t, error);
  if (status == TG_OK && o->ops) {
    const tgi_bench_ops ops = {.session = w->session,
                               .device = o->device,
                               .pass = watched_step,
                               .user = w,
                               .seconds = t->spread.median};
    status = tgi_bench_ops_run(&ops, &t->ops, error);
  }
  tg_memory_free(ctx, memory);
  close_session(w);
  return status;
}

static tg_status time_mode(work *w, timing *t, tg_error *error)
{
  const bool training = strcmp(t->mode, "train") == 0;
  const tg_status status =
      tgi_bench_convert(w->model, training ? TG_F32 : w->o->dtype, w->o->threads, error);
  w->free_before = tgi_bench_free_memory(&w->o->device);
  if (status != TG_OK || training) {
    return status ? status : time_training(w, t, error);
  }
  if (strcmp(t->mode, "forward") == 0) {
    return time_forward(w, t, error);
  }
  return time_session(w, t, strcmp(t->mode, "decode") == 0, error);
}

static void write_spread(json_t *j, const tgi_spread *s)
{
  json_object_set_new(j, "ms", json_real(1e3 * s->median));
  json_object_set_new(j, "ms_mean", json_real(1e3 * s->mean));
  json_object_set_new(j, "ms_std", json_real(1e3 * s->deviation));
  json_object_set_new(j, "ms_min", json_real(1e3 * s->least));
  json_object_set_new(j, "ms_max", json_real(1e3 * s->most));
  json_object_set_new(j, "ms_p95", json_real(1e3 * s->p95));
  json_object_set_new(j, "ms_p99", json_real(1e3 * s->p99));
}

/* By the names of config.json in GPT-2, as the model's own are in every family's. */
static json_t *describe_shape(const tg_model_info *info)
{
  json_t *j = json_object();
  json_object_set_new(j, "n_layer", json_integer(info->num_hidden_layers));
  json_object_set_new(j, "n_head", json_integer(info->num_attention_heads));
  json_object_set_new(j, "n_embd", json_integer(info->hidden_size));
  json_object_set_new(j, "vocab_size", json_integer(info->vocab_size));
  return j;
}

static void print_json(const work *w, const timing *t)
{
  const tg_model_info info = tg_model_get_info(w->model);
  const bool training = strcmp(t->mode, "train") == 0, forward = strcmp(t->mode, "forward") == 0;
  json_t *j = tgi_json_new();
  json_object_set_new(j, "model", json_string(w->o->name));
  json_object_set_new(j, "mode", json_string(t->mode));
  json_object_set_new(j, "batch", json_integer(training || forward ? w->o->batch : 1));
  json_object_set_new(j, "seq", json_integer(w->o->seq));
  json_object_set_new(j, "parameters", json_integer(info.num_parameters));
  json_object_set_new(j, "dtype",
                      json_string(tg_dtype_name(training ? w->o->training_dtype : info.dtype)));
  json_object_set_new(j, "device", json_string(w->o->device_name));
  json_object_set_new(j, "steps", json_integer(w->o->steps));
  write_spread(j, &t->spread);
  json_object_set_new(j, "tokens_per_s", json_real(t->tokens / t->spread.median));
  json_object_set_new(j, "gflops", json_real(1e-9 * t->flops / t->spread.median));
  json_object_set_new(j, "peak_bytes", json_integer((int64_t)t->peak_bytes));
  if (t->device_bytes > 0) {
    json_object_set_new(j, "device_peak_bytes", json_integer((int64_t)t->device_bytes));
  }
  if (forward) {
    json_object_set_new(j, "logits_dtype", json_string(tg_dtype_name(w->logits.dtype)));
    json_object_set_new(j, "weight_bytes", json_integer((int64_t)info.weight_bytes));
    json_object_set_new(j, "config", describe_shape(&info));
  }
  if (t->ops) {
    json_object_set_new(j, "ops", json_incref(t->ops));
  }
  tgi_json_print(j, JSON_COMPACT);
}

static void print_timing(const work *w, const timing *t)
{
  const tgi_spread *s = &t->spread;
  const double median = s->median;
  const bool decode = strcmp(t->mode, "decode") == 0, forward = strcmp(t->mode, "forward") == 0;
  if (!w->o->json) {
    printf("%-8s %9.3f ms (%.3f to %.3f) | %.0f tok/s | %.1f GFLOP/s | ", t->mode, 1e3 * median,
           1e3 * s->least, 1e3 * s->most, t->tokens / median, 1e-9 * t->flops / median);
    if (forward) {
      printf("mean %.3f, std %.3f, p95 %.3f, p99 %.3f ms | ", 1e3 * s->mean, 1e3 * s->deviation,
             1e3 * s->p95, 1e3 * s->p99);
    }
    if (decode) {
      printf("weights %.1f GB/s | ",
             1e-9 * tgi_model_pass_bytes(w->model, 0, TG_DTYPE_NONE) / median);
    }
    printf("peak memory %s", tgi_size(t->peak_bytes).text);
    if (t->device_bytes > 0) {
      printf(", GPU %s", tgi_size(t->device_bytes).text);
    }
    printf("\n");
    tgi_bench_ops_print(t->ops);
    return;
  }
  print_json(w, t);
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

/* The last one on request alone. */
static const char *const modes[] = {"train", "prefill", "decode", "forward"};

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
    if (mode ? strcmp(mode, modes[i]) == 0 : strcmp(modes[i], "forward") != 0) {
      status = time_mode(&w, &t, error);
      if (status == TG_OK) {
        print_timing(&w, &t);
        fflush(stdout);
      }
      json_decref(t.ops);
    }
  }
  free(w.ids);
  free(w.targets);
  return status;
}
