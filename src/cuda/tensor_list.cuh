/**
 * Lists of tensors in one launch: a table of as many tensors as a kernel's parameters hold, passed
 * by value, and the block's way to its tensor. Long lists take several launches.
 */
#ifndef TGI_CUDA_TENSOR_LIST_CUH
#define TGI_CUDA_TENSOR_LIST_CUH

#include "cuda/launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Tensors of one launch: kRoom entries of a type with the field `first`, the number of its first
 * block; entries follow each other by it, and tensors without elements have none. */
template <typename Entry, int kRoom> struct tensor_table {
  Entry entry[kRoom];
  int count;
  int64_t blocks;
};

/** The entry that block number `block` belongs to. */
template <typename Entry, int kRoom>
__device__ __forceinline__ const Entry &entry_of(const tensor_table<Entry, kRoom> &t, int64_t block)
{
  int low = 0, high = t.count; /* it is in [low, high) */
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (t.entry[middle].first <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return t.entry[low];
}

} // namespace TGI_CUDA_ENTRY

#endif
