/** One product as a job of gemm_sm80.cuh: C = act(A B + bias) + add, all but the product optional.
 */
#ifndef TGI_CUDA_GEMM_DENSE_SM80_CUH
#define TGI_CUDA_GEMM_DENSE_SM80_CUH

#include "cuda/gelu_math.cuh"
#include "cuda/gemm/sm80/gemm_finish_sm80.cuh"

#include "tegula/linear.h"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kDenseBand = 16; /* rows of tiles that blocks at work together share columns of */

template <typename T> struct dense_job {
  static constexpr int kGathers = 0;
  static constexpr bool kLists = false;
  mma_operand a, b;
  mma_result c, z, add; /* z: the sums with their bias; add: may be C */
  const void *bias;     /* [n]; NULL: none */
  tg_dtype bias_dtype;
  tg_activation activation;
  int64_t m, n;
  int steps, row_tiles, column_tiles;

  __device__ __forceinline__ int64_t tiles() const
  {
    return (int64_t)row_tiles * column_tiles;
  }

  template <typename Shape>
  __device__ __forceinline__ void place(mma_lists<Shape> &s, int64_t tile) const
  {
    if (threadIdx.x == 0) {
      const int64_t each = (int64_t)kDenseBand * column_tiles, band = tile / each;
      const int64_t left = row_tiles - band * kDenseBand, rest = tile - band * each;
      const int64_t high = left < kDenseBand ? left : kDenseBand, column_tile = rest / high;
      mma_place p = {};
      p.row0 = (band * kDenseBand + rest - column_tile * high) * Shape::kM;
      p.col0 = column_tile * Shape::kN;
      p.end = m;
      p.steps = steps;
      s.place = p;
    }
  }

  __device__ __forceinline__ int64_t a_lines(const mma_place &p, int *exist) const
  {
    *exist = (int)(m - p.row0);
    return p.row0;
  }

  __device__ __forceinline__ int64_t b_lines(const mma_place &p, int *exist) const
  {
    *exist = (int)(n - p.col0);
    return p.col0;
  }

  template <typename Shape>
  __device__ __forceinline__ int64_t a_column(const mma_place &p, int chunk, int *exist) const
  {
    *exist = clamp_chunk<kMmaElements<T>>(m - p.row0 - chunk * kMmaElements<T>);
    return p.row0 + chunk * kMmaElements<T>;
  }

  template <typename Shape>
  __device__ __forceinline__ int64_t b_column(const mma_place &p, int chunk, int *exist) const
  {
    *exist = clamp_chunk<kMmaElements<T>>(n - p.col0 - chunk * kMmaElements<T>);
    return p.col0 + chunk * kMmaElements<T>;
  }

  __device__ __forceinline__ int64_t step_at(int64_t) const
  {
    return 0;
  }

  __device__ __forceinline__ void activate(float (&v)[kMmaChunk]) const
  {
#pragma unroll
    for (int i = 0; i < kMmaChunk; i++) {
      v[i] = activation == TG_ACTIVATION_GELU_TANH ? gelu_tanh(v[i]) : gelu_erf(v[i]);
    }
  }

  template <typename Shape>
  __device__ __forceinline__ void finish(const mma_lists<Shape> &s, const float *sums,
                                         int first) const
  {
    constexpr int kChunks = Shape::kN / kMmaChunk, kDown = Shape::kThreads / kChunks;
    const mma_place p = s.place;
    const int chunk = (int)threadIdx.x % kChunks;
    const int64_t column = p.col0 + chunk * kMmaChunk;
    const int exist = clamp_chunk(n - column);
    float u[kMmaChunk];
#pragma unroll
    for (int i = 0; i < kMmaChunk; i++) {
      u[i] = bias && i < exist ? load_any(bias, bias_dtype, column + i) : 0.0f;
    }
#pragma unroll 1
    for (int row = (int)threadIdx.x / kChunks; row < Shape::kWarpM; row += kDown) {
      const int64_t r = p.row0 + first + row;
      if (r >= m || exist == 0) {
        break;
      }
      float v[kMmaChunk];
      load_sums(v, sums + row * Shape::kPitch + chunk * kMmaChunk);
#pragma unroll
      for (int i = 0; i < kMmaChunk; i++) {
        v[i] += u[i];
      }
      if (z.data) {
        store_chunk<T>(z, r * z.step + column, exist, v);
      }
      if (activation != TG_ACTIVATION_NONE) {
        activate(v);
      }
      if (add.data) {
        add_chunk<T>(add, r * add.step + column, exist, v);
      }
      store_chunk<T>(c, r * c.step + column, exist, v);
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
