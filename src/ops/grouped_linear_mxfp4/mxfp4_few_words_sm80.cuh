/**
 * A group of a panel as calls of few rows of x read and widen it, who are bound by instructions: a
 * line's words of four neighbouring rows in one load, their scales in another.
 *
 * A product of a masked word with two powers of 2 is both shifts that make sign and magnitude of a
 * bf16. What it is short of is made up by half here, and by a factor of 2 in the scales, which then
 * are normal numbers with an exponent field of the byte plus 1.
 */
#ifndef TGI_OPS_MXFP4_FEW_WORDS_SM80_CUH
#define TGI_OPS_MXFP4_FEW_WORDS_SM80_CUH

#include "ops/grouped_linear_mxfp4/mxfp4_groups_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** A lane's part of a group: of rows 4 g to 4 g + 3 a word each, and a byte of the scales. */
struct few_words {
  uint32_t word[4], scales;

  /** Codes j and j + 4 of row i; in bf16 half of them. */
  template <typename T> __device__ __forceinline__ uint32_t pair(int i, int j) const
  {
    if constexpr (kIsBf16<T>) {
      const uint32_t codes =
          (j < 2 ? word[i] : word[i] >> 8) & (j % 2 == 0 ? 0x000f000fu : 0x00f000f0u);
      return multiply_bf16(codes * (j % 2 == 0 ? 0x1040u : 0x0104u) & 0x81c081c0u, 0x7e007e00u);
    } else {
      return code_pair<T>(word[i], j);
    }
  }

  /** 2^(s - 126), s the scale of row i. */
  __device__ __forceinline__ float scale_at(int i) const
  {
    const uint32_t byte = i < 3 ? scales & 0xffu << 8 * i : scales >> 24;
    uint32_t bits;
    asm("mad.lo.u32 %0, %1, %2, %3;"
        : "=r"(bits)
        : "r"(byte), "r"(0x800000u >> 8 * (i % 3)), "r"(0x800000u));
    return __uint_as_float(bits);
  }

  template <typename T> static __device__ __forceinline__ float factor()
  {
    return kIsBf16<T> ? 1.0f : kCodeFactor<T> / 2;
  }
};

/** The row of a panel that element i of the sums of m is of. */
__device__ __forceinline__ int few_panel_row(int m, int i)
{
  return threadIdx.x % kWarp / 4 * 4 + 2 * m + i / 2;
}

/** Where a lane's part of a group lies. */
struct few_place {
  const uint8_t *words, *scales;

  __device__ __forceinline__ explicit few_place(const uint8_t *group)
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
__device__ __forceinline__ few_words read_few(const few_place &at, int bytes)
{
  const uint4 words = __ldcs(reinterpret_cast<const uint4 *>(at.words + bytes));
  return {{words.x, words.y, words.z, words.w},
          __ldcs(reinterpret_cast<const uint32_t *>(at.scales + bytes))};
}

} // namespace TGI_CUDA_ENTRY

#endif
