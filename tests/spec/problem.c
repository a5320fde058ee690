#include "problem.h"

#include "core/values/half.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kGap = 3 };

char *problem_text(const char *format, ...)
{
  char *text = malloc(512);
  va_list args;
  va_start(args, format);
  vsnprintf(text, 512, format, args);
  va_end(args);
  return text;
}

/* Every element of every case goes through here: a division less for each axis is minutes less
 * under the sanitizers. */
int64_t problem_offset(const tg_tensor *t, int64_t i)
{
  bool strided = false; /* else in row-major order without gaps */
  for (int axis = 0; axis < t->ndim; axis++) {
    strided = strided || t->stride[axis] != 0;
  }
  if (!strided) {
    return i;
  }
  int64_t offset = 0;
  for (int axis = t->ndim - 1; axis >= 0 && i > 0; axis--) {
    const int64_t next = i / t->shape[axis];
    offset += (i - next * t->shape[axis]) * t->stride[axis];
    i = next;
  }
  return offset;
}

double problem_get(const tg_tensor *t, int64_t i)
{
  return tgi_load(t->data, t->dtype, problem_offset(t, i));
}

void problem_set(const tg_tensor *t, int64_t i, double value)
{
  tgi_store(t->data, t->dtype, problem_offset(t, i), value);
}

int problem_find(const problem *p, const char *name)
{
  for (int v = 0; v < p->num_views; v++) {
    if (p->view[v].index < 0 && strcmp(p->view[v].slot->name, name) == 0) {
      return v;
    }
  }
  return -1;
}

bool problem_allows(const problem *p, const char *flag)
{
  for (size_t i = 0; i < p->shaped.info->num_slots; i++) {
    const tg_slot_info *slot = &p->shaped.info->slots[i];
    if (strcmp(slot->name, flag) == 0) {
      return p->shaped.args.bytes[slot->offset] != 0;
    }
  }
  return false;
}

static bool is_float(tg_dtype t)
{
  return t == TG_F32 || t == TG_F16 || t == TG_BF16 || t == TG_F64;
}

/* A gap of kGap elements after each row; the axes further out follow. */
static void spread_rows(tg_tensor *t)
{
  int64_t stride = 1;
  for (int axis = t->ndim - 1; axis >= 0; axis--) {
    t->stride[axis] = stride;
    stride = (stride ? stride : 1) * (t->shape[axis] ? t->shape[axis] : 1);
    if (axis == t->ndim - 1) {
      stride += kGap;
    }
  }
}

int problem_alias(const problem *p, int v, int which)
{
  const tgi_shaped_view *view = &p->view[v];
  const char *name = view->slot->alias;
  char one[64];
  while (name) {
    const size_t length = strcspn(name, "|");
    snprintf(one, sizeof one, "%.*s", (int)length, name);
    const int input = problem_find(p, one);
    if (input >= 0 && p->view[input].tensor->dtype == view->tensor->dtype && which-- == 0) {
      return input;
    }
    name = name[length] ? name + length + 1 : NULL;
  }
  return -1;
}

static void allocate(problem *p, problem_layout layout)
{
  for (int v = 0; v < p->num_views; v++) {
    tg_tensor *t = p->view[v].tensor;
    problem_block *b = &p->block[v];
    b->shared_with = -1;
    memset(t->stride, 0, sizeof t->stride);
    const tg_slot_info *slot = p->view[v].slot;
    const bool spread = layout == PROBLEM_STRIDED ||
                        (layout == PROBLEM_OUTPUTS_STRIDED && slot->role == TG_ROLE_OUT) ||
                        (layout == PROBLEM_INPUTS_STRIDED && slot->role == TG_ROLE_IN);
    if (spread && slot->layout == TG_LAYOUT_ROWS && t->ndim > 1) {
      spread_rows(t);
    }
    const size_t shift = layout == PROBLEM_STRIDED ? tg_dtype_bytes(t->dtype) : 0;
    b->bytes = (2 * PROBLEM_GUARD_BYTES + shift + tgi_span_bytes(t) + 63) / 64 * 64;
    b->base = aligned_alloc(64, b->bytes);
    b->before = malloc(b->bytes);
    memset(b->base, PROBLEM_GUARD, b->bytes);
    t->data = b->base + PROBLEM_GUARD_BYTES + shift;
  }
  for (int v = 0; v < p->num_views && layout >= PROBLEM_ALIASED; v++) {
    const int input = problem_alias(p, v, layout - PROBLEM_ALIASED);
    if (input >= 0) {
      p->block[v].shared_with = input;
      p->view[v].tensor->data = p->view[input].tensor->data;
    }
  }
}

static problem *new_problem(const spec *s, const char *shape, tg_dtype dtype)
{
  problem *p = calloc(1, sizeof *p);
  p->spec = s;
  p->shape = shape;
  p->dtype = dtype;
  return p;
}

static void find_views(problem *p)
{
  p->num_views = tgi_shaped_views(&p->shaped, p->view, PROBLEM_MAX_VIEWS);
}

void problem_destroy(problem *p)
{
  for (int v = 0; p && v < p->num_views; v++) {
    free(p->block[v].base);
    free(p->block[v].before);
  }
  if (p) {
    free(p->failure);
  }
  free(p);
}

void problem_fill(problem *p, const spec_case *c, uint64_t seed)
{
  spec_rng rng = {seed};
  for (int v = 0; v < p->num_views; v++) {
    const tg_tensor *t = p->view[v].tensor;
    for (int64_t i = 0, n = tgi_numel(t); i < n; i++) {
      problem_set(t, i, is_float(t->dtype) ? spec_normal(&rng) : 0);
    }
  }
  if (p->spec->fill) {
    p->spec->fill(&p->shaped, c, &rng);
  }
}

problem *problem_copy(const problem *from, problem_layout layout, bool f64)
{
  problem *p = new_problem(from->spec, from->shape, from->dtype);
  tgi_shaped_copy(&p->shaped, &from->shaped);
  find_views(p);
  for (int v = 0; v < p->num_views && f64; v++) {
    if (is_float(p->view[v].tensor->dtype)) {
      p->view[v].tensor->dtype = TG_F64;
    }
  }
  allocate(p, layout);
  for (int v = 0; v < p->num_views; v++) {
    const tg_tensor *t = p->view[v].tensor;
    for (int64_t i = 0, n = tgi_numel(t); i < n && p->block[v].shared_with < 0; i++) {
      problem_set(t, i, problem_get(from->view[v].tensor, i));
    }
  }
  return p;
}

problem *problem_rows(const problem *from, int64_t first, int64_t count)
{
  const int64_t rows = from->view[0].tensor->shape[0];
  problem *source = problem_copy(from, PROBLEM_DENSE, false);
  for (int v = 0; v < source->num_views; v++) {
    tg_tensor *t = source->view[v].tensor;
    if (t->ndim > 0 && t->shape[0] == rows) {
      t->data = (char *)t->data + first * tgi_stride(t, 0) * (int64_t)tg_dtype_bytes(t->dtype);
      t->shape[0] = count;
    }
  }
  problem *p = problem_copy(source, PROBLEM_DENSE, false);
  problem_destroy(source);
  return p;
}

/* ---- backward: link to the forward by slot names ---- */

const tg_slot_info *problem_slot(const tg_op_info *info, const char *name)
{
  for (size_t i = 0; i < info->num_slots; i++) {
    if (strcmp(info->slots[i].name, name) == 0) {
      return &info->slots[i];
    }
  }
  return NULL;
}

static size_t scalar_bytes(tg_slot_kind kind)
{
  switch (kind) {
  case TG_KIND_F64:
    return sizeof(double);
  case TG_KIND_F32:
    return sizeof(float);
  case TG_KIND_I32:
    return sizeof(int32_t);
  case TG_KIND_I64:
    return sizeof(int64_t);
  case TG_KIND_BOOL:
    return sizeof(bool);
  case TG_KIND_ENUM:
    return sizeof(int);
  default:
    return 0;
  }
}

static const spec *spec_named(const char *name)
{
  for (size_t i = 0; i < spec_count; i++) {
    if (strcmp(spec_list[i]->name, name) == 0) {
      return spec_list[i];
    }
  }
  return NULL;
}

/* Tensors that the backward does not know get normal numbers: it knows them through what the
 * forward saves, or the forward is linear in them. Those that it knows and that are absent are 0.
 */
problem *problem_forward(const problem *bwd)
{
  problem *p = new_problem(spec_named(bwd->spec->gradient_of), bwd->shape, TG_F64);
  tgi_shaped *s = &p->shaped;
  const tg_op_info *theirs = bwd->shaped.info;
  tg_error error;
  if (tgi_shape_fill(p->spec->name, bwd->shape, TG_F64, s, &error) != TG_OK) {
    fprintf(stderr, "%s: the forward must read the backward's shapes: %s\n", bwd->spec->name,
            error.text);
    abort();
  }
  for (size_t i = 0; i < s->info->num_slots; i++) {
    const tg_slot_info *slot = &s->info->slots[i];
    const tg_slot_info *same = problem_slot(theirs, slot->name);
    void *field = s->args.bytes + slot->offset;
    if (same && slot->kind != TG_KIND_TENSOR) {
      memcpy(field, bwd->shaped.args.bytes + same->offset, scalar_bytes(slot->kind));
    }
    if (slot->kind == TG_KIND_TENSOR) {
      char gradient[64];
      snprintf(gradient, sizeof gradient, "d%s", slot->name);
      const int v = problem_find(bwd, slot->name), g = problem_find(bwd, gradient);
      if (v >= 0) {
        *(tg_tensor *)field = *bwd->view[v].tensor;
      } else if (g >= 0) {
        *(tg_tensor *)field = *bwd->view[g].tensor;
      } else if (slot->optional) {
        memset(field, 0, sizeof(tg_tensor));
      }
    }
  }
  find_views(p);
  for (int v = 0; v < p->num_views; v++) {
    if (is_float(p->view[v].tensor->dtype)) {
      p->view[v].tensor->dtype = TG_F64;
    }
  }
  allocate(p, PROBLEM_DENSE);
  spec_rng rng = {3};
  for (int v = 0; v < p->num_views; v++) {
    const int same = problem_find(bwd, p->view[v].slot->name);
    const bool unknown = !problem_slot(theirs, p->view[v].slot->name);
    const tg_tensor *t = p->view[v].tensor;
    for (int64_t i = 0, n = tgi_numel(t); i < n; i++) {
      const double other = unknown && t->dtype == TG_F64 ? spec_normal(&rng) : 0;
      problem_set(t, i, same >= 0 ? problem_get(bwd->view[same].tensor, i) : other);
    }
  }
  return p;
}

static tg_context *reference_context(void)
{
  tg_context *ctx = NULL;
  const tg_context_options options = {.backend = TG_BACKEND_REF};
  tg_context_create(&options, &ctx, NULL);
  return ctx;
}

void problem_fill_saved(problem *p)
{
  problem *forward = problem_forward(p);
  tg_context *ctx = reference_context();
  if (problem_run(forward, ctx) != TG_OK) {
    fprintf(stderr, "%s %s: reference forward: %s\n", p->spec->name, p->shape, forward->failure);
    abort();
  }
  for (int v = 0; v < forward->num_views; v++) {
    const int saved = problem_find(p, forward->view[v].slot->name);
    if (forward->view[v].slot->role == TG_ROLE_OUT && saved >= 0) {
      for (int64_t i = 0, n = tgi_numel(p->view[saved].tensor); i < n; i++) {
        problem_set(p->view[saved].tensor, i, problem_get(forward->view[v].tensor, i));
      }
    }
  }
  tg_context_destroy(ctx);
  problem_destroy(forward);
}

problem *problem_create(const spec *s, const spec_case *c, tg_dtype dtype)
{
  problem *p = new_problem(s, c->shape, dtype);
  tg_error error = {0};
  if (tgi_shape_fill(s->name, c->shape, dtype, &p->shaped, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    free(p);
    return NULL;
  }
  find_views(p);
  allocate(p, PROBLEM_DENSE);
  uint64_t seed = 14695981039346656037u;
  for (const char *q = c->shape; *q; q++) {
    seed = (seed ^ (unsigned char)*q) * 1099511628211u;
  }
  problem_fill(p, c, seed + (uint64_t)dtype);
  if (s->gradient_of) {
    problem_fill_saved(p);
  }
  return p;
}
