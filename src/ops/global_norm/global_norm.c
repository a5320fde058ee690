#include "ops/kernels.h"

void tgi_global_norm_fwd_check(tgi_call *call, const tg_global_norm_fwd_args *a)
{
  TGI_WANT_SHAPE(call, a, norm, 1);
  TGI_WANT_SHAPE(call, a, clip, 1);
  if (tgi_present(&a->clip)) {
    tgi_want_positive(call, "max_norm", (double)a->max_norm);
  }
}
