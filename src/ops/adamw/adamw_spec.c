#include "core/values/half.h"
#include "ops/spec.h"

/* Values such as training has: small gradients, a non-negative second moment. */
static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_adamw_step_args *a = (const void *)shaped->args.bytes;
  (void)rng;
  for (int64_t i = 0; i < a->num_tensors; i++) {
    const tg_tensor *g = &a->grads[i], *m = &a->exp_avg[i], *v = &a->exp_avg_sq[i];
    for (int64_t k = 0; k < tgi_numel(g); k++) {
      const double root = tgi_load(v->data, v->dtype, k);
      tgi_store(g->data, g->dtype, k, 0.1 * tgi_load(g->data, g->dtype, k));
      tgi_store(m->data, m->dtype, k, 0.1 * tgi_load(m->data, m->dtype, k));
      tgi_store(v->data, v->dtype, k, 0.01 * (root * root + 0.25));
      if (spec_is(c, "first step")) {
        tgi_store(m->data, m->dtype, k, 0);
        tgi_store(v->data, v->dtype, k, 0);
      } else if (spec_is(c, "zero gradient")) {
        tgi_store(g->data, g->dtype, k, 0);
      } else if (spec_is(c, "one bad gradient") && k == 3) {
        tgi_store(g->data, g->dtype, k, NAN);
      }
    }
    for (int64_t k = 0; a->master && k < tgi_numel(g); k++) { /* params are rounded master */
      const double w = tgi_load(a->master[i].data, TG_F32, k);
      tgi_store(a->params[i].data, a->params[i].dtype, k, w);
    }
  }
  if (tgi_present(&a->clip)) {
    spec_set(shaped, "clip", 0, 0.3);
  }
}

static const spec_case cases[] = {
    {"0x5_t3"},
    {"1x1"},
    {"1x15_t2_mixed_scale"},
    {"3x17_step1", "first step"},
    {"3x17_step1_sf32_nodecay", "first step"},
    {"7x48_t5_clip"},
    {"7x49_eps"},
    {"5x127_t12_mixed_clip_scale"},
    {"5x128_t9_sf32_gf32"},
    {"4x300_t4_master_sf32"},
    {"4x301_t4_master_mixed_gf32_clip"},
    {"3x1025_step100000"},
    {"3x1024_master_nodecay_step1000"},
    {"2x2049_sf32", "zero gradient"},
    {"1x33", "one bad gradient"},
    {"5x127_t3_nobeta_eps"},
    {"7x48_noeps_clip"},
    {"3x32769_t3"}, /* more than one chunk */
    {NULL},
};

static const char *const bench[] = {"50257x768_t12", "50257x768_t12_master_sf32", NULL};

static const spec_bad_scalar bad[] = {
    {"step", 0, TG_BAD_ARGUMENT},
    {"lr", -1, TG_BAD_ARGUMENT},
    {"lr", NAN, TG_BAD_ARGUMENT},
    {"beta1", 0, TG_BAD_ARGUMENT},
    {"beta1", 1, TG_BAD_ARGUMENT},
    {"beta2", 0, TG_BAD_ARGUMENT},
    {"beta2", 1, TG_BAD_ARGUMENT},
    {"beta2", NAN, TG_BAD_ARGUMENT},
    {"eps", 0, TG_BAD_ARGUMENT},
    {"weight_decay", -0.1, TG_BAD_ARGUMENT},
    {"weight_decay", INFINITY, TG_BAD_ARGUMENT},
    {"num_tensors", -1, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_adamw_step = {
    .name = "adamw_step",
    .cases = cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 1e-2,
    .bf16_ceiling = 5e-2,
    .fill = fill,
    .bad_scalars = bad,
};
