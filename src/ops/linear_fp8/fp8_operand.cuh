/**
 * Weights packed by tg_linear_fp8_pack as operands of quantised_sm80.cuh.
 *
 * Sign and magnitude of a code go to the top of the sign, and of the exponent and mantissa. What
 * they mean there is the value times 2^-120 in bf16, which a multiplication takes back, and times
 * 2^-8 in f16, which goes to the sums: tensor cores read denormal f16 exactly. NaN needs nothing:
 * a block of columns that has one has NaN for a scale.
 */
#ifndef TGI_OPS_FP8_OPERAND_CUH
#define TGI_OPS_FP8_OPERAND_CUH

#include "cuda/gemm/quantised/quantised_sm80.cuh"

extern "C" {
#include "ops/linear_fp8/linear_fp8_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** A chunk of a panel in shared memory: its scales, then 32 lines a step, one for each column: line
 * 8 q + i has place 4 i + q, so that what the lanes read together lies together. */
class fp8_operand
{
public:
  static constexpr int kMostStageBytes = TGI_FP8_BLOCK_BYTES;
  static constexpr bool kScaled = true, kOnlyFinite = false, kIntegers = false;
  static constexpr int kWords = 8, kSteps = kChunkSteps;
  template <typename T> static constexpr int kFactor = kIsBf16<T> ? 1 : 256;
  static_assert(TGI_FP8_BLOCK == kChunk, "a chunk has one scale a row");

  template <int kTiles> using rows = rows_of_x<kTiles>;
  using quads = void; /* their stages leave no room for four panels */

  __device__ explicit fp8_operand(const quantised_product &p) : bytes_of_panel(p.panel_bytes) {}

  __device__ bool needs_header() const
  {
    return false;
  }

  __device__ bool read_header(const quantised_product &p, const uint8_t *header, bool recorder)
  {
    return packed_header_fits(p.w, header, recorder);
  }

  template <int kPanels>
  __device__ __forceinline__ void begin(const quantised_product &p, int64_t panel, int chunk)
  {
    block = p.w.data + TGI_PACKED_HEADER_BYTES + panel * bytes_of_panel +
            (int64_t)chunk * TGI_FP8_BLOCK_BYTES + threadIdx.x % kWarp * 16;
    const int line = threadIdx.x % kWarp / 2;
    mine = held(TGI_FP8_HEAD_BYTES + ((line & 7) << 2 | line >> 3) * TGI_PANEL_ROWS +
                threadIdx.x % 2 * 16);
  }

  /** Copies the next chunk, which has `columns` columns, all or less than all of them, of `own`
   * panels; a lane takes half a line, and every 16th after it. */
  template <int kPanels, bool kAll>
  __device__ __forceinline__ void copy(int own, int columns, uint32_t to, int stage_bytes)
  {
    const int lane = threadIdx.x % kWarp, line = lane / 2; /* of 16 */
#pragma unroll
    for (int i = 0; i < kPanels; i++) {
      const uint8_t *from = block + i * bytes_of_panel;
      const uint32_t lines = to + i * stage_bytes + mine;
#pragma unroll
      for (int j = 0; j < 2 * kChunkSteps; j++) {
        copy_if(lines + (kStep * (j / 2) + 2 * (j % 2)) * TGI_PANEL_ROWS,
                from + TGI_FP8_HEAD_BYTES + j * 16 * TGI_PANEL_ROWS,
                i < own && (kAll || 16 * j + line < columns));
      }
      copy_if(to + i * stage_bytes + 16 * lane, from, i < own && 16 * lane < TGI_FP8_HEAD_BYTES);
    }
    block += TGI_FP8_BLOCK_BYTES;
  }

  template <typename T, bool kAll, int kPanels, int kTiles>
  __device__ __forceinline__ void multiply(float (&total)[kPanels][2][kTiles][4], uint32_t w,
                                           int stage_bytes, uint32_t x, int steps) const
  {
    multiply_chunk<T, kAll>(*this, total, w, stage_bytes, x, steps);
  }

  template <typename F> __device__ __forceinline__ void visit(const F &f) const
  {
    f(*this);
  }

  __device__ static constexpr bool begins_group(int step)
  {
    return step == 0;
  }

  __device__ static constexpr bool ends_group(int step)
  {
    return step + 1 == kChunkSteps;
  }

  /** Column 8 q + i of a step, rows 4 g .. : word i. */
  __device__ __forceinline__ void load(uint32_t (&words)[kWords], uint32_t w, int step) const
  {
    const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
    const uint32_t from = w + TGI_FP8_HEAD_BYTES + (kStep * step + q) * TGI_PANEL_ROWS + 4 * g;
#pragma unroll
    for (int i = 0; i < kWords; i++) {
      words[i] = load_shared(from + 4 * i * TGI_PANEL_ROWS);
    }
  }

  template <typename T>
  __device__ __forceinline__ static void zero_points(uint32_t (&)[4], uint32_t, int)
  {
  }

  template <typename T>
  __device__ __forceinline__ static void
  widen(uint32_t (&a)[2][2][4], const uint32_t (&words)[kWords], const uint32_t (&)[4])
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

  __device__ __forceinline__ void scales(float (&scale)[4], uint32_t w, int) const
  {
    uint32_t bits[4];
    load_shared(bits, w + threadIdx.x % kWarp / 4 * 16);
#pragma unroll
    for (int r = 0; r < 4; r++) {
      scale[r] = __uint_as_float(bits[r]);
    }
  }

  __device__ float finish(const quantised_product &, int64_t, int64_t, float sum) const
  {
    return sum;
  }

private:
  int64_t bytes_of_panel;
  const uint8_t *block; /* the lane's 16 bytes of the next block to copy of the first panel */
  int mine;             /* where those of the block's first half line go */
};

} // namespace TGI_CUDA_ENTRY

#endif
