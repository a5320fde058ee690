/** Rows of experts times their weights as a job of gemm_sm80.cuh: y of the forward, dx of the
 * backward. */
#ifndef TGI_OPS_EXPERT_ROWS_SM80_CUH
#define TGI_OPS_EXPERT_ROWS_SM80_CUH

#include "cuda/gemm/sm80/gemm_finish_sm80.cuh"
#include "ops/grouped_linear/expert_product.cuh"
#include "ops/shared/gated/gated_act.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kExpertBand = 16; /* rows of tiles that blocks at work together share columns of */

/**
 *   z = sums + bias       rounded where it is stored; 0 in rows of no expert
 *   y = act(gate, up)     of the rounded z; halves: gate is a tile's first half of columns, up its
 *                         second; else gate and up are neighbours
 */
template <typename T> struct expert_rows_job {
  static constexpr int kGathers = 0;
  static constexpr bool kLists = true;
  expert_tiles group; /* of Shape::kM rows */
  row_sources sources;
  mma_operand a, b;
  expert_matrix bias;
  mma_result z, y; /* y: of the activation */
  gated_act<T> act;
  int n, half; /* columns of z; of gated halves n / 2, else 0 */
  int steps, column_tiles;

  __device__ __forceinline__ int64_t tiles() const
  {
    return group.first_tile[group.experts + 1] * column_tiles;
  }

  /** First column of a tile's chunk of 8, and how many there are of it. */
  template <int kN>
  __device__ __forceinline__ int64_t column_of(int64_t col0, int at, int *exist) const
  {
    const bool second = half && at >= kN / 2;
    const int64_t within = col0 + (second ? at - kN / 2 : at);
    *exist = clamp_chunk((half ? half : n) - within);
    return second ? within + half : within;
  }

  template <typename Shape>
  __device__ __forceinline__ void place(mma_lists<Shape> &s, int64_t tile) const
  {
    const int64_t rows = group.first_tile[group.experts + 1], each = kExpertBand * column_tiles;
    const int64_t band = tile / each, rest = tile - band * each;
    const int64_t left = rows - band * kExpertBand, high = left < kExpertBand ? left : kExpertBand;
    const int64_t column_tile = rest / high, row_tile = band * kExpertBand + rest % high;
    for (int64_t e = threadIdx.x; e <= group.experts; e += Shape::kThreads) {
      const int64_t first = group.first_tile[e];
      if (first <= row_tile && row_tile < group.first_tile[e + 1]) {
        mma_place p = {};
        p.row0 = group.bound[e] + (row_tile - first) * Shape::kM;
        p.col0 = column_tile * (half ? Shape::kN / 2 : Shape::kN);
        p.end = group.bound[e + 1];
        p.group = e < group.experts ? e : 0;
        p.steps = e < group.experts ? steps : 0;
        p.leads = column_tile == 0;
        p.none = e == group.experts;
        s.place = p;
      }
    }
  }

  __device__ __forceinline__ int64_t a_line(const mma_place &p, int i) const
  {
    const int64_t r = p.row0 + i;
    if (p.none || r >= p.end) {
      return 0;
    }
    const int64_t from = sources.of(r, p.leads);
    return from < 0 ? kBadRow : from;
  }

  template <typename Shape>
  __device__ __forceinline__ int64_t b_line(const mma_place &p, int i) const
  {
    int exist;
    const int64_t column = column_of<Shape::kN>(p.col0, i, &exist);
    return exist > 0 ? column : 0;
  }

  template <typename Shape>
  __device__ __forceinline__ int64_t b_column(const mma_place &p, int chunk, int *exist) const
  {
    return column_of<Shape::kN>(p.col0, chunk * kMmaChunk, exist);
  }

  template <typename Shape>
  __device__ __forceinline__ int64_t a_column(const mma_place &, int, int *exist) const
  {
    *exist = 0;
    return 0;
  }

  __device__ __forceinline__ int64_t step_at(int64_t) const
  {
    return 0;
  }

  __device__ __forceinline__ void load_bias(float (&v)[kMmaChunk], const mma_place &p,
                                            int64_t column, int exist) const
  {
#pragma unroll
    for (int i = 0; i < kMmaChunk; i++) {
      v[i] = bias.data && !p.none && i < exist
                 ? load_any(bias.data, bias.dtype, p.group * bias.row_step + column + i)
                 : 0.0f;
    }
  }

  /** z of a chunk, as it is stored. */
  __device__ __forceinline__ void make(float (&v)[kMmaChunk], const float *sums,
                                       const float (&bias_of)[kMmaChunk], bool bad) const
  {
    load_sums(v, sums);
#pragma unroll
    for (int i = 0; i < kMmaChunk; i++) {
      v[i] = bad ? CUDART_NAN_F : v[i] + bias_of[i];
    }
    round_chunk<T>(z.data ? z.dtype : y.dtype, v);
  }

  /** 8 of y from two chunks of z. */
  __device__ __forceinline__ void activate(float (&to)[kMmaChunk], const float (&u)[kMmaChunk],
                                           const float (&v)[kMmaChunk]) const
  {
#pragma unroll
    for (int i = 0; i < kMmaChunk; i++) {
      const float gate = half ? u[i] : i < 4 ? u[2 * i % 8] : v[2 * i % 8];
      const float up = half ? v[i] : i < 4 ? u[2 * i % 8 + 1] : v[2 * i % 8 + 1];
      to[i] = act(gate, up);
    }
  }

  /** A thread has two chunks of every few rows. */
  template <typename Shape>
  __device__ __forceinline__ void finish(const mma_lists<Shape> &s, const float *sums,
                                         int first) const
  {
    constexpr int kPairs = Shape::kN / 16, kDown = Shape::kThreads / kPairs;
    const mma_place p = s.place;
    const bool all_bad = *group.bad != 0;
    const int pair = (int)threadIdx.x % kPairs;
    const int c0 = half ? pair : 2 * pair, c1 = half ? pair + kPairs : 2 * pair + 1;
    int exist0, exist1;
    const int64_t n0 = column_of<Shape::kN>(p.col0, c0 * kMmaChunk, &exist0);
    const int64_t n1 = column_of<Shape::kN>(p.col0, c1 * kMmaChunk, &exist1);
    const int exist_y = half ? exist0 : (exist0 + exist1) / 2;
    const int64_t y0 = half ? n0 : n0 / 2;
    float bias0[kMmaChunk], bias1[kMmaChunk], u[kMmaChunk], v[kMmaChunk], w[kMmaChunk];
    load_bias(bias0, p, n0, exist0);
    load_bias(bias1, p, n1, exist1);
#pragma unroll 1
    for (int row = (int)threadIdx.x / kPairs; row < Shape::kWarpM; row += kDown) {
      const int64_t r = p.row0 + first + row;
      if (r >= p.end || exist0 == 0) {
        break;
      }
      const bool bad = all_bad || (!p.none && s.bad[first + row]);
      const float *from = sums + row * Shape::kPitch;
      make(u, from + c0 * kMmaChunk, bias0, bad);
      make(v, from + c1 * kMmaChunk, bias1, bad);
      if (z.data) {
        store_chunk<T>(z, r * z.step + n0, exist0, u);
        store_chunk<T>(z, r * z.step + n1, exist1, v);
      }
      if (y.data) {
        activate(w, u, v);
        store_chunk<T>(y, r * y.step + y0, exist_y, w);
      }
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
