/**
 * The loops of the gated activations' references: element by element, whichever form gate and up
 * have. An op brings its formulas as functions of one element.
 */
#ifndef TGI_OPS_GATED_REF_H
#define TGI_OPS_GATED_REF_H

#include "core/values/half.h"
#include "ops/shared/gated/gated.h"

/** args: of the op's direction. */
typedef double tgi_gated_value(tg_dtype t, double gate, double up, const void *args);
typedef void tgi_gated_gradients(tg_dtype t, double gate, double up, const void *args,
                                 double *dgate, double *dup);

static inline double gated_get(const tg_tensor *t, int64_t i, int64_t j)
{
  return tgi_load(tgi_row(t, i), t->dtype, j * tgi_stride(t, 1));
}

static inline void gated_set(const tg_tensor *t, int64_t i, int64_t j, double v)
{
  if (tgi_present(t)) {
    tgi_store(tgi_row(t, i), t->dtype, j * tgi_stride(t, 1), v);
  }
}

static inline void tgi_gated_fwd_ref(tgi_gate_up in, const tg_tensor *y, tgi_gated_value *value,
                                     const void *args)
{
  tg_tensor gate, up;
  tgi_gate_up_split(in, &gate, &up);
  for (int64_t i = 0; i < y->shape[0]; i++) {
    for (int64_t j = 0; j < y->shape[1]; j++) {
      gated_set(y, i, j, value(y->dtype, gated_get(&gate, i, j), gated_get(&up, i, j), args));
    }
  }
}

/** `gradients` gives the factors of dy. */
static inline void tgi_gated_bwd_ref(const tg_tensor *dy, tgi_gate_up in, tgi_gate_up out,
                                     tgi_gated_gradients *gradients, const void *args)
{
  tg_tensor gate, up, dgate, dup;
  tgi_gate_up_split(in, &gate, &up);
  tgi_gate_up_split(out, &dgate, &dup);
  for (int64_t i = 0; i < dy->shape[0]; i++) {
    for (int64_t j = 0; j < dy->shape[1]; j++) {
      const double d = gated_get(dy, i, j);
      double dg, du;
      gradients(dy->dtype, gated_get(&gate, i, j), gated_get(&up, i, j), args, &dg, &du);
      gated_set(&dgate, i, j, d * dg);
      gated_set(&dup, i, j, d * du);
    }
  }
}

#endif
