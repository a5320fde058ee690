/** Products over the rows of each expert as a job of gemm_sm80.cuh: gradients of weights. */
#ifndef TGI_OPS_EXPERT_STEPS_SM80_CUH
#define TGI_OPS_EXPERT_STEPS_SM80_CUH

#include "cuda/gemm/sm80/gemm_finish_sm80.cuh"
#include "ops/grouped_linear/expert_product.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** c[e][m, n] (+)= sum of a[r, m] * b[r, n] over the rows r of e; of the one that kGathersOf says,
 * r is a row of `sources`. */
template <typename T, int kGathersOf> struct expert_steps_job {
  static constexpr int kGathers = kGathersOf;
  static constexpr bool kLists = true;
  expert_tiles group;
  row_sources sources;
  mma_operand a, b;
  mma_result c;
  int64_t c_step; /* of experts */
  int m, n;
  int row_tiles, column_tiles;
  bool overwrite;

  __device__ __forceinline__ int64_t tiles() const
  {
    return group.experts * row_tiles * column_tiles;
  }

  template <typename Shape>
  __device__ __forceinline__ void place(mma_lists<Shape> &s, int64_t tile) const
  {
    if (threadIdx.x == 0) {
      const int64_t each = (int64_t)row_tiles * column_tiles, e = tile / each;
      const int rest = (int)(tile - e * each), column_tile = rest / row_tiles;
      mma_place p = {};
      p.group = e;
      p.row0 = (int64_t)(rest - column_tile * row_tiles) * Shape::kM;
      p.col0 = (int64_t)column_tile * Shape::kN;
      p.end = m;
      p.first = group.bound[e];
      p.steps = (int)(group.bound[e + 1] - p.first);
      p.leads = rest == 0;
      p.skips = p.steps == 0 && !overwrite && *group.bad == 0;
      s.place = p;
    }
  }

  template <typename Shape>
  __device__ __forceinline__ int64_t a_column(const mma_place &p, int chunk, int *exist) const
  {
    *exist = clamp_chunk(m - p.row0 - chunk * kMmaChunk);
    return p.row0 + chunk * kMmaChunk;
  }

  template <typename Shape>
  __device__ __forceinline__ int64_t b_column(const mma_place &p, int chunk, int *exist) const
  {
    *exist = clamp_chunk(n - p.col0 - chunk * kMmaChunk);
    return p.col0 + chunk * kMmaChunk;
  }

  __device__ __forceinline__ int64_t a_line(const mma_place &, int) const
  {
    return 0;
  }

  template <typename Shape> __device__ __forceinline__ int64_t b_line(const mma_place &, int) const
  {
    return 0;
  }

  __device__ __forceinline__ int64_t step_at(int64_t r) const
  {
    const int64_t from = sources.of(r, false);
    return from < 0 ? kBadRow : from;
  }

  template <typename Shape>
  __device__ __forceinline__ void finish(const mma_lists<Shape> &s, const float *sums,
                                         int first) const
  {
    constexpr int kChunks = Shape::kN / kMmaChunk, kDown = Shape::kThreads / kChunks;
    const mma_place p = s.place;
    if (s.bad_step && p.leads) { /* which, is recorded by one tile */
      for (int k = (int)threadIdx.x; k < p.steps; k += Shape::kThreads) {
        sources.of(p.first + k, true);
      }
    }
    const bool bad = *group.bad != 0 || s.bad_step;
    const int chunk = (int)threadIdx.x % kChunks;
    const int64_t column = p.col0 + chunk * kMmaChunk;
    const int exist = clamp_chunk(n - column);
#pragma unroll 1
    for (int row = (int)threadIdx.x / kChunks; row < Shape::kWarpM; row += kDown) {
      const int64_t r = p.row0 + first + row;
      if (r >= p.end || exist == 0) {
        break;
      }
      float v[kMmaChunk];
      load_sums(v, sums + row * Shape::kPitch + chunk * kMmaChunk);
      const int64_t at = p.group * c_step + r * c.step + column;
      if (!overwrite) {
        add_chunk<T>(c, at, exist, v);
      }
#pragma unroll
      for (int i = 0; i < kMmaChunk; i++) {
        v[i] = bad ? CUDART_NAN_F : v[i];
      }
      store_chunk<T>(c, at, exist, v);
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
