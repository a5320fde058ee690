/* Central differences of the reference forward's outputs, weighted by their incoming gradients. */
#include "problem_gradient.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* sum over the forward's outputs of output * its incoming gradient */
static double objective(problem *forward, const problem *bwd, tg_context *ref)
{
  double sum = 0;
  if (problem_run(forward, ref) != TG_OK) {
    return NAN;
  }
  for (int v = 0; v < forward->num_views; v++) {
    char gradient[64];
    snprintf(gradient, sizeof gradient, "d%s", forward->view[v].slot->name);
    const int g = problem_find(bwd, gradient);
    if (forward->view[v].slot->role == TG_ROLE_OUT && g >= 0 &&
        bwd->view[g].slot->role == TG_ROLE_IN) {
      for (int64_t i = 0, n = tgi_numel(forward->view[v].tensor); i < n; i++) {
        const double y = problem_get(forward->view[v].tensor, i);
        const double dy = problem_get(bwd->view[g].tensor, i);
        sum += dy == 0 ? 0 : y * dy; /* a gradient of 0 ignores infinite outputs (lse of no keys) */
      }
    }
  }
  return sum;
}

static double root_mean_square(const tg_tensor *t)
{
  double sum = 0;
  const int64_t n = tgi_numel(t);
  for (int64_t i = 0; i < n; i++) {
    sum += problem_get(t, i) * problem_get(t, i);
  }
  return n ? sqrt(sum / (double)n) : 0;
}

/* Slope of the objective along `direction` (or axis `only`), by central differences. */
static double slope(problem *forward, const problem *bwd, tg_context *ref, const tg_tensor *x,
                    const double *start, const double *direction, double h)
{
  const int64_t n = tgi_numel(x);
  double value[2];
  for (int side = 0; side < 2; side++) {
    for (int64_t i = 0; i < n; i++) {
      problem_set(x, i, start[i] + (side ? h : -h) * direction[i]);
    }
    value[side] = objective(forward, bwd, ref);
  }
  for (int64_t i = 0; i < n; i++) {
    problem_set(x, i, start[i]);
  }
  return (value[1] - value[0]) / (2 * h);
}

/* One input: two random directions and up to four single elements. */
static char *check_input(problem *forward, const problem *bwd, tg_context *ref, int input,
                         const double *gradient, spec_rng *rng)
{
  const tg_tensor *x = forward->view[input].tensor;
  const int64_t n = tgi_numel(x);
  double *start = malloc((size_t)n * sizeof *start), *direction = calloc((size_t)n, sizeof *start);
  const double rms = root_mean_square(x), h = 1e-5 * (rms > 1e-3 ? rms : 1e-3);
  double largest = 1e-3;
  char *failure = NULL;
  for (int64_t i = 0; i < n; i++) {
    start[i] = problem_get(x, i);
    largest = fabs(gradient[i]) > largest ? fabs(gradient[i]) : largest;
  }
  for (int probe = 0; probe < 6 && !failure; probe++) {
    const int64_t only = probe < 2 ? -1 : spec_below(rng, n);
    double expected = 0;
    for (int64_t i = 0; i < n; i++) {
      direction[i] = only < 0 ? spec_normal(rng) : i == only;
      expected += direction[i] * gradient[i];
    }
    const double got = slope(forward, bwd, ref, x, start, direction, h);
    const double noise = 1e-6 * largest * (only < 0 ? sqrt((double)n) : 1);
    if (!(fabs(got - expected) <= 1e-5 * fabs(expected) + noise)) {
      failure = problem_text("d%s, element %lld: backward gives %.10g, differences give %.10g",
                             forward->view[input].slot->name, (long long)only, expected, got);
    }
  }
  free(start);
  free(direction);
  return failure;
}

char *problem_check_gradient(problem *p, tg_context *ref)
{
  problem *clean = problem_copy(p, PROBLEM_DENSE, true);
  problem_fill_saved(clean); /* in f64, where the case has them rounded to its dtypes */
  problem *forward = problem_forward(clean);
  spec_rng rng = {7};
  char *failure = NULL;
  /* Accumulators start at zero here, so that they end as the gradient; so does what is added to a
   * gradient from elsewhere (dresidual: no output of the forward). */
  for (int v = 0; v < clean->num_views; v++) {
    const tg_slot_info *slot = clean->view[v].slot;
    const bool foreign = slot->role == TG_ROLE_IN && slot->name[0] == 'd' &&
                         !problem_slot(clean->shaped.info, slot->name + 1) &&
                         !problem_slot(forward->shaped.info, slot->name + 1) &&
                         !problem_slot(forward->shaped.info, slot->name);
    for (int64_t i = 0, n = tgi_numel(clean->view[v].tensor); i < n; i++) {
      if (slot->role == TG_ROLE_ACC || foreign) {
        problem_set(clean->view[v].tensor, i, 0);
      }
    }
  }
  if (problem_run(clean, ref) != TG_OK) {
    failure = problem_text("%s", clean->failure);
  }
  for (int v = 0; v < forward->num_views && !failure; v++) {
    char gradient[64];
    snprintf(gradient, sizeof gradient, "d%s", forward->view[v].slot->name);
    const int g = problem_find(clean, gradient);
    if (forward->view[v].slot->role != TG_ROLE_IN || g < 0 ||
        clean->view[g].slot->role == TG_ROLE_IN || tgi_numel(clean->view[g].tensor) == 0) {
      continue;
    }
    const int64_t n = tgi_numel(clean->view[g].tensor);
    double *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
      values[i] = problem_get(clean->view[g].tensor, i);
    }
    failure = check_input(forward, clean, ref, v, values, &rng);
    free(values);
  }
  problem_destroy(clean);
  problem_destroy(forward);
  return failure;
}
