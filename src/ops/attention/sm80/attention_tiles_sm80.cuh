/** Attention by mma.sync: what the kernels share. Which blocks a warp computes, how keys are copied
 * to shared memory, and how results are stored through it. */
#ifndef TGI_OPS_ATTENTION_TILES_SM80_CUH
#define TGI_OPS_ATTENTION_TILES_SM80_CUH

#include "cuda/rows/row_tile.cuh"
#include "ops/attention/cuda/attention_hidden.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A warp computes the blocks below .. above - 1 of its tile. All its rows see rows all_from ..
 * all_to - 1 of the other side. */
struct alignas(16) warp_range {
  int below, above, all_from, all_to;

  __device__ __forceinline__ bool hides(int low, int high) const
  {
    return low < all_from || high > all_to;
  }
};

/** The range of the `count` rows of a place from `first` on. */
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

/** A tile's rows of kCols elements. */
template <typename T, int kCols> using tile_of = row_tile<kHalves<T> * kCols>;

/** Where the keys and values of a place begin, and which of their blocks are whole: copies of these
 * skip the check of each row. In shared memory, because registers are for sums. */
struct alignas(16) key_rows {
  const uint16_t *k, *v;
  int whole_from, whole_to;

  __device__ __forceinline__ bool whole(int block) const
  {
    return block >= whole_from && block < whole_to;
  }
};

/** Written by one thread. `full`: rows have as many elements as products cover. */
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
template <typename T, int kCols, int kKeys, int kThreads>
__device__ __forceinline__ void copy_keys(uint32_t to, const uint16_t *from, int64_t step,
                                          int width, const query_place &x, int block, bool whole)
{
  constexpr int kWords = kHalves<T> * kCols;
  const int row = block * kKeys;
  if (whole) {
    copy_whole_rows<kWords, kKeys, kThreads>(to, from, step, row);
  } else {
    copy_rows<kWords, kKeys, kThreads>(to, from + row * step, step, x.first - row, x.end - row,
                                       kHalves<T> * width, from);
  }
}

/** put_rows of f32. */
template <int kCols>
__device__ __forceinline__ void put_rows_f32(uint32_t page, int row, const float (&d)[kCols / 2],
                                             float by, bool (&bad)[2])
{
  const int g = threadIdx.x % kWarp / 4, q = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float zero = 0;
#pragma unroll
    for (int i = 0; i < kCols / 16; i++) { /* a chunk of four columns */
      uint32_t w[4];
#pragma unroll
      for (int t = 0; t < 4; t++) {
        const float v = d[i / 2 * 16 + 4 * t + 2 * r + i % 2] * by;
        zero = fmaf(v, 0.0f, zero);
        w[t] = __float_as_uint(v);
      }
      const int chunk = i / 2 * 8 + 2 * q + i % 2;
      store_shared(page + row_tile<2 * kCols>::at(row + g + 8 * r, chunk), w[0], w[1], w[2], w[3]);
    }
    bad[r] = zero != 0;
  }
}

/** Writes a warp's accumulators of 16 rows (layout of add_rows_small), times `by` and rounded, to
 * its own shared memory from row `row` on: one of kParts parts of rows of kCols elements. bad[r]:
 * row lane / 4 + 8 r has a NaN or an infinity there. */
template <typename T, int kCols, int kParts = 1>
__device__ __forceinline__ void put_rows(uint32_t page, int row, int part,
                                         const float (&d)[kCols / kParts / 2], float by,
                                         bool (&bad)[2])
{
  if constexpr (kIsTf32<T>) {
    static_assert(kParts == 1, "of 16 bits alone");
    put_rows_f32<kCols>(page, row, d, by, bad);
  } else {
    const int lane = threadIdx.x % kWarp;
    uint32_t zero[2] = {0, 0}; /* sum of 0 times all elements: NaN if one is not finite */
#pragma unroll
    for (int i = 0; i < kCols / kParts / 8; i++) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const uint32_t pair = round_pair<T>(d[4 * i + 2 * r] * by, d[4 * i + 2 * r + 1] * by);
        zero[r] = add_zero_times<T>(zero[r], pair);
        store_shared(
            page + row_tile<kCols>::at(row + lane / 4 + 8 * r, part * kCols / kParts / 8 + i) +
                lane % 4 * 4,
            pair);
      }
    }
    bad[0] = (zero[0] & 0x7fff7fff) != 0;
    bad[1] = (zero[1] & 0x7fff7fff) != 0;
  }
}

/** Writes one of kParts parts of a row, times `by`; each lane has a chunk of the row. */
template <typename T, int kCols, int kParts = 1>
__device__ __forceinline__ void put_row(uint32_t page, int row, int part, const float (&d)[kChunk],
                                        float by)
{
  using tile = tile_of<T, kCols>;
  const int lane = threadIdx.x % kWarp;
  if (lane / (kCols / kChunk / kParts) == part) {
    if constexpr (kIsTf32<T>) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        store_shared(page + tile::at(row, 2 * lane + i), __float_as_uint(d[4 * i] * by),
                     __float_as_uint(d[4 * i + 1] * by), __float_as_uint(d[4 * i + 2] * by),
                     __float_as_uint(d[4 * i + 3] * by));
      }
    } else {
      store_shared(page + tile::at(row, lane), round_pair<T>(d[0] * by, d[1] * by),
                   round_pair<T>(d[2] * by, d[3] * by), round_pair<T>(d[4] * by, d[5] * by),
                   round_pair<T>(d[6] * by, d[7] * by));
    }
  }
}

/** Stores `rows` rows of a warp from its shared memory, `width` elements of each; of kParts parts
 * only `part`. */
template <typename T, int kCols, int kParts = 1>
__device__ __forceinline__ void store_rows(const heads_view<uint16_t> &to, int index, int row,
                                           int head, int rows, int width, uint32_t page,
                                           int part = 0)
{
  using tile = tile_of<T, kCols>;
  constexpr int kChunks = tile::kChunks / kParts;
  uint16_t *const first = to.data + to.at(index, row, head);
#pragma unroll 1
  for (int e = threadIdx.x % kWarp; e < rows * kChunks; e += kWarp) {
    const int r = e / kChunks, chunk = part * kChunks + e % kChunks;
    if (chunk * 8 < kHalves<T> * width) {
      uint32_t w[4];
      load_shared(w, page + tile::at(r, chunk));
      store_words(first + r * to.step[1] + chunk * 8, w);
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
