#include "problem_compare.h"

#include "core/values/half.h"
#include <stdio.h>
#include <string.h>

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
  for (int64_t i = 0, n = tgi_numel(t); i < n; i++) {
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
  for (int64_t i = 0, n = tgi_numel(naive); i < n; i++) {
    const double want = representable(naive->dtype, problem_get(exact, i));
    const double e = distance(problem_get(naive, i), want);
    most = isfinite(e) && e > most ? e : most;
  }
  return most;
}

static double f32_bound_of(const spec *s, const char *entry)
{
  const double own = !entry                       ? 0
                     : strcmp(entry, "sm90") == 0 ? s->sm90_f32_bound
                     : strcmp(entry, "sm80") == 0 ? s->sm80_f32_bound
                                                  : 0;
  return own > 0 ? own : s->f32_bound;
}

/* 16-bit outputs: twice the naive result's error, at most the ceiling. f32 outputs: the spec's
 * bound; where the naive result has the same precision, twice its error if that is more
 * (cancellation; TF32, with a ceiling). An f32 output of a 16-bit call must not profit from the
 * naive rounding, unless the contract itself rounds on the way. */
static double error_bound(const problem *p, tg_dtype output, double naive_error, double scale)
{
  const spec *s = p->spec;
  const bool half_call = is_half(p->dtype), tf32 = !half_call && problem_allows(p, "allow_tf32");
  if (is_half(output)) {
    const double ceiling = (output == TG_F16 ? s->f16_ceiling : s->bf16_ceiling) * scale;
    return 2 * naive_error < ceiling ? 2 * naive_error : ceiling;
  }
  const double bound = f32_bound_of(s, p->entry) * scale;
  const double most = tf32 ? s->tf32_ceiling * scale : INFINITY;
  const double rule = 2 * naive_error < most ? 2 * naive_error : most;
  const bool same_precision = !half_call || s->rounds_f32_outputs;
  return same_precision && rule > bound ? rule : bound;
}

static char *compare_output(const problem *p, const char *name, const tg_tensor *got,
                            const tg_tensor *exact, const tg_tensor *naive)
{
  const spec *s = p->spec;
  const tg_dtype dtype = got->dtype;
  if (s->bit_exact) {
    exact = naive;
  }
  const double scale = magnitude(exact), naive_error = largest_error(naive, exact);
  const double bound = error_bound(p, dtype, naive_error, scale);
  double worst = -1;
  int64_t worst_at = 0;
  for (int64_t i = 0, n = tgi_numel(got); i < n; i++) {
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

char *problem_compare(const problem *got, const problem *exact, const problem *naive)
{
  for (int v = 0; v < got->num_views; v++) {
    if (got->view[v].slot->role == TG_ROLE_IN) {
      continue;
    }
    char name[80];
    snprintf(name, sizeof name, got->view[v].index < 0 ? "%s" : "%s[%lld]", got->view[v].slot->name,
             (long long)got->view[v].index);
    char *failure = compare_output(got, name, got->view[v].tensor, exact->view[v].tensor,
                                   naive->view[v].tensor);
    if (failure) {
      return failure;
    }
  }
  return NULL;
}

char *problem_compare_bits(const problem *a, const problem *b, const char *what)
{
  for (int v = 0; v < a->num_views; v++) {
    const tg_tensor *x = a->view[v].tensor, *y = b->view[v].tensor;
    for (int64_t i = 0, n = tgi_numel(x); i < n && a->view[v].slot->role != TG_ROLE_IN; i++) {
      const double p = problem_get(x, i), q = problem_get(y, i);
      if (memcmp(&p, &q, sizeof p) != 0) {
        return problem_text("%s: %s[%lld]: expected the same bits, got %.9g and %.9g", what,
                            a->view[v].slot->name, (long long)i, p, q);
      }
    }
  }
  return NULL;
}
