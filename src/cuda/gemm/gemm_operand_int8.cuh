/**
 * Weights packed by tg_linear_int8_pack as operands of gemm_quantised_sm80.cuh.
 *
 * A byte u becomes the float 2^23 + u in f32, or 1024 + u in f16, whose last bits it is; less that,
 * 128 and the zero point it is an integer of at most nine bits, exact in 16 bits. The scale is one
 * for a row and comes last.
 */
#ifndef TGI_CUDA_GEMM_OPERAND_INT8_CUH
#define TGI_CUDA_GEMM_OPERAND_INT8_CUH

#include "cuda/gemm/gemm_quantised_sm80.cuh"

extern "C" {
#include "ops/linear_int8/linear_int8_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

class int8_operand
{
public:
  static constexpr int kHeadBytes = TGI_INT8_PANEL_HEAD; /* the panel's, with each chunk */
  static constexpr int kMostStageBytes = kHeadBytes + kChunk * TGI_PANEL_ROWS;
  static constexpr bool kScaled = false, kOnlyFinite = true;
  static constexpr int kWords = 8;

  __device__ explicit int8_operand(const quantised_product &) {}

  __device__ bool needs_header() const
  {
    return false;
  }

  __device__ bool read_header(const quantised_product &p, bool recorder)
  {
    return packed_header_fits(p.w, recorder);
  }

  /** Pairs of units of 16 bytes change places from one pair of lines to the next, so that eight
   * lanes, which read a pair of units of every second line, read from all banks. */
  template <int kThreads>
  __device__ void copy(const quantised_product &p, int64_t panel, int64_t chunk, uint32_t to,
                       int thread) const
  {
    constexpr int kChunkBytes = kChunk * TGI_PANEL_ROWS, kHeadUnits = kHeadBytes / 16;
    const uint8_t *head = p.w.data + TGI_PACKED_HEADER_BYTES + panel * p.panel_bytes;
    const int64_t left = p.panel_bytes - TGI_INT8_PANEL_HEAD - chunk * kChunkBytes;
    const int units = (int)(left < kChunkBytes ? left : kChunkBytes) / 16;
    const uint8_t *lines = head + TGI_INT8_PANEL_HEAD + chunk * kChunkBytes;
#pragma unroll 4
    for (int u = thread; u < units; u += kThreads) {
      copy_chunk(to + kHeadBytes + place(16 * u), lines + 16 * u, true);
    }
    if (thread < kHeadUnits) {
      copy_chunk(to + 16 * thread, head + 16 * thread, true);
    }
  }

  __device__ static bool begins_group(int step)
  {
    return step == 0;
  }

  /** Columns 8 q .. of a step: two lines of four. Words r and 4 + r are row 4 g + r's. */
  __device__ void load(uint32_t (&words)[kWords], uint32_t w, int step, int g, int q) const
  {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t line[4];
      load_shared(line,
                  w + kHeadBytes + place((8 * step + 2 * q + i) * TGI_INT8_LINE_BYTES + 16 * g));
#pragma unroll
      for (int r = 0; r < 4; r++) {
        words[4 * i + r] = line[r];
      }
    }
  }

  /** What a byte's float is more than the weight, negative: in f32, or in pairs of f16. */
  template <typename T>
  __device__ void zero_points(uint32_t (&less)[4], uint32_t w, int, int g) const
  {
    uint32_t bits[4];
    load_shared(bits, w + 4 * TGI_PANEL_ROWS + 16 * g);
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const float v = __uint_as_float(bits[r]);
      less[r] = kIsBf16<T> ? __float_as_uint(-8388608.0f - v)
                           : round_pair<f16>(-1024.0f - v, -1024.0f - v);
    }
  }

  template <typename T>
  __device__ static void widen(uint32_t (&a)[2][2][4], const uint32_t (&words)[kWords],
                               const uint32_t (&less)[4])
  {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int r = i % 4;
#pragma unroll
      for (int pair = 0; pair < 2; pair++) {
        uint32_t both;
        if constexpr (kIsBf16<T>) {
          const float more = __uint_as_float(less[r]);
          const uint32_t low = __byte_perm(words[i], 0x4b000000u, 0x7440 + 2 * pair);
          const uint32_t high = __byte_perm(words[i], 0x4b000000u, 0x7441 + 2 * pair);
          both = round_pair<T>(__uint_as_float(low) + more, __uint_as_float(high) + more);
        } else {
          both = add_pair<T>(__byte_perm(words[i], 0x64646464u, pair ? 0x4342 : 0x4140), less[r]);
        }
        a[i / 4][r / 2][r % 2 + 2 * pair] = both;
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

  __device__ float finish(const quantised_product &p, int64_t o, float sum) const
  {
    const uint8_t *head = p.w.data + TGI_PACKED_HEADER_BYTES + o / TGI_PANEL_ROWS * p.panel_bytes;
    return sum * packed_float(head + o % TGI_PANEL_ROWS * 4, true);
  }

private:
  __device__ static int place(int byte)
  {
    return byte ^ (byte >> 8 & 3) << 5;
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
