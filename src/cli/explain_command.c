/* tegula explain: how an op runs a shape, what it costs, and which roof bounds it on this machine.
 */
#include "command.h"
#include "console.h"
#include "core/context_state.h"
#include "cost_roof.h"
#include "json_print.h"
#include "ops/shape.h"
#include "option_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kName[] = "tegula explain";

enum { kMaxViews = TGI_SHAPE_MAX_LISTED + 32 };

typedef struct options {
  const char *dtype, *dir, *entry, *device;
  int32_t threads;
  bool json;
} options;

#define ROW(name, field, argument, kind, min, max, help)                                           \
  {                                                                                                \
    name, argument, TGI_AT(options, field), min, max, help, TGI_OPTION_##kind, 0                   \
  }

static const tgi_option rows[] = {
    ROW("dtype", dtype, "DTYPE", TEXT, 0, 0, "dtype of the activations: f32, f16 or bf16 (f32)"),
    ROW("dir", dir, "DIR", TEXT, 0, 0, "direction: fwd, bwd, fwdbwd or step (the op's first)"),
    ROW("entry", entry, "ENTRY", TEXT, 0, 0,
        "first entry of the kernel chain: avx512, avx2, generic; sm90, sm80, any"),
    ROW("device", device, "DEVICE", TEXT, 0, 0, "cpu, cuda or cuda:N (cpu)"),
    ROW("threads", threads, "N", I32, 1, 4096, "CPU threads (one per CPU)"),
    ROW("json", json, NULL, FLAG, 0, 0, "print one JSON object"),
    {0},
};

static const tgi_command command_line = {
    .name = "tegula explain",
    .positions = "[OP SHAPE]",
    .help =
        "Show how an op runs a shape: kernels, plan, bytes, flops, the roof that bounds it, and "
        "the least time that this roof allows. Without arguments, list the ops and the syntax "
        "of their shapes.\vOP is rms_norm, rms_norm_bwd, ...; SHAPE is written as in the "
        "benchmarks: tegula explain rms_norm 16384x4096. Each call measures the roofs.",
    .options = rows,
    .most_positions = 2,
};

typedef struct explanation {
  tgi_shaped shaped;
  tg_context *ctx;
  tgi_run_device device;
  tg_dtype dtype;
  const char *shape;
  char plan[256];
  size_t workspace;
  tgi_cost_roof roof;
} explanation;

/* ---- the op ---- */

static int list_ops(bool json)
{
  tgi_json_begin();
  json_t *list = json_array();
  for (size_t i = 0; i < tg_op_count(); i++) {
    const tg_op_info *op = tg_op_at(i);
    if (json) {
      json_t *row = json_object();
      json_object_set_new(row, "op", json_string(op->op));
      json_object_set_new(row, "dir", json_string(op->dir));
      json_object_set_new(row, "shape", json_string(tgi_shape_syntax(op->name)));
      json_array_append_new(list, row);
    } else {
      printf("%-20s %s\n", op->name, tgi_shape_syntax(op->name));
    }
  }
  if (json) {
    tgi_json_print(list, JSON_INDENT(2));
  } else {
    json_decref(list);
  }
  return 0;
}

/* "rms_norm_bwd", or "rms_norm" with --dir or its first direction. NULL: not found. */
static const tg_op_info *find_op(const char *name, const char *dir)
{
  for (size_t i = 0; i < tg_op_count(); i++) {
    const tg_op_info *op = tg_op_at(i);
    const bool named = strcmp(op->name, name) == 0 || strcmp(op->op, name) == 0;
    if (named && (!dir || strcmp(op->dir, dir) == 0)) {
      return op;
    }
  }
  return NULL;
}

/* ---- output ---- */

static void shape_text(const tg_tensor *t, char *text, size_t bytes)
{
  size_t used = (size_t)snprintf(text, bytes, "%s [", tg_dtype_name(t->dtype));
  for (int i = 0; i < t->ndim && used < bytes; i++) {
    used +=
        (size_t)snprintf(text + used, bytes - used, i ? ", %lld" : "%lld", (long long)t->shape[i]);
  }
  snprintf(text + (used < bytes ? used : bytes - 1), used < bytes ? bytes - used : 1, "]");
}

static double tensor_bytes(const tg_tensor *t)
{
  return (double)tgi_numel(t) * (double)tg_dtype_bytes(t->dtype);
}

static const char *role_name(tg_slot_role role)
{
  static const char *const names[] = {"", "in", "out", "acc", "inout"};
  return names[role];
}

static void print_answer(explanation *e)
{
  const tgi_cost *cost = &e->shaped.cost;
  const double bytes = cost->read_bytes + cost->written_bytes;
  tgi_shaped_view views[kMaxViews];
  const int n = tgi_shaped_views(&e->shaped, views, kMaxViews);
  printf("op         %s\n", e->shaped.info->name);
  printf("shape      %s, %s\n", e->shape, tg_dtype_name(e->dtype));
  if (e->device.backend == TG_BACKEND_CUDA) {
    printf("entry      %s, GPU %d\n", tg_context_entry(e->ctx), (int)e->device.index);
  } else {
    printf("entry      %s, %d threads\n", tg_context_entry(e->ctx), tg_context_num_threads(e->ctx));
  }
  printf("plan       %s\n", e->plan);
  for (int i = 0; i < n; i++) {
    char name[64], shape[128];
    shape_text(views[i].tensor, shape, sizeof shape);
    snprintf(name, sizeof name, views[i].index < 0 ? "%s" : "%s[%lld]", views[i].slot->name,
             (long long)views[i].index);
    printf("%-10s %-16s %-5s %-28s %s\n", i ? "" : "tensors", name, role_name(views[i].slot->role),
           shape, tgi_size(tensor_bytes(views[i].tensor)).text);
  }
  printf("workspace  %s\n", tgi_size((double)e->workspace).text);
  printf("bytes      %s: %s read, %s written\n", tgi_size(bytes).text,
         tgi_size(cost->read_bytes).text, tgi_size(cost->written_bytes).text);
  printf("flops      %.4g (arithmetic intensity: %.3g flops per byte)\n", cost->flops,
         bytes > 0 ? cost->flops / bytes : 0);
  printf("roof       %s %.1f GB/s, %s %.1f GFLOP/s\n", e->roof.copy, 1e-9 * e->roof.bytes_per_s,
         e->roof.arithmetic, 1e-9 * e->roof.flops_per_s);
  const double memory = tgi_roof_memory_seconds(&e->roof, cost),
               compute = tgi_roof_compute_seconds(&e->roof, cost);
  printf("time       %.4g ms at least, bound by %s (memory %.4g ms, arithmetic %.4g ms)\n",
         1e3 * (memory > compute ? memory : compute), memory > compute ? "memory" : "arithmetic",
         1e3 * memory, 1e3 * compute);
}

static void write_answer(explanation *e)
{
  const tgi_cost *cost = &e->shaped.cost;
  json_t *w = tgi_json_new();
  const double memory = tgi_roof_memory_seconds(&e->roof, cost),
               compute = tgi_roof_compute_seconds(&e->roof, cost);
  json_object_set_new(w, "op", json_string(e->shaped.info->op));
  json_object_set_new(w, "dir", json_string(e->shaped.info->dir));
  json_object_set_new(w, "shape", json_string(e->shape));
  json_object_set_new(w, "dtype", json_string(tg_dtype_name(e->dtype)));
  json_object_set_new(w, "entry", json_string(tg_context_entry(e->ctx)));
  json_object_set_new(w, "threads", json_integer(tg_context_num_threads(e->ctx)));
  json_object_set_new(w, "plan", json_string(e->plan));
  json_object_set_new(w, "workspace_bytes", json_integer((int64_t)e->workspace));
  json_object_set_new(w, "read_bytes", json_real(cost->read_bytes));
  json_object_set_new(w, "written_bytes", json_real(cost->written_bytes));
  json_object_set_new(w, "flops", json_real(cost->flops));
  json_object_set_new(w, "roof", json_string(e->roof.copy));
  json_object_set_new(w, "roof_gbps", json_real(1e-9 * e->roof.bytes_per_s));
  json_object_set_new(w, "roof_gflops", json_real(1e-9 * e->roof.flops_per_s));
  json_object_set_new(w, "bound", json_string(memory > compute ? "memory" : "arithmetic"));
  json_object_set_new(w, "predicted_ms", json_real(1e3 * (memory > compute ? memory : compute)));
  tgi_json_print(w, JSON_INDENT(2));
}

static tg_status fill(explanation *e, const options *o, const tg_op_info *op, tg_error *error)
{
  const tg_context_options options_of_context = {.backend = e->device.backend,
                                                 .device_index = e->device.index,
                                                 .num_threads = o->threads,
                                                 .entry = o->entry};
  tg_status status = tgi_shape_fill(op->name, e->shape, e->dtype, &e->shaped, error);
  if (status == TG_OK) {
    tgi_shaped_place(&e->shaped);
    status = tg_context_create(&options_of_context, &e->ctx, error);
  }
  if (status == TG_OK &&
      (status = op->workspace(e->ctx, e->shaped.args.bytes, &e->workspace)) != TG_OK) {
    return tgi_error_set(error, status, "%s", tg_context_message(e->ctx));
  }
  if (status == TG_OK) {
    tgi_shape_explain(e->ctx, &e->shaped, e->plan, sizeof e->plan);
    status = tgi_cost_roof_measure(&e->shaped.cost, &e->device, e->dtype,
                                   tg_context_num_threads(e->ctx), &e->roof, error);
  }
  return status;
}

int tgi_explain_command(int argc, char **argv)
{
  options o = {.dtype = "f32"};
  tgi_parsed given;
  tg_error error = {TG_OK, ""};
  tgi_parse_options(&command_line, argc, argv, &o, &given);
  if (given.num_positions == 0) {
    return list_ops(o.json);
  }
  if (given.num_positions == 1) {
    return tgi_usage_error(&command_line, "expected OP and SHAPE, got OP only");
  }
  const tg_op_info *op = find_op(given.position[0], o.dir);
  if (!op) {
    return tgi_usage_error(&command_line, "OP: expected an op that `%s' lists, got \"%s\"%s%s",
                           kName, given.position[0], o.dir ? " with --dir " : "",
                           o.dir ? o.dir : "");
  }
  if (!tgi_option_dtype(o.dtype)) {
    return tgi_usage_error(&command_line, "--dtype: expected f32, f16 or bf16, got %s", o.dtype);
  }
  tgi_run_device device;
  if (!tgi_option_device(o.device, &device)) {
    return tgi_usage_error(&command_line, "--device: expected cpu, cuda or cuda:N, got %s",
                           o.device);
  }
  explanation *e = calloc(1, sizeof *e);
  if (!e) {
    return tgi_console_fail(kName, "expected %zu bytes of memory, got none", sizeof *e);
  }
  e->device = device;
  e->dtype = tgi_option_dtype(o.dtype);
  e->shape = given.position[1];
  const tg_status status = fill(e, &o, op, &error);
  if (status == TG_OK && o.json) {
    write_answer(e);
  } else if (status == TG_OK) {
    print_answer(e);
  }
  tg_context_destroy(e->ctx);
  free(e);
  return status ? tgi_console_fail_with(kName, &error) : 0;
}
