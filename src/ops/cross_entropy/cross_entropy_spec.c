#include "core/values/half.h"
#include "ops/refusal_rules.h"
#include "ops/shared/loss/loss_cases.h"

static int64_t target_of(tgi_shaped *shaped, int64_t i)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, "targets");
  return tgi_load_int(t->data, t->dtype, i);
}

static void fill_logits(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *logits = tgi_shaped_tensor(shaped, "logits");
  const int64_t rows = logits->shape[0], vocab = logits->shape[1];
  if (spec_is(c, "large")) {
    spec_scale(shaped, "logits", 50, -20);
  } else if (spec_is(c, "ties")) {
    spec_set_all(shaped, "logits", 2);
  }
  for (int64_t i = 0; i < rows; i++) {
    const int64_t target = target_of(shaped, i);
    if (spec_is(c, "sure") && target >= 0) { /* p - 1 nearly 0 */
      spec_set(shaped, "logits", i * vocab + target, 12);
    } else if (spec_is(c, "masked")) { /* -infinity from the first piece on */
      for (int64_t j = 0; j < vocab; j++) {
        if (j != target && (j < vocab / 2 || spec_below(rng, 2))) {
          spec_set(shaped, "logits", i * vocab + j, (double)-INFINITY);
        }
      }
    } else if (spec_is(c, "rising")) { /* each piece has a new maximum */
      for (int64_t j = 0; j < vocab; j++) {
        spec_set(shaped, "logits", i * vocab + j, 20.0 * (double)j / (double)vocab);
      }
    } else if (spec_is(c, "bad rows")) {
      /* Row 1 is ignored; rows 2 and 3 are not, and must keep their NaN to themselves. */
      const double bad[] = {NAN, NAN, (double)INFINITY};
      if (i >= 1 && i <= 3) {
        spec_set(shaped, "logits", i * vocab + vocab / 2, bad[i - 1]);
      }
    } else if (spec_is(c, "ignored NaN") && target < 0) {
      spec_set(shaped, "logits", i * vocab + vocab - 1, NAN);
    }
  }
}

static void fill_forward(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_cross_entropy_fwd_args *a = (const void *)shaped->args.bytes;
  fill_targets(shaped, a->logits.shape[1], a->has_ignore_index, a->ignore_index, rng);
  fill_logits(shaped, c, rng);
}

static void fill_backward(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_cross_entropy_bwd_args *a = (const void *)shaped->args.bytes;
  fill_targets(shaped, a->logits.shape[1], a->has_ignore_index, a->ignore_index, rng);
  fill_logits(shaped, c, rng);
}

static void fill_both(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_cross_entropy_fwdbwd_args *a = (const void *)shaped->args.bytes;
  fill_targets(shaped, a->logits.shape[1], a->has_ignore_index, a->ignore_index, rng);
  fill_logits(shaped, c, rng);
}

/* Nothing else of the forward has the vocabulary's size. */
static bool free_extent(const char *slot, int axis)
{
  return axis == 1 && slot[0] == 'l';
}

static const spec_case fwd_cases[] = {
    {"9x31_itemsi64_ignore_all"},
    {"0x5"}, /* NaN */
    {"0x5_sum_all"},
    {"0x5_none_all"},
    {"0x5_items"},
    {"1x1_all"},
    {"3x1_sum_smooth_z_all"},
    {"5x2_none_all"},
    {"7x15_none_ignore_all"},
    {"7x16_items_i32_all"},
    {"9x17_itemsi32_ignore"},
    {"9x33_itemsf32_smooth_z"},
    {"12x127_ignore5_smooth_all"},
    {"12x48_cap_all"},
    {"6x768_none_cap_smooth_z_ignore_i32_all"},
    {"5x1023_all", "ties"},
    {"5x1024_none_all", "large"},
    {"5x1025_none_smooth_all", "rising"},
    {"5x1025_none_cap_all", "rising"},
    {"4x2061_sum_ignore_all", "masked"},
    {"5x3000_none_all", "sure"},
    {"5x3001_none_ignore_all", "bad rows"},
    {"6x777_none_cap_ignore_all", "bad rows"},
    {"7x4099_ignore_all", "ignored NaN"},
    {"300x13_smooth_all"},
    {"2x50257_z_all", "large"},
    {"1x151936_none_all"},
    {"1x201088_smooth_all"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"9x31_itemsi64_ignore"},
    {"0x5"},
    {"1x1"},
    {"3x1_sum_smooth_z"},
    {"5x2_none"},
    {"7x15_none_ignore"},
    {"7x16_items_i32"},
    {"9x17_itemsi32_ignore"},
    {"9x33_itemsf32_smooth_z"},
    {"12x127_ignore5_smooth"},
    {"12x48_cap"},
    {"12x63_sum_cap_ignore"},
    {"6x768_none_cap_smooth_z_ignore_i32"},
    {"40x1024_nodloss", "large"},
    {"30x1025_none_smooth_nodloss", "rising"},
    {"15x2061_sum_ignore", "masked"},
    {"5x3000_none", "sure"},
    {"7x3001_none_ignore", "bad rows"},
    {"7x4099_ignore", "ignored NaN"},
    {"300x13_smooth"},
    {"2x50257_z"},
    {"1x151936_none"},
    {"1x201088_smooth_cap"},
    {NULL},
};

/* The last ones are rows that Hopper's clusters take: as few and as many stages as there are, some
 * of a vector or none for a block. */
static const spec_case fwdbwd_cases[] = {
    {"9x31_itemsi64_ignore_all"},
    {"0x5"}, /* NaN */
    {"0x5_sum_all"},
    {"0x5_none_all"},
    {"1x1_all"},
    {"3x1_sum_smooth_z_all"},
    {"5x2_none_all"},
    {"7x15_none_ignore_all"},
    {"7x16_items_i32_all"},
    {"9x17_itemsi32_ignore"},
    {"9x33_itemsf32_smooth_z"},
    {"12x127_ignore5_smooth_all"},
    {"12x48_cap_all"},
    {"12x63_sum_cap_ignore"},
    {"6x768_none_cap_smooth_z_ignore_i32_all"},
    {"5x1023_all", "ties"},
    {"40x1024_nodloss", "large"},
    {"30x1025_none_smooth_nodloss", "rising"},
    {"5x1025_none_cap_all", "rising"},
    {"15x2061_sum_ignore_all", "masked"},
    {"5x3000_none_all", "sure"},
    {"7x3001_none_ignore_all", "bad rows"},
    {"7x4099_ignore_all", "ignored NaN"},
    {"300x13_smooth_all"},
    {"2x50257_z_all", "large"},
    {"1x151936_none_all"},
    {"1x201088_smooth_cap"},
    {"2x50304_none_smooth_z", "rising"},
    {"5x45064_ignore_nodloss", "ignored NaN"},
    {"4x50304_none_ignore", "bad rows"},
    {"2x41096_sum_smooth_i32", "masked"},
    {"2x65544_items_z", "sure"},
    {"1x151936_smooth_z", "large"},
    {"1x262144_sum"},
    {NULL},
};

static const char *const bench[] = {"1024x50257", "512x151936", NULL};

static const spec_bad_scalar bad[] = {LOSS_BAD_SCALARS, {NULL, 0, TG_OK}};

const spec spec_cross_entropy_fwd = {
    .name = "cross_entropy_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 3e-7,
    .rounds_f32_outputs = true, /* to f32: p near 1 cancels in the naive result as in any */
    .fill = fill_forward,
    .bad_scalars = bad,
    .free_extent = free_extent,
};

const spec spec_cross_entropy_bwd = {
    .name = "cross_entropy_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .gradient_of = "cross_entropy_fwd",
    .fill = fill_backward,
    .bad_scalars = bad,
};

static int64_t row_bytes(const tg_cross_entropy_fwdbwd_args *a)
{
  return a->logits.shape[1] * (int64_t)tg_dtype_bytes(a->logits.dtype);
}

static bool is_short(const void *args)
{
  return row_bytes(args) < 80 * 1024;
}

static bool is_long(const void *args)
{
  return row_bytes(args) > 960 * 1024;
}

static bool is_unaligned(const void *args)
{
  const tg_cross_entropy_fwdbwd_args *a = args;
  return row_bytes(a) % 16 != 0 || !tgi_rows_begin_at(&a->logits, 16) ||
         !tgi_rows_begin_at(&a->dlogits, 16);
}

static bool has_softcap(const void *args)
{
  const tg_cross_entropy_fwdbwd_args *a = args;
  return a->softcap != 0;
}

static bool wants_argmax(const void *args)
{
  const tg_cross_entropy_fwdbwd_args *a = args;
  return tgi_present(&a->argmax);
}

static bool has_many_rows(const void *args)
{
  const tg_cross_entropy_fwdbwd_args *a = args;
  return a->logits.shape[0] > INT32_MAX;
}

static const spec_refusal both_refuse[] = {
    {.entry = "sm90",
     .rule = "rows of less than 80 KiB",
     .reason = "they stay in the L2 cache between sm80's two readings",
     .holds = is_short},
    {.entry = "sm90",
     .rule = "rows of more than 960 KiB",
     .reason = "they exceed the shared memory and registers of a cluster of four blocks",
     .holds = is_long},
    {.entry = "sm90",
     .rule = "rows whose start or size is not a multiple of 16 bytes",
     .reason = "bulk copies move 16-byte vectors",
     .holds = is_unaligned},
    {.entry = "sm90",
     .rule = "softcap",
     .reason = "its tanh needs too many instructions",
     .holds = has_softcap},
    {.entry = "sm90",
     .rule = "argmax",
     .reason = "the kernel would have to search each row once more",
     .holds = wants_argmax},
    {.entry = "sm90",
     .rule = "2^31 rows or more",
     .reason = "rows have 32-bit counters",
     .holds = has_many_rows,
     .no_case = true},
    {.entry = NULL},
};

const spec spec_cross_entropy_fwdbwd = {
    .name = "cross_entropy_fwdbwd",
    .cases = fwdbwd_cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .rounds_f32_outputs = true, /* as the forward's */
    .gradient_of = "cross_entropy_fwd",
    .fill = fill_both,
    .refuses = both_refuse,
    .bad_scalars = bad,
};
