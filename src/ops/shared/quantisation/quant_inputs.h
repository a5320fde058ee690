/** Inputs that are hard on a quantiser; for specs. */
#ifndef TGI_OPS_QUANT_INPUTS_H
#define TGI_OPS_QUANT_INPUTS_H

#include "ops/spec.h"

/** Quotients halfway between integers: the ends give a scale of 1 + 2^-14 in each form. */
static inline double spec_tie(tgi_shaped *shaped, spec_rng *rng)
{
  const bool asymmetric = tgi_present(tgi_shaped_tensor(shaped, "zero_point"));
  const bool bytes = tgi_shaped_tensor(shaped, "q")->dtype == TG_I8;
  const double end = !bytes ? 7.5 : asymmetric ? 127.5 : 127;
  const int64_t steps = bytes ? 127 : 7, k = spec_below(rng, 2 * steps) - steps;
  return spec_below(rng, 9) ? ((double)k + 0.5) * 0x1.0004p0 : k % 2 ? end : -end;
}

/** Sets slot x as the case says. */
static inline void spec_fill_quantized(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x");
  const int64_t n = tgi_numel(x);
  const double most = x->dtype == TG_F16    ? 65504
                      : x->dtype == TG_BF16 ? 0x1.fep127
                                            : 0x1.fffffep127;
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "constant")) {
    spec_set_all(shaped, "x", 0.7);
  } else if (spec_is(c, "negative constant")) {
    spec_set_all(shaped, "x", -3.3);
  } else if (spec_is(c, "positive")) {
    spec_scale(shaped, "x", 0.1, 8);
  } else if (spec_is(c, "negative")) {
    spec_scale(shaped, "x", 0.1, -8);
  } else if (spec_is(c, "denormal")) {
    spec_scale(shaped, "x", x->dtype == TG_F16 ? 1e-6 : 1e-39, 0);
  }
  for (int64_t i = 0; i < n; i++) {
    if (spec_is(c, "extremes")) {
      spec_set(shaped, "x", i,
               i % 7 == 0   ? -most
               : i % 5 == 0 ? most
                            : most / 3 * spec_normal(rng) / 5);
    } else if (spec_is(c, "ties")) {
      spec_set(shaped, "x", i, spec_tie(shaped, rng));
    } else if (spec_is(c, "sparse") && i % 97) { /* most groups hold zeros alone */
      spec_set(shaped, "x", i, 0);
    } else if (spec_is(c, "not finite") && i % 131 == 77) {
      const double bad[] = {NAN, (double)INFINITY, (double)-INFINITY};
      spec_set(shaped, "x", i, bad[i % 3]);
    }
  }
}

#endif
