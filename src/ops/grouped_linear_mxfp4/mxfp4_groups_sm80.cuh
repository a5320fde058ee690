/**
 * A group of 32 columns of a panel, multiplied by tensor cores with rows of x, eight at a time.
 *
 * The weight is the left operand: lane 4 g + q has line q of four rows of the panel, which are
 * columns 8 q to 8 q + 7 of each; rows g and g + 8 of a product's 16 are the first and second of
 * them, or the third and fourth. Codes j and j + 4 of a word are a pair, so elements j and j + 4 of
 * the lane's eight of x are one, too. A group's products are added by themselves, then scaled, in
 * f32.
 */
#ifndef TGI_OPS_MXFP4_GROUPS_SM80_CUH
#define TGI_OPS_MXFP4_GROUPS_SM80_CUH

#include "cuda/reduce.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_codes_sm80.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_weight.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** A lane's part of a group: of rows g, g + 8, g + 16 and g + 24. */
struct group_words {
  uint32_t word[4], scale[4];

  /** Codes j and j + 4 of row i. */
  template <typename T> __device__ __forceinline__ uint32_t pair(int i, int j) const
  {
    return code_pair<T>(word[i], j);
  }

  __device__ __forceinline__ float scale_at(int i) const
  {
    return scale_of(scale[i]);
  }

  /** What sums of products with pairs are short of. */
  template <typename T> static __device__ __forceinline__ float factor()
  {
    return kCodeFactor<T>;
  }
};

/** Zeros if there is no such group. The packed weight is aligned to 4 bytes. */
__device__ __forceinline__ group_words read_group(const uint8_t *group, bool exists)
{
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  group_words w = {};
  if (exists) {
    const uint8_t *line = group + TGI_PANEL_ROWS + q * TGI_MXFP4_LINE_BYTES;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      w.word[i] = *reinterpret_cast<const uint32_t *>(line + 4 * (g + 8 * i));
      w.scale[i] = group[g + 8 * i];
    }
  }
  return w;
}

/** total[m][n] += the group's products of 16 rows of the panel with rows 8 n .. of x, of which
 * load(n, words) gives the lane's eight elements of row 8 n + g. */
template <typename T, int kRowTilesOf, typename Words, typename Load>
__device__ __forceinline__ void add_group_products(float (&total)[2][kRowTilesOf][4],
                                                   const Words &w, const Load &load)
{
  uint32_t low[2][4], high[2][4]; /* pairs 0 and 1, 2 and 3, of the lane's two rows each */
  float scale[4];
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      low[m][i] = w.template pair<T>(2 * m + i % 2, i / 2);
      high[m][i] = w.template pair<T>(2 * m + i % 2, 2 + i / 2);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    scale[i] = w.scale_at(i);
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
        total[m][n][i] =
            fmaf(scale[2 * m + i / 2], d[i] * Words::template factor<T>(), total[m][n][i]);
      }
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
