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

/** True if the tensor's rows are 16-byte vectors of 16-bit elements, or with `tf32` of f32. */
inline bool has_vectors(const tg_tensor *t, bool tf32 = false)
{
  const bool half = t->dtype == TG_F16 || t->dtype == TG_BF16;
  bool taken = (tf32 ? t->dtype == TG_F32 : half) && t->shape[3] % 8 == 0 && rows_aligned(t, 16);
  for (int axis = 0; axis < 4; axis++) {
    taken = taken && t->shape[axis] > 0;
  }
  return taken;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
