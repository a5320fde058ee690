/** Lists of integers, i32 or i64: ids, targets, positions. */
#ifndef TGI_CUDA_INT_LIST_CUH
#define TGI_CUDA_INT_LIST_CUH

#include "cuda/launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** By value to kernels; data NULL: an absent tensor. */
struct int_list {
  void *data;
  bool wide; /* i64 */
};

inline int_list int_list_of(const tg_tensor *t)
{
  return {t->data, t->dtype == TG_I64};
}

__device__ __forceinline__ int64_t int_at(int_list list, int64_t i)
{
  return list.wide ? static_cast<const int64_t *>(list.data)[i]
                   : static_cast<const int32_t *>(list.data)[i];
}

__device__ __forceinline__ void put_int(int_list list, int64_t i, int64_t v)
{
  if (list.wide) {
    static_cast<int64_t *>(list.data)[i] = v;
  } else {
    static_cast<int32_t *>(list.data)[i] = (int32_t)v;
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
