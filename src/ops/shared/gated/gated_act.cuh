/** swiglu or swiglu_clamped of gate and up that are rounded to T, for kernels that compute it
 * beside a product: which one is known when they run. */
#ifndef TGI_OPS_GATED_ACT_CUH
#define TGI_OPS_GATED_ACT_CUH

#include "ops/shared/gated/swiglu_functions.cuh"

extern "C" {
#include "ops/shared/gated/gated_choice.h"
}

inline namespace TGI_CUDA_ENTRY
{

template <typename T> struct gated_act {
  bool clamped;
  clamps c;

  __device__ __forceinline__ float operator()(float gate, float up) const
  {
    if (clamped) {
      const clamped_forward<T, float> act = {c};
      return act(gate, up);
    }
    return swiglu_forward<T, float>()(gate, up);
  }
};

template <typename T> gated_act<T> gated_act_of(const tgi_gated_choice &choice, tg_dtype dtype)
{
  gated_act<T> act = {};
  act.clamped = choice.activation == TG_GATED_SWIGLU_CLAMPED;
  if (act.clamped) {
    act.c = clamps_of(dtype, choice.alpha, choice.limit);
  }
  return act;
}

} // namespace TGI_CUDA_ENTRY

#endif
