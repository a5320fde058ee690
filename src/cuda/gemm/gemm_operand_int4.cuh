/**
 * Weights packed by tg_linear_int4_pack as operands of gemm_quantised_sm80.cuh.
 *
 * A half byte n becomes the float 128 + n in bf16, or 1024 + n in f16, whose last bits it is; less
 * that and the zero point it is exact. A group's sum is scaled in f32.
 */
#ifndef TGI_CUDA_GEMM_OPERAND_INT4_CUH
#define TGI_CUDA_GEMM_OPERAND_INT4_CUH

#include "cuda/gemm/gemm_quantised_sm80.cuh"

extern "C" {
#include "ops/linear_int4/linear_int4_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

class int4_operand
{
public:
  /* Lines of four groups of 32 with their f32 scales and zero points. */
  static constexpr int kMostStageBytes = kChunk / 2 * TGI_PANEL_ROWS + 4 * TGI_PANEL_ROWS * 5;
  static constexpr bool kScaled = true, kOnlyFinite = true;
  static constexpr int kWords = 4;
  template <typename T> static constexpr int kFactor = 1;

  __device__ explicit int4_operand(const quantised_product &p)
      : panel_bytes(p.panel_bytes), chunk_bytes(p.chunk_bytes)
  {
  }

  /** What is copied depends on nothing but bytes, which mostly say how a weight is packed. */
  __device__ bool needs_header() const
  {
    return chunk_bytes == 0;
  }

  /** False, and recorded, if no such weight has the bytes that there are. */
  __device__ bool read_header(const quantised_product &p, bool recorder)
  {
    const packed_weight &w = p.w;
    if (!packed_header_fits(w, recorder)) {
      return false;
    }
    const uint8_t *h = w.data;
    const int64_t group = packed_long(h + offsetof(tgi_packed_header, group_size), true);
    const int scale = (int)packed_word(h + offsetof(tgi_packed_header, scale_dtype), true);
    has_zero_points = packed_word(h + offsetof(tgi_packed_header, zero_points), true) != 0;
    const bool known = group == 32 || group == 64 || group == 128;
    if (!known || (scale != TG_F32 && scale != TG_F16)) {
      if (recorder) {
        record_fault(w.site, 0, known ? scale : group, known ? TG_F32 : 32, known ? TG_F16 : 128);
      }
      return false;
    }
    scale_bytes = scale == TG_F16 ? 2 : 4;
    head_bytes = TGI_PANEL_ROWS * (scale_bytes + (has_zero_points ? 1 : 0));
    group_shift = group == 32 ? 0 : group == 64 ? 1 : 2;
    group_bytes = head_bytes + (int)group / TGI_INT4_LINE_K * TGI_INT4_LINE_BYTES;
    panel_bytes = divide_up(w.in, group) * head_bytes +
                  divide_up(w.in, TGI_INT4_LINE_K) * TGI_INT4_LINE_BYTES;
    chunk_bytes = (kChunkSteps >> group_shift) * group_bytes;
    const int64_t bytes = TGI_PACKED_HEADER_BYTES + divide_up(w.out, TGI_PANEL_ROWS) * panel_bytes;
    if (bytes != w.bytes && recorder) {
      record_fault(w.site, 0, bytes, w.bytes, w.bytes);
    }
    return bytes == w.bytes;
  }

  /** Units of 16 bytes; pairs of them change places from line to line, so that eight lanes, which
   * read a pair of units of four lines, read from all banks. */
  template <int kThreads>
  __device__ void copy(const quantised_product &p, int64_t panel, int64_t chunk, uint32_t to,
                       int thread) const
  {
    const int64_t at = chunk * chunk_bytes, left = panel_bytes - at;
    const int units = (int)(left < chunk_bytes ? left : chunk_bytes) / 16;
    const uint8_t *from = p.w.data + TGI_PACKED_HEADER_BYTES + panel * panel_bytes + at;
#pragma unroll 4
    for (int u = thread; u < units; u += kThreads) {
      copy_chunk(to + place(16 * u), from + 16 * u, true);
    }
  }

  __device__ bool begins_group(int step) const
  {
    return (step & (1 << group_shift) - 1) == 0;
  }

  __device__ bool ends_group(int step) const
  {
    return begins_group(step + 1);
  }

  /** Row 4 g + r, columns 8 q .. of a step: word r. */
  __device__ void load(uint32_t (&words)[kWords], uint32_t w, int step, int g, int q) const
  {
    const int group = step >> group_shift;
    load_shared(
        words, w + place((group + 1) * head_bytes + 16 * g + (4 * step + q) * TGI_INT4_LINE_BYTES));
  }

  /** Minus (128 + zero point), or minus (1024 + it), of the lane's rows, in pairs. */
  template <typename T>
  __device__ void zero_points(uint32_t (&less)[4], uint32_t w, int step, int g) const
  {
    constexpr uint32_t kBase = kIsBf16<T> ? 0xc300c300u : 0xe400e400u;
    if (has_zero_points) {
      const uint32_t z =
          load_shared(w + place(head_of(step) + TGI_PANEL_ROWS * scale_bytes + 4 * g));
#pragma unroll
      for (int r = 0; r < 4; r++) {
        less[r] = (z >> 8 * r & 15) * 0x10001u | kBase;
      }
    } else {
#pragma unroll
      for (int r = 0; r < 4; r++) {
        less[r] = kBase | 0x80008u;
      }
    }
  }

  /** A word has eight columns, the first and second four in the halves of its bytes. */
  template <typename T>
  __device__ static void widen(uint32_t (&a)[2][2][4], const uint32_t (&words)[kWords],
                               const uint32_t (&less)[4])
  {
    constexpr uint32_t kBase = kIsBf16<T> ? 0x43004300u : 0x64006400u;
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const uint32_t turned = __byte_perm(words[r], 0, 0x3120);
#pragma unroll
      for (int pair = 0; pair < 4; pair++) { /* columns 0 and 1, 4 and 5, 2 and 3, 6 and 7 */
        const uint32_t n = (turned >> 4 * pair & 0x000f000fu) | kBase;
        a[pair % 2][r / 2][r % 2 + pair / 2 * 2] = add_pair<T>(n, less[r]);
      }
    }
  }

  __device__ void scales(float (&scale)[4], uint32_t w, int step, int g) const
  {
    if (scale_bytes == 2) {
      uint32_t pairs[2];
      load_shared(pairs, w + place(head_of(step) + 8 * g));
#pragma unroll
      for (int r = 0; r < 4; r++) {
        scale[r] = half_of<f16>(pairs[r / 2], r % 2);
      }
    } else {
      uint32_t bits[4];
      load_shared(bits, w + place(head_of(step) + 16 * g));
#pragma unroll
      for (int r = 0; r < 4; r++) {
        scale[r] = __uint_as_float(bits[r]);
      }
    }
  }

  __device__ float finish(const quantised_product &, int64_t, float sum) const
  {
    return sum;
  }

private:
  int64_t panel_bytes, chunk_bytes;
  int group_bytes, group_shift, head_bytes, scale_bytes; /* 2 to the shift: steps of a group */
  bool has_zero_points;

  __device__ static int place(int byte)
  {
    return byte ^ (byte >> 7 & 3) << 5;
  }

  __device__ int head_of(int step) const
  {
    return (step >> group_shift) * group_bytes;
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
