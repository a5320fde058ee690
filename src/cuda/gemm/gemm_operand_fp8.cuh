/**
 * Weights packed by tg_linear_fp8_pack as operands of gemm_quantised_sm80.cuh.
 *
 * Sign and magnitude of a code go to the top of the sign, and of the exponent and mantissa. What
 * they mean there is the value times 2^-120 in bf16, which a multiplication takes back, and times
 * 2^-8 in f16, which goes to the sums: tensor cores read denormal f16 exactly. NaN needs nothing:
 * a block of columns that has one has NaN for a scale.
 */
#ifndef TGI_CUDA_GEMM_OPERAND_FP8_CUH
#define TGI_CUDA_GEMM_OPERAND_FP8_CUH

#include "cuda/gemm/gemm_quantised_sm80.cuh"

extern "C" {
#include "ops/linear_fp8/linear_fp8_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

class fp8_operand
{
public:
  static constexpr int kMostStageBytes = TGI_FP8_BLOCK_BYTES;
  static constexpr bool kScaled = true, kOnlyFinite = false;
  static constexpr int kWords = 8;
  template <typename T> static constexpr int kFactor = kIsBf16<T> ? 1 : 256;
  static_assert(TGI_FP8_BLOCK == kChunk, "a chunk has one scale a row");

  __device__ explicit fp8_operand(const quantised_product &) {}

  __device__ bool needs_header() const
  {
    return false;
  }

  __device__ bool read_header(const quantised_product &p, bool recorder)
  {
    return packed_header_fits(p.w, recorder);
  }

  /** Of a step's 32 lines, one for each column, line 8 q + i goes to place 4 i + q: what the lanes
   * of a warp read together lies together. */
  template <int kThreads>
  __device__ void copy(const quantised_product &p, int64_t panel, int64_t chunk, uint32_t to,
                       int thread) const
  {
    constexpr int kHeadUnits = TGI_FP8_HEAD_BYTES / 16;
    const int64_t at = chunk * TGI_FP8_BLOCK_BYTES, left = p.panel_bytes - at;
    const int units = (int)(left < TGI_FP8_BLOCK_BYTES ? left : TGI_FP8_BLOCK_BYTES) / 16;
    const uint8_t *from = p.w.data + TGI_PACKED_HEADER_BYTES + panel * p.panel_bytes + at;
#pragma unroll 4
    for (int u = thread; u < units; u += kThreads) {
      const int line = (u - kHeadUnits) / 2;
      const int place = (line & ~31) | (line & 7) << 2 | (line >> 3 & 3);
      copy_chunk(to + 16 * (u < kHeadUnits ? u : kHeadUnits + 2 * place + (u & 1)), from + 16 * u,
                 true);
    }
  }

  __device__ static bool begins_group(int)
  {
    return false;
  }

  __device__ static bool ends_group(int)
  {
    return false; /* but the chunk does */
  }

  /** Column 8 q + i of a step, rows 4 g .. : word i. */
  __device__ void load(uint32_t (&words)[kWords], uint32_t w, int step, int g, int q) const
  {
    const uint32_t from = w + TGI_FP8_HEAD_BYTES + (kStep * step + q) * TGI_PANEL_ROWS + 4 * g;
#pragma unroll
    for (int i = 0; i < kWords; i++) {
      words[i] = load_shared(from + 4 * i * TGI_PANEL_ROWS);
    }
  }

  template <typename T> __device__ static void zero_points(uint32_t (&)[4], uint32_t, int, int) {}

  template <typename T>
  __device__ static void widen(uint32_t (&a)[2][2][4], const uint32_t (&words)[kWords],
                               const uint32_t (&)[4])
  {
#pragma unroll
    for (int i = 0; i < 4; i++) { /* columns 2 i and 2 i + 1 */
#pragma unroll
      for (int r = 0; r < 4; r++) {
        /* the codes to the tops of the halves */
        const uint32_t top = __byte_perm(words[2 * i], words[2 * i + 1], (4 + r) << 12 | r << 4);
        uint32_t both = top & 0x80008000u;
        if constexpr (kIsBf16<T>) {
          both |= top >> 4 & 0x07f007f0u;
          both = multiply_add_pair<T>(both, 0x7b807b80u, 0x80008000u);
        } else {
          both |= top >> 1 & 0x3f803f80u;
        }
        a[i / 2][r / 2][r % 2 + i % 2 * 2] = both;
      }
    }
  }

  __device__ void scales(float (&scale)[4], uint32_t w, int, int g) const
  {
    uint32_t bits[4];
    load_shared(bits, w + 16 * g);
#pragma unroll
    for (int r = 0; r < 4; r++) {
      scale[r] = __uint_as_float(bits[r]);
    }
  }

  __device__ float finish(const quantised_product &, int64_t, float sum) const
  {
    return sum;
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
