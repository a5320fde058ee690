/**
 * Weights packed by tg_linear_int4_pack as operands of quantised_sm80.cuh.
 *
 * A half byte n becomes the float 128 + n in bf16, or 1024 + n in f16, whose last bits it is; less
 * that and the zero point it is exact. A group's sum is scaled in f32.
 */
#ifndef TGI_OPS_INT4_OPERAND_CUH
#define TGI_OPS_INT4_OPERAND_CUH

#include "cuda/gemm/quantised/quantised_sm80.cuh"

extern "C" {
#include "ops/linear_int4/linear_int4_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** (a & 0x000f000f) | b in one instruction: of two constants the compiler makes two. */
__device__ __forceinline__ uint32_t low_halves_or(uint32_t a, uint32_t b)
{
  uint32_t d;
  asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/** A chunk of a panel in shared memory: the heads of its groups, which are 1, 2 or 4 steps, then
 * the lines of each step. */
template <int kGroupSteps> struct int4_chunk {
  static constexpr bool kScaled = true;
  static constexpr int kWords = 4, kSteps = kGroupSteps, kGroups = kChunkSteps / kGroupSteps;
  template <typename T> static constexpr int kFactor = 1;
  const uint8_t *line; /* the lane's, of the next chunk to copy and the first panel */
  int64_t panel_bytes;
  int head_bytes, mine; /* mine: where the lane's units of the first step lie behind the heads */

  template <int kPanels>
  __device__ __forceinline__ void begin(const quantised_product &p, int64_t panel, int chunk)
  {
    line = p.w.data + TGI_PACKED_HEADER_BYTES + panel * panel_bytes +
           (int64_t)chunk * chunk_bytes() + 16 * (threadIdx.x % kWarp);
    mine = held(place(threadIdx.x % kWarp));
  }

  /** Bytes to where unit 8 q + g of a step lies, which lane 4 g + q reads: eight neighbouring lanes
   * write and read all banks. */
  __device__ __forceinline__ static uint32_t place(int unit)
  {
    return 16 * (unit ^ unit / 8 << 1);
  }

  /** What a head holds, by its bytes. */
  __device__ __forceinline__ bool has_wide_scales() const /* f32 */
  {
    return head_bytes >= TGI_PANEL_ROWS * 4;
  }

  __device__ __forceinline__ bool has_zero_points() const
  {
    return head_bytes & TGI_PANEL_ROWS;
  }

  __device__ __forceinline__ int group_bytes() const
  {
    return head_bytes + kGroupSteps * 4 * TGI_INT4_LINE_BYTES;
  }

  __device__ __forceinline__ int chunk_bytes() const
  {
    return kGroups * group_bytes();
  }

  /** Copies the next chunk, which has `columns` columns, all or less than all of them, of `own`
   * panels. */
  template <int kPanels, bool kAll>
  __device__ __forceinline__ void copy(int own, int columns, uint32_t to, int stage_bytes)
  {
    const int lane = threadIdx.x % kWarp;
    const uint8_t *from = line;
#pragma unroll
    for (int i = 0; i < kPanels; i++) {
      const uint32_t lines = to + kGroups * head_bytes + mine;
#pragma unroll
      for (int step = 0; step < kChunkSteps; step++) {
        copy_if(lines + step * kWarp * 16,
                from + (step / kGroupSteps + 1) * head_bytes + step * 4 * TGI_INT4_LINE_BYTES,
                i < own && (kAll || kStep * step + TGI_INT4_LINE_K * (lane / 8) < columns));
      }
#pragma unroll
      for (int group = 0; group < kGroups; group++) {
        copy_if(to + group * head_bytes + 16 * lane, from + group * group_bytes(),
                i < own && 16 * lane < head_bytes &&
                    (kAll || kStep * kGroupSteps * group < columns));
      }
      from += panel_bytes;
      to += stage_bytes;
    }
    line += chunk_bytes();
  }

  template <typename T, bool kAll, int kPanels, int kTiles>
  __device__ __forceinline__ void multiply(float (&total)[kPanels][2][kTiles][4], uint32_t w,
                                           int stage_bytes, uint32_t x, int steps) const
  {
    multiply_chunk<T, kAll>(*this, total, w, stage_bytes, x, steps);
  }

  __device__ static constexpr bool begins_group(int step)
  {
    return step % kGroupSteps == 0;
  }

  __device__ static constexpr bool ends_group(int step)
  {
    return begins_group(step + 1);
  }

  /** Row 4 g + r, columns 8 q .. of a step: word r. */
  __device__ __forceinline__ void load(uint32_t (&words)[kWords], uint32_t w, int step) const
  {
    const int lane = threadIdx.x % kWarp;
    load_shared(words,
                w + kGroups * head_bytes + step * kWarp * 16 + place(lane % 4 * 8 + lane / 4));
  }

  /** Minus (128 + zero point), or minus (1024 + it), of the lane's rows, in pairs. */
  template <typename T>
  __device__ __forceinline__ void zero_points(uint32_t (&less)[4], uint32_t w, int step) const
  {
    constexpr uint32_t kBase = kIsBf16<T> ? 0xc3c3c3c3u : 0xe4e4e4e4u;
    const int g = threadIdx.x % kWarp / 4;
    uint32_t z = 0x08080808u;
    if (has_zero_points()) {
      z = load_shared(w + (step / kGroupSteps + 1) * head_bytes - TGI_PANEL_ROWS + 4 * g);
      z &= 0x0f0f0f0fu;
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
      less[r] = __byte_perm(z, kBase, 0x4040 + 0x101 * r);
    }
  }

  /** A word has eight columns, the first and second four in the halves of its bytes. */
  template <typename T>
  __device__ __forceinline__ static void
  widen(uint32_t (&a)[2][2][4], const uint32_t (&words)[kWords], const uint32_t (&less)[4])
  {
    constexpr uint32_t kBase = kIsBf16<T> ? 0x43004300u : 0x64006400u;
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const uint32_t turned = __byte_perm(words[r], 0, 0x3120);
#pragma unroll
      for (int pair = 0; pair < 4; pair++) { /* columns 0 and 1, 4 and 5, 2 and 3, 6 and 7 */
        a[pair % 2][r / 2][r % 2 + pair / 2 * 2] =
            add_pair<T>(low_halves_or(turned >> 4 * pair, kBase), less[r]);
      }
    }
  }

  __device__ __forceinline__ void scales(float (&scale)[4], uint32_t w, int step) const
  {
    const uint32_t head = w + step / kGroupSteps * head_bytes;
    const int g = threadIdx.x % kWarp / 4;
    if (!has_wide_scales()) {
      uint32_t pairs[2];
      load_shared(pairs, head + 8 * g);
#pragma unroll
      for (int r = 0; r < 4; r++) {
        scale[r] = half_of<f16>(pairs[r / 2], r % 2);
      }
    } else {
      uint32_t bits[4];
      load_shared(bits, head + 16 * g);
#pragma unroll
      for (int r = 0; r < 4; r++) {
        scale[r] = __uint_as_float(bits[r]);
      }
    }
  }
};

class int4_groups_of_128;

class int4_operand
{
public:
  /* Lines of four groups of 32 with their f32 scales and zero points. */
  static constexpr int kMostStageBytes = kChunk / 2 * TGI_PANEL_ROWS + 4 * TGI_PANEL_ROWS * 5;
  static constexpr bool kOnlyFinite = true, kIntegers = false;

  template <int kTiles> using rows = rows_of_x<kTiles>;
  using quads = int4_groups_of_128;

  /** How the weight is packed, from its bytes, or not yet. */
  __device__ explicit int4_operand(const quantised_product &p)
      : bytes_of_panel(p.panel_bytes), group_shift(p.group_shift), head_bytes(p.head_bytes)
  {
  }

  __device__ bool needs_header() const
  {
    return head_bytes == 0;
  }

  /** False, and recorded, if no such weight has the bytes that there are. */
  __device__ bool read_header(const quantised_product &p, const uint8_t *h, bool recorder)
  {
    const packed_weight &w = p.w;
    if (!packed_header_fits(w, h, recorder)) {
      return false;
    }
    const int64_t group = packed_long(h + offsetof(tgi_packed_header, group_size), true);
    const int scale = (int)packed_word(h + offsetof(tgi_packed_header, scale_dtype), true);
    const bool has_zero_points =
        packed_word(h + offsetof(tgi_packed_header, zero_points), true) != 0;
    const bool known = group == 32 || group == 64 || group == 128;
    if (!known || (scale != TG_F32 && scale != TG_F16)) {
      if (recorder) {
        record_fault(w.site, 0, known ? scale : group, known ? TG_F32 : 32, known ? TG_F16 : 128);
      }
      return false;
    }
    const int head = TGI_PANEL_ROWS * ((scale == TG_F32 ? 4 : 2) + (has_zero_points ? 1 : 0));
    const int shift = group == 32 ? 0 : group == 64 ? 1 : 2;
    const int64_t bytes_of_a_panel =
        divide_up(w.in, group) * head + divide_up(w.in, TGI_INT4_LINE_K) * TGI_INT4_LINE_BYTES;
    const int64_t bytes =
        TGI_PACKED_HEADER_BYTES + divide_up(w.out, TGI_PANEL_ROWS) * bytes_of_a_panel;
    const bool expected = head_bytes == 0 || (head_bytes == head && group_shift == shift);
    const bool fits = bytes == w.bytes && expected;
    if (!fits && recorder) {
      record_fault(w.site, 0, bytes, w.bytes, w.bytes);
    }
    bytes_of_panel = bytes_of_a_panel;
    head_bytes = head;
    group_shift = shift;
    return fits;
  }

  /** Calls f with the form of a chunk. */
  template <typename F> __device__ __forceinline__ void visit(const F &f) const
  {
    if (group_shift == 2) {
      f(form<4>());
    } else if (group_shift == 1) {
      f(form<2>());
    } else {
      f(form<1>());
    }
  }

  __device__ float finish(const quantised_product &, int64_t, int64_t, float sum) const
  {
    return sum;
  }

protected:
  int64_t bytes_of_panel;
  int group_shift, head_bytes; /* 2 to the shift: steps of a group */

  template <int kGroupSteps> __device__ __forceinline__ int4_chunk<kGroupSteps> form() const
  {
    return {nullptr, bytes_of_panel, head_bytes, 0};
  }
};

/** Of a weight whose bytes say that it has such groups: fewer registers, for blocks of many panels.
 */
class int4_groups_of_128 : public int4_operand
{
public:
  using int4_operand::int4_operand;

  static bool takes(const quantised_product &p)
  {
    return p.head_bytes != 0 && p.group_shift == 2;
  }

  __device__ bool needs_header() const
  {
    return false;
  }

  template <typename F> __device__ __forceinline__ void visit(const F &f) const
  {
    f(form<4>());
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
