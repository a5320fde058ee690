/**
 * Both operands of int8 times int8 as rows that TMA copies: [rows, in] and [out, in], row after row
 * at multiples of 16 bytes, with scales, sums and zero points beside them. Their integers are those
 * of cuda/digits.cuh and of the packed weight.
 */
#ifndef TGI_OPS_INT8_ROWS_SM90_CUH
#define TGI_OPS_INT8_ROWS_SM90_CUH

#include "cuda/digits.cuh"
#include "cuda/half_pair.cuh"
#include "cuda/packed_weight.cuh"

extern "C" {
#include "ops/linear_int8/linear_int8_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

constexpr int kInt8Threads = 256;
constexpr int kInt8Lines = 128; /* of a panel, that a block of threads turns at a time */

struct int8_rows {
  const void *x;
  packed_weight w;
  int64_t rows, in, out, x_step;
  int64_t step;                               /* bytes from row to row of codes and weights */
  int64_t panels, panel_bytes, lines, pieces; /* of a panel, of kInt8Lines */
  bool aligned;                               /* rows of x, to 16 bytes */
  int8_t *codes, *weights, *zero;
  float *row_scale, *column_scale; /* of x: NaN if it is not finite, or the weight no such one */
  int32_t *row_sum;
};

/** Says where the parts lie in `memory`, and returns the bytes that they take. */
inline size_t int8_rows_lay_out(int8_rows *r, void *memory)
{
  const int64_t sizes[] = {r->rows * r->step, r->out * r->step, r->rows * 4,
                           r->rows * 4,       r->out * 4,       r->out};
  char *at[6];
  int64_t bytes = 0;
  for (int i = 0; i < 6; i++) {
    at[i] = memory ? static_cast<char *>(memory) + bytes : nullptr;
    bytes += divide_up(sizes[i], 256) * 256;
  }
  r->codes = reinterpret_cast<int8_t *>(at[0]);
  r->weights = reinterpret_cast<int8_t *>(at[1]);
  r->row_scale = reinterpret_cast<float *>(at[2]);
  r->row_sum = reinterpret_cast<int32_t *>(at[3]);
  r->column_scale = reinterpret_cast<float *>(at[4]);
  r->zero = reinterpret_cast<int8_t *>(at[5]);
  return (size_t)bytes;
}

/** v / by to the nearest integer, |v| <= 127 by: the low byte of a float. `inverse` is 1 / by,
 * rounded. */
__device__ __forceinline__ uint32_t code_bits(float v, float inverse)
{
  return __float_as_uint(__fmaf_rn(v, inverse, 12582912.0f)); /* 1.5 * 2^23: its last bit is 1 */
}

/** The same of every v: what v is more than its code is exact, and less than half of `by` unless
 * another code is the nearest or v lies between two. */
__device__ __forceinline__ uint32_t checked_code_bits(float v, float by, float inverse)
{
  const uint32_t bits = code_bits(v, inverse);
  const float more = __fmaf_rn(12582912.0f - __uint_as_float(bits), by, v);
  return fabsf(more) < 0.5f * by ? bits : (uint32_t)(int)rintf(v / by);
}

/** True if code_bits is right for every v of T, 16 bits. by has 15 significant bits. Between two
 * integers lies (m + 1/2) by; a v that is not that is at least by / 2^16 away from it, and v times
 * the inverse 127 by / 2^24 at most from v / by. v has `kBits` significant bits, and is none of
 * these where by's odd part has more. */
template <typename T> __device__ __forceinline__ bool is_never_between(float by)
{
  constexpr int kBits = kIsBf16<T> ? 8 : 11;
  return sizeof(T) == 2 && by >= 0x1p-100f &&
         (__float_as_uint(by) & ((1u << (24 - kBits)) - 1)) != 0;
}

/** Magnitudes as bits, whose order is theirs, infinity and NaN above all: one f32, or two of 16
 * bits. */
template <typename T> struct magnitude_bits {
  uint32_t most;

  __device__ __forceinline__ void widen(uint32_t word)
  {
    if constexpr (sizeof(T) == 4) {
      most = max(most, word & 0x7fffffffu);
    } else {
      most = __vmaxu2(most, word & 0x7fff7fffu);
    }
  }

  /** Over a block of whole warps, in every thread; scratch: a word of shared memory for each warp.
   */
  __device__ __forceinline__ float unite_block(uint32_t *scratch) const
  {
    const uint32_t one = sizeof(T) == 4 ? most : max(most & 0xffffu, most >> 16);
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, one);
    if (threadIdx.x % kWarp == 0) {
      scratch[threadIdx.x / kWarp] = of_warp;
    }
    __syncthreads();
    uint32_t all = 0;
#pragma unroll
    for (int i = 0; i < kInt8Threads / kWarp; i++) {
      all = max(all, scratch[i]);
    }
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(all);
    } else {
      return half_of<T>(all, 0);
    }
  }
};

namespace
{ /* every file, of every entry, has kernels of its own */

/** Element i of four words of T. */
template <typename T> __device__ __forceinline__ float value_of(const uint4 &v, int i)
{
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  if constexpr (sizeof(T) == 4) {
    return __uint_as_float(words[i]);
  } else {
    return half_of<T>(words[i / 2], i % 2);
  }
}

/** How a row becomes codes, which are added up. */
template <typename T> struct int8_coder {
  float by, inverse;
  bool finite, plain;
  int sum;

  __device__ __forceinline__ explicit int8_coder(const digits_rule &rule)
      : by(rule.by), inverse(1.0f / rule.by), finite(rule.finite),
        plain(is_never_between<T>(rule.by)), sum(0)
  {
  }

  /** Of a vector. */
  __device__ __forceinline__ void put(int8_t *to, const uint4 &v)
  {
    constexpr int kWords = kLanes<T> / 4;
    uint32_t words[kWords];
#pragma unroll
    for (int w = 0; w < kWords; w++) {
      uint32_t bits[4];
      if (plain) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          bits[i] = code_bits(value_of<T>(v, 4 * w + i), inverse);
        }
      } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          bits[i] = checked_code_bits(value_of<T>(v, 4 * w + i), by, inverse);
        }
      }
      words[w] = finite ? __byte_perm(__byte_perm(bits[0], bits[1], 0x0040),
                                      __byte_perm(bits[2], bits[3], 0x0040), 0x5410)
                        : 0u;
      sum = __dp4a((int)words[w], 0x01010101, sum);
    }
    if constexpr (kWords == 1) {
      *reinterpret_cast<uint32_t *>(to) = words[0];
    } else {
      *reinterpret_cast<uint2 *>(to) = make_uint2(words[0], words[1]);
    }
  }

  __device__ __forceinline__ void put_one(int8_t *to, float v)
  {
    const int code = finite ? (int8_t)checked_code_bits(v, by, inverse) : 0;
    *to = (int8_t)code;
    sum += code;
  }
};

/** A block makes a row; its first vectors stay in registers between the two passes. */
template <typename T>
__global__ void __launch_bounds__(kInt8Threads, 4) int8_codes_kernel(const int8_rows p)
{
  constexpr int kN = kLanes<T>, kHeld = 4, kPass = kN * kInt8Threads;
  __shared__ uint32_t scratch[kWarp];
  __shared__ int sums[kWarp];
  const int t = (int)threadIdx.x;
  let_next_begin();
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T *x = static_cast<const T *>(p.x) + row * p.x_step;
    int8_t *codes = p.codes + row * p.step;
    const int64_t whole = p.aligned ? p.in / kN * kN : 0;
    const auto vector_at = [x](int64_t k) { return *reinterpret_cast<const uint4 *>(x + k); };
    uint4 held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; j++) {
      const int64_t k = (int64_t)kN * t + j * kPass;
      held[j] = k < whole ? vector_at(k) : make_uint4(0, 0, 0, 0);
    }
    const bool fits = t != 0 || packed_header_fits(p.w, row == 0); /* while x is on its way */
    magnitude_bits<T> m = {0};
    const auto widen = [&m](const uint4 &v) {
      m.widen(v.x);
      m.widen(v.y);
      m.widen(v.z);
      m.widen(v.w);
    };
#pragma unroll
    for (int j = 0; j < kHeld; j++) {
      widen(held[j]);
    }
    for (int64_t k = (int64_t)kN * t + kHeld * kPass; k < whole; k += kPass) {
      widen(vector_at(k));
    }
    for (int64_t k = whole + t; k < p.in; k += kInt8Threads) {
      if constexpr (sizeof(T) == 4) {
        m.widen(reinterpret_cast<const uint32_t *>(x)[k]);
      } else {
        m.widen(reinterpret_cast<const uint16_t *>(x)[k]);
      }
    }
    const digits_rule rule = digits_rule_of<1>(m.unite_block(scratch));
    int8_coder<T> coder(rule);
#pragma unroll
    for (int j = 0; j < kHeld; j++) {
      const int64_t k = (int64_t)kN * t + j * kPass;
      if (k < whole) {
        coder.put(codes + k, held[j]);
      }
    }
    for (int64_t k = (int64_t)kN * t + kHeld * kPass; k < whole; k += kPass) {
      coder.put(codes + k, vector_at(k));
    }
    for (int64_t k = whole + t; k < p.in; k += kInt8Threads) {
      coder.put_one(codes + k, to_f32(x[k]));
    }
    int total[1] = {coder.sum};
    block_sum(total, sums);
    if (t == 0) {
      p.row_scale[row] = rule.finite && fits ? rule.by : CUDART_NAN_F;
      p.row_sum[row] = total[0];
    }
    __syncthreads();
  }
}

/** A block turns pieces of panels: 128 lines of four columns of 32 rows become 32 rows of 512
 * columns. Both sides are whole lines of memory. In shared memory the 16 bytes c of row r lie at
 * c ^ r / 4, so that lanes write words of different rows, and read a row, from all banks. */
__global__ void __launch_bounds__(kInt8Threads) int8_weights_kernel(const int8_rows p)
{
  constexpr int kUnits = kInt8Lines * 8 / kInt8Threads; /* of 16 bytes, of a thread */
  __shared__ __align__(16) uint32_t words[TGI_PANEL_ROWS * kInt8Lines];
  const int t = (int)threadIdx.x;
  for (int64_t block = blockIdx.x; block < p.panels * p.pieces; block += gridDim.x) {
    const int64_t panel = block / p.pieces, piece = block - panel * p.pieces;
    const uint8_t *head = p.w.data + TGI_PACKED_HEADER_BYTES + panel * p.panel_bytes;
    const uint8_t *from =
        head + TGI_INT8_PANEL_HEAD + piece * (kInt8Lines * TGI_INT8_LINE_BYTES) + 16 * t;
    const int64_t left = p.lines - piece * kInt8Lines;
    uint4 v[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      const int line = (i * kInt8Threads + t) / 8;
      v[i] = line < left ? *reinterpret_cast<const uint4 *>(from + 16 * i * kInt8Threads)
                         : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      const int line = (i * kInt8Threads + t) / 8, four = t % 8; /* rows 4 four .. + 3 */
      const uint32_t w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
      for (int r = 0; r < 4; r++) {
        /* 128 + W as a byte is W with its sign turned. */
        words[(4 * four + r) * kInt8Lines + 4 * (line / 4 ^ four) + line % 4] = w[r] ^ 0x80808080u;
      }
    }
    if (piece == 0 && t < TGI_PANEL_ROWS && panel * TGI_PANEL_ROWS + t < p.out) {
      const int64_t o = panel * TGI_PANEL_ROWS + t;
      p.column_scale[o] = packed_float(head + 4 * t, true);
      p.zero[o] = (int8_t)(int)(packed_float(head + 4 * (TGI_PANEL_ROWS + t), true) - 128.0f);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kUnits; i++) {
      const int row = (i * kInt8Threads + t) / kWarp, c = t % kWarp;
      const int64_t o = panel * TGI_PANEL_ROWS + row;
      const int64_t k = TGI_INT8_LINE_K * (piece * kInt8Lines + 4 * c);
      if (o < p.out && k < p.step) {
        *reinterpret_cast<uint4 *>(p.weights + o * p.step + k) =
            *reinterpret_cast<const uint4 *>(&words[row * kInt8Lines + 4 * (c ^ row / 4)]);
      }
    }
    __syncthreads();
  }
  await_kernel_before(); /* what follows both waits for this one alone */
}

/** Makes all of them. */
tg_status make_int8_rows(const tg_context *ctx, const int8_rows &r, tg_dtype x_dtype)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(x_dtype, T,
               status = launch(ctx, int8_codes_kernel<T>, grid_of(r.rows), kInt8Threads, 0, r));
  return status != TG_OK ? status
                         : launch_next(ctx, int8_weights_kernel, grid_of(r.panels * r.pieces),
                                       kInt8Threads, 0, r);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
