/* tegula bench: times training steps, prefill and decoding of a model. */
#include "command.h"
#include "console.h"
#include "core/clock.h"
#include "core/error_record.h"
#include "generate/model_cost.h"
#include "hub_name.h"
#include "json_print.h"
#include "option_table.h"
#include "tegula/device.h"
#include "tegula/train.h"
#include "train/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula bench";

enum { kWarmUp = 2, kMaxSteps = 100000 };

typedef struct options {
  const char *preset, *model, *dtype, *device;
  int32_t batch, seq, steps, threads, vocab_size;
  bool json;
} options;

#define ROW(name, field, argument, kind, min, max, help)                                           \
  {                                                                                                \
    name, argument, TGI_AT(options, field), min, max, help, TGI_OPTION_##kind, 0                   \
  }

static const tgi_option rows[] = {
    ROW("preset", preset, "NAME", TEXT, 0, 0,
        "a new model of this preset (tegula train --help lists them)"),
    {"model", "DIR", TGI_AT(options, model), 0, 0, "the model in this Hugging Face directory",
     TGI_OPTION_TEXT, 'm'},
    ROW("vocab-size", vocab_size, "N", I32, 1, TGI_ANY_I32,
        "vocabulary size of a new model (50257)"),
    ROW("batch", batch, "N", I32, 1, 1 << 20, "sequences per training step (4)"),
    ROW("seq", seq, "N", I32, 1, 1 << 24,
        "tokens per sequence, in the prefill, and in the cache before decoding (64)"),
    ROW("dtype", dtype, "DTYPE", TEXT, 0, 0,
        "dtype of weights and activations in training steps: f32 or bf16 (f32)"),
    ROW("steps", steps, "N", I32, 1, kMaxSteps, "timed steps (10)"),
    ROW("threads", threads, "N", I32, 1, 4096, "CPU threads (one per CPU)"),
    ROW("device", device, "DEVICE", TEXT, 0, 0, "cpu, cuda or cuda:N (cpu)"),
    ROW("json", json, NULL, FLAG, 0, 0, "print one JSON object per line"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula bench",
    .positions = "[train|prefill|decode]",
    .help =
        "Time a model: two warm-up steps, then --steps timed steps. Without a mode, all three "
        "modes run."
        "\v"
        "A forward pass counts 2 P + 4 L w k flops per token and 2 H per row of logits. P is the "
        "number of weights in matrix products without the head, H that of the head, L the number "
        "of layers, w = heads x head_dim, and k the number of keys that a token sees: (S + 1) / 2 "
        "on average over a sequence of S. Prefill and decoding compute one row of logits, training "
        "one per token. A training step counts as three forward passes. "
        "Peak memory is that of the process so far; on a GPU, the memory that the mode allocated.",
    .options = rows,
    .most_positions = 1,
};

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
  const options *o;
  tgi_run_device device;
  tg_model *model;
  tg_trainer *trainer;
  tg_session *session;
  int32_t *ids, *targets; /* batch * seq + 1 */
  int decodes;            /* 1: a token after seq others */
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
    t->device_bytes = w->free_before - free_memory(&w->device);
  }
  free(seconds);
  return status;
}

static tg_status time_training(work *w, timing *t, tg_error *error)
{
  const options *o = w->o;
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
                                       .dtype = tgi_option_dtype(o->dtype),
                                       .backend = w->device.backend,
                                       .device_index = w->device.index};
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
  const options *o = w->o;
  const tg_session_options session = {
      .num_threads = o->threads, .backend = w->device.backend, .device_index = w->device.index};
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
  w->free_before = free_memory(&w->device);
  if (strcmp(t->mode, "train") == 0) {
    return time_training(w, t, error);
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
      printf("weights %.1f GB/s | ", 1e-9 * (double)info.weight_bytes / t->median);
    }
    printf("peak memory %s", tgi_size(peak_memory()).text);
    if (t->device_bytes > 0) {
      printf(", GPU %s", tgi_size(t->device_bytes).text);
    }
    printf("\n");
    return;
  }
  json_t *j = tgi_json_new();
  json_object_set_new(j, "model", json_string(w->o->preset ? w->o->preset : w->o->model));
  json_object_set_new(j, "mode", json_string(t->mode));
  json_object_set_new(j, "batch", json_integer(training ? w->o->batch : 1));
  json_object_set_new(j, "seq", json_integer(w->o->seq));
  json_object_set_new(j, "parameters", json_integer(info.num_parameters));
  json_object_set_new(j, "dtype", json_string(training ? w->o->dtype : tg_dtype_name(info.dtype)));
  json_object_set_new(j, "device", json_string(w->o->device ? w->o->device : "cpu"));
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

/* ---- the command ---- */

static tg_status prepare(work *w, tg_error *error)
{
  const options *o = w->o;
  tgi_model_path path;
  tg_status status = o->preset ? tg_model_create(o->preset, o->vocab_size, 0, &w->model, error)
                               : tgi_model_path_find(o->model, &path, error);
  if (status == TG_OK && !o->preset) {
    status = tg_model_load(path.text, TG_DTYPE_NONE, &w->model, error);
  }
  if (status != TG_OK) {
    return status;
  }
  const size_t n = (size_t)o->batch * (size_t)o->seq;
  const tg_model_info info = tg_model_get_info(w->model);
  if (o->seq + w->decodes > info.max_position_embeddings) {
    return tgi_error_set(
        error, TG_BAD_ARGUMENT, "--seq: expected at most %d of the model's %d positions, got %d",
        info.max_position_embeddings - w->decodes, info.max_position_embeddings, o->seq);
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

static bool is_mode(const char *name)
{
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    if (strcmp(modes[i], name) == 0) {
      return true;
    }
  }
  return false;
}

int tgi_bench_command(int argc, char **argv)
{
  options o = {.dtype = "f32", .batch = 4, .seq = 64, .steps = 10};
  work w = {.o = &o};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  const char *mode = given.position[0];
  if (!o.preset == !o.model) {
    return tgi_usage_error(&command_line, "expected one of --preset NAME and --model DIR, got %s",
                           o.preset ? "both" : "neither");
  }
  if (!tgi_train_dtype_known(o.dtype)) {
    return tgi_usage_error(&command_line, "--dtype: expected f32 or bf16, got %s", o.dtype);
  }
  if (!tgi_option_device(o.device, &w.device)) {
    return tgi_usage_error(&command_line, "--device: expected cpu, cuda or cuda:N, got %s",
                           o.device);
  }
  if (mode && !is_mode(mode)) {
    return tgi_usage_error(&command_line, "expected train, prefill or decode, got \"%s\"", mode);
  }
  w.decodes = !mode || strcmp(mode, "decode") == 0;
  tg_status status = prepare(&w, &error);
  for (size_t i = 0; i < sizeof modes / sizeof modes[0] && status == TG_OK; i++) {
    timing t = {.mode = modes[i]};
    if (!mode || strcmp(mode, modes[i]) == 0) {
      status = time_mode(&w, &t, &error);
      if (status == TG_OK) {
        print_timing(&w, &t);
        fflush(stdout);
      }
    }
  }
  tg_model_destroy(w.model);
  free(w.ids);
  free(w.targets);
  return status ? tgi_console_fail_with(kName, &error) : 0;
}
