/* The spec driver: every op x case x dtype x chain entry against the f64 reference.
 *
 *   test_ops [--op NAME] [--backend cpu|cuda] [--entry NAME] [--dtype NAME] [--max-elements N]
 *            [--unprepared] [--no-gradients] [--threads-dense] [--list] [--support] [-v]
 *
 * NAME of --op is an op ("rms_norm") or a row ("rms_norm_bwd"). Exit 0: everything passed.
 */
#include "check_case.h"
#include "problem.h"
#include "support_page.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
  const char *op, *entry, *dtype;
  tg_backend backend;
  long max_elements; /* of any tensor of a case; 0: any number */
  bool list, support, verbose, unprepared, no_gradients, threads_dense;
} options;

/* True if no tensor of the case has more elements than asked for. */
static bool small_enough(const spec *s, const spec_case *c, tg_dtype dtype, long most)
{
  tgi_shaped shaped;
  tgi_shaped_view view[PROBLEM_MAX_VIEWS];
  tg_error error;
  if (most == 0 || tgi_shape_fill(s->name, c->shape, dtype, &shaped, &error) != TG_OK) {
    return true;
  }
  const int n = tgi_shaped_views(&shaped, view, PROBLEM_MAX_VIEWS);
  for (int v = 0; v < n; v++) {
    if (tgi_numel(view[v].tensor) > most) {
      return false;
    }
  }
  return true;
}

enum { kList = 256, kSupport, kMaxElements, kUnprepared, kNoGradients, kThreadsDense };

static error_t parse(int key, char *arg, struct argp_state *state)
{
  options *o = state->input;
  switch (key) {
  case 'o':
    o->op = arg;
    return 0;
  case 'e':
    o->entry = arg;
    return 0;
  case 'd':
    o->dtype = arg;
    return 0;
  case 'v':
    o->verbose = true;
    return 0;
  case 'b':
    if (strcmp(arg, "cpu") != 0 && strcmp(arg, "cuda") != 0) {
      argp_error(state, "--backend: expected cpu or cuda, got \"%s\"", arg);
    }
    o->backend = strcmp(arg, "cuda") == 0 ? TG_BACKEND_CUDA : TG_BACKEND_CPU;
    return 0;
  case kList:
    o->list = true;
    return 0;
  case kSupport:
    o->support = true;
    return 0;
  case kUnprepared:
    o->unprepared = true;
    return 0;
  case kNoGradients:
    o->no_gradients = true;
    return 0;
  case kThreadsDense:
    o->threads_dense = true;
    return 0;
  case kMaxElements: {
    char *end;
    o->max_elements = strtol(arg, &end, 10);
    if (*end || o->max_elements < 1) {
      argp_error(state, "--max-elements: expected a number above 0, got \"%s\"", arg);
    }
    return 0;
  }
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp_option kOptions[] = {
    {"op", 'o', "NAME", 0, "Only this op (rms_norm) or row (rms_norm_bwd)", 0},
    {"backend", 'b', "NAME", 0, "cpu (the default) or cuda", 0},
    {"entry", 'e', "NAME", 0, "Only this chain entry; best: the first one", 0},
    {"dtype", 'd', "NAME", 0, "Only this dtype", 0},
    {"max-elements", kMaxElements, "N", 0, "Only cases whose tensors have at most N elements", 0},
    {"unprepared", kUnprepared, NULL, 0, "On a GPU: without what tg_context_prepare opens", 0},
    {"no-gradients", kNoGradients, NULL, 0, "Without the references' finite differences", 0},
    {"threads-dense", kThreadsDense, NULL, 0, "One thread against three in dense layouts only", 0},
    {"verbose", 'v', NULL, 0, "Print what passed, too", 0},
    {"list", kList, NULL, 0, "List the cases", 0},
    {"support", kSupport, NULL, 0, "Print docs/support.md", 0},
    {0},
};

/* After all cases of a spec: each of its rules of refusal was met, unless it says that none can be.
 */
static void check_rules(const spec *s, tally *t)
{
  unsigned bit = 1;
  for (const spec_refusal *r = s->refuses; r && r->entry; r++, bit <<= 1) {
    const bool met = t->met & bit;
    if (met == r->no_case) {
      t->failed++;
      printf("FAILED %s refuses: %s \"%s\": expected %s, got %s\n", s->name, r->entry, r->rule,
             r->no_case ? "no case that meets it" : "a case that meets it", met ? "one" : "none");
    }
  }
}

static void run_spec(const spec *s, const options *o, const fixture *f, tally *t)
{
  t->met = 0;
  for (const spec_case *c = s->cases; c->shape; c++) {
    for (int d = 0; d < SPEC_DTYPES; d++) {
      const tg_dtype dtype = spec_dtypes[d];
      if (!spec_takes(s, dtype, o->dtype) || !small_enough(s, c, dtype, o->max_elements)) {
        continue;
      }
      if (o->list) {
        printf("%s %s %s%s%s\n", s->name, c->shape, tg_dtype_name(dtype), c->special ? " " : "",
               c->special ? c->special : "");
      } else {
        check_case(s, c, dtype, f, t);
      }
    }
  }
  if (!o->list && !o->dtype && o->max_elements == 0) {
    check_rules(s, t);
  }
}

int main(int argc, char **argv)
{
  static const struct argp argp = {kOptions, parse, NULL, "Tests every op against its reference.",
                                   NULL,     NULL,  NULL};
  options o = {.backend = TG_BACKEND_CPU};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  if (o.support) {
    print_support_page();
    return 0;
  }
  tally t = {.verbose = o.verbose};
  fixture f = make_fixture(o.backend, o.entry, o.unprepared);
  f.gradients = f.gradients && !o.no_gradients;
  f.threads_dense = o.threads_dense;
  for (size_t i = 0; i < spec_count; i++) {
    if (spec_is_of(spec_list[i], o.op)) {
      run_spec(spec_list[i], &o, &f, &t);
    }
  }
  destroy_fixture(&f);
  if (!o.list) {
    printf("%ld passed, %ld failed\n", t.passed, t.failed);
  }
  return t.failed || (t.passed == 0 && !o.list) ? 1 : 0;
}
