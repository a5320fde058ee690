#include "ops/spec.h"

static void fill_history(tgi_shaped *shaped, spec_rng *rng)
{
  const tg_tensor *history = tgi_shaped_tensor(shaped, "history");
  const tg_tensor *lengths = tgi_shaped_tensor(shaped, "history_lengths");
  const int64_t vocab = tgi_shaped_tensor(shaped, "logits")->shape[1];
  const int64_t room = tgi_present(history) ? history->shape[1] : 0;
  for (int64_t i = 0; tgi_present(history) && i < tgi_numel(history); i++) {
    /* Past its length a row may hold anything. */
    const int64_t id = spec_below(rng, vocab);
    spec_set(shaped, "history", i, tgi_present(lengths) && i % room == room - 1 ? -77 : (double)id);
  }
  for (int64_t i = 0; tgi_present(lengths) && i < tgi_numel(lengths); i++) {
    spec_set(shaped, "history_lengths", i, (double)(i % 4 == 3 ? 0 : spec_below(rng, room)));
  }
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *logits = tgi_shaped_tensor(shaped, "logits");
  const tg_tensor *positions = tgi_shaped_tensor(shaped, "positions");
  const int64_t n = tgi_numel(logits), vocab = logits->shape[1];
  fill_history(shaped, rng);
  for (int64_t i = 0; tgi_present(positions) && i < tgi_numel(positions); i++) {
    spec_set(shaped, "positions", i, (double)spec_below(rng, 1 << 20) - 1000);
  }
  const tg_tensor *seeds = tgi_shaped_tensor(shaped, "seeds");
  for (int64_t i = 0; tgi_present(seeds) && i < tgi_numel(seeds); i++) {
    spec_set(shaped, "seeds", i, (double)spec_below(rng, 1 << 30) - (i % 2 ? 1 << 30 : 0));
  }
  if (spec_is(c, "ties")) {
    spec_set_all(shaped, "logits", 1.5);
  } else if (!spec_is(c, "flat")) {
    spec_scale(shaped, "logits", 3, 1);
  }
  for (int64_t i = 0; i < n; i++) {
    if (spec_is(c, "few values")) { /* ties at every cut, zeros of both signs */
      spec_set(shaped, "logits", i, i % 3 ? (double)(spec_below(rng, 5) - 2) : -0.0);
    } else if (spec_is(c, "masked") && i % 5) {
      spec_set(shaped, "logits", i, (double)-INFINITY);
    } else if (spec_is(c, "huge")) {
      spec_set(shaped, "logits", i, (i % 3 ? -6e4 : 6e4) * (i % 7 ? 1 : 0.5));
    } else if (spec_is(c, "last alone")) {
      spec_set(shaped, "logits", i, i % vocab == vocab - 1 ? 0 : -60000);
    }
  }
}

/* Vocabularies around lanes and pieces of 1024; each filter alone and all together. */
static const spec_case cases[] = {
    {"5x37_hist3_len_pos_lp"},
    {"0x7"},
    {"3x1_lp"},
    {"3x1_t0_lp_i32"},
    {"9x2_k1_p50_min30_lp"},
    {"7x15_t0_rep150_hist4_lp"},
    {"7x16_t70_k5_lp"},
    {"7x17_t130_p90_lp_i32"},
    {"7x31_min10_lp"},
    {"9x33_t80_k20_p80_min5_rep130_hist9_len_pos_lp"},
    {"9x47_rep70_hist0_lp"},
    {"9x100_rep70_hist30_lp"},
    {"40x64_lp", "ties"},
    {"40x64_k7_lp", "ties"},
    {"40x64_p33_lp", "ties"},
    {"40x65_min100_lp", "ties"},
    {"20x129_t0", "ties"},
    {"40x1023_k100_p60_lp", "few values"},
    {"40x1024_k700_lp", "few values"},
    {"40x1025_p70_lp", "few values"},
    {"20x1025_t0_rep200_hist50", "few values"},
    {"20x77_k40_p50_lp", "masked"},
    {"20x2049_lp", "masked"},
    {"5x501_t50_p95_lp", "huge"},
    {"5x501_t6553600_p95_lp", "huge"},
    {"5x3000_lp", "last alone"},
    {"30x2100_t70_k50_p90_rep110_hist200_len_lp_i32"},
    {"11x4099_t150_min2_pos"},
    {"13x300_pos_seeds_lp"},
    {"40x64_seeds_lp_i32", "ties"},
    {"11x4099_t150_p1_lp"},
    {"11x4099_t150_p100_k4099_lp", "flat"},
    {"11x4099_t10000000_p99_lp"},
    {"2x50257_t80_k40"},
    {"1x151936_t60_k20_p95_lp"},
    {"1x201088_lp", "flat"},
    {NULL},
};

static const char *const bench[] = {"8x151936_t60_k20_p95", "8x151936_t0", "8x151936",
                                    "1x201088_t80_p90", NULL};

static const spec_bad_scalar bad[] = {
    {"temperature", -1, TG_BAD_ARGUMENT},
    {"temperature", NAN, TG_BAD_ARGUMENT},
    {"temperature", INFINITY, TG_BAD_ARGUMENT},
    {"top_p", -0.1, TG_BAD_ARGUMENT},
    {"top_p", 1.1, TG_BAD_ARGUMENT},
    {"top_p", NAN, TG_BAD_ARGUMENT},
    {"min_p", -0.1, TG_BAD_ARGUMENT},
    {"min_p", 1.1, TG_BAD_ARGUMENT},
    {"min_p", NAN, TG_BAD_ARGUMENT},
    {"repetition_penalty", -1, TG_BAD_ARGUMENT},
    {"repetition_penalty", NAN, TG_BAD_ARGUMENT},
    {"repetition_penalty", INFINITY, TG_BAD_ARGUMENT},
    {"top_k", -1, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

/* Nothing else has the vocabulary's size, or the history's. */
static bool free_extent(const char *slot, int axis)
{
  (void)slot;
  return axis == 1;
}

const spec spec_sample_fwd = {
    .name = "sample_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 3e-7,
    .fill = fill,
    .free_extent = free_extent,
    .bad_scalars = bad,
};
