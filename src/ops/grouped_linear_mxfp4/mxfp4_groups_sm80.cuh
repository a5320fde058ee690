/**
 * A group of 32 columns of a panel, multiplied by tensor cores with rows of x, eight at a time.
 *
 * The weight is the left operand: lane 4 g + q reads line q of rows 4 g to 4 g + 3 of the panel,
 * 16 bytes, which are columns 8 q to 8 q + 7 of each. Rows g and g + 8 of a product's 16 are the
 * panel's 4 g + 2 m and 4 g + 2 m + 1, m = 0 or 1. Codes j and j + 4 of a word are a pair, so
 * elements j and j + 4 of the lane's eight of x are one, too. A group's products are added by
 * themselves, then scaled, in f32.
 */
#ifndef TGI_OPS_MXFP4_GROUPS_SM80_CUH
#define TGI_OPS_MXFP4_GROUPS_SM80_CUH

#include "cuda/reduce.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_codes_sm80.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_weight.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** A lane's part of a group: of four rows a word each, and a byte of the scales. */
struct group_words {
  uint32_t word[4], scales;
};

/** The row of a panel that element i of the sums of m is of. */
__device__ __forceinline__ int panel_row(int m, int i)
{
  return threadIdx.x % kWarp / 4 * 4 + 2 * m + i / 2;
}

/** Where a lane's part of a group lies. */
struct group_place {
  const uint8_t *words, *scales;

  __device__ __forceinline__ explicit group_place(const uint8_t *group)
  {
    const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
    words = group + TGI_PANEL_ROWS + q * TGI_MXFP4_LINE_BYTES + 16 * g;
    scales = group + 4 * g;
  }

  __device__ __forceinline__ void skip(int bytes)
  {
    words += bytes;
    scales += bytes;
  }
};

/** Of a packed weight that is aligned to 16 bytes. Evicted first: few rows of x are to stay in the
 * first-level cache. */
__device__ __forceinline__ group_words read_group(const group_place &at, int bytes)
{
  const uint4 words = __ldcs(reinterpret_cast<const uint4 *>(at.words + bytes));
  return {{words.x, words.y, words.z, words.w},
          __ldcs(reinterpret_cast<const uint32_t *>(at.scales + bytes))};
}

/** total[m][n] += the group's products of 16 rows of the panel with rows 8 n .. of x, of which
 * load(n, words) gives the lane's eight elements of row 8 n + g. */
template <typename T, int kRowTilesOf, typename Load>
__device__ __forceinline__ void add_group_products(float (&total)[2][kRowTilesOf][4],
                                                   const group_words &w, const Load &load)
{
  uint32_t low[2][4], high[2][4]; /* pairs 0 and 1, 2 and 3, of the lane's two rows each */
  float scale[4];
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      low[m][i] = code_pair<T>(w.word[2 * m + i % 2], i / 2);
      high[m][i] = code_pair<T>(w.word[2 * m + i % 2], 2 + i / 2);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    scale[i] = scale_at(w.scales, i);
  }
#pragma unroll
  for (int n = 0; n < kRowTilesOf; n++) {
    uint32_t x[4];
    load(n, x);
    const uint32_t b0 = pick_bytes(x[0], x[2], 0x5410), b1 = pick_bytes(x[0], x[2], 0x7632);
    const uint32_t b2 = pick_bytes(x[1], x[3], 0x5410), b3 = pick_bytes(x[1], x[3], 0x7632);
#pragma unroll
    for (int m = 0; m < 2; m++) {
      float d[4];
      multiply_small<T>(d, low[m], b0, b1, false);
      multiply_small<T>(d, high[m], b2, b3, true);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        total[m][n][i] = fmaf(scale[2 * m + i / 2], d[i] * kCodeFactor<T>, total[m][n][i]);
      }
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
