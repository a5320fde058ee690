#include "ops/spec.h"

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  if (spec_is(c, "large")) { /* the exponentials alone overflow */
    spec_scale(shaped, "x", 3, 300);
  } else if (spec_is(c, "far below zero")) { /* the exponentials alone underflow */
    spec_scale(shaped, "x", 3, -300);
  } else if (spec_is(c, "steep")) { /* most results are denormal or 0 */
    spec_scale(shaped, "x", 40, 0);
  } else if (spec_is(c, "huge")) { /* differences overflow f32 */
    spec_scale(shaped, "x", 2e38, 0);
  } else if (spec_is(c, "rising")) { /* every piece has a new largest element */
    for (int64_t j = 0; j < 5000; j++) {
      spec_set(shaped, "x", j, 0.004 * (double)j);
      spec_set(shaped, "x", 2 * 5000 + j, -INFINITY); /* a first piece without a number */
    }
    spec_set(shaped, "x", 3 * 5000 - 1, -7);
    spec_set(shaped, "x", 3 * 5000 - 2000, -8);
  } else if (spec_is(c, "equal")) {
    spec_set_all(shaped, "x", -2.5);
  } else if (spec_is(c, "masked")) { /* -infinity here and there; row 1 has nothing else */
    for (int64_t j = 0; j < 37; j++) {
      spec_set(shaped, "x", j % 2 ? 3 * j : j, -INFINITY);
      spec_set(shaped, "x", 37 + j, -INFINITY);
    }
  } else if (spec_is(c, "not finite")) { /* each spoils its own row */
    spec_set(shaped, "x", 5, NAN);
    spec_set(shaped, "x", 2 * 5000 + 4999, INFINITY);
    spec_set(shaped, "x", 3 * 5000, NAN);
  }
}

static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  if (spec_is(c, "far from zero")) { /* dy - dot cancels */
    spec_scale(shaped, "dy", 1, 100);
  } else if (spec_is(c, "not a number")) {
    spec_set(shaped, "dy", 70, NAN);
  }
}

/* Widths around the lanes of each instruction set; no powers of two that predecessors got wrong;
 * models' widths; more than one piece of a sum. */
static const spec_case fwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1"},
    {"4x1_scaled"},
    {"3x2"},
    {"5x3"},
    {"5x15"},
    {"7x16_scaled"},
    {"1x17"},
    {"3x31", "equal"},
    {"33x48"},
    {"11x127", "large"},
    {"11x127_scaled", "far below zero"},
    {"6x61", "steep"},
    {"6x37", "masked"},
    {"4x100", "huge"},
    {"9x384"},
    {"3x768_scaled"},
    {"5x1023"},
    {"3x1536"},
    {"2x1600"},
    {"3x2500"},
    {"4x5000", "not finite"},
    {"3x5000", "rising"},
    {"2x4097"},
    {"2x12288_scaled"},
    {"2x35000"}, /* more than the distance of prefetches */
    {"3x131072"},
    {"1x300000"},       /* more than a cluster of blocks holds */
    {"2x70001_scaled"}, /* rows of a few hundred KiB whose starts are not aligned */
    {"300x67_scaled"},
    {"41x1024"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"4x1_scaled"},
    {"3x2"},
    {"5x3"},
    {"5x15"},
    {"7x16_scaled"},
    {"1x17"},
    {"33x48"},
    {"11x127", "far from zero"},
    {"6x61_scaled"},
    {"9x384"},
    {"3x768_scaled"},
    {"5x1023"},
    {"3x1536"},
    {"2x1600"},
    {"4x7000", "not a number"}, /* above the size that finite differences take */
    {"2x4097"},
    {"2x12288_scaled"},
    {"2x30001"},
    {"3x131072_scaled"},
    {"300x67_scaled"},
    {"41x1024"},
    {NULL},
};

static const char *const bench[] = {"65536x768", "16384x4096", "4096x32768", NULL};

static const spec_bad_scalar bad[] = {
    {"scale", 0, TG_BAD_ARGUMENT},        {"scale", -1, TG_BAD_ARGUMENT},
    {"scale", 0x1p-101, TG_BAD_ARGUMENT}, {"scale", INFINITY, TG_BAD_ARGUMENT},
    {"scale", NAN, TG_BAD_ARGUMENT},      {NULL, 0, TG_OK},
};

/* Bytes of a row of all inputs, in whole vectors of 16 bytes. */
static int64_t row_bytes(const tg_tensor *t, int inputs)
{
  return (t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype) + 15) / 16 * 16 * inputs;
}

static int64_t fwd_row_bytes(const void *args)
{
  const tg_softmax_fwd_args *a = args;
  return row_bytes(&a->x, 1);
}

static int64_t bwd_row_bytes(const void *args)
{
  const tg_softmax_bwd_args *a = args;
  return row_bytes(&a->y, 2);
}

static bool fwd_is_short(const void *args)
{
  return fwd_row_bytes(args) < 96 * 1024;
}

static bool fwd_is_long(const void *args)
{
  return fwd_row_bytes(args) > 512 * 1024;
}

static bool fwd_has_many_rows(const void *args)
{
  const tg_softmax_fwd_args *a = args;
  return a->x.shape[0] > 1 << 30;
}

static bool bwd_is_short(const void *args)
{
  return bwd_row_bytes(args) < 96 * 1024;
}

static bool bwd_is_long(const void *args)
{
  return bwd_row_bytes(args) > 512 * 1024;
}

static bool bwd_has_many_rows(const void *args)
{
  const tg_softmax_bwd_args *a = args;
  return a->y.shape[0] > 1 << 30;
}

#define SHORT_REASON "sm80 runs several of them on a multiprocessor at once"
#define LONG_REASON "they exceed the registers and shared memory of a cluster of two blocks"
#define MANY_ROWS                                                                                  \
  .entry = "sm90", .rule = "more than 2^30 rows", .reason = "rows have 32-bit counters",           \
  .no_case = true

static const spec_refusal fwd_refuses[] = {
    {.entry = "sm90",
     .rule = "rows of less than 96 KiB",
     .reason = SHORT_REASON,
     .holds = fwd_is_short},
    {.entry = "sm90",
     .rule = "rows of more than 512 KiB",
     .reason = LONG_REASON,
     .holds = fwd_is_long},
    {MANY_ROWS, .holds = fwd_has_many_rows},
    {.entry = NULL},
};

static const spec_refusal bwd_refuses[] = {
    {.entry = "sm90",
     .rule = "rows of less than 96 KiB in y and dy together",
     .reason = SHORT_REASON,
     .holds = bwd_is_short},
    {.entry = "sm90",
     .rule = "rows of more than 512 KiB in y and dy together",
     .reason = LONG_REASON,
     .holds = bwd_is_long},
    {MANY_ROWS, .holds = bwd_has_many_rows},
    {.entry = NULL},
};

const spec spec_softmax_fwd = {
    .name = "softmax_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill_fwd,
    .batch_invariant = true,
    .refuses = fwd_refuses,
    .bad_scalars = bad,
};

const spec spec_softmax_bwd = {
    .name = "softmax_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "softmax_fwd",
    .fill = fill_bwd,
    .batch_invariant = true,
    .refuses = bwd_refuses,
    .bad_scalars = bad,
};
