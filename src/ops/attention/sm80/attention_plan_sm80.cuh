/** Attention by mma.sync: conditions on a call and on a GPU that the plans of both directions
 * share. */
#ifndef TGI_OPS_ATTENTION_PLAN_SM80_CUH
#define TGI_OPS_ATTENTION_PLAN_SM80_CUH

#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Bytes of shared memory of a block: 8.0 has kMediumShared; 9.0 and 10.0 have more than
 * kLargeShared; 8.6, 8.9 and 12.0 have 99 KiB. */
constexpr int kMediumShared = 163 << 10, kLargeShared = 200 << 10;

/** True if the call computes f32 in TF32. */
template <typename Args> bool allows_tf32(const Args *a)
{
  return a->allow_tf32 && a->q.dtype == TG_F32;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
