/**
 * Vectors of a row in their memory format, for kernels that hold rows in registers. Rows of aligned
 * vectors use 16-byte loads and stores; other rows are loaded by element into the same places.
 */
#ifndef TGI_CUDA_ROW_BITS_CUH
#define TGI_CUDA_ROW_BITS_CUH

#include "cuda/x2.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** N elements in their memory format: as floats, 16-bit elements would need twice the registers. */
template <typename T, int N> struct row_bits {
  uint4 q[N * (int)sizeof(T) / 16];
};

template <typename T, int N>
__device__ __forceinline__ void unpack(float (&v)[N], const row_bits<T, N> &b)
{
  constexpr int kEach = kLanes<T>;
#pragma unroll
  for (int k = 0; k < N / kEach; k++) {
    const uint32_t u[4] = {b.q[k].x, b.q[k].y, b.q[k].z, b.q[k].w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (sizeof(T) == 4) {
        v[k * kEach + i] = __uint_as_float(u[i]);
      } else {
        const float2 pair = two_to_f32<T>(u[i]);
        v[k * kEach + 2 * i] = pair.x;
        v[k * kEach + 2 * i + 1] = pair.y;
      }
    }
  }
}

/** Rounds to T. */
template <typename T, int N>
__device__ __forceinline__ void pack_bits(row_bits<T, N> &b, const float (&v)[N])
{
  constexpr int kEach = kLanes<T>;
#pragma unroll
  for (int k = 0; k < N / kEach; k++) {
    uint32_t u[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if constexpr (sizeof(T) == 4) {
        u[i] = __float_as_uint(v[k * kEach + i]);
      } else {
        u[i] = two_from_f32<T>(v[k * kEach + 2 * i], v[k * kEach + 2 * i + 1]);
      }
    }
    b.q[k] = make_uint4(u[0], u[1], u[2], u[3]);
  }
}

/** Makes the compiler keep the vector's bits in registers, not its unpacked floats. */
template <typename T, int N> __device__ __forceinline__ void keep_bits(row_bits<T, N> &b)
{
#pragma unroll
  for (int k = 0; k < N / kLanes<T>; k++) {
    asm volatile("" : "+r"(b.q[k].x), "+r"(b.q[k].y), "+r"(b.q[k].z), "+r"(b.q[k].w));
  }
}

/** Loads elements j .. j + N - 1 of a row, 0 from `cols` on. whole: rows are aligned vectors. */
template <typename T, int N, typename Index>
__device__ __forceinline__ void load_bits(row_bits<T, N> &b, const T *row, Index j, Index cols,
                                          bool whole)
{
  if (whole) {
    const uint4 *from = reinterpret_cast<const uint4 *>(row + j);
#pragma unroll
    for (int k = 0; k < N / kLanes<T>; k++) {
      b.q[k] = j < cols ? from[k] : make_uint4(0, 0, 0, 0);
    }
  } else {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      v[i] = j + i < cols ? to_f32(row[j + i]) : 0.0f;
    }
    pack_bits(b, v);
  }
}

/** The same for read-only memory: these loads are not ordered after earlier stores. */
template <typename T, int N, typename Index>
__device__ __forceinline__ void load_constant(row_bits<T, N> &b, const T *row, Index j, Index cols,
                                              bool whole)
{
  if (whole) {
    const uint4 *from = reinterpret_cast<const uint4 *>(row + j);
#pragma unroll
    for (int k = 0; k < N / kLanes<T>; k++) {
      b.q[k] = j < cols ? __ldg(from + k) : make_uint4(0, 0, 0, 0);
    }
  } else {
    load_bits(b, row, j, cols, false);
  }
}

template <typename T, int N, typename Index>
__device__ __forceinline__ void load_values(float (&v)[N], const T *row, Index j, Index cols,
                                            bool whole)
{
  row_bits<T, N> b;
  load_bits(b, row, j, cols, whole);
  unpack(v, b);
}

template <typename T, int N, typename Index>
__device__ __forceinline__ void store_values(T *row, Index j, Index cols, const float (&v)[N],
                                             bool whole)
{
  if (whole) {
    if (j < cols) {
      row_bits<T, N> b;
      pack_bits(b, v);
      uint4 *to = reinterpret_cast<uint4 *>(row + j);
#pragma unroll
      for (int k = 0; k < N / kLanes<T>; k++) {
        to[k] = b.q[k];
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (j + i < cols) {
        row[j + i] = from_f32<T>(v[i]);
      }
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
