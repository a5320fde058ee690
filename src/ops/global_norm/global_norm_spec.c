#include "core/values/half.h"
#include "ops/spec.h"

static void scale_list(tgi_shaped *shaped, double factor)
{
  const tg_global_norm_fwd_args *a = (const void *)shaped->args.bytes;
  for (int64_t i = 0; i < a->num_tensors; i++) {
    const tg_tensor *t = &a->tensors[i];
    for (int64_t k = 0; k < tgi_numel(t); k++) {
      tgi_store(t->data, t->dtype, k, factor * tgi_load(t->data, t->dtype, k));
    }
  }
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_global_norm_fwd_args *a = (const void *)shaped->args.bytes;
  const tg_tensor *last = &a->tensors[a->num_tensors - 1];
  const int64_t end = tgi_numel(last) - 1;
  (void)rng;
  if (spec_is(c, "zeros")) {
    scale_list(shaped, 0);
  } else if (spec_is(c, "small")) { /* clip is 1 */
    scale_list(shaped, 1e-4);
  } else if (spec_is(c, "squares underflow")) {
    scale_list(shaped, last->dtype == TG_F16 ? 1e-6 : 1e-26);
  } else if (spec_is(c, "squares overflow")) {
    scale_list(shaped, last->dtype == TG_F16 ? 1e4 : 1e25);
  } else if (spec_is(c, "infinite")) {
    tgi_store(last->data, last->dtype, end, -(double)INFINITY);
  } else if (spec_is(c, "not a number")) {
    tgi_store(last->data, last->dtype, end, NAN);
  }
}

/* Any shape is good. */
static bool free_extent(const char *slot, int axis)
{
  (void)axis;
  return slot[0] == 't';
}

static const spec_case cases[] = {
    {"0x5"},
    {"1x1"},
    {"1x15_t2_mixed"},
    {"3x17_noclip"},
    {"7x48_t5"},
    {"5x127_t10_mixed", "small"},
    {"4x1024", "zeros"},
    {"1x4097", "squares underflow"},
    {"1x4097_t3", "squares overflow"},
    {"3x768_t3", "infinite"},
    {"3x768_t3", "not a number"},
    {"1x65536_t2"},
    {"3x65537_t4_mixed"},
    {"300x1111_t7"},
    {NULL},
};

static const char *const bench[] = {"50257x768_t12", NULL};

static const spec_bad_scalar bad[] = {
    {"max_norm", 0, TG_BAD_ARGUMENT},        {"max_norm", -1, TG_BAD_ARGUMENT},
    {"max_norm", INFINITY, TG_BAD_ARGUMENT}, {"max_norm", NAN, TG_BAD_ARGUMENT},
    {"num_tensors", -1, TG_BAD_ARGUMENT},    {NULL, 0, TG_OK},
};

const spec spec_global_norm_fwd = {
    .name = "global_norm_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 3e-7,
    .fill = fill,
    .bad_scalars = bad,
    .free_extent = free_extent,
};
