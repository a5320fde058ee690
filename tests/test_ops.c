/* The spec driver: every op x case x dtype x chain entry against the f64 reference.
 *
 *   test_ops [--op NAME] [--backend cpu|cuda] [--entry NAME] [--dtype NAME] [--max-elements N]
 *            [--unprepared] [--list] [--support] [-v]
 *
 * NAME of --op is an op ("rms_norm") or a row ("rms_norm_bwd"). Exit 0: everything passed.
 */
#include "problem.h"

#include "core/device_state.h"
#include "core/half.h"
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
  const char *op, *entry, *dtype;
  tg_backend backend;
  long max_elements; /* of any tensor of a case; 0: any number */
  bool list, support, verbose, unprepared;
} options;

typedef struct tally {
  long passed, failed;
  bool verbose;
} tally;

static void report(tally *t, const problem *p, const char *dtype, const char *where,
                   const char *failure)
{
  if (failure) {
    t->failed++;
    printf("FAILED %s %s %s %s: %s\n", p->spec->name, p->shape, dtype, where, failure);
  } else {
    t->passed++;
    if (t->verbose) {
      printf("ok %s %s %s %s\n", p->spec->name, p->shape, dtype, where);
    }
  }
}

/* ---- comparing with the oracle ---- */

static double unit_in_last_place(tg_dtype dtype, double v)
{
  int exponent;
  frexp(v, &exponent);
  if (dtype == TG_BF16) {
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 8);
  }
  if (dtype == TG_F16) {
    return ldexp(1, (exponent < -13 ? -13 : exponent) - 11);
  }
  return ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static bool is_half(tg_dtype dtype)
{
  return dtype == TG_F16 || dtype == TG_BF16;
}

/* Difference that counts: 0 for values of one class (both NaN, the same infinity). */
static double distance(double got, double exact)
{
  if (isnan(exact) || isinf(exact)) {
    const bool same = isnan(exact) ? isnan(got) : got == exact;
    return same ? 0 : INFINITY;
  }
  return isfinite(got) ? fabs(got - exact) : INFINITY;
}

/* Largest finite magnitude. */
static double magnitude(const tg_tensor *t)
{
  double most = 0;
  for (int64_t i = 0; i < tgi_numel(t); i++) {
    const double v = fabs(problem_get(t, i));
    most = isfinite(v) && v > most ? v : most;
  }
  return most;
}

/* Exact results beyond the dtype's range are infinite in it. */
static double representable(tg_dtype dtype, double v)
{
  return is_half(dtype) && isinf(tgi_round(dtype, v)) ? tgi_round(dtype, v) : v;
}

static double largest_error(const tg_tensor *naive, const tg_tensor *exact)
{
  double most = 0;
  for (int64_t i = 0; i < tgi_numel(naive); i++) {
    const double want = representable(naive->dtype, problem_get(exact, i));
    const double e = distance(problem_get(naive, i), want);
    most = isfinite(e) && e > most ? e : most;
  }
  return most;
}

/* 16-bit outputs: twice the naive result's error, at most the ceiling. f32 outputs: the spec's
 * bound; where the naive result has the same precision, twice its error if that is more
 * (cancellation). An f32 output of a 16-bit call must not profit from the naive rounding, unless
 * the contract itself rounds on the way. */
static double error_bound(const spec *s, tg_dtype output, tg_dtype call, double naive_error,
                          double scale)
{
  if (is_half(output)) {
    const double ceiling = (output == TG_F16 ? s->f16_ceiling : s->bf16_ceiling) * scale;
    return 2 * naive_error < ceiling ? 2 * naive_error : ceiling;
  }
  const double bound = s->f32_bound * scale;
  const bool same_precision = !is_half(call) || s->rounds_f32_outputs;
  return same_precision && 2 * naive_error > bound ? 2 * naive_error : bound;
}

static char *compare_output(const spec *s, const char *name, tg_dtype call, const tg_tensor *got,
                            const tg_tensor *exact, const tg_tensor *naive)
{
  const tg_dtype dtype = got->dtype;
  if (s->bit_exact) {
    exact = naive;
  }
  const double scale = magnitude(exact), naive_error = largest_error(naive, exact);
  const double bound = error_bound(s, dtype, call, naive_error, scale);
  double worst = -1;
  int64_t worst_at = 0;
  for (int64_t i = 0; i < tgi_numel(got); i++) {
    const double want = representable(dtype, problem_get(exact, i));
    const double e = distance(problem_get(got, i), want);
    /* The correctly rounded value is never wrong, whatever luck the naive result had. */
    const double rounding =
        is_half(dtype) && !s->bit_exact ? 0.502 * unit_in_last_place(dtype, want) : 0;
    const double excess = e - (bound > rounding ? bound : rounding);
    if (e > 0 && excess > worst) {
      worst = excess;
      worst_at = i;
    }
  }
  if (worst <= 0) {
    return NULL;
  }
  return problem_text("%s[%lld]: expected %.9g, got %.9g; bound %.3g (naive %.3g, magnitude %.3g)",
                      name, (long long)worst_at, problem_get(exact, worst_at),
                      problem_get(got, worst_at), bound, naive_error, scale);
}

static char *compare_all(const problem *got, const problem *exact, const problem *naive)
{
  for (int v = 0; v < got->num_views; v++) {
    if (got->view[v].slot->role == TG_ROLE_IN) {
      continue;
    }
    char name[80];
    snprintf(name, sizeof name, got->view[v].index < 0 ? "%s" : "%s[%lld]", got->view[v].slot->name,
             (long long)got->view[v].index);
    char *failure = compare_output(got->spec, name, got->dtype, got->view[v].tensor,
                                   exact->view[v].tensor, naive->view[v].tensor);
    if (failure) {
      return failure;
    }
  }
  return NULL;
}

static char *compare_bits(const problem *a, const problem *b, const char *what)
{
  for (int v = 0; v < a->num_views; v++) {
    const tg_tensor *x = a->view[v].tensor, *y = b->view[v].tensor;
    for (int64_t i = 0; i < tgi_numel(x) && a->view[v].slot->role != TG_ROLE_IN; i++) {
      const double p = problem_get(x, i), q = problem_get(y, i);
      if (memcmp(&p, &q, sizeof p) != 0) {
        return problem_text("%s: %s[%lld]: expected the same bits, got %.9g and %.9g", what,
                            a->view[v].slot->name, (long long)i, p, q);
      }
    }
  }
  return NULL;
}

/* ---- one case ---- */

/* Two ways to run, that must give the same bits: with one and with three threads; on the default
 * stream of a GPU, and recorded on another one. Of a GPU a third, within the same bounds: with the
 * libraries that tg_context_prepare opens. */
typedef struct entry_contexts {
  const char *entry;
  tg_context *one, *three, *prepared; /* NULL: the machine has none of these libraries */
} entry_contexts;

typedef struct fixture {
  entry_contexts entry[TGI_CHAIN_MAX];
  int num_entries;
  tg_context *ref;
  bool gradients; /* check the references' backwards */
} fixture;

static char *run_copy(const problem *master, problem_layout layout, bool f64, tg_context *ctx,
                      problem **out)
{
  *out = problem_copy(master, layout, f64);
  if (problem_run(*out, ctx) != TG_OK) {
    return problem_text("%s", (*out)->failure);
  }
  return NULL;
}

static char *check_layout(const problem *master, const problem *exact, const problem *naive,
                          problem_layout layout, const entry_contexts *e)
{
  problem *one = NULL, *three = NULL;
  char *failure = run_copy(master, layout, false, e->one, &one);
  if (!failure) {
    failure = compare_all(one, exact, naive);
  }
  if (!failure) {
    failure = run_copy(master, layout, false, e->three, &three);
  }
  if (!failure) {
    failure =
        compare_bits(one, three, e->one->device ? "called against recorded" : "1 thread against 3");
  }
  problem_destroy(three);
  problem_destroy(one);
  one = NULL;
  if (!failure && e->prepared) {
    failure = run_copy(master, layout, false, e->prepared, &one);
    failure = failure ? failure : compare_all(one, exact, naive);
  }
  problem_destroy(one);
  return failure;
}

/* Every output row of the first, middle and last row has the same bits when it is alone. */
static char *check_batch_invariance(const problem *master, const entry_contexts *e)
{
  const int64_t rows = master->view[0].tensor->shape[0];
  const int64_t pick[3] = {0, rows / 2, rows - 1};
  problem *all = NULL;
  char *failure = run_copy(master, PROBLEM_DENSE, false, e->one, &all);
  for (int k = 0; k < 3 && rows > 1 && !failure; k++) {
    problem *alone = problem_row(master, pick[k]);
    if (problem_run(alone, e->one) != TG_OK) {
      failure = problem_text("%s", alone->failure);
    }
    for (int v = 0; v < all->num_views && !failure; v++) {
      const tg_tensor *full = all->view[v].tensor, *single = alone->view[v].tensor;
      const bool per_row = full->ndim > 0 && full->shape[0] == rows;
      const int64_t n = tgi_numel(single);
      for (int64_t i = 0; i < n && per_row && all->view[v].slot->role == TG_ROLE_OUT; i++) {
        const double a = problem_get(full, pick[k] * n + i), b = problem_get(single, i);
        if (memcmp(&a, &b, sizeof a) != 0) {
          failure = problem_text("row %lld alone: %s[%lld]: expected %.9g, got %.9g",
                                 (long long)pick[k], all->view[v].slot->name, (long long)i, a, b);
          break;
        }
      }
    }
    problem_destroy(alone);
  }
  problem_destroy(all);
  return failure;
}

static bool has_alias(const problem *p, int which)
{
  for (int v = 0; v < p->num_views; v++) {
    if (problem_alias(p, v, which) >= 0) {
      return true;
    }
  }
  return false;
}

static int64_t largest_tensor(const problem *p)
{
  int64_t most = 0;
  for (int v = 0; v < p->num_views; v++) {
    const int64_t n = tgi_numel(p->view[v].tensor);
    most = n > most ? n : most;
  }
  return most;
}

static void run_case(const spec *s, const spec_case *c, tg_dtype dtype, const fixture *f, tally *t)
{
  static const char *const layout_name[] = {"dense",          "strided", "outputs strided",
                                            "inputs strided", "aliased", "aliased (second)"};
  const char *name = tg_dtype_name(dtype);
  problem *master = problem_create(s, c, dtype), *exact = NULL, *naive = NULL;
  if (!master) {
    t->failed++;
    return;
  }
  char *failure = run_copy(master, PROBLEM_DENSE, true, f->ref, &exact);
  if (!failure) {
    failure = run_copy(master, PROBLEM_DENSE, false, f->ref, &naive);
  }
  report(t, master, name, "ref", failure);
  const bool usable = !failure;
  free(failure);
  if (usable && f->gradients && s->gradient_of && dtype == TG_F32 &&
      largest_tensor(master) <= 20000) {
    failure = problem_check_gradient(master, f->ref);
    report(t, master, name, "gradient", failure);
    free(failure);
  }
  for (int e = 0; e < f->num_entries && usable; e++) {
    for (int layout = 0; layout < PROBLEM_LAYOUTS; layout++) {
      if (layout >= PROBLEM_ALIASED && !has_alias(master, layout - PROBLEM_ALIASED)) {
        continue;
      }
      char where[64];
      snprintf(where, sizeof where, "%s %s", f->entry[e].entry, layout_name[layout]);
      failure = check_layout(master, exact, naive, (problem_layout)layout, &f->entry[e]);
      report(t, master, name, where, failure);
      free(failure);
    }
    if (s->batch_invariant) {
      failure = check_batch_invariance(master, &f->entry[e]);
      report(t, master, name, f->entry[e].entry, failure);
      free(failure);
    }
  }
  problem_destroy(master);
  problem_destroy(exact);
  problem_destroy(naive);
}

/* ---- the command ---- */

static const tg_dtype kDtypes[] = {TG_F32, TG_F16, TG_BF16};

static bool wanted(const spec *s, const char *op)
{
  const tg_op_info *info = tg_op_find(s->name);
  return !op || strcmp(op, s->name) == 0 || strcmp(op, info->op) == 0;
}

static uint32_t spec_dtypes(const spec *s)
{
  return s->dtypes ? s->dtypes : TGI_BITS_FLOATS;
}

static void print_support(void)
{
  printf(
      "# Support\n\nGenerated by `test_ops --support`. The last entry of each chain, and every one "
      "of the CPU's, takes everything that the op's contract allows; sm90 hands on what it has "
      "no kernel for.\n\n| op | direction | dtypes | entries | cases tested |\n"
      "|---|---|---|---|---|\n");
  for (size_t i = 0; i < spec_count; i++) {
    const tg_op_info *info = tg_op_find(spec_list[i]->name);
    int cases = 0;
    while (spec_list[i]->cases[cases].shape) {
      cases++;
    }
    printf("| `%s` | %s |", info->op, info->dir);
    for (size_t d = 0; d < sizeof kDtypes / sizeof kDtypes[0]; d++) {
      if (spec_dtypes(spec_list[i]) & TG_DTYPE_BIT(kDtypes[d])) {
        printf(" %s", tg_dtype_name(kDtypes[d]));
      }
    }
    const bool has_sm90 =
        strcmp(info->op, "softmax") == 0 || strcmp(spec_list[i]->name, "cross_entropy_fwdbwd") == 0;
    printf(" | ref; cpu: avx512 -> avx2 -> generic; cuda: %ssm80 -> any | %d |\n",
           has_sm90 ? "sm90 -> " : "", cases);
  }
}

static tg_context *make_context(tg_backend backend, const char *entry, int threads)
{
  tg_context *ctx = NULL;
  tg_error error = {0};
  const tg_context_options o = {.backend = backend, .num_threads = threads, .entry = entry};
  if (tg_context_create(&o, &ctx, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    exit(2);
  }
  return ctx;
}

static tg_context *prepared_context(const char *entry)
{
  tg_context *ctx = make_context(TG_BACKEND_CUDA, entry, 1);
  if (tg_context_prepare(ctx) != TG_OK) {
    fprintf(stderr, "%s\n", tg_context_message(ctx));
    exit(2);
  }
  if (ctx->device->lt) {
    return ctx;
  }
  tg_context_destroy(ctx);
  return NULL;
}

static bool is_asked_for(const char *only_entry, const tgi_chain *chain, int i)
{
  return !only_entry || strcmp(only_entry, chain->entry[i]) == 0 ||
         (i == 0 && strcmp(only_entry, "best") == 0);
}

/* An op without a kernel in the entry would be run by a later one: tested there. */
static fixture make_fixture(tg_backend backend, const char *only_entry, bool unprepared)
{
  fixture f = {.ref = make_context(TG_BACKEND_REF, NULL, 1),
               .gradients = backend == TG_BACKEND_CPU};
  tg_context *whole = make_context(backend, NULL, 1);
  const tgi_chain chain = tgi_registry_chain(backend, &whole->processor, whole->device);
  for (int i = 0; i < chain.length; i++) {
    if (is_asked_for(only_entry, &chain, i)) {
      entry_contexts *e = &f.entry[f.num_entries++];
      *e = (entry_contexts){chain.entry[i], make_context(backend, chain.entry[i], 1),
                            make_context(backend, chain.entry[i], 3)};
      /* With no cache to speak of, stores past the cache are taken too: the same bits. */
      e->three->processor.l3_bytes = 1;
      if (backend == TG_BACKEND_CUDA &&
          tgi_device_stream_create(e->three, &e->three->device->stream) != TG_OK) {
        fprintf(stderr, "%s\n", tg_context_message(e->three));
        exit(2);
      }
      if (backend == TG_BACKEND_CUDA && !unprepared) {
        e->prepared = prepared_context(chain.entry[i]);
      }
    }
  }
  tg_context_destroy(whole);
  if (f.num_entries == 0) {
    fprintf(stderr, "--entry: expected an entry of this machine, got \"%s\"\n", only_entry);
    exit(2);
  }
  return f;
}

static void destroy_fixture(fixture *f)
{
  for (int i = 0; i < f->num_entries; i++) {
    if (f->entry[i].three->device) {
      tgi_device_stream_destroy(f->entry[i].three, f->entry[i].three->device->stream);
    }
    tg_context_destroy(f->entry[i].one);
    tg_context_destroy(f->entry[i].three);
    tg_context_destroy(f->entry[i].prepared);
  }
  tg_context_destroy(f->ref);
}

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

enum { kList = 256, kSupport, kMaxElements, kUnprepared };

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
    {"verbose", 'v', NULL, 0, "Print what passed, too", 0},
    {"list", kList, NULL, 0, "List the cases", 0},
    {"support", kSupport, NULL, 0, "Print docs/support.md", 0},
    {0},
};

int main(int argc, char **argv)
{
  static const struct argp argp = {kOptions, parse, NULL, "Tests every op against its reference.",
                                   NULL,     NULL,  NULL};
  options o = {.backend = TG_BACKEND_CPU};
  argp_parse(&argp, argc, argv, 0, NULL, &o);
  if (o.support) {
    print_support();
    return 0;
  }
  tally t = {.verbose = o.verbose};
  fixture f = make_fixture(o.backend, o.entry, o.unprepared);
  for (size_t i = 0; i < spec_count; i++) {
    const spec *s = spec_list[i];
    for (const spec_case *c = s->cases; c->shape && wanted(s, o.op); c++) {
      for (size_t d = 0; d < sizeof kDtypes / sizeof kDtypes[0]; d++) {
        const bool asked = !o.dtype || strcmp(o.dtype, tg_dtype_name(kDtypes[d])) == 0;
        if (!asked || !(spec_dtypes(s) & TG_DTYPE_BIT(kDtypes[d])) ||
            !small_enough(s, c, kDtypes[d], o.max_elements)) {
          continue;
        }
        if (o.list) {
          printf("%s %s %s%s%s\n", s->name, c->shape, tg_dtype_name(kDtypes[d]),
                 c->special ? " " : "", c->special ? c->special : "");
        } else {
          run_case(s, c, kDtypes[d], &f, &t);
        }
      }
    }
  }
  destroy_fixture(&f);
  if (!o.list) {
    printf("%ld passed, %ld failed\n", t.passed, t.failed);
  }
  return t.failed || (t.passed == 0 && !o.list) ? 1 : 0;
}
