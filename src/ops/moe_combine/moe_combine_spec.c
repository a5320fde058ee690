#include "ops/spec.h"

#include <stdlib.h>
#include <string.h>

/* Slots get rows of a random order; with dropped ones the rows that they would have belong to no
 * slot, and their slot is the dropped one, as in a plan. */
static void fill_rows(tgi_shaped *shaped, const spec_case *c, int64_t rows, spec_rng *rng)
{
  const tg_tensor *row = tgi_shaped_tensor(shaped, "row");
  const tg_tensor *slot = tgi_shaped_tensor(shaped, "slot");
  const int64_t slots = tgi_numel(row);
  int64_t *order = calloc((size_t)rows + 1, sizeof *order);
  for (int64_t r = 0; r < rows; r++) { /* Fisher and Yates's shuffle */
    const int64_t other = spec_below(rng, r + 1);
    order[r] = order[other];
    order[other] = r;
  }
  for (int64_t r = 0; slot && tgi_present(slot) && r < rows; r++) {
    spec_set(shaped, "slot", r, slots ? (double)(r % slots) : 0);
  }
  for (int64_t s = 0; s < slots; s++) {
    const bool dropped = spec_is(c, "all dropped") || (spec_is(c, "dropped") && s % 3 == 1);
    const int64_t r = order[s % (rows ? rows : 1)];
    spec_set(shaped, "row", s, dropped ? -1 : (double)r);
    if (slot && tgi_present(slot)) {
      spec_set(shaped, "slot", r, (double)s);
    }
  }
  free(order);
}

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *y = tgi_shaped_tensor(shaped, "y");
  fill_rows(shaped, c, y->shape[0], rng);
  if (spec_is(c, "not finite")) {
    spec_set(shaped, "y", 3, NAN);
    spec_set(shaped, "y", tgi_numel(y) - 1, INFINITY);
    spec_set(shaped, "weights", 0, INFINITY);
  }
}

static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *dy = tgi_shaped_tensor(shaped, "dy"), *y = tgi_shaped_tensor(shaped, "y");
  fill_rows(shaped, c, tgi_present(dy) ? dy->shape[0] : y->shape[0], rng);
  if (spec_is(c, "not finite")) {
    spec_set(shaped, "dout", 3, NAN);
    spec_set(shaped, "dout", tgi_numel(tgi_shaped_tensor(shaped, "dout")) - 1, INFINITY);
  }
}

/* y may have rows that no slot names. */
static bool fwd_free(const char *slot, int axis)
{
  return axis == 0 && strcmp(slot, "y") == 0;
}

/* k 1: y has more rows than there are tokens, so that its rows are not taken for tokens'. */
static const spec_case fwd_cases[] = {
    {"13x37_k3_wf32"},
    {"0x8_k2"},
    {"3x0_k2"},
    {"1x1_k1_r4"},
    {"1x2880_k4"},
    {"5x17_k1_r9_nores"},
    {"7x15_k2_now_nores"},
    {"9x16_k4_once", "dropped"},
    {"9x31_k8_nores_once", "dropped"},
    {"33x48_k4_now", "dropped"},
    {"4x127_k2", "all dropped"},
    {"4x33_k2_nores", "all dropped"},
    {"21x100_k5_r300_wf32_once"},
    {"10x65_k3_r11", "not finite"}, /* slots share rows */
    {"3x2048_k8"},
    {"5x2880_k4_once"},
    {"4100x6_k4_wf32"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"13x37_k3_wf32"},
    {"0x8_k2"},
    {"3x0_k2"},
    {"1x1_k1_r4"},
    {"1x2880_k4"},
    {"5x17_k1_r9"},
    {"7x15_k2_now"},
    {"7x15_k2_wf32_nody"},
    {"7x19_k3_nodw"},
    {"9x16_k4", "dropped"},
    {"9x31_k8_nody", "dropped"},
    {"33x48_k4_now", "dropped"},
    {"4x127_k2", "all dropped"},
    {"21x100_k5_r300_wf32"},
    {"60x129_k3", "not finite"}, /* above the size that finite differences take */
    {"3x2048_k8"},
    {"5x2880_k4"},
    {"4100x6_k4_wf32"},
    {NULL},
};

static const char *const bench[] = {"16384x2880_k4_nores", "16384x2048_k8", NULL};
static const char *const bwd_bench[] = {"16384x2880_k4", "16384x2048_k8_wf32", NULL};

static const spec_bad_scalar bad[] = {
    {"rounding", 0, TG_BAD_ARGUMENT},
    {"rounding", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_moe_combine_fwd = {
    .name = "moe_combine_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .fill = fill_fwd,
    .batch_invariant = true,
    .free_extent = fwd_free,
    .bad_scalars = bad,
};

const spec spec_moe_combine_bwd = {
    .name = "moe_combine_bwd",
    .cases = bwd_cases,
    .bench = bwd_bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "moe_combine_fwd",
    .fill = fill_bwd,
};
