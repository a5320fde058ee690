/**
 * Weights packed by tg_linear_int8_pack times rows of 8-bit integers (cuda/digits.cuh, one digit,
 * strips of eight rows), on the tensor cores' instructions for bytes. Sums are exact.
 */
#ifndef TGI_OPS_INT8_INT8_OPERAND_CUH
#define TGI_OPS_INT8_INT8_OPERAND_CUH

#include "ops/linear_int8/int8_operand.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Columns from which on sums could leave 32 bits. */
constexpr int64_t kMostInt8Columns = 1 << 17;

/** d += a b, 16 x 32 by 32 x 8. */
__device__ __forceinline__ void multiply_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                               uint32_t b1)
{
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/** Strips of digits. A unit of eight columns is 64 bytes, a word of four columns for each row, then
 * the words of the other four; the halves change places in every second pair of units, so that the
 * lanes read from all banks. */
template <int kTiles> struct rows_of_digits {
  static constexpr int kTileBytes = 8 * kChunk;
  const uint8_t *chunk; /* the lane's 16 bytes of the next one to copy */
  int64_t step;         /* bytes from strip to strip */
  int strips;           /* that there are, of the tiles */

  __device__ __forceinline__ rows_of_digits(const quantised_product &p, int64_t row0, int64_t first)
  {
    const int64_t left = divide_up(p.rows - row0, (int64_t)8);
    step = p.digit_units * 64;
    chunk = static_cast<const uint8_t *>(p.x) + row0 / 8 * step + first * kTileBytes +
            threadIdx.x % kWarp * 16;
    strips = left < kTiles ? (int)left : kTiles;
  }

  template <int kWarps, bool kAll> __device__ __forceinline__ void copy(uint32_t to, int, int warp)
  {
#pragma unroll
    for (int i = 0; i < 2 * kTiles; i++) {
      if (i % kWarps == warp) {
        const int n = i / 2, byte = (i % 2 * kWarp + threadIdx.x % kWarp) * 16;
        const bool exists = n < strips;
        copy_chunk(to + n * kTileBytes + (byte ^ (byte >> 7 & 1) << 5),
                   chunk + (exists ? n * step + i % 2 * (kWarp * 16) : 0), exists);
      }
    }
    chunk += kTileBytes;
  }
};

class int8_int8_operand : public int8_operand
{
public:
  static constexpr bool kOnlyFinite = false, kIntegers = true;
  template <int kTiles> using rows = rows_of_digits<kTiles>;
  using int8_operand::int8_operand;

  template <typename F> __device__ __forceinline__ void visit(const F &f) const
  {
    f(*this);
  }

  template <typename T, bool kAll, int kPanels, int kTiles>
  __device__ __forceinline__ void multiply(int (&total)[kPanels][2][kTiles][4], uint32_t w,
                                           int stage_bytes, uint32_t x, int steps) const
  {
    const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int step = 0; step < kChunkSteps; step++) {
      if (!kAll && step >= steps) {
        break;
      }
      uint32_t b[kTiles][2];
      const int first = (4 * step + q) * 64 + 4 * g, turn = (q >> 1) << 5;
#pragma unroll
      for (int n = 0; n < kTiles; n++) {
        b[n][0] = load_shared(x + n * rows<kTiles>::kTileBytes + (first ^ turn));
        b[n][1] = load_shared(x + n * rows<kTiles>::kTileBytes + ((first + 32) ^ turn));
      }
#pragma unroll
      for (int i = 0; i < kPanels; i++) {
        uint32_t words[kWords];
        load(words, w + i * stage_bytes, step);
#pragma unroll
        for (int j = 0; j < kWords; j++) {
          words[j] ^= 0x80808080u; /* 128 + W as a byte is W with its sign turned */
        }
#pragma unroll
        for (int m = 0; m < 2; m++) {
          const uint32_t a[4] = {words[2 * m], words[2 * m + 1], words[4 + 2 * m],
                                 words[5 + 2 * m]};
#pragma unroll
          for (int n = 0; n < kTiles; n++) {
            multiply_bytes(total[i][m][n], a, b[n][0], b[n][1]);
          }
        }
      }
    }
  }

  __device__ float finish(const quantised_product &p, int64_t row, int64_t o, int sum) const
  {
    const uint8_t *head = p.w.data + TGI_PACKED_HEADER_BYTES + o / TGI_PANEL_ROWS * p.panel_bytes +
                          o % TGI_PANEL_ROWS * 4;
    const float scale = packed_float(head, true);
    const float offset = packed_float(head + 4 * TGI_PANEL_ROWS, true);
    const double exact = (double)sum - ((double)offset - 128.0) * (double)p.digit_sums[row];
    return (float)(exact * p.digit_scale[row]) * scale;
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
