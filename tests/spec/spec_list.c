#include "ops/spec.h"

#include "core/values/half.h"
#include <string.h>

const spec *const spec_list[] = {
#define OP(op, dir, ws) &spec_##op##_##dir,
#include "ops/ops.def"
};

const size_t spec_count = sizeof spec_list / sizeof spec_list[0];

const tg_dtype spec_dtypes[SPEC_DTYPES] = {TG_F32, TG_F16, TG_BF16};

bool spec_is_of(const spec *s, const char *op)
{
  return !op || strcmp(op, s->name) == 0 || strcmp(op, tg_op_find(s->name)->op) == 0;
}

bool spec_takes(const spec *s, tg_dtype dtype, const char *only)
{
  return (!s->dtypes || s->dtypes & TG_DTYPE_BIT(dtype)) &&
         (!only || strcmp(only, tg_dtype_name(dtype)) == 0);
}

uint64_t spec_bits(spec_rng *rng)
{
  uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int64_t spec_below(spec_rng *rng, int64_t n)
{
  return (int64_t)(spec_bits(rng) % (uint64_t)n);
}

/* Box and Muller's transform, one of its two values. */
double spec_normal(spec_rng *rng)
{
  const double u = ((double)(spec_bits(rng) >> 11) + 0.5) * 0x1p-53;
  const double v = (double)(spec_bits(rng) >> 11) * 0x1p-53;
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void spec_set(tgi_shaped *shaped, const char *slot, int64_t i, double value)
{
  tg_tensor *t = tgi_shaped_tensor(shaped, slot);
  tgi_store(t->data, t->dtype, i, value);
}

void spec_set_infinite_dy(tgi_shaped *shaped, int64_t i)
{
  if (tgi_shaped_tensor(shaped, "dy")) {
    spec_set(shaped, "dy", i, INFINITY);
  }
}

void spec_set_all(tgi_shaped *shaped, const char *slot, double value)
{
  spec_scale(shaped, slot, 0, value);
}

void spec_scale(tgi_shaped *shaped, const char *slot, double factor, double offset)
{
  tg_tensor *t = tgi_shaped_tensor(shaped, slot);
  for (int64_t i = 0, n = tgi_numel(t); i < n; i++) {
    tgi_store(t->data, t->dtype, i, factor * tgi_load(t->data, t->dtype, i) + offset);
  }
}

bool spec_is(const spec_case *c, const char *special)
{
  return c->special && strcmp(c->special, special) == 0;
}
