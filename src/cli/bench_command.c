/* tegula bench: times training steps, prefill, decoding and whole forward passes of a model, and
 * prints llama-bench's rows. */
#include "bench/bench_dtype.h"
#include "bench/bench_steps.h"
#include "bench/bench_table.h"
#include "bench/bench_watch.h"
#include "command.h"
#include "console.h"
#include "files/hub_name.h"
#include "option_table.h"
#include "train/train_options.h"

#include <stdio.h>
#include <string.h>

static const char kName[] = "tegula bench";

enum { kMaxSteps = 100000, kTrainBatch = 4 };

typedef struct options {
  const char *preset, *model, *dtype, *logits_dtype, *device;
  int32_t batch, seq, steps, threads, vocab_size;
  int32_t prompt, generated, depth; /* of the mode table */
  bool json, ops, nvtx;
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
    ROW("batch", batch, "N", I32, 1, 1 << 20,
        "sequences of a training step and of forward (4), or at the same time in the table (1)"),
    ROW("seq", seq, "N", I32, 1, 1 << 24,
        "tokens per sequence, in the prefill, and in the cache before decoding (64)"),
    ROW("dtype", dtype, "DTYPE", TEXT, 0, 0,
        "dtype of weights and activations: f32, bf16 or, but for training, f16 (f32; of a "
        "directory's weights, where nothing is trained, that of its files)"),
    ROW("logits-dtype", logits_dtype, "DTYPE", TEXT, 0, 0,
        "of forward: f32 or the dtype of the weights (f32)"),
    ROW("steps", steps, "N", I32, 1, kMaxSteps, "timed steps (10)"),
    ROW("iterations", steps, "N", I32, 1, kMaxSteps, "the same as --steps"),
    ROW("ops", ops, NULL, FLAG, 0, 0, "of forward: the time of each op, and its share of the roof"),
    ROW("nvtx", nvtx, NULL, FLAG, 0, 0,
        "mark passes, layers and ops for Nsight Systems; passes then run op by op"),
    {"n-prompt", "N", TGI_AT(options, prompt), 0, 1 << 24,
     "tokens of a prompt in the table (512, or as many as fit)", TGI_OPTION_I32, 'p'},
    {"n-gen", "N", TGI_AT(options, generated), 0, 1 << 24,
     "tokens generated in the table (128, or as many as fit)", TGI_OPTION_I32, 'n'},
    {"n-depth", "N", TGI_AT(options, depth), 0, 1 << 24,
     "tokens in the cache before both, in the table (0); with --batch a multiple of 256",
     TGI_OPTION_I32, 'd'},
    ROW("threads", threads, "N", I32, 1, 4096, "CPU threads (one per CPU)"),
    ROW("device", device, "DEVICE", TEXT, 0, 0, "cpu, cuda or cuda:N (cpu)"),
    ROW("json", json, NULL, FLAG, 0, 0, "print one JSON object per line"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula bench",
    .positions = "[train|prefill|decode|forward|table]",
    .help =
        "Time a model: two warm-up steps, then --steps timed steps. Without a mode, the first "
        "three run. The mode forward computes the logits of every token of --batch x --seq. The "
        "mode "
        "table has the columns of llama-bench, and rows for prompts (pp512) "
        "and for generating (tg128): tokens per second of all sequences, mean and standard "
        "deviation of --steps runs."
        "\v"
        "A forward pass counts 2 P + 4 L w k flops per token and 2 H per row of logits. P is the "
        "number of weights in matrix products without the head, H that of the head, L the number "
        "of layers, w = heads x head_dim, and k the number of keys that a token sees: (S + 1) / 2 "
        "on average over a sequence of S. Prefill and decoding compute one row of logits, forward "
        "and training one per token. A training step counts as three forward passes. "
        "Peak memory is that of the process so far; on a GPU, the memory that the mode allocated.",
    .options = rows,
    .most_positions = 1,
};

/* What is measured, and where. */
typedef struct work {
  tg_model *model;
  tg_dtype dtype; /* of the weights, but in training */
  tgi_run_device device;
} work;

static tg_status open_preset(const options *o, const char *mode, work *w, tg_error *error)
{
  const bool trains = !mode || strcmp(mode, "train") == 0;
  const tg_dtype dtype = o->dtype ? tgi_option_dtype(o->dtype) : TG_F32;
  return trains ? tg_model_create(o->preset, o->vocab_size, 0, &w->model, error)
                : tgi_bench_create(o->preset, o->vocab_size, dtype, &w->model, error);
}

static tg_status open_model(const options *o, const char *mode, work *w, tg_error *error)
{
  tgi_model_path path;
  tg_status status =
      o->preset ? open_preset(o, mode, w, error) : tgi_model_path_find(o->model, &path, error);
  if (status == TG_OK && !o->preset) {
    status = tg_model_load(path.text, TG_DTYPE_NONE, &w->model, error);
  }
  if (status == TG_OK) {
    w->dtype = o->dtype ? tgi_option_dtype(o->dtype) : tg_model_get_info(w->model).dtype;
  }
  return status;
}

static int check(const options *o, const char *mode)
{
  const bool trains = !mode || strcmp(mode, "train") == 0;
  const bool table = mode && strcmp(mode, "table") == 0;
  if (!o->preset == !o->model) {
    return tgi_usage_error(&command_line, "expected one of --preset NAME and --model DIR, got %s",
                           o->preset ? "both" : "neither");
  }
  if (tgi_train_check_preset(&command_line, o->preset)) {
    return TGI_EXIT_USAGE;
  }
  const bool forward = mode && strcmp(mode, "forward") == 0;
  if (mode && !tgi_bench_is_step(mode) && !table) {
    return tgi_usage_error(&command_line,
                           "expected train, prefill, decode, forward or table, got \"%s\"", mode);
  }
  if ((o->ops || o->logits_dtype) && !forward) {
    return tgi_usage_error(&command_line, "--%s: expected the mode forward",
                           o->ops ? "ops" : "logits-dtype");
  }
  if (o->nvtx && (trains || table)) {
    return tgi_usage_error(&command_line, "--nvtx: expected the mode prefill, decode or forward");
  }
  if (o->logits_dtype && !tgi_option_dtype(o->logits_dtype)) {
    return tgi_usage_error(&command_line, "--logits-dtype: expected f32, f16 or bf16, got %s",
                           o->logits_dtype);
  }
  if (o->dtype && !tgi_train_dtype_known(o->dtype) && (trains || strcmp(o->dtype, "f16") != 0)) {
    return tgi_usage_error(&command_line, "--dtype: expected f32%s or bf16, got %s",
                           trains ? "" : ", f16", o->dtype);
  }
  if (table && o->prompt == 0 && o->generated == 0) {
    return tgi_usage_error(&command_line, "--n-prompt, --n-gen: expected one above 0, got 0 and 0");
  }
  if (table && o->batch > TG_ENGINE_MAX_BATCH) {
    return tgi_usage_error(&command_line, "--batch: expected at most %d in the table, got %d",
                           TG_ENGINE_MAX_BATCH, o->batch);
  }
  if (table && o->batch > 1 && o->depth % TGI_BENCH_PIECE != 0) {
    return tgi_usage_error(&command_line,
                           "--n-depth: expected a multiple of %d with --batch, got %d",
                           TGI_BENCH_PIECE, o->depth);
  }
  return 0;
}

/* "qwen3-0.6b" of ".../qwen3-0.6b/". */
static void name_model(const options *o, char name[128])
{
  const char *from = o->preset ? o->preset : o->model;
  size_t end = strlen(from);
  while (end > 1 && from[end - 1] == '/') {
    end--;
  }
  size_t begin = end;
  while (begin > 0 && from[begin - 1] != '/') {
    begin--;
  }
  snprintf(name, 128, "%.*s", (int)(end - begin), from + begin);
}

static tg_status run_table(const options *o, const work *w, tg_error *error)
{
  char name[128];
  name_model(o, name);
  const tgi_bench_table table = {.name = name,
                                 .prompt = o->prompt,
                                 .generated = o->generated,
                                 .depth = o->depth,
                                 .batch = o->batch ? o->batch : 1,
                                 .runs = o->steps,
                                 .threads = o->threads,
                                 .device = w->device,
                                 .json = o->json};
  const tg_status status = tgi_bench_convert(w->model, w->dtype, o->threads, error);
  return status ? status : tgi_bench_table_run(&table, w->model, error);
}

static tg_status run_steps(const options *o, const work *w, const char *mode, tg_error *error)
{
  const tgi_bench_steps steps = {.name = o->preset ? o->preset : o->model,
                                 .device_name = o->device ? o->device : "cpu",
                                 .dtype = w->dtype,
                                 .training_dtype = o->dtype ? tgi_option_dtype(o->dtype) : TG_F32,
                                 .logits_dtype =
                                     o->logits_dtype ? tgi_option_dtype(o->logits_dtype) : TG_F32,
                                 .batch = o->batch ? o->batch : kTrainBatch,
                                 .seq = o->seq,
                                 .steps = o->steps,
                                 .threads = o->threads,
                                 .device = w->device,
                                 .json = o->json,
                                 .ops = o->ops,
                                 .nvtx = o->nvtx};
  return tgi_bench_steps_run(&steps, mode, w->model, error);
}

int tgi_bench_command(int argc, char **argv)
{
  options o = {.seq = 64, .steps = 10, .prompt = -1, .generated = -1};
  work w = {.model = NULL};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  const char *mode = given.position[0];
  const int code = check(&o, mode);
  if (code != 0) {
    return code;
  }
  if (!tgi_option_device(o.device, &w.device)) {
    return tgi_usage_error(&command_line, "--device: expected cpu, cuda or cuda:N, got %s",
                           o.device);
  }
  tg_status status = o.nvtx ? tgi_bench_nvtx_check(&error) : TG_OK;
  if (status == TG_OK && o.nvtx && !tgi_bench_nvtx_heard()) {
    fputs("tegula bench: --nvtx: no profiler listens; start it with scripts/nsys.sh\n", stderr);
  }
  status = status ? status : open_model(&o, mode, &w, &error);
  if (status == TG_OK) {
    status = mode && strcmp(mode, "table") == 0 ? run_table(&o, &w, &error)
                                                : run_steps(&o, &w, mode, &error);
  }
  tg_model_destroy(w.model);
  return status ? tgi_console_fail_with(kName, &error) : 0;
}
