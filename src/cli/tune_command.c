/* tegula tune: measures the kernels that could run a product on this GPU, and keeps the fastest. */
#include "command.h"
#include "console.h"
#include "core/error_record.h"
#include "ops/shape.h"
#include "option_table.h"
#include "tegula/tegula.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula tune";

enum { kMaxTensors = TGI_SHAPE_MAX_LISTED + 32, kNoise = 1 << 20 };

typedef struct options {
  const char *op, *dtype, *device;
  tgi_option_list shapes;
  bool clear;
} options;

#define ROW(name, field, argument, kind, help)                                                     \
  {                                                                                                \
    name, argument, TGI_AT(options, field), 0, 0, help, TGI_OPTION_##kind, 0                       \
  }

static const tgi_option rows[] = {
    ROW("op", op, "OP", TEXT, "linear_fwd or linear_bwd (both)"),
    ROW("shape", shapes, "SHAPE", LIST,
        "shape as `tegula explain' has it; several times (layers "
        "of Qwen3 0.6B and 8B)"),
    ROW("dtype", dtype, "DTYPE", TEXT, "dtype of the activations: f16 or bf16 (bf16)"),
    ROW("device", device, "DEVICE", TEXT, "cuda or cuda:N (cuda)"),
    ROW("clear", clear, NULL, FLAG, "delete what was measured before, on whatever GPU, and stop"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula tune",
    .help = "Measure the kernels that could run a matrix product on this GPU, cublasLt's among "
            "them, and keep the fastest in the user's cache directory, for this GPU, driver and "
            "build. Without it a table that is built in decides.\vtegula tune --op linear_fwd "
            "--shape 4096x1024x3072",
    .options = rows,
};

/* rows x in x out: q, k or v, o, gate or up, down. */
static const char *const usual_shapes[] = {
    "4096x1024x2048", "4096x1024x1024", "4096x2048x1024",  "4096x1024x3072",
    "4096x3072x1024", "4096x4096x4096", "4096x4096x12288", "4096x12288x4096",
};
static const char *const usual_ops[] = {"linear_fwd", "linear_bwd"};

/* Whether the op's products have candidates. */
static bool is_measured(const char *op)
{
  bool found = false;
  for (size_t i = 0; i < sizeof usual_ops / sizeof usual_ops[0]; i++) {
    found = found || strcmp(op, usual_ops[i]) == 0;
  }
  return found;
}

typedef struct tuning {
  tg_context *ctx;
  tg_dtype dtype;
  uint16_t *noise; /* kNoise elements */
  void *memory[kMaxTensors + 1];
  int blocks;
} tuning;

/* About normal in size, as zeros would need less power than any real product. */
static void make_noise(uint16_t *to, tg_dtype dtype)
{
  uint64_t z = 1;
  const unsigned one = dtype == TG_F16 ? 0x3800U : 0x3F00U, shift = dtype == TG_F16 ? 54 : 57;
  for (int i = 0; i < kNoise; i++) {
    z = z * 6364136223846793005U + 1442695040888963407U;
    to[i] = (uint16_t)(one + (z >> shift) + ((z >> 40 & 1) << 15));
  }
}

static tg_status take(tuning *t, size_t bytes, void **out)
{
  const size_t part = 2 * (size_t)kNoise;
  tg_status status = tg_memory_allocate(t->ctx, bytes, out);
  if (status == TG_OK) {
    t->memory[t->blocks++] = *out;
  }
  for (size_t at = 0; at < bytes && status == TG_OK; at += part) {
    const size_t some = bytes - at < part ? bytes - at : part;
    status = tg_memory_copy(t->ctx, (char *)*out + at, some, t->noise, some, some, 1);
  }
  return status;
}

static void set_workspace(tgi_shaped *shaped, void *memory, size_t bytes)
{
  for (size_t i = 0; i < shaped->info->num_slots; i++) {
    const tg_slot_info *slot = &shaped->info->slots[i];
    unsigned char *at = shaped->args.bytes + slot->offset;
    if (slot->kind == TG_KIND_WORKSPACE) {
      memcpy(at, (const void *)&memory, sizeof memory);
    } else if (slot->kind == TG_KIND_SIZE) {
      memcpy(at, &bytes, sizeof bytes);
    }
  }
}

static tg_status run(tuning *t, tgi_shaped *shaped)
{
  tgi_shaped_view views[kMaxTensors];
  const tg_op_info *op = shaped->info;
  const int n = tgi_shaped_views(shaped, views, kMaxTensors);
  tg_status status = TG_OK;
  for (int i = 0; i < n && status == TG_OK; i++) {
    const tg_tensor *v = views[i].tensor;
    int64_t elements = 1;
    for (int axis = 0; axis < v->ndim; axis++) {
      elements *= v->shape[axis];
    }
    status = take(t, (size_t)elements * tg_dtype_bytes(v->dtype), &views[i].tensor->data);
  }
  size_t bytes = 0;
  void *workspace = NULL;
  if (status == TG_OK) {
    status = op->workspace(t->ctx, shaped->args.bytes, &bytes);
  }
  if (status == TG_OK) {
    status = take(t, bytes, &workspace);
  }
  if (status == TG_OK) {
    set_workspace(shaped, workspace, bytes);
    status = op->run(t->ctx, shaped->args.bytes);
  }
  return status == TG_OK ? tg_context_check(t->ctx) : status;
}

static tg_status tune_one(tuning *t, const char *op, const char *shape, tg_error *error)
{
  tgi_shaped *shaped = calloc(1, sizeof *shaped);
  int64_t measured = 0;
  tg_status status =
      shaped ? tgi_shape_fill(op, shape, t->dtype, shaped, error)
             : tgi_error_set(error, TG_NO_MEMORY, "tune: expected %zu bytes of memory, got none",
                             sizeof *shaped);
  if (status == TG_OK) {
    status = tg_tune_begin(t->ctx);
    status = status == TG_OK ? run(t, shaped) : status;
    const tg_status end = tg_tune_end(t->ctx, &measured);
    status = status == TG_OK ? end : status;
    if (status != TG_OK) {
      tgi_error_set(error, status, "%s", tg_context_message(t->ctx));
    }
  }
  while (t->blocks > 0) {
    tg_memory_free(t->ctx, t->memory[--t->blocks]);
  }
  if (status == TG_OK) {
    char plan[256] = "";
    tgi_shaped_place(shaped);
    tgi_shape_explain(t->ctx, shaped, plan, sizeof plan);
    printf("%-12s %-18s %lld measured: %s\n", op, shape, (long long)measured, plan);
    fflush(stdout);
  }
  free(shaped);
  return status;
}

static tg_status tune_all(tuning *t, const options *o, tg_error *error)
{
  const char *const *shapes = o->shapes.count ? o->shapes.items : usual_shapes;
  const int count =
      o->shapes.count ? o->shapes.count : (int)(sizeof usual_shapes / sizeof usual_shapes[0]);
  const char *const *ops = o->op ? &o->op : usual_ops;
  const int op_count = o->op ? 1 : (int)(sizeof usual_ops / sizeof usual_ops[0]);
  tg_status status = TG_OK;
  for (int i = 0; i < count && status == TG_OK; i++) {
    for (int j = 0; j < op_count && status == TG_OK; j++) {
      status = tune_one(t, ops[j], shapes[i], error);
    }
  }
  if (status == TG_OK) {
    printf("table        %s\n", tg_context_table(t->ctx));
  }
  return status;
}

static int delete_tables(void)
{
  int64_t removed = 0;
  tg_error error = {TG_OK, ""};
  if (tg_tune_clear(&removed, &error) != TG_OK) {
    return tgi_console_fail_with(kName, &error);
  }
  printf("%lld table%s deleted\n", (long long)removed, removed == 1 ? "" : "s");
  return tgi_console_finish(kName, 0);
}

static tg_status set_up(tuning *t, tgi_run_device device, tg_error *error)
{
  const tg_context_options context = {.backend = device.backend, .device_index = device.index};
  tg_status status = tg_context_create(&context, &t->ctx, error);
  if (status == TG_OK && (status = tg_context_prepare(t->ctx)) != TG_OK) {
    tgi_error_set(error, status, "%s", tg_context_message(t->ctx));
  }
  t->noise = status == TG_OK ? malloc(2 * (size_t)kNoise) : NULL;
  if (status == TG_OK && !t->noise) {
    return tgi_error_set(error, TG_NO_MEMORY, "tune: expected %d bytes of memory, got none",
                         2 * kNoise);
  }
  if (status == TG_OK) {
    make_noise(t->noise, t->dtype);
  }
  return status;
}

int tgi_tune_command(int argc, char **argv)
{
  options o = {.dtype = "bf16", .device = "cuda"};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_run_device device;
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  if (o.clear) {
    return delete_tables();
  }
  if (o.op && !is_measured(o.op)) {
    return tgi_usage_error(&command_line, "--op: expected linear_fwd or linear_bwd, got \"%s\"",
                           o.op);
  }
  if (o.op && !o.shapes.count) {
    return tgi_usage_error(&command_line, "expected --shape beside --op, got none");
  }
  tuning t = {.dtype = tgi_option_dtype(o.dtype)};
  if (t.dtype != TG_F16 && t.dtype != TG_BF16) {
    return tgi_usage_error(&command_line, "--dtype: expected f16 or bf16, got %s", o.dtype);
  }
  if (!tgi_option_device(o.device, &device) || device.backend != TG_BACKEND_CUDA) {
    return tgi_usage_error(&command_line, "--device: expected cuda or cuda:N, got %s", o.device);
  }
  tg_status status = set_up(&t, device, &error);
  if (status == TG_OK) {
    status = tune_all(&t, &o, &error);
  }
  free(t.noise);
  tg_context_destroy(t.ctx);
  return tgi_console_finish(kName, status ? tgi_console_fail_with(kName, &error) : 0);
}
