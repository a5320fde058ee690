#include "check_case.h"
#include "problem.h"
#include "problem_call.h"
#include "problem_compare.h"
#include "problem_gradient.h"

#include "ops/chain.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- contexts ---- */

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
fixture make_fixture(tg_backend backend, const char *only_entry, bool unprepared)
{
  fixture f = {.ref = make_context(TG_BACKEND_REF, NULL, 1),
               .gradients = backend == TG_BACKEND_CPU};
  tg_context *whole = make_context(backend, NULL, 1);
  const tgi_chain chain = tgi_chain_of(backend, &whole->processor, whole->device);
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

void destroy_fixture(fixture *f)
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

/* ---- one case ---- */

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

static char *run_copy(const problem *master, problem_layout layout, bool f64, tg_context *ctx,
                      problem **out)
{
  *out = problem_copy(master, layout, f64);
  if (problem_run(*out, ctx) != TG_OK) {
    return problem_text("%s", (*out)->failure);
  }
  return NULL;
}

/* Whether the call allows other bits each time. */
static bool in_any_order(const problem *p)
{
  return problem_allows(p, "allow_nondeterministic");
}

static char *check_layout(const problem *master, const problem *exact, const problem *naive,
                          problem_layout layout, const entry_contexts *e, bool both_ways,
                          unsigned *met)
{
  problem *one = NULL, *three = NULL;
  char *failure = run_copy(master, layout, false, e->one, &one);
  *met |= problem_refusals(one);
  if (!failure) {
    failure = problem_compare(one, exact, naive);
  }
  if (!failure && both_ways) {
    failure = run_copy(master, layout, false, e->three, &three);
  }
  if (!failure && both_ways) {
    failure = in_any_order(master) ? problem_compare(three, exact, naive)
                                   : problem_compare_bits(one, three,
                                                          e->one->device ? "called against recorded"
                                                                         : "1 thread against 3");
  }
  problem_destroy(three);
  problem_destroy(one);
  one = NULL;
  if (!failure && e->prepared) {
    failure = run_copy(master, layout, false, e->prepared, &one);
    failure = failure ? failure : problem_compare(one, exact, naive);
  }
  problem_destroy(one);
  return failure;
}

/* Every output row of the first, middle and last row has the same bits when it is alone, or among
 * as few rows as are of the same class. */
static char *check_batch_invariance(const problem *master, const entry_contexts *e)
{
  const int64_t rows = master->view[0].tensor->shape[0];
  const int64_t first_class = strcmp(e->entry, "sm90") == 0 ? master->spec->rows_of_first_class : 0;
  const int64_t count = first_class > 0 && rows > first_class ? first_class + 1 : 1;
  const int64_t pick[3] = {0, (rows - count) / 2, rows - count};
  problem *all = NULL;
  char *failure = run_copy(master, PROBLEM_DENSE, false, e->one, &all);
  for (int k = 0; k < 3 && rows > count && !failure; k++) {
    problem *alone = problem_rows(master, pick[k], count);
    if (problem_run(alone, e->one) != TG_OK) {
      failure = problem_text("%s", alone->failure);
    }
    for (int v = 0; v < all->num_views && !failure; v++) {
      const tg_tensor *full = all->view[v].tensor, *single = alone->view[v].tensor;
      const bool per_row = full->ndim > 0 && full->shape[0] == rows;
      const int64_t n = tgi_numel(single);
      for (int64_t i = 0; i < n && per_row && all->view[v].slot->role == TG_ROLE_OUT; i++) {
        const double a = problem_get(full, pick[k] * (n / count) + i), b = problem_get(single, i);
        if (memcmp(&a, &b, sizeof a) != 0) {
          failure = problem_text("rows %lld to %lld alone: %s[%lld]: expected %.9g, got %.9g",
                                 (long long)pick[k], (long long)(pick[k] + count - 1),
                                 all->view[v].slot->name, (long long)i, a, b);
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

void check_case(const spec *s, const spec_case *c, tg_dtype dtype, const fixture *f, tally *t)
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
      failure = check_layout(master, exact, naive, (problem_layout)layout, &f->entry[e],
                             !f->threads_dense || layout == PROBLEM_DENSE, &t->met);
      report(t, master, name, where, failure);
      free(failure);
    }
    if (s->batch_invariant && !in_any_order(master)) {
      failure = check_batch_invariance(master, &f->entry[e]);
      report(t, master, name, f->entry[e].entry, failure);
      free(failure);
    }
  }
  problem_destroy(master);
  problem_destroy(exact);
  problem_destroy(naive);
}
