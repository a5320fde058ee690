#include "ops/spec.h"

static void fill_mask(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *mask = tgi_shaped_tensor(shaped, "token_mask");
  for (int64_t t = 0; tgi_present(mask) && t < mask->shape[0]; t++) {
    const int64_t value = spec_below(rng, 3) - 1; /* anything but 0 counts */
    spec_set(shaped, "token_mask", t, spec_is(c, "none counted") ? 0 : (double)value);
  }
}

static void fill_special(tgi_shaped *shaped, const spec_case *c)
{
  const tg_tensor *logits = tgi_shaped_tensor(shaped, "logits");
  const int64_t n = tgi_numel(logits), experts = logits->shape[1];
  for (int64_t i = 0; i < n; i++) {
    const int64_t t = i / experts, e = i % experts;
    if (spec_is(c, "equal")) {
      spec_set(shaped, "logits", i, 0.5);
    } else if (spec_is(c, "ties")) { /* at every place of the order, zeros of both signs */
      const int64_t level = (e * 7 + t) % 5 - 2;
      spec_set(shaped, "logits", i, level ? (double)level : e % 2 ? -0.0 : 0.0);
    } else if (spec_is(c, "one expert")) {
      spec_set(shaped, "logits", i, e == experts / 2 ? 30 : -30 - (double)e);
    } else if (spec_is(c, "masked") && (e + t) % 4) { /* fewer than k are left in some rows */
      spec_set(shaped, "logits", i, -INFINITY);
    } else if (spec_is(c, "not finite") && e == experts - 1 - t % 3) {
      const double odd[4] = {NAN, INFINITY, -INFINITY, 1};
      spec_set(shaped, "logits", i, odd[t % 4]);
    } else if (spec_is(c, "not finite") && t % 7 == 6) {
      spec_set(shaped, "logits", i, -INFINITY);
    }
  }
}

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  fill_mask(shaped, c, rng);
  spec_scale(shaped, "logits", spec_is(c, "steep") ? 20 : 2, spec_is(c, "far") ? 80 : 0);
  fill_special(shaped, c);
}

/* Logits of a row lie apart, so that a small difference does not change their order. */
static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *logits = tgi_shaped_tensor(shaped, "logits");
  const int64_t tokens = logits->shape[0], experts = logits->shape[1];
  fill_mask(shaped, c, rng);
  for (int64_t t = 0; t < tokens; t++) {
    const int64_t turn = spec_below(rng, experts);
    for (int64_t e = 0; e < experts; e++) {
      const double at = (double)((e + turn) * 7 % experts) + 0.2 * (double)spec_below(rng, 3);
      spec_set(shaped, "logits", t * experts + e, 4 * at / (double)experts - 2);
    }
  }
  fill_special(shaped, c);
}

/* Groups of 64 tokens; experts around the lanes of each instruction set and of a warp; models'. */
static const spec_case fwd_cases[] = {
    {"37x19_k3_all_mask_counts_sum_wf32_i64"},
    {"0x8_k2"},
    {"0x8_k2_mask_counts_sum"},
    {"1x32_k4"},
    {"1x128_k8_renorm"},
    {"1x1_k1_counts_sum"},
    {"5x1_k1_all"},
    {"3x4_k4_sum"},
    {"7x13_k13_all"},
    {"66x15_k1_counts"},
    {"64x16_k2_renorm_mask_sum"},
    {"65x17_k5_wf32"},
    {"127x31_k31_counts_sum"},
    {"129x33_k7_all_counts_sum_i64"},
    {"67x32_k4_counts_sum", "equal"},
    {"67x128_k8_all_counts_sum", "ties"},
    {"40x100_k30_renorm", "ties"},
    {"131x32_k4_counts_sum", "one expert"},
    {"131x64_k6_all_mask_counts_sum", "none counted"},
    {"61x8_k4", "masked"},
    {"61x8_k4_all_counts_sum", "masked"},
    {"84x37_k3_counts", "not finite"},
    {"84x37_k5_all_wf32", "not finite"},
    {"84x37_k5_renorm_sum", "not finite"},
    {"63x128_k8_all", "steep"},
    {"63x128_k8", "far"},
    {"9x257_k20_all_counts_sum"},
    {"5x1025_k6_sum"},
    {"3x5000_k40_all_sum"},
    {"1023x32_k4_mask_counts_sum"},
    {"300x128_k8_renorm_counts_sum_wf32"},
    {"4099x32_k4_counts_sum"},
    {"4500x128_k4"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"37x19_k3_all_mask_sum_wf32_i64"},
    {"0x8_k2"},
    {"1x32_k4"},
    {"1x128_k8_renorm"},
    {"1x1_k1_sum"},
    {"5x1_k1_all"},
    {"3x4_k4_sum"},
    {"11x13_k13_all"},
    {"66x15_k1"},
    {"66x15_k1_all_sum"},
    {"64x16_k2_renorm_mask_sum"},
    {"65x17_k5_wf32"},
    {"67x31_k30_sum"},
    {"129x33_k6_all_sum_i64"},
    {"60x34_k5_all_mask_sum", "none counted"},
    {"660x32_k4_sum", "ties"}, /* above the size that finite differences take */
    {"660x32_k4", "one expert"},
    {"2600x8_k4", "masked"},
    {"2600x8_k4_all_sum", "masked"},
    {"560x37_k5", "not finite"},
    {"560x37_k5_all_mask_sum", "not finite"},
    {"9x257_k20_all_sum"},
    {"3x1025_k6_sum"},
    {"150x128_k8_renorm_sum"},
    {"4099x32_k4_mask_sum"},
    {"4200x24_k4"},
    {NULL},
};

static const char *const bench[] = {"16384x32_k4", "16384x128_k8_renorm",
                                    "16384x128_k8_renorm_counts_sum", NULL};
static const char *const bwd_bench[] = {"16384x32_k4", "16384x128_k8_renorm_sum", NULL};

static const spec_bad_scalar bad[] = {
    {"scoring", 0, TG_BAD_ARGUMENT},
    {"scoring", 4, TG_BAD_ARGUMENT},
    {"scoring", -1, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_topk_router_fwd = {
    .name = "topk_router_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill_fwd,
    .batch_invariant = true,
    .bad_scalars = bad,
};

const spec spec_topk_router_bwd = {
    .name = "topk_router_bwd",
    .cases = bwd_cases,
    .bench = bwd_bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "topk_router_fwd",
    .fill = fill_bwd,
    .batch_invariant = true,
    .bad_scalars = bad,
};
