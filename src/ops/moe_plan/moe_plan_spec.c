#include "ops/spec.h"

#include <string.h>

/* The expert of slot s; `experts`: dropped. */
static int64_t expert_of(const spec_case *c, int64_t s, int64_t k, int64_t experts, spec_rng *rng)
{
  if (spec_is(c, "one expert")) {
    return experts / 2;
  }
  if (spec_is(c, "all dropped")) {
    return experts;
  }
  if (spec_is(c, "dropped") && spec_below(rng, 3) == 0) {
    return experts;
  }
  if (spec_is(c, "few experts")) { /* most have no slots, the first and the last one among them */
    return experts / 3 + spec_below(rng, 2);
  }
  if (spec_is(c, "falling")) {
    return experts - 1 - s % k % experts;
  }
  return spec_below(rng, experts);
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *indices = tgi_shaped_tensor(shaped, "indices");
  const int64_t experts = tgi_shaped_tensor(shaped, "offsets")->shape[0] - 1;
  for (int64_t s = 0; s < tgi_numel(indices); s++) {
    spec_set(shaped, "indices", s, (double)expert_of(c, s, indices->shape[1], experts, rng));
  }
}

/* Nothing else has as many elements as there are experts. */
static bool free_extent(const char *slot, int axis)
{
  return axis == 0 && strcmp(slot, "offsets") == 0;
}

/* Around the blocks of a CPU (4096 slots) and of a GPU (512) and a warp. */
static const spec_case cases[] = {
    {"37x19_k3_i64"},
    {"0x8_k2"},
    {"3x5_k0"},
    {"1x1_k1"},
    {"1x32_k4"},
    {"1x128_k8", "falling"},
    {"5x1_k1", "dropped"},
    {"7x13_k13", "falling"},
    {"31x2_k1"},
    {"33x100_k1", "dropped"},
    {"64x8_k8", "one expert"},
    {"171x40_k3", "few experts"},
    {"129x33_k4", "all dropped"},
    {"1023x32_k4", "dropped"},
    {"1024x128_k4"},
    {"1025x31_k4_i64"},
    {"4099x128_k8", "dropped"},
    {"4500x32_k4", "one expert"},
    {"700x5000_k2"},
    {NULL},
};

static const char *const bench[] = {"16384x32_k4", "16384x128_k8", NULL};

const spec spec_moe_plan_fwd = {
    .name = "moe_plan_fwd",
    .cases = cases,
    .bench = bench,
    .dtypes = TGI_BIT_F32,
    .fill = fill,
    .free_extent = free_extent,
};
