#include "op_times.h"

#include "cli/cost_roof.h"
#include "core/error_record.h"
#include "core/machine/clock.h"
#include "generation/session_state.h"
#include "tegula/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 128, kPasses = 7, kRepeats = 32, kLaunches = 3, kTries = 3 };

typedef struct row {
  const tg_op_info *op;
  char shape[96]; /* "[8, 16] -> [8, 64]" */
  int calls;      /* of a pass */
  tgi_cost cost;  /* of all of them: calls of equal shapes may differ, as with windows */
  double seconds[kPasses];
} row;

typedef struct watched {
  row *rows; /* [kRows] */
  int count, pass;
  bool on_gpu;
} watched;

/* ---- rows ---- */

static size_t add_shape(char *text, size_t bytes, size_t used, const tg_tensor *t)
{
  for (int i = 0; i < t->ndim && used < bytes; i++) {
    used +=
        (size_t)snprintf(text + used, bytes - used, i ? ", %lld" : "[%lld", (long long)t->shape[i]);
  }
  if (used + 2 <= bytes) {
    text[used++] = ']';
    text[used] = 0;
  }
  return used;
}

/* The first tensor that the op reads, and the first that it writes. */
static void describe(const tg_op_info *op, const void *args, char *text, size_t bytes)
{
  const tg_tensor *from = NULL, *to = NULL;
  for (size_t i = 0; i < op->num_slots; i++) {
    const tg_slot_info *slot = &op->slots[i];
    const tg_tensor *t = (const void *)((const char *)args + slot->offset);
    if (slot->kind != TG_KIND_TENSOR || !t->ndim) {
      continue;
    }
    from = from || slot->role == TG_ROLE_OUT ? from : t;
    to = to || slot->role == TG_ROLE_IN ? to : t;
  }
  text[0] = 0;
  size_t used = from ? add_shape(text, bytes, 0, from) : 0;
  if (to && used + 8 < bytes) {
    used += (size_t)snprintf(text + used, bytes - used, " -> ");
    add_shape(text, bytes, used, to);
  }
}

/* The row of such calls; calls beyond the last row are added to it. */
static row *find_row(watched *w, const tg_op_info *op, const void *args)
{
  char shape[sizeof w->rows->shape];
  describe(op, args, shape, sizeof shape);
  for (int i = 0; i < w->count; i++) {
    if (w->rows[i].op == op && strcmp(w->rows[i].shape, shape) == 0) {
      return &w->rows[i];
    }
  }
  if (w->count < kRows) {
    row *r = &w->rows[w->count++];
    r->op = op;
    strcpy(r->shape, shape);
  }
  return &w->rows[w->count - 1];
}

/* ---- times ---- */

typedef struct repeated {
  tg_context *ctx;
  const tg_op_info *op;
  const void *args;
} repeated;

static tg_status repeat(void *user)
{
  const repeated *r = user;
  tg_status status = TG_OK;
  for (int i = 0; i < kRepeats && status == TG_OK; i++) {
    status = r->op->run(r->ctx, r->args);
  }
  return status;
}

/* The least seconds, of a few tries, from the first launch until the GPU is done. */
static tg_status launch(tg_context *ctx, const tg_graph *graph, int count, double *seconds)
{
  tg_status status = TG_OK;
  *seconds = 1e30;
  for (int i = 0; i < kTries && status == TG_OK; i++) {
    const double start = tgi_clock();
    for (int k = 0; k < count && status == TG_OK; k++) {
      status = tg_graph_launch(ctx, graph);
    }
    status = status ? status : tg_context_check(ctx);
    const double spent = tgi_clock() - start;
    *seconds = spent < *seconds ? spent : *seconds;
  }
  return status;
}

/* Of a call, from the difference between launches of few and of many. */
static tg_status time_on_gpu(tg_context *ctx, const tg_op_info *op, const void *args,
                             double *seconds)
{
  repeated r = {ctx, op, args};
  tg_graph *graph = NULL;
  double one = 0, several = 0;
  tg_status status = op->run(ctx, args);
  status = status ? status : tg_context_check(ctx);
  status = status ? status : tg_graph_record(ctx, repeat, &r, &graph);
  status = status ? status : launch(ctx, graph, 1, &one);
  status = status ? status : launch(ctx, graph, kLaunches, &several);
  tg_graph_destroy(ctx, graph);
  *seconds = (several - one) / ((kLaunches - 1) * kRepeats);
  return status;
}

static void add_call(row *r, const tg_op_info *op, const void *args)
{
  const tgi_cost cost = tgi_cost_of(op, args);
  r->calls++;
  r->cost.read_bytes += cost.read_bytes;
  r->cost.written_bytes += cost.written_bytes;
  r->cost.flops += cost.flops;
}

static tg_status run(void *user, tg_context *ctx, const tg_op_info *op, const void *args)
{
  watched *w = user;
  row *r = find_row(w, op, args);
  double seconds;
  tg_status status;
  if (w->on_gpu) {
    status = time_on_gpu(ctx, op, args, &seconds);
  } else {
    const double start = tgi_clock();
    status = op->run(ctx, args);
    seconds = tgi_clock() - start;
  }
  r->seconds[w->pass] += seconds;
  if (w->pass == 0) {
    add_call(r, op, args);
  }
  return status;
}

static void begin(void *user, const char *part)
{
  (void)user;
  (void)part;
}

static void end(void *user)
{
  (void)user;
}

/* ---- the answer ---- */

static int by_value(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static tgi_cost mean_cost(const row *r)
{
  const double calls = r->calls > 0 ? r->calls : 1;
  return (tgi_cost){.read_bytes = r->cost.read_bytes / calls,
                    .written_bytes = r->cost.written_bytes / calls,
                    .flops = r->cost.flops / calls};
}

static tg_status write_rows(const tgi_bench_ops *ops, watched *w, int passes, json_t *out,
                            tg_error *error)
{
  const tg_session *s = ops->session;
  tgi_cost_roof roof = {0};
  double all = 0, least_of_all = 0;
  json_t *list = json_array();
  for (int i = 0; i < w->count; i++) {
    row *r = &w->rows[i];
    if (i == 0 || !w->on_gpu) {
      const tgi_cost mean = mean_cost(r);
      const tg_status status = tgi_cost_roof_measure(&mean, &ops->device, s->model.dtype,
                                                     tg_context_num_threads(s->ctx), &roof, error);
      if (status != TG_OK) {
        json_decref(list);
        return status;
      }
    }
    qsort(r->seconds, (size_t)passes, sizeof *r->seconds, by_value);
    const double seconds = r->seconds[passes / 2];
    const double memory = tgi_roof_memory_seconds(&roof, &r->cost);
    const double compute = tgi_roof_compute_seconds(&roof, &r->cost);
    const double least = memory > compute ? memory : compute;
    json_t *j = json_object();
    json_object_set_new(j, "op", json_string(r->op->op));
    json_object_set_new(j, "shape", json_string(r->shape));
    json_object_set_new(j, "calls", json_integer(r->calls));
    json_object_set_new(j, "ms", json_real(1e3 * seconds));
    json_object_set_new(j, "bytes", json_real(r->cost.read_bytes + r->cost.written_bytes));
    json_object_set_new(j, "flops", json_real(r->cost.flops));
    json_object_set_new(j, "least_ms", json_real(1e3 * least));
    json_object_set_new(j, "share", json_real(seconds > 0 ? least / seconds : 0));
    json_object_set_new(j, "bound", json_string(memory > compute ? "memory" : "arithmetic"));
    json_array_append_new(list, j);
    all += seconds;
    least_of_all += least;
  }
  json_object_set_new(
      out, "roof",
      json_pack("{s:f, s:f}", "gbps", 1e-9 * roof.bytes_per_s, "gflops", 1e-9 * roof.flops_per_s));
  json_object_set_new(out, "rows", list);
  json_object_set_new(out, "ms", json_real(1e3 * all));
  json_object_set_new(out, "least_ms", json_real(1e3 * least_of_all));
  json_object_set_new(out, "share", json_real(least_of_all / ops->seconds));
  return TG_OK;
}

tg_status tgi_bench_ops_run(const tgi_bench_ops *ops, json_t **out, tg_error *error)
{
  watched w = {.rows = calloc(kRows, sizeof(row)),
               .on_gpu = ops->device.backend == TG_BACKEND_CUDA};
  const tgi_pass_watch watch = {&w, begin, end, run}, *other = ops->session->watch;
  const int passes = w.on_gpu ? 1 : kPasses;
  *out = json_object();
  tg_status status = w.rows && *out ? TG_OK
                                    : tgi_error_set(error, TG_NO_MEMORY,
                                                    "bench: expected memory for ops, got none");
  ops->session->watch = &watch;
  for (; w.pass < passes && status == TG_OK; w.pass++) {
    status = ops->pass(ops->user, error);
  }
  ops->session->watch = other;
  status = status ? status : write_rows(ops, &w, passes, *out, error);
  free(w.rows);
  return status;
}

void tgi_bench_ops_print(const json_t *ops)
{
  const json_t *rows = ops ? json_object_get(ops, "rows") : NULL;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *r = json_array_get(rows, i);
    printf("  %-16s %-36s %4lld x %9.4f ms | %6.1f%% of the roof (%s)\n",
           json_string_value(json_object_get(r, "op")),
           json_string_value(json_object_get(r, "shape")),
           (long long)json_integer_value(json_object_get(r, "calls")),
           json_real_value(json_object_get(r, "ms")),
           100 * json_real_value(json_object_get(r, "share")),
           json_string_value(json_object_get(r, "bound")));
  }
  if (ops) {
    printf("  all ops %.3f ms; the roof allows %.3f ms, %.1f%% of the pass\n",
           json_real_value(json_object_get(ops, "ms")),
           json_real_value(json_object_get(ops, "least_ms")),
           100 * json_real_value(json_object_get(ops, "share")));
  }
}
