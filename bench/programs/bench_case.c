#include "bench_case.h"

#include "core/values/half.h"
#include <stdlib.h>
#include <string.h>

enum {
  kMaxViews = TGI_SHAPE_MAX_LISTED + 32,
  kPattern = 65521,   /* random values before they repeat; prime, so that rows differ */
  kTimesCache = 4,    /* bytes of all sets over those of the last-level cache */
  kComputeBound = 16, /* flops a byte; above that no machine of today waits for memory */
};

struct bench_set {
  tgi_shaped shaped;
  tgi_shaped_view view[kMaxViews];
  int num_views;
};

static double view_bytes(const tg_tensor *t)
{
  return (double)tgi_numel(t) * (double)tg_dtype_bytes(t->dtype);
}

/* ---- memory ---- */

static bool allocate(bench_set *set, array_stack *arrays)
{
  set->num_views = tgi_shaped_views(&set->shaped, set->view, kMaxViews);
  for (int v = 0; v < set->num_views; v++) {
    tg_tensor *t = set->view[v].tensor;
    t->data = array_stack_take(arrays, (size_t)view_bytes(t));
    if (!t->data) {
      return false;
    }
  }
  return true;
}

/* The first values by the generator, the rest by copying what is there. */
static void fill_view(const tg_tensor *t, spec_rng *rng)
{
  const int64_t n = tgi_numel(t), start = n < kPattern ? n : kPattern;
  const int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
  const bool is_float = t->dtype == TG_F32 || t->dtype == TG_F16 || t->dtype == TG_BF16;
  for (int64_t i = 0; i < start; i++) {
    tgi_store(t->data, t->dtype, i, is_float ? spec_normal(rng) : 0);
  }
  for (int64_t done = start; done < n;) {
    const int64_t more = done < n - done ? done : n - done;
    memcpy((char *)t->data + done * bytes, t->data, (size_t)(more * bytes));
    done += more;
  }
}

static tg_status attach_workspace(bench_set *set, const bench_case *c, tg_error *error)
{
  const tg_op_info *info = set->shaped.info;
  unsigned char *args = set->shaped.args.bytes;
  size_t bytes = 0;
  if (info->workspace(c->ctx, args, &bytes) != TG_OK) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "%s", tg_context_message(c->ctx));
  }
  if (bytes == 0) {
    return TG_OK;
  }
  void *workspace = array_stack_take(c->arrays, bytes);
  if (!workspace) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: no memory for a workspace", info->name);
  }
  for (size_t i = 0; i < info->num_slots; i++) {
    if (info->slots[i].kind == TG_KIND_WORKSPACE) {
      *(void **)(void *)(args + info->slots[i].offset) = workspace;
    } else if (info->slots[i].kind == TG_KIND_SIZE) {
      *(size_t *)(void *)(args + info->slots[i].offset) = bytes;
    }
  }
  return TG_OK;
}

static tg_status call(const bench_set *set, tg_context *ctx, tg_error *error)
{
  const tg_status status = set->shaped.info->run(ctx, set->shaped.args.bytes);
  if (status != TG_OK) {
    return tgi_error_set(error, status, "%s", tg_context_message(ctx));
  }
  return TG_OK;
}

/* ---- a backward's saved tensors ---- */

static const tgi_shaped_view *find(const bench_set *set, const tgi_shaped_view *like)
{
  for (int v = 0; v < set->num_views; v++) {
    if (strcmp(set->view[v].slot->name, like->slot->name) == 0 &&
        set->view[v].index == like->index) {
      return &set->view[v];
    }
  }
  return NULL;
}

static bool saves(const bench_set *forward, const bench_set *backward)
{
  for (int v = 0; v < forward->num_views; v++) {
    if (forward->view[v].slot->role == TG_ROLE_OUT && find(backward, &forward->view[v])) {
      return true;
    }
  }
  return false;
}

/* Runs the forward of the same shape; what both know by one name is shared. */
static tg_status fill_saved(bench_set *backward, const bench_case *c, tg_error *error)
{
  const array_stack mark = *c->arrays;
  bench_set *forward = calloc(1, sizeof *forward);
  spec_rng rng = {7};
  if (!forward) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: no memory", c->spec->name);
  }
  tg_status status =
      tgi_shape_fill(c->spec->gradient_of, c->shape, c->dtype, &forward->shaped, error);
  if (status == TG_OK && !allocate(forward, c->arrays)) {
    status = tgi_error_set(error, TG_NO_MEMORY, "%s: no memory for the forward", c->spec->name);
  }
  if (status == TG_OK && saves(forward, backward)) {
    for (int v = 0; v < forward->num_views; v++) {
      const tgi_shaped_view *same = find(backward, &forward->view[v]);
      tg_tensor *t = forward->view[v].tensor;
      if (same && same->tensor->dtype == t->dtype && tgi_numel(same->tensor) == tgi_numel(t)) {
        memcpy(t->data, same->tensor->data, (size_t)view_bytes(t));
      } else {
        fill_view(t, &rng);
      }
    }
    status = attach_workspace(forward, c, error);
    status = status == TG_OK ? call(forward, c->ctx, error) : status;
    for (int v = 0; v < forward->num_views && status == TG_OK; v++) {
      const tgi_shaped_view *same = find(backward, &forward->view[v]);
      if (same && forward->view[v].slot->role == TG_ROLE_OUT) {
        memcpy(same->tensor->data, forward->view[v].tensor->data, (size_t)view_bytes(same->tensor));
      }
    }
  }
  array_stack_release(c->arrays, &mark);
  free(forward);
  return status;
}

/* ---- the streams of a call ---- */

typedef struct stream_bytes {
  const char *slot;
  double bytes;
  tg_slot_role role;
} stream_bytes;

/* Bytes of each slot; those of a list together. Returns the number of slots. */
static int slot_streams(const bench_set *set, stream_bytes *s)
{
  int n = 0;
  for (int v = 0; v < set->num_views; v++) {
    const tg_slot_info *slot = set->view[v].slot;
    if (n == 0 || strcmp(s[n - 1].slot, slot->name) != 0) {
      s[n++] = (stream_bytes){slot->name, 0, slot->role};
    }
    s[n - 1].bytes += view_bytes(set->view[v].tensor);
  }
  return n;
}

typedef struct streams {
  double reads, writes, in_place; /* bytes; in_place is read and written */
} streams;

/* An in-place slot that the op says it does not read (weights that a master copy replaces) is a
 * plain write. An op whose bytes differ otherwise (an embedding reads few rows of its table) gets a
 * mix of its reads and writes, wherever they are. */
static streams heed_cost(streams s, const stream_bytes *slot, int n, const tgi_cost *cost)
{
  const double slack = 0.02 * (cost->read_bytes + cost->written_bytes);
  const double unread = s.reads + s.in_place - cost->read_bytes;
  for (int i = 0; i < n && unread > slack; i++) {
    const bool in_place = slot[i].role == TG_ROLE_INOUT || slot[i].role == TG_ROLE_ACC;
    if (in_place && fabs(slot[i].bytes - unread) <= slack) {
      s.in_place -= slot[i].bytes;
      s.writes += slot[i].bytes;
      break;
    }
  }
  const bool agrees = fabs(s.reads + s.in_place - cost->read_bytes) <= slack &&
                      fabs(s.writes + s.in_place - cost->written_bytes) <= slack;
  return agrees ? s : (streams){cost->read_bytes, cost->written_bytes, 0};
}

/* Whole streams of `bytes`; what counts is never none. */
static int whole(double bytes, double unit, double total)
{
  const int n = (int)(bytes / unit + 0.5);
  return n == 0 && bytes > 0.04 * total ? 1 : n;
}

/* Streams as wide as the narrowest slot that counts, or as wide as it takes to have few. */
static roof_mix mix_of(const bench_set *set)
{
  const tgi_cost *cost = &set->shaped.cost;
  const double total = cost->read_bytes + cost->written_bytes;
  stream_bytes slot[kMaxViews];
  const int n = slot_streams(set, slot);
  streams s = {0, 0, 0};
  for (int i = 0; i < n; i++) {
    const tg_slot_role role = slot[i].role;
    *(role == TG_ROLE_IN    ? &s.reads
      : role == TG_ROLE_OUT ? &s.writes
                            : &s.in_place) += slot[i].bytes;
  }
  s = heed_cost(s, slot, n, cost);
  double unit = total;
  for (int i = 0; i < n; i++) {
    unit = slot[i].bytes > 0.04 * total && slot[i].bytes < unit ? slot[i].bytes : unit;
  }
  unit = fmax(fmax(unit, s.reads / ROOF_MAX_READS),
              fmax(s.writes / ROOF_MAX_WRITES, s.in_place / ROOF_MAX_IN_PLACE));
  roof_mix mix = {whole(s.reads, unit, total), whole(s.writes, unit, total),
                  whole(s.in_place, unit, total)};
  if (mix.reads + mix.writes + mix.in_place == 0) {
    mix.reads = 1;
  }
  return mix;
}

/* ---- a case ---- */

static tg_status open_set(bench_case *c, bench_set *set, uint64_t seed, tg_error *error)
{
  const spec_case plain = {c->shape, NULL};
  spec_rng rng = {seed};
  tg_status status = tgi_shape_fill(c->spec->name, c->shape, c->dtype, &set->shaped, error);
  if (status != TG_OK) {
    return status;
  }
  if (!allocate(set, c->arrays)) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: no memory for %s", c->spec->name, c->shape);
  }
  for (int v = 0; v < set->num_views; v++) {
    fill_view(set->view[v].tensor, &rng);
  }
  if (c->spec->fill) {
    c->spec->fill(&set->shaped, &plain, &rng);
  }
  status = c->spec->gradient_of ? fill_saved(set, c, error) : TG_OK;
  return status == TG_OK ? attach_workspace(set, c, error) : status;
}

static double last_level_bytes(const tg_context *ctx)
{
  const tgi_processor *p = &ctx->processor;
  return (double)(p->l3_bytes ? p->l3_bytes : p->l2_bytes * (size_t)ctx->num_threads);
}

tg_status bench_case_open(bench_case *c, const spec *s, const char *shape, tg_dtype dtype,
                          tg_context *ctx, array_stack *arrays, tg_error *error)
{
  *c = (bench_case){
      .spec = s, .shape = shape, .dtype = dtype, .ctx = ctx, .arrays = arrays, .mark = *arrays};
  c->set = calloc(BENCH_CASE_MAX_SETS, sizeof *c->set);
  if (!c->set) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: no memory", s->name);
  }
  int wanted = 1;
  while (c->num_sets < wanted) {
    bench_set *set = &c->set[c->num_sets];
    const tg_status status = open_set(c, set, 1 + (uint64_t)c->num_sets, error);
    c->num_sets++;
    if (status != TG_OK) {
      bench_case_close(c);
      return status;
    }
    if (c->num_sets == 1) {
      c->cost = set->shaped.cost;
      c->mix = mix_of(set);
      const double bytes = c->cost.read_bytes + c->cost.written_bytes;
      c->computes = c->cost.flops > kComputeBound * bytes;
      const double sets = kTimesCache * last_level_bytes(ctx) / (bytes > 1 ? bytes : 1);
      wanted = c->computes || sets < 1              ? 1
               : sets < (double)BENCH_CASE_MAX_SETS ? (int)sets + 1
                                                    : BENCH_CASE_MAX_SETS;
    }
  }
  return TG_OK;
}

tg_status bench_case_run(bench_case *c)
{
  const bench_set *set = &c->set[c->next];
  c->next = (c->next + 1) % c->num_sets;
  return set->shaped.info->run(c->ctx, set->shaped.args.bytes);
}

void bench_case_close(bench_case *c)
{
  array_stack_release(c->arrays, &c->mark);
  free(c->set);
  c->set = NULL;
  c->num_sets = 0;
}
