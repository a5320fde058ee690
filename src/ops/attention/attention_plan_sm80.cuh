/** Attention by mma.sync: what the plans of both directions ask of a call and of a GPU. */
#ifndef TGI_OPS_ATTENTION_PLAN_SM80_CUH
#define TGI_OPS_ATTENTION_PLAN_SM80_CUH

#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Shared memory of a block: 8.0 has it, 9.0 has more, 8.6, 8.9 and 12.0 have 99 KiB. */
constexpr int kMediumShared = 163 << 10;

/** True if the tensor's rows are 16-byte vectors of 16-bit elements. */
inline bool has_vectors(const tg_tensor *t)
{
  bool taken =
      (t->dtype == TG_F16 || t->dtype == TG_BF16) && t->shape[3] % 8 == 0 && rows_aligned(t, 16);
  for (int axis = 0; axis < 4; axis++) {
    taken = taken && t->shape[axis] > 0;
  }
  return taken;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
