/* Every way to call an op wrongly that follows from its row of the op table and its spec: a status,
 * a message that names the op and the argument, and no crash. */
#include "problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
  tg_context *ctx;
  const spec *spec;
  problem *p; /* a good call; each test breaks a copy */
} fixture;

static tg_context *cpu_context(void)
{
  tg_context *ctx = NULL;
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 2};
  assert_int_equal(tg_context_create(&o, &ctx, NULL), TG_OK);
  return ctx;
}

/* The first case with something to compute in every tensor. */
static problem *good_call(const spec *s)
{
  for (const spec_case *c = s->cases; c->shape; c++) {
    problem *p = problem_create(s, c, TG_F32);
    assert_non_null(p);
    int64_t least = 2;
    for (int v = 0; v < p->num_views; v++) {
      const tg_tensor *t = p->view[v].tensor;
      for (int axis = 0; axis < t->ndim; axis++) {
        least = t->shape[axis] < least ? t->shape[axis] : least;
      }
    }
    if (least > 0 && tgi_numel(p->view[0].tensor) > 4) {
      return p;
    }
    problem_destroy(p);
  }
  fail_msg("%s: no case with elements", s->name);
  return NULL;
}

/* Runs a broken copy: the status must be `expected` and the message start with op and argument. */
static void expect(fixture *f, problem *broken, tg_status expected, const char *argument)
{
  char prefix[128];
  const tg_status status = problem_run(broken, f->ctx);
  const char *message = tg_context_message(f->ctx);
  snprintf(prefix, sizeof prefix, "%s: %s", f->spec->name, argument ? argument : "");
  if (status != expected || strncmp(message, prefix, strlen(prefix)) != 0 ||
      !strstr(message, "expected ") || !strstr(message, ", got ")) {
    fail_msg("%s, argument %s: expected %s and \"%s: expected ..., got ...\", got %s and \"%s\"",
             f->spec->name, argument ? argument : "any", tg_status_name(expected), prefix,
             tg_status_name(status), message);
  }
  problem_destroy(broken);
}

/* The name that a message gives to a view: "params[3]" for an element of a list. */
static const char *argument_name(const tgi_shaped_view *view, char *text, size_t bytes)
{
  snprintf(text, bytes, view->index < 0 ? "%s" : "%s[%lld]", view->slot->name,
           (long long)view->index);
  return text;
}

static void break_view(fixture *f, int v)
{
  char name[64];
  const tgi_shaped_view *view = &f->p->view[v];
  const int last = view->tensor->ndim - 1;
  problem *b;
  argument_name(view, name, sizeof name);

  if (!view->slot->optional && view->index < 0) {
    b = problem_copy(f->p, PROBLEM_DENSE, false);
    memset(b->view[v].tensor, 0, sizeof *b->view[v].tensor);
    expect(f, b, TG_BAD_ARGUMENT, name);
  }
  for (tg_dtype d = TG_F64; d <= TG_F8_E4M3; d++) {
    if (!(view->slot->dtypes & TG_DTYPE_BIT(d))) {
      b = problem_copy(f->p, PROBLEM_DENSE, false);
      b->view[v].tensor->dtype = d;
      expect(f, b, TG_BAD_DTYPE, name);
    }
  }
  b = problem_copy(f->p, PROBLEM_DENSE, false);
  b->view[v].tensor->dtype = (tg_dtype)77;
  expect(f, b, TG_BAD_DTYPE, name);

  b = problem_copy(f->p, PROBLEM_DENSE, false);
  b->view[v].tensor->ndim = TG_MAX_NDIM + 1;
  expect(f, b, TG_BAD_SHAPE, name);

  if (view->slot->ndim) {
    b = problem_copy(f->p, PROBLEM_DENSE, false);
    b->view[v].tensor->shape[view->slot->ndim] = 1;
    b->view[v].tensor->ndim++;
    expect(f, b, TG_BAD_SHAPE, name);
  }
  b = problem_copy(f->p, PROBLEM_DENSE, false);
  b->view[v].tensor->device = TG_DEVICE_CUDA(0);
  expect(f, b, TG_BAD_ARGUMENT, name);

  if (last < 0) {
    return;
  }
  b = problem_copy(f->p, PROBLEM_DENSE, false);
  b->view[v].tensor->shape[last] = -1;
  expect(f, b, TG_BAD_SHAPE, name);

  b = problem_copy(f->p, PROBLEM_DENSE, false);
  b->view[v].tensor->shape[last] = INT64_MAX / 2;
  expect(f, b, TG_BAD_SHAPE, NULL);

  b = problem_copy(f->p, PROBLEM_DENSE, false);
  b->view[v].tensor->stride[last] = -1;
  expect(f, b, TG_BAD_SHAPE, name);

  if (view->tensor->shape[last] > 1) {
    b = problem_copy(f->p, PROBLEM_DENSE, false);
    for (int axis = 0; axis <= last; axis++) {
      b->view[v].tensor->stride[axis] = 2;
    }
    expect(f, b, TG_BAD_SHAPE, name);
  }
}

/* One extent more, or less: some rule of the op must notice, whichever argument it names. */
static void break_extents(fixture *f, int v)
{
  int alone = 0;
  for (int u = 0; u < f->p->num_views; u++) {
    alone += u != v;
  }
  for (int axis = 0; axis < f->p->view[v].tensor->ndim && alone > 0; axis++) {
    problem *b = problem_copy(f->p, PROBLEM_DENSE, false);
    tg_tensor *t = b->view[v].tensor;
    if (f->spec->free_extent && f->spec->free_extent(b->view[v].slot->name, axis)) {
      problem_destroy(b);
      continue;
    }
    t->shape[axis]++;
    expect(f, b, TG_BAD_SHAPE, NULL);
  }
}

static void break_memory(fixture *f, int v)
{
  char name[64];
  if (tgi_numel(f->p->view[v].tensor) == 0) {
    return;
  }
  argument_name(&f->p->view[v], name, sizeof name);
  problem *b = problem_copy(f->p, PROBLEM_DENSE, false);
  b->view[v].tensor->data = NULL;
  b->block[v].shared_with = v; /* no memory of its own to poison */
  expect(f, b, TG_BAD_ARGUMENT, name);

  if (tg_dtype_bytes(f->p->view[v].tensor->dtype) > 1) {
    b = problem_copy(f->p, PROBLEM_DENSE, false);
    b->view[v].tensor->data = (char *)b->view[v].tensor->data + 1;
    expect(f, b, TG_BAD_ARGUMENT, name);
  }
  if (f->p->view[v].slot->role == TG_ROLE_IN || f->p->view[v].index >= 0) {
    return;
  }
  /* An output half inside of another tensor, as large as itself. */
  for (int u = 0; u < f->p->num_views; u++) {
    const size_t step = tg_dtype_bytes(f->p->view[v].tensor->dtype);
    if (u != v && f->p->view[u].index < 0 && tgi_span_bytes(f->p->view[u].tensor) > step) {
      b = problem_copy(f->p, PROBLEM_DENSE, false);
      b->view[v].tensor->data = (char *)b->view[u].tensor->data + step;
      b->block[v].shared_with = u;
      expect(f, b, TG_BAD_ARGUMENT, NULL);
    }
  }
}

static void test_tensors(void **state)
{
  fixture *f = *state;
  for (int v = 0; v < f->p->num_views; v++) {
    break_view(f, v);
    break_extents(f, v);
    break_memory(f, v);
  }
}

static void write_scalar(void *field, tg_slot_kind kind, double value)
{
  switch (kind) {
  case TG_KIND_F32:
    *(float *)field = (float)value;
    break;
  case TG_KIND_F64:
    *(double *)field = value;
    break;
  case TG_KIND_I64:
    *(int64_t *)field = (int64_t)value;
    break;
  case TG_KIND_I32:
  case TG_KIND_ENUM:
    *(int32_t *)field = (int32_t)value;
    break;
  case TG_KIND_BOOL:
    *(bool *)field = value != 0;
    break;
  default:
    fail_msg("not a scalar");
  }
}

static void test_scalars(void **state)
{
  fixture *f = *state;
  const tg_op_info *info = f->p->shaped.info;
  for (const spec_bad_scalar *bad = f->spec->bad_scalars; bad && bad->slot; bad++) {
    bool found = false;
    for (size_t i = 0; i < info->num_slots; i++) {
      if (strcmp(info->slots[i].name, bad->slot) == 0) {
        problem *b = problem_copy(f->p, PROBLEM_DENSE, false);
        write_scalar(b->shaped.args.bytes + info->slots[i].offset, info->slots[i].kind, bad->value);
        expect(f, b, bad->status, bad->slot);
        found = true;
      }
    }
    assert_true(found);
  }
}

static void test_pointers(void **state)
{
  fixture *f = *state;
  const tg_op_info *info = f->p->shaped.info;
  size_t bytes = 0;
  assert_int_equal(info->run(NULL, f->p->shaped.args.bytes), TG_BAD_ARGUMENT);
  assert_int_equal(info->run(f->ctx, NULL), TG_BAD_ARGUMENT);
  assert_non_null(strstr(tg_context_message(f->ctx), "args: expected a pointer, got NULL"));
  assert_int_equal(info->workspace(NULL, f->p->shaped.args.bytes, &bytes), TG_BAD_ARGUMENT);
  assert_int_equal(info->workspace(f->ctx, NULL, &bytes), TG_BAD_ARGUMENT);
  assert_int_equal(info->workspace(f->ctx, f->p->shaped.args.bytes, NULL), TG_BAD_ARGUMENT);
}

/* A workspace query needs no memory; running with too little of it is refused. */
static void test_workspace(void **state)
{
  fixture *f = *state;
  const tg_op_info *info = f->p->shaped.info;
  problem *b = problem_copy(f->p, PROBLEM_DENSE, false);
  size_t bytes = 0;
  for (int v = 0; v < b->num_views; v++) {
    b->view[v].tensor->data = NULL;
  }
  assert_int_equal(info->workspace(f->ctx, b->shaped.args.bytes, &bytes), TG_OK);
  assert_int_equal(bytes % 256, 0);
  problem_destroy(b);
  if (bytes == 0) {
    return;
  }
  unsigned char *memory = aligned_alloc(256, bytes + 256);
  const size_t given[3] = {0, bytes - 1, bytes};
  for (int k = 0; k < 3; k++) {
    b = problem_copy(f->p, PROBLEM_DENSE, false);
    for (size_t i = 0; i < info->num_slots; i++) {
      void *field = b->shaped.args.bytes + info->slots[i].offset;
      if (info->slots[i].kind == TG_KIND_WORKSPACE) {
        *(void **)field = k == 0 ? NULL : memory + (k == 2 ? 1 : 0); /* k 2: misaligned */
      } else if (info->slots[i].kind == TG_KIND_SIZE) {
        *(size_t *)field = given[k];
      }
    }
    assert_int_equal(info->run(f->ctx, b->shaped.args.bytes), TG_BAD_ARGUMENT);
    assert_non_null(strstr(tg_context_message(f->ctx), ": workspace: expected "));
    problem_destroy(b);
  }
  free(memory);
}

/* A good call after all the bad ones still works: nothing sticks. */
static void test_recovery(void **state)
{
  fixture *f = *state;
  problem *b = problem_copy(f->p, PROBLEM_DENSE, false);
  assert_int_equal(problem_run(b, f->ctx), TG_OK);
  problem_destroy(b);
}

/* Every status code has a name and a sentence, and the numbers are the documented ones. */
static void test_status_codes(void **state)
{
  (void)state;
  static const char *const names[] = {"OK",        "BAD_ARGUMENT", "BAD_SHAPE",
                                      "BAD_DTYPE", "UNSUPPORTED",  "NO_MEMORY",
                                      "DEVICE",    "IO",           "BAD_FILE"};
  for (int i = 0; i < 9; i++) {
    assert_string_equal(tg_status_name((tg_status)i), names[i]);
    assert_true(strlen(tg_status_text((tg_status)i)) > 6);
  }
  assert_string_equal(tg_status_name((tg_status)9), "unknown status");
  assert_string_equal(tg_status_text((tg_status)9), "unknown status");
}

static void expect_context(tg_context_options o, tg_status expected, const char *argument)
{
  tg_context *ctx = (void *)&o;
  tg_error error = {0};
  assert_int_equal(tg_context_create(&o, &ctx, &error), expected);
  assert_null(ctx);
  assert_int_equal(error.status, expected);
  assert_non_null(strstr(error.text, argument));
  assert_int_equal(tg_context_create(&o, &ctx, NULL), expected);
}

static void test_contexts(void **state)
{
  (void)state;
  tg_context *ctx = NULL;
  tg_error error = {0};
  expect_context((tg_context_options){0}, TG_BAD_ARGUMENT, "backend: expected");
  expect_context((tg_context_options){.backend = (tg_backend)9}, TG_BAD_ARGUMENT, "got 9");
  const int gpus = tg_device_count(); /* one past the last, or the first of none */
  expect_context((tg_context_options){.backend = TG_BACKEND_CUDA, .device_index = gpus},
                 gpus ? TG_BAD_ARGUMENT : TG_UNSUPPORTED, "context_create: ");
  expect_context((tg_context_options){.backend = TG_BACKEND_CPU, .num_threads = -1},
                 TG_BAD_ARGUMENT, "num_threads: expected");
  expect_context((tg_context_options){.backend = TG_BACKEND_CPU, .device_index = 1},
                 TG_BAD_ARGUMENT, "device_index: expected");
  expect_context((tg_context_options){.backend = TG_BACKEND_CPU, .entry = "sse9"}, TG_BAD_ARGUMENT,
                 "entry: expected");
  assert_int_equal(tg_context_create(NULL, &ctx, &error), TG_BAD_ARGUMENT);
  const tg_context_options good = {.backend = TG_BACKEND_CPU, .entry = "generic"};
  assert_int_equal(tg_context_create(&good, NULL, &error), TG_BAD_ARGUMENT);
  assert_int_equal(tg_context_create(&good, &ctx, &error), TG_OK);
  assert_int_equal(error.status, TG_OK);
  assert_string_equal(tg_context_entry(ctx), "generic");
  assert_true(tg_context_num_threads(ctx) >= 1);
  assert_int_equal(tg_context_prepare(ctx), TG_OK);
  assert_int_equal(tg_context_check(ctx), TG_OK);
  assert_int_equal(tg_context_set_stream(ctx, NULL), TG_OK);
  assert_int_equal(tg_context_set_stream(ctx, ctx), TG_BAD_ARGUMENT);
  assert_non_null(strstr(tg_context_message(ctx), "stream: expected NULL"));
  assert_int_equal(tg_context_allow_overlap(ctx, true), TG_OK);
  assert_int_equal(tg_context_allow_overlap(ctx, false), TG_OK);
  assert_int_equal(tg_context_prepare(NULL), TG_BAD_ARGUMENT);
  assert_int_equal(tg_context_check(NULL), TG_BAD_ARGUMENT);
  assert_int_equal(tg_context_set_stream(NULL, NULL), TG_BAD_ARGUMENT);
  assert_int_equal(tg_context_allow_overlap(NULL, true), TG_BAD_ARGUMENT);
  tg_context_destroy(ctx);
  tg_context_destroy(NULL);
}

static void test_op_table(void **state)
{
  (void)state;
  assert_int_equal(tg_op_count(), spec_count);
  for (size_t i = 0; i < tg_op_count(); i++) {
    assert_string_equal(tg_op_at(i)->name, spec_list[i]->name);
    assert_ptr_equal(tg_op_find(tg_op_at(i)->name), tg_op_at(i));
  }
  assert_null(tg_op_at(tg_op_count()));
  assert_null(tg_op_find("no_such_op"));
  assert_null(tg_op_find(NULL));
}

int main(void)
{
  const struct CMUnitTest base[] = {cmocka_unit_test(test_status_codes),
                                    cmocka_unit_test(test_contexts),
                                    cmocka_unit_test(test_op_table)};
  int failed = cmocka_run_group_tests_name("base", base, NULL, NULL);
  for (size_t i = 0; i < spec_count; i++) {
    fixture f = {cpu_context(), spec_list[i], good_call(spec_list[i])};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_tensors, &f),  cmocka_unit_test_prestate(test_scalars, &f),
        cmocka_unit_test_prestate(test_pointers, &f), cmocka_unit_test_prestate(test_workspace, &f),
        cmocka_unit_test_prestate(test_recovery, &f),
    };
    failed += cmocka_run_group_tests_name(spec_list[i]->name, tests, NULL, NULL);
    problem_destroy(f.p);
    tg_context_destroy(f.ctx);
  }
  return failed != 0;
}
