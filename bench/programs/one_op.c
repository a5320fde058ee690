/* One call of one op on random data on a GPU, for a profiler.
 *
 *   one_op ROW SHAPE [--dtype bf16] [--entry sm90] [--calls N]        one_op softmax_fwd 4096x32768
 *
 * The first call, which loads the kernels, is not profiled: a profiler that was told to wait for
 * cudaProfilerStart sees the N calls (1) after it alone. What a backward gets from its forward is
 * made by ours.
 */
#include "core/values/half.h"
#include "ops/spec.h"

#include <argp.h>
#include <cuda_profiler_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxViews = TGI_SHAPE_MAX_LISTED + 32, kPattern = 65521 };

typedef struct options {
  const char *row, *shape, *entry;
  tg_dtype dtype;
  int calls;
} options;

/* A call with host copies of its arrays; `owned`: device memory that is freed with it. */
typedef struct device_call {
  tgi_shaped shaped;
  tgi_shaped_view view[kMaxViews];
  void *host[kMaxViews], *owned[kMaxViews], *workspace;
  int num_views;
} device_call;

static void stop(const char *what, const char *why)
{
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void demand(tg_context *ctx, const char *what, tg_status status)
{
  if (status != TG_OK) {
    stop(what, tg_context_message(ctx));
  }
}

static size_t view_bytes(const tg_tensor *t)
{
  return (size_t)tgi_numel(t) * tg_dtype_bytes(t->dtype);
}

/* The first values by the generator, the rest by copying what is there. */
static void *random_values(const tg_tensor *t, spec_rng *rng)
{
  const size_t bytes = view_bytes(t), size = tg_dtype_bytes(t->dtype);
  char *values = malloc(bytes + 1);
  if (!values) {
    stop("one_op", "no memory for the arrays");
  }
  const int64_t start = tgi_numel(t) < kPattern ? tgi_numel(t) : kPattern;
  const bool is_float = t->dtype == TG_F32 || t->dtype == TG_F16 || t->dtype == TG_BF16;
  for (int64_t i = 0; i < start; i++) {
    tgi_store(values, t->dtype, i, is_float ? spec_normal(rng) : 0);
  }
  for (size_t done = (size_t)start * size; done < bytes;) {
    const size_t more = done < bytes - done ? done : bytes - done;
    memcpy(values + done, values, more);
    done += more;
  }
  return values;
}

static const spec *find_spec(const char *row)
{
  for (size_t i = 0; i < spec_count; i++) {
    if (strcmp(spec_list[i]->name, row) == 0) {
      return spec_list[i];
    }
  }
  stop(row, "expected a row of the op table, such as softmax_fwd");
  return NULL;
}

/* Shapes and host values; the spec's hook sets ids and the like. */
static void open_call(device_call *c, const spec *s, const options *o, uint64_t seed)
{
  const spec_case plain = {o->shape, NULL};
  spec_rng rng = {seed};
  tg_error error;
  if (tgi_shape_fill(s->name, o->shape, o->dtype, &c->shaped, &error) != TG_OK) {
    stop(s->name, error.text);
  }
  c->num_views = tgi_shaped_views(&c->shaped, c->view, kMaxViews);
  for (int v = 0; v < c->num_views; v++) {
    c->host[v] = c->view[v].tensor->data = random_values(c->view[v].tensor, &rng);
  }
  if (s->fill) {
    s->fill(&c->shaped, &plain, &rng);
  }
}

/* The view of the same slot, if it has the same type and size; -1: none. */
static int find_same(const device_call *in, const tgi_shaped_view *like)
{
  for (int v = 0; v < in->num_views; v++) {
    const tgi_shaped_view *view = &in->view[v];
    if (strcmp(view->slot->name, like->slot->name) == 0 && view->index == like->index &&
        view->tensor->dtype == like->tensor->dtype &&
        tgi_numel(view->tensor) == tgi_numel(like->tensor)) {
      return v;
    }
  }
  return -1;
}

/* Moves the arrays to the device; those that `shared` has, too, are its. */
static void move_call(device_call *c, tg_context *ctx, const device_call *shared)
{
  for (int v = 0; v < c->num_views; v++) {
    tg_tensor *t = c->view[v].tensor;
    const int same = shared ? find_same(shared, &c->view[v]) : -1;
    if (same >= 0) {
      t->data = shared->view[same].tensor->data;
    } else {
      demand(ctx, "one_op", tg_memory_allocate(ctx, view_bytes(t), &c->owned[v]));
      demand(ctx, "one_op",
             tg_memory_copy(ctx, c->owned[v], view_bytes(t), c->host[v], view_bytes(t),
                            view_bytes(t), 1));
      t->data = c->owned[v];
    }
    free(c->host[v]);
  }
  const tg_op_info *info = c->shaped.info;
  size_t bytes = 0;
  demand(ctx, info->name, info->workspace(ctx, c->shaped.args.bytes, &bytes));
  demand(ctx, info->name, tg_memory_allocate(ctx, bytes, &c->workspace));
  for (size_t i = 0; i < info->num_slots; i++) {
    void *field = c->shaped.args.bytes + info->slots[i].offset;
    if (info->slots[i].kind == TG_KIND_WORKSPACE) {
      *(void **)field = c->workspace;
    } else if (info->slots[i].kind == TG_KIND_SIZE) {
      *(size_t *)field = bytes;
    }
  }
}

static void run_call(device_call *c, tg_context *ctx, int times)
{
  for (int i = 0; i < times; i++) {
    demand(ctx, c->shaped.info->name, c->shaped.info->run(ctx, c->shaped.args.bytes));
  }
  demand(ctx, c->shaped.info->name, tg_context_check(ctx));
}

static void close_call(device_call *c, tg_context *ctx)
{
  for (int v = 0; v < c->num_views; v++) {
    tg_memory_free(ctx, c->owned[v]);
  }
  tg_memory_free(ctx, c->workspace);
}

static void profile(const options *o, tg_context *ctx)
{
  static device_call call, forward;
  const spec *s = find_spec(o->row);
  open_call(&call, s, o, 1);
  move_call(&call, ctx, NULL);
  if (s->gradient_of) {
    open_call(&forward, find_spec(s->gradient_of), o, 2);
    move_call(&forward, ctx, &call);
    run_call(&forward, ctx, 1);
    close_call(&forward, ctx);
  }
  run_call(&call, ctx, 1);
  if (cudaProfilerStart() != cudaSuccess) {
    stop("one_op", "the profiler cannot be started");
  }
  run_call(&call, ctx, o->calls);
  (void)cudaProfilerStop();
  close_call(&call, ctx);
}

static tg_dtype read_dtype(struct argp_state *state, const char *name)
{
  for (int i = 0; i < SPEC_DTYPES; i++) {
    if (strcmp(name, tg_dtype_name(spec_dtypes[i])) == 0) {
      return spec_dtypes[i];
    }
  }
  argp_error(state, "--dtype: expected f32, f16 or bf16, got \"%s\"", name);
  return TG_BF16;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
  options *o = state->input;
  switch (key) {
  case 'd':
    o->dtype = read_dtype(state, arg);
    return 0;
  case 'e':
    o->entry = arg;
    return 0;
  case 'n':
    o->calls = atoi(arg);
    if (o->calls < 1) {
      argp_error(state, "--calls: expected a number above 0, got \"%s\"", arg);
    }
    return 0;
  case ARGP_KEY_ARG:
    *(state->arg_num == 0 ? &o->row : &o->shape) = arg;
    return state->arg_num < 2 ? 0 : ARGP_ERR_UNKNOWN;
  case ARGP_KEY_END:
    if (state->arg_num != 2) {
      argp_usage(state);
    }
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

int main(int argc, char **argv)
{
  static const struct argp_option known[] = {
      {"dtype", 'd', "NAME", 0, "f32, f16 or bf16 (the default)", 0},
      {"entry", 'e', "NAME", 0, "Start the chain at this entry: sm90, sm80, any", 0},
      {"calls", 'n', "N", 0, "Calls to profile (1)", 0},
      {0},
  };
  static const struct argp argp = {
      known, parse, "ROW SHAPE", "Runs one op on a GPU for a profiler.", NULL, NULL, NULL};
  options o = {.dtype = TG_BF16, .calls = 1};
  argp_err_exit_status = 2;
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  const tg_context_options wish = {.backend = TG_BACKEND_CUDA, .entry = o.entry};
  tg_context *ctx = NULL;
  tg_error error;
  if (tg_context_create(&wish, &ctx, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  demand(ctx, "one_op", tg_context_prepare(ctx));
  profile(&o, ctx);
  tg_context_destroy(ctx);
  return 0;
}
