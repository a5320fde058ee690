/** What attention's kernels by mma.sync share: which blocks a warp works on, how keys come to
 * shared memory, and how results leave it. */
#ifndef TGI_OPS_ATTENTION_TILES_SM80_CUH
#define TGI_OPS_ATTENTION_TILES_SM80_CUH

#include "cuda/row_tile.cuh"
#include "ops/attention/attention_work.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A warp's blocks are below .. above - 1 of its tile's. Every row of it sees rows all_from ..
 * all_to - 1 of the other side. */
struct alignas(16) warp_range {
  int below, above, all_from, all_to;

  __device__ __forceinline__ bool hides(int low, int high) const
  {
    return low < all_from || high > all_to;
  }
};

/** Of the `count` rows of a place from `first` on. */
__device__ __forceinline__ warp_range range_of(key_rule rule, const query_place &x, int first,
                                               int count, int keys)
{
  const int rows = min(x.rows - first, count);
  const key_span top = span_of(rule, x, first), bottom = span_of(rule, x, first + rows - 1);
  warp_range w = {top.low / keys, (bottom.high + keys - 1) / keys, bottom.low, top.high};
  if (rows <= 0 || w.above <= w.below || x.high_block <= x.low_block) {
    w.below = w.above = x.low_block;
  }
  return w;
}

/** Where the keys and values of a place's sequence and head begin, and which blocks of them are
 * whole: nothing is asked row by row there. In shared memory, for registers are for sums. */
struct alignas(16) key_rows {
  const uint16_t *k, *v;
  int whole_from, whole_to;

  __device__ __forceinline__ bool whole(int block) const
  {
    return block >= whole_from && block < whole_to;
  }
};

/** By one thread. `full`: rows have as many elements as products take. */
__device__ __forceinline__ void put_key_rows(const heads_view<const uint16_t> &k,
                                             const heads_view<const uint16_t> &v, int kv_head,
                                             const query_place &x, int keys, bool full,
                                             key_rows *to)
{
  to->k = k.data + k.at(x.k_index, x.k_row, kv_head);
  to->v = v.data + v.at(x.k_index, x.k_row, kv_head);
  to->whole_from = (x.first + keys - 1) / keys;
  to->whole_to = full ? x.end / keys : 0;
}

/** Copies a block of keys, or values, of a place's sequence, whose first row is at `from`. */
template <int kCols, int kKeys, int kThreads>
__device__ __forceinline__ void copy_keys(uint16_t *to, const uint16_t *from, int64_t step,
                                          int width, const query_place &x, int block, bool whole)
{
  const int row = block * kKeys;
  if (whole) {
    copy_whole_rows<kCols, kKeys, kThreads>(shared_address(to), from, step, row);
  } else {
    copy_rows<kCols, kKeys, kThreads>(shared_address(to), from + row * step, step, x.first - row,
                                      x.end - row, width, from);
  }
}

/** Stores `rows` rows of a warp's out of its own shared memory; of kParts parts of their elements
 * one alone. */
template <int kCols, int kParts = 1>
__device__ __forceinline__ void store_rows(const heads_view<uint16_t> &to, int index, int row,
                                           int head, int rows, int width, uint32_t page,
                                           int part = 0)
{
  using tile = row_tile<kCols>;
  constexpr int kChunks = tile::kChunks / kParts;
  uint16_t *const first = to.data + to.at(index, row, head);
#pragma unroll 1
  for (int e = threadIdx.x % kWarp; e < rows * kChunks; e += kWarp) {
    const int r = e / kChunks, chunk = part * kChunks + e % kChunks;
    if (chunk * 8 < width) {
      uint32_t w[4];
      load_shared(w, page + tile::at(r, chunk));
      store_words(first + r * to.step[1] + chunk * 8, w);
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
