#include "ops/grouped_linear/grouped_refusals.h"

#include <stdlib.h>
#include <string.h>

/* The expert of slot s; `experts`: it is dropped. */
static int64_t expert_of(const spec_case *c, int64_t s, int64_t slots, int64_t experts,
                         spec_rng *rng)
{
  if (spec_is(c, "one expert")) {
    return experts / 2;
  }
  if (spec_is(c, "all dropped")) {
    return experts;
  }
  if (spec_is(c, "dropped") || spec_is(c, "not finite")) { /* those of the last token, too */
    const bool keep = spec_below(rng, experts + 2) < experts && s < slots;
    return keep ? spec_below(rng, experts) : experts;
  }
  if (spec_is(c, "few experts")) { /* the first and the last one have no rows */
    return experts / 3 + spec_below(rng, 2);
  }
  return spec_below(rng, experts);
}

/* The plan of random experts, as moe_plan makes it; slots of dropped rows are not to be read. */
static void fill_plan(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *row = tgi_shaped_tensor(shaped, "row");
  const int64_t slots = tgi_numel(row), k = row->shape[1];
  const int64_t experts = tgi_shaped_tensor(shaped, "offsets")->shape[0] - 1;
  int64_t *expert = calloc((size_t)slots + 1, sizeof *expert), next = 0;
  for (int64_t s = 0; s < slots; s++) {
    expert[s] = expert_of(c, s, slots - k, experts, rng);
  }
  for (int64_t e = 0; e <= experts; e++) {
    spec_set(shaped, "offsets", e, (double)next);
    for (int64_t s = 0; s < slots; s++) {
      if (expert[s] == e) {
        spec_set(shaped, "slot", next, e < experts ? (double)s : -7);
        spec_set(shaped, "row", s, e < experts ? (double)next : -1);
        next++;
      }
    }
  }
  free(expert);
}

/* h on the limits and on both sides of them: x is the first unit vector. */
static void fill_limits(tgi_shaped *shaped)
{
  static const double kValues[] = {7,        7.03125, 6.96875, -7,  -7.03125,
                                   -6.96875, 12,      -12,     0.5, -0.25};
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x"), *w = tgi_shaped_tensor(shaped, "gate_up");
  const int64_t hidden = x->shape[1], first = w->shape[1], last = w->shape[2];
  for (int64_t i = 0; i < tgi_numel(x); i++) {
    spec_set(shaped, "x", i, i % hidden == 0);
  }
  for (int64_t i = 0; i < tgi_numel(w); i++) {
    const int64_t c = first == hidden ? i % last : i / last % first;
    spec_set(shaped, "gate_up", i, kValues[c * 7 % 10]);
  }
}

static void fill_parameters(tgi_shaped *shaped, const spec_case *c)
{
  const int64_t hidden = tgi_shaped_tensor(shaped, "x")->shape[1];
  const tg_tensor *down = tgi_shaped_tensor(shaped, "down");
  const int64_t inter = hidden > 0 ? tgi_numel(down) / down->shape[0] / hidden : 0;
  spec_scale(shaped, "gate_up", hidden > 0 ? 1 / sqrt((double)hidden) : 1, 0);
  spec_scale(shaped, "down", inter > 0 ? 1 / sqrt((double)inter) : 1, 0);
  if (spec_is(c, "wide")) { /* many values beyond the clamps */
    spec_scale(shaped, "gate_up", 8, 0);
  } else if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "limits")) {
    fill_limits(shaped);
  }
}

/* The last token, whose slots are all dropped. */
static void set_last_token(tgi_shaped *shaped, const char *name, double value)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, name);
  for (int64_t i = tgi_numel(t) - t->shape[1]; i < tgi_numel(t); i++) {
    spec_set(shaped, name, i, value);
  }
}

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  fill_plan(shaped, c, rng);
  fill_parameters(shaped, c);
  if (spec_is(c, "not finite")) { /* in one token of experts, and in one of none */
    spec_set(shaped, "x", 3, INFINITY);
    set_last_token(shaped, "x", NAN);
  }
}

static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  fill_plan(shaped, c, rng);
  fill_parameters(shaped, c);
  if (spec_is(c, "not finite")) {
    set_last_token(shaped, "x", NAN);
    set_last_token(shaped, "dy", NAN);
  }
}

static const spec_case fwd_cases[] = {
    {"13x37x19_e5_k2_bias_res"},
    /* nothing to do, and nothing to sum */
    {"0x5x7_e3_k2_bias"},
    {"3x5x0_e2_k2_bias_clamped"},
    {"3x0x5_e2_k1_bias"},
    {"3x0x5_e2_k1_infirst"},
    /* one token, one expert, more experts than rows */
    {"1x1x1_e1_k1_upbias"},
    {"1x31x33_e1_k1_clamped_interleaved"},
    {"1x48x31_e9_k4_infirst_bias_clamped_interleaved"},
    {"5x16x24_e300_k2_bias"},
    /* hidden is inter, in both layouts and packings */
    {"17x29x29_e4_k2_bias_nopre"},
    {"17x29x29_e4_k2_infirst_bias"},
    {"16x32x32_e4_k2_interleaved"},
    {"16x32x32_e4_k2_infirst_clamped_interleaved_bias"},
    /* prime sizes, both activations, biases of one product */
    {"31x37x41_e7_k3_bias_clamped"},
    {"31x37x41_e7_k3_infirst_bias_clamped_interleaved_nopre"},
    {"23x19x67_e11_k5_upbias", "few experts"},
    {"23x67x19_e11_k5_infirst_downbias_interleaved", "few experts"},
    {"37x53x47_e3_k2_bias_clamped_interleaved", "one expert"},
    {"37x53x47_e3_k2_infirst_bias_nopre", "one expert"},
    {"29x31x17_e6_k4_bias_clamped", "dropped"},
    {"29x31x17_e6_k4_infirst_bias_res_nopre", "dropped"},
    {"11x23x13_e4_k2_bias_clamped_interleaved", "all dropped"},
    {"11x23x13_e4_k2_res", "all dropped"},
    /* clamps: beyond, at and around the limits */
    {"19x41x53_e4_k2_infirst_bias_clamped_interleaved", "wide"},
    {"19x41x53_e4_k2_bias_clamped", "wide"},
    {"11x29x65_e3_k2_downbias_clamped_interleaved", "limits"},
    {"11x29x65_e3_k2_infirst_clamped_nopre", "limits"},
    {"31x23x19_e5_k2_bias_clamped_interleaved", "not finite"},
    {"31x23x19_e5_k2_infirst", "not finite"},
    {"7x20x18_e3_k2_bias", "zeros"},
    /* more than one strip and block of either width */
    {"3x769x33_e3_k2_infirst_bias_clamped_interleaved"},
    {"3x33x521_e3_k2_bias"},
    {"2x2880x34_e4_k4_infirst_bias_clamped_interleaved"},
    {"3x2048x18_e16_k8"},
    {"151x24x20_e2_k2_bias", "one expert"},
    /* whole vectors of 16 bytes, for tensor cores: several tiles of rows and columns */
    {"151x72x104_e3_k2_infirst_bias_clamped_interleaved"},
    {"151x72x104_e3_k2_bias_nopre", "dropped"},
    {"101x136x200_e4_k4_infirst_bias_res", "few experts"},
    {"61x24x40_e5_k2_bias_clamped_interleaved_nopre", "not finite"},
    {"2x2880x40_e4_k4_infirst_bias_clamped_interleaved"},
    /* dtypes side by side */
    {"9x70x50_e3_k2_wf32_bias"},
    {"9x70x50_e3_k2_sf32_bias_clamped"},
    {"10x70x50_e3_k2_infirst_xf32_bias_clamped_interleaved"},
    {"10x70x50_e3_k2_xf32_bf32_bias_res"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"13x37x19_e5_k2_bias_dpre"},
    {"0x5x7_e3_k2_bias"},
    {"0x5x7_e3_k2_bias_overwrite"},
    {"3x5x0_e2_k2_bias_clamped"},
    {"3x0x5_e2_k1_bias_overwrite"},
    {"2x3x2_e1_k1_bias"},
    {"1x31x33_e1_k1_clamped_interleaved"},
    {"1x48x31_e9_k8_infirst_bias_clamped_interleaved_dpre"},
    {"5x16x24_e300_k2_bias"},
    /* hidden is inter, in both layouts and packings */
    {"17x29x29_e4_k2_bias"},
    {"17x29x29_e4_k2_infirst_bias_dpre"},
    {"16x32x32_e4_k2_interleaved"},
    {"16x32x32_e4_k2_infirst_clamped_interleaved_bias"},
    {"31x37x41_e7_k3_bias_clamped"},
    {"31x37x41_e7_k3_infirst_bias_clamped_interleaved"},
    {"23x19x67_e11_k5_upbias", "few experts"},
    {"23x67x19_e11_k5_infirst_downbias_interleaved_overwrite", "few experts"},
    {"37x53x47_e3_k2_bias_clamped_interleaved", "one expert"},
    {"37x53x47_e3_k2_infirst_bias_overwrite", "one expert"},
    {"29x31x17_e6_k4_bias_clamped_dpre", "dropped"},
    {"29x31x17_e6_k4_infirst_bias_interleaved_overwrite", "dropped"},
    {"11x23x13_e4_k2_bias_clamped_interleaved_dpre", "all dropped"},
    {"11x23x13_e4_k2_bias_overwrite", "all dropped"},
    /* some of the gradients: frozen experts, frozen routers, one alone */
    {"19x23x17_e4_k2_bias_nodgateup_noddown_nodbias"},
    {"19x23x17_e4_k2_infirst_bias_clamped_nodgateup_noddown_nodbias", "dropped"},
    {"29x23x17_e4_k2_bias_nodx_nodweights"},
    {"19x23x17_e4_k2_infirst_nodx_nodweights_noddown"},
    {"19x23x17_e4_k2_infirst_nodx_nodweights_nodgateup"},
    {"19x23x17_e4_k2_bias_interleaved_nodx_nodweights_nodgateup_noddown"},
    {"19x23x17_e4_k2_downbias_clamped_nodx_nodweights_nodgateup_noddown"},
    {"19x23x17_e4_k2_bias_nodx_nodgateup_noddown_nodbias"},
    {"19x23x17_e4_k2_nodweights_nodgateup_noddown"},
    {"19x23x17_e4_k2_clamped_nodx_nodweights_nodgateup_noddown_dpre"},
    /* above the size that finite differences take: the clamps' corners, what is not finite */
    {"19x41x53_e4_k2_infirst_bias_clamped_interleaved", "wide"},
    {"19x41x53_e4_k2_bias_clamped", "wide"},
    {"21x79x129_e3_k2_downbias_clamped_interleaved_dpre", "limits"},
    {"21x79x129_e3_k2_infirst_clamped", "limits"},
    {"31x79x129_e3_k2_bias_clamped_interleaved", "not finite"},
    {"31x79x129_e3_k2_infirst_overwrite", "not finite"},
    {"7x20x18_e3_k2_bias", "zeros"},
    /* more than one strip and block of either width, and group of rows */
    {"3x769x33_e3_k2_infirst_bias_clamped_interleaved"},
    {"3x33x521_e3_k2_bias_dpre"},
    {"2x2880x18_e3_k2_infirst_bias_clamped_interleaved"},
    {"2x18x2880_e3_k2_bias"},
    {"71x12x10_e2_k2_bias", "one expert"},
    /* whole vectors of 16 bytes, for tensor cores */
    {"151x72x104_e3_k2_infirst_bias_clamped_interleaved"},
    {"151x72x104_e3_k2_bias_dpre", "dropped"},
    {"101x136x200_e4_k4_infirst_bias_overwrite", "few experts"},
    {"61x80x136_e5_k2_bias_clamped_interleaved", "not finite"},
    {"61x80x136_e5_k2_infirst_bias_dwf32"},
    {"61x80x136_e5_k2_bias_nodgateup_noddown_nodbias"},
    {"61x80x136_e5_k2_bias_nodx_nodweights_nodgateup", "dropped"},
    {"61x80x136_e5_k2_downbias_nodx_nodweights_nodgateup_noddown"},
    /* dtypes side by side */
    {"9x70x50_e3_k2_wf32_bias"},
    {"9x40x30_e3_k2_sf32_bias_clamped_dwf32"},
    {"9x40x30_e3_k2_dsf32_bf32_bias_interleaved"},
    {"10x40x30_e3_k2_infirst_xf32_bias_clamped_interleaved"},
    {NULL},
};

/* One layer of GPT-OSS 20B and of Qwen3 30B: a prompt, and one token. */
static const char *const bench_fwd[] = {
    "512x2880x2880_e32_k4_infirst_bias_clamped_interleaved",
    "1x2880x2880_e32_k4_infirst_bias_clamped_interleaved_nopre",
    "512x2048x768_e128_k8",
    NULL,
};

static const char *const bench_bwd[] = {
    "512x2880x2880_e32_k4_infirst_bias_clamped_interleaved_overwrite",
    "512x2880x2880_e32_k4_infirst_bias_clamped_interleaved_nodgateup_noddown_nodbias",
    "512x2048x768_e128_k8_overwrite",
    NULL,
};

static const spec_bad_scalar bad_scalars[] = {
    {"activation", 0, TG_BAD_ARGUMENT}, {"activation", 3, TG_BAD_ARGUMENT},
    {"packing", 0, TG_BAD_ARGUMENT},    {"packing", 3, TG_BAD_ARGUMENT},
    {"alpha", 1, TG_BAD_ARGUMENT}, /* the first case has no clamp */
    {"limit", NAN, TG_BAD_ARGUMENT},    {NULL, 0, TG_OK},
};

static const spec_refusal fwd_refuses[] = {TGI_GROUPED_REFUSALS(experts_fwd), {.entry = NULL}};
static const spec_refusal bwd_refuses[] = {
    TGI_GROUPED_REFUSALS(experts_bwd),
    {.entry = "sm90",
     .rule = "no gradient but that of down's bias",
     .reason = "no product makes it",
     .holds = tgi_experts_bwd_has_no_product},
    {.entry = NULL},
};

const spec spec_moe_mlp_fwd = {
    .name = "moe_mlp_fwd",
    .cases = fwd_cases,
    .bench = bench_fwd,
    .f32_bound = 3e-6,
    .f16_ceiling = 6e-3,
    .bf16_ceiling = 4e-2,
    .fill = fill_fwd,
    .refuses = fwd_refuses,
    .bad_scalars = bad_scalars,
};

const spec spec_moe_mlp_bwd = {
    .name = "moe_mlp_bwd",
    .cases = bwd_cases,
    .bench = bench_bwd,
    .f32_bound = 3e-6,
    .f16_ceiling = 8e-3,
    .bf16_ceiling = 6e-2,
    .rounds_f32_outputs = true, /* q, w a and dh are rounded to the dtype of x */
    .gradient_of = "moe_mlp_fwd",
    .fill = fill_bwd,
    .refuses = bwd_refuses,
    .bad_scalars = bad_scalars,
};
