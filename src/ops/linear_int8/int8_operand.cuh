/**
 * Weights packed by tg_linear_int8_pack as operands of quantised_sm80.cuh.
 *
 * A byte u becomes the float 2^23 + u in f32, or 1024 + u in f16, whose last bits it is; less that,
 * 128 and the zero point it is an integer of at most nine bits, exact in 16 bits. The scale is one
 * for a row and comes last.
 */
#ifndef TGI_OPS_INT8_OPERAND_CUH
#define TGI_OPS_INT8_OPERAND_CUH

#include "cuda/gemm/quantised/quantised_sm80.cuh"

extern "C" {
#include "ops/linear_int8/linear_int8_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** A chunk of a panel in shared memory: the panel's zero points, then for each step the lanes' 16
 * bytes of one line and those of another. */
class int8_operand
{
public:
  static constexpr int kHeadBytes = 4 * TGI_PANEL_ROWS; /* 128 + zero points */
  static constexpr int kMostStageBytes = kHeadBytes + kChunk * TGI_PANEL_ROWS;
  static constexpr bool kScaled = false, kOnlyFinite = true, kIntegers = false;
  static constexpr int kWords = 8;

  template <int kTiles> using rows = rows_of_x<kTiles>;
  using quads = void; /* their stages leave no room for four panels */

  __device__ explicit int8_operand(const quantised_product &p) : bytes_of_panel(p.panel_bytes) {}

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
    head = p.w.data + TGI_PACKED_HEADER_BYTES + panel * bytes_of_panel;
    line = head + TGI_INT8_PANEL_HEAD + (int64_t)chunk * (kChunk * TGI_PANEL_ROWS) +
           16 * (threadIdx.x % kWarp);
    mine[0] = held(place(threadIdx.x % kWarp));
    mine[1] = held(place(kWarp + threadIdx.x % kWarp));
  }

  /** Bytes to where unit 8 l + g of a step lies, of line l; eight neighbouring lanes write and read
   * all banks. */
  __device__ __forceinline__ static uint32_t place(int unit)
  {
    return 16 * (unit ^ unit / 16 << 1);
  }

  /** Copies the next chunk, which has `columns` columns, all or less than all of them, of `own`
   * panels. */
  template <int kPanels, bool kAll>
  __device__ __forceinline__ void copy(int own, int columns, uint32_t to, int stage_bytes)
  {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kPanels; i++) {
      const uint8_t *from = line + i * bytes_of_panel;
      const uint32_t lines = to + i * stage_bytes + kHeadBytes;
#pragma unroll
      for (int j = 0; j < 2 * kChunkSteps; j++) { /* four lines */
        copy_if(lines + j / 2 * (2 * kWarp * 16) + mine[j % 2], from + 4 * j * TGI_INT8_LINE_BYTES,
                i < own && (kAll || TGI_INT8_LINE_K * (4 * j + lane / 8) < columns));
      }
      copy_if(to + i * stage_bytes + 16 * lane, head + i * bytes_of_panel + kHeadBytes + 16 * lane,
              i < own && 16 * lane < kHeadBytes);
    }
    line += kChunk * TGI_PANEL_ROWS;
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

  /** Words r and 4 + r are row 4 g + r's. */
  __device__ __forceinline__ void load(uint32_t (&words)[kWords], uint32_t w, int step) const
  {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t line[4];
      load_shared(line, w + kHeadBytes + step * (2 * kWarp * 16) +
                            place((lane % 4 * 2 + i) * 8 + lane / 4));
#pragma unroll
      for (int r = 0; r < 4; r++) {
        words[4 * i + r] = line[r];
      }
    }
  }

  /** What a byte's float is more than the weight, negative: in f32, or in pairs of f16. */
  template <typename T>
  __device__ __forceinline__ void zero_points(uint32_t (&less)[4], uint32_t w, int) const
  {
    uint32_t bits[4];
    load_shared(bits, w + threadIdx.x % kWarp / 4 * 16);
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const float v = __uint_as_float(bits[r]);
      less[r] = kIsBf16<T> ? __float_as_uint(-8388608.0f - v)
                           : round_pair<f16>(-1024.0f - v, -1024.0f - v);
    }
  }

  template <typename T>
  __device__ __forceinline__ static void
  widen(uint32_t (&a)[2][2][4], const uint32_t (&words)[kWords], const uint32_t (&less)[4])
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

  /** Of the first panel. */
  __device__ __forceinline__ void scales(float (&scale)[4], uint32_t, int) const
  {
#pragma unroll
    for (int r = 0; r < 4; r++) {
      scale[r] = packed_float(head + threadIdx.x % kWarp / 4 * 16 + 4 * r, true);
    }
  }

  __device__ float finish(const quantised_product &p, int64_t, int64_t o, float sum) const
  {
    const uint8_t *head = p.w.data + TGI_PACKED_HEADER_BYTES + o / TGI_PANEL_ROWS * p.panel_bytes;
    return sum * packed_float(head + o % TGI_PANEL_ROWS * 4, true);
  }

private:
  int64_t bytes_of_panel;
  const uint8_t *head, *line; /* of the first panel; the lane's of the next chunk to copy */
  int mine[2]; /* places of the lane's units of a step's four lines, and the others' */
};

} // namespace TGI_CUDA_ENTRY

#endif
