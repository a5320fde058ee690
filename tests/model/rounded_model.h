/** Models read from directories, and compared with those that were saved. After cmocka.h. */
#ifndef TEGULA_TESTS_ROUNDED_MODEL_H
#define TEGULA_TESTS_ROUNDED_MODEL_H

#include "core/values/half.h"
#include "expect.h"
#include "tegula/model.h"

static tg_error error;

static const tg_dtype kDtypes[] = {TG_F32, TG_F16, TG_BF16};

static inline tg_model *load(const char *directory, tg_dtype dtype)
{
  tg_model *model = NULL;
  EXPECT_OK(tg_model_load(directory, dtype, &model, &error), error);
  return model;
}

static inline int64_t elements_of(const tg_tensor *t)
{
  return t->shape[0] * (t->ndim == 2 ? t->shape[1] : 1);
}

/* Every parameter of `got` is that of `want`, rounded to dtypes `through` and then its own. */
static inline void assert_rounded(const tg_model *got, const tg_model *want, tg_dtype through)
{
  tg_tensor a, b;
  const char *name, *other;
  size_t p = 0;
  for (; tg_model_parameter(want, p, &b, &other) == TG_OK; p++) {
    assert_int_equal(tg_model_parameter(got, p, &a, &name), TG_OK);
    assert_string_equal(name, other);
    assert_int_equal(elements_of(&a), elements_of(&b));
    for (int64_t i = 0; i < elements_of(&a); i++) {
      const double x = tgi_load(a.data, a.dtype, i);
      const double y = tgi_round(a.dtype, tgi_round(through, tgi_load(b.data, b.dtype, i)));
      if (x != y) {
        fail_msg("%s[%lld]: expected %g, got %g", name, (long long)i, y, x);
      }
    }
  }
  assert_int_equal(tg_model_parameter(got, p, NULL, NULL), TG_BAD_ARGUMENT);
}

#endif
