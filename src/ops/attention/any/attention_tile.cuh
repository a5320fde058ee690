/** Attention without tensor cores: products of tiles of rows in shared memory, by a block of 16 x
 * 16 threads. Each thread has 4 x 4 (or 1 x 4) results; padded rows avoid bank conflicts. */
#ifndef TGI_OPS_ATTENTION_TILE_CUH
#define TGI_OPS_ATTENTION_TILE_CUH

#include "ops/attention/cuda/attention_sequences.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kPitch = kTile + 4; /* floats; padding against bank conflicts */
constexpr int kTileThreads = 256; /* 16 x 16 */
constexpr int kPiece = 8;         /* elements that a thread loads at once */

using tile = float[kTile][kPitch];

/** Loads elements 0 .. 7 of a row of which `left` exist; zeros past its end. */
template <typename T>
__device__ __forceinline__ void load_piece(float (&v)[kPiece], const T *from, int64_t left,
                                           bool aligned)
{
  if (aligned && left >= kPiece) {
#pragma unroll
    for (int i = 0; i < kPiece; i += kLanes<T>) {
      float part[kLanes<T>];
      load(part, from + i);
#pragma unroll
      for (int k = 0; k < kLanes<T>; k++) {
        v[i + k] = part[k];
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPiece; i++) {
      v[i] = i < left ? to_f32(from[i]) : 0.0f;
    }
  }
}

/** Loads elements c0 .. c0 + kTile - 1 of kRows rows, transposed: to[c - c0][place of the row].
 * Rows at offset -1 are zeros. kSpread: row r is at r % 16 * 4 + r / 16, so that the four
 * neighbours that thread x reads are rows x, x + 16, x + 32, x + 48. */
template <int kRows, bool kSpread, typename T>
__device__ __forceinline__ void load_turned(tile &to, const heads_view<T> &t, const int64_t *offset,
                                            int64_t c0, int64_t width)
{
  for (int piece = threadIdx.x; piece < kRows * (kTile / kPiece); piece += kTileThreads) {
    const int row = piece % kRows, part = piece / kRows * kPiece;
    const int64_t left = width - c0 - part, at = offset[row];
    if (left > 0) {
      float v[kPiece] = {};
      if (at >= 0) {
        load_piece(v, t.data + at + c0 + part, left, t.aligned);
      }
      const int place = kSpread ? row % 16 * 4 + row / 16 : row;
#pragma unroll
      for (int i = 0; i < kPiece; i++) {
        to[part + i][place] = v[i];
      }
    }
  }
}

/** The same without transposing: to[row][c - c0]. True if this thread met a NaN or an infinity. */
template <typename T>
__device__ __forceinline__ bool load_straight(tile &to, const heads_view<T> &t,
                                              const int64_t *offset, int64_t c0, int64_t width)
{
  float bad = 0;
  for (int piece = threadIdx.x; piece < kTile * (kTile / kPiece); piece += kTileThreads) {
    const int row = piece / (kTile / kPiece), part = piece % (kTile / kPiece) * kPiece;
    const int64_t left = width - c0 - part, at = offset[row];
    float v[kPiece] = {};
    if (at >= 0 && left > 0) {
      load_piece(v, t.data + at + c0 + part, left, t.aligned);
    }
#pragma unroll
    for (int i = 0; i < kPiece; i += 4) {
      *reinterpret_cast<float4 *>(&to[row][part + i]) =
          make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
      bad = fmaf(v[i], 0.0f, fmaf(v[i + 1], 0.0f, bad));
      bad = fmaf(v[i + 2], 0.0f, fmaf(v[i + 3], 0.0f, bad));
    }
  }
  return bad != 0; /* NaN */
}

/** All pairs are visible. */
struct sees_all {
  static constexpr int kUnroll = 8;

  __device__ bool operator()(int, int) const
  {
    return true;
  }
};

/** Row i of a thread sees the keys k of low[i] .. high[i] - 1. */
template <int kI> struct row_sees_keys {
  static constexpr int kUnroll = 1;
  int low[kI], high[kI];

  __device__ bool operator()(int k, int i) const
  {
    return k >= low[i] && k < high[i];
  }
};

/** sum[i][j] += a[k][ty * kI + i] * b[k][tx * 4 + j] over k < depth, where sees(k, i). */
template <int kI, typename Sees>
__device__ __forceinline__ void add_products(float (&sum)[kI][4], const tile &a, const tile &b,
                                             int depth, const Sees &sees)
{
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll Sees::kUnroll
  for (int k = 0; k < depth; k++) {
    float x[kI];
    const float4 y = *reinterpret_cast<const float4 *>(&b[k][tx * 4]);
    if constexpr (kI == 4) {
      const float4 four = *reinterpret_cast<const float4 *>(&a[k][ty * 4]);
      x[0] = four.x;
      x[1] = four.y;
      x[2] = four.z;
      x[3] = four.w;
    } else {
#pragma unroll
      for (int i = 0; i < kI; i++) {
        x[i] = a[k][ty * kI + i];
      }
    }
#pragma unroll
    for (int i = 0; i < kI; i++) {
      if (sees(k, i)) {
        sum[i][0] = fmaf(x[i], y.x, sum[i][0]);
        sum[i][1] = fmaf(x[i], y.y, sum[i][1]);
        sum[i][2] = fmaf(x[i], y.z, sum[i][2]);
        sum[i][3] = fmaf(x[i], y.w, sum[i][3]);
      }
    }
  }
}

template <int kI> __device__ __forceinline__ void clear(float (&sum)[kI][4])
{
#pragma unroll
  for (int i = 0; i < kI; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      sum[i][j] = 0;
    }
  }
}

/**
 * sum[i][j] = row ty * kI + i of x times row tx + 16 j of y, over the whole width, one chain of
 * fused multiply-adds in order. Uses both tiles; begins with a barrier and ends without one.
 */
template <int kI, typename T>
__device__ __forceinline__ void
multiply_rows(float (&sum)[kI][4], tile &a, tile &b, const heads_view<T> &x, const int64_t *x_at,
              const heads_view<T> &y, const int64_t *y_at, int64_t width)
{
  clear(sum);
  for (int64_t c0 = 0; c0 < width; c0 += kTile) {
    __syncthreads();
    load_turned<16 * kI, false>(a, x, x_at, c0, width);
    load_turned<kTile, true>(b, y, y_at, c0, width);
    __syncthreads();
    const int64_t left = divide_up(width - c0, kPiece) * kPiece;
    add_products(sum, a, b, left < kTile ? (int)left : kTile, sees_all());
  }
}

/** to[tx + 16 j][ty * kI + i] = v[i][j]: the layout of the first operand of add_products. */
template <int kI> __device__ __forceinline__ void put_turned(tile &to, const float (&v)[kI][4])
{
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if constexpr (kI == 4) {
      *reinterpret_cast<float4 *>(&to[tx + 16 * j][ty * 4]) =
          make_float4(v[0][j], v[1][j], v[2][j], v[3][j]);
    } else {
#pragma unroll
      for (int i = 0; i < kI; i++) {
        to[tx + 16 * j][ty * kI + i] = v[i][j];
      }
    }
  }
}

/** Writes elements c .. c + 3 of a row of `width`, as far as they exist. */
template <typename T>
__device__ __forceinline__ void store_four(const heads_view<T> &t, int64_t row_at, int64_t c,
                                           int64_t width, const float (&v)[4])
{
  T *to = t.data + row_at + c;
  if (t.aligned && c + 4 <= width) {
    store(to, v);
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (c + j < width) {
        to[j] = from_f32<T>(v[j]);
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
