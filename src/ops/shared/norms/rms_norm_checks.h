/**
 * Checks of the weight that rms_norm and the ops fused with it share, in both directions.
 */
#ifndef TGI_OPS_RMS_NORM_CHECKS_H
#define TGI_OPS_RMS_NORM_CHECKS_H

#include "ops/kernels.h"

/** `rows` is the normalised tensor, or a summand of it. */
static inline void tgi_rms_norm_check_weight(tgi_call *call, const tg_tensor *rows,
                                             const tg_tensor *weight, float weight_offset)
{
  tgi_want_shape(call, "weight", weight, 1, &rows->shape[1]);
  tgi_want_dtype(call, "weight", weight, tgi_like_or_f32(rows));
  tgi_want_finite(call, "weight_offset", weight_offset);
  call->empty = rows->shape[0] == 0 || rows->shape[1] == 0;
}

#endif
