/**
 * What Hopper's tiles that are stored in step (gemm_in_step_sm90.cuh) make of their sums: scales,
 * bias, saved values, GELU and residual, in f32, a block of columns at a time; then one rounding
 * and a page in shared memory.
 */
#ifndef TGI_CUDA_GEMM_FINISH_SM90_CUH
#define TGI_CUDA_GEMM_FINISH_SM90_CUH

#include "cuda/gelu_math.cuh"
#include "cuda/gemm/gemm_epilogue.cuh"
#include "cuda/gemm/sm90/gemm_sm90.cuh"
#include "cuda/scale_integer.cuh"

#include <type_traits>

extern "C" {
#include "tegula/linear.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** Of what, and how, a product is made. kActs: there may be an activation and saved values.
 * kScales: sums are multiplied by scales of their row and column. kApart: they are added up outside
 * of the tensor core. kParts: blocks of a cluster make a tile in parts. */
template <typename Operand, typename Result, bool kMayAct, bool kHasScales = false,
          bool kAddsApart = false, bool kInParts = false>
struct gemm_in_step_way {
  using operand = Operand;
  using result = Result; /* C may be f32, too */
  using sum = wgmma_sum<Operand>;
  static constexpr bool kActs = kMayAct, kScales = kHasScales, kApart = kAddsApart,
                        kParts = kInParts;
  static constexpr bool kIntegers = std::is_same_v<sum, int>;
  static_assert(kScales || !kIntegers, "integers have scales");
};

/** What becomes of the sums: z = sums + bias; C = act(z) + add. With scales: C = (sums * row_scale)
 * * column_scale + bias; of integers, sums less column_zero * row_sum are whole numbers of 32 bits
 * that f64 would be multiplied with row_scale in. */
struct gemm_in_step_job {
  gemm_dense_tiles tiles;
  int n;
  bool is_f32;      /* C, z and what is added; else the way's result */
  bool adds;        /* C += by TMA; f32 */
  const void *bias; /* NULL: none */
  tg_dtype bias_dtype;
  const void *add; /* NULL: none; may be C */
  int64_t add_step;
  void *z; /* NULL: not wanted */
  int64_t z_step;
  void *c; /* for rows that are not whole vectors of 16 bytes, which TMA cannot end; else NULL */
  int64_t c_step;
  bool loose; /* rows of C do not begin at such vectors, so that TMA stores nothing */
  tg_activation activation;
  const float *row_scale, *column_scale;
  bool one_column_scale; /* for all columns */
  const int32_t *row_sum;
  const int8_t *column_zero;

  __device__ __forceinline__ int first_column(int column_tile) const
  {
    return column_tile * run * 2;
  }

  __device__ __forceinline__ int second_column(int column_tile) const
  {
    return first_column(column_tile) + run;
  }

  int run; /* columns: half of a tile */
};

/** Two neighbours, of which `count` exist, from an address aligned to both. */
template <typename C> __device__ __forceinline__ float2 load_two(const C *from, int count)
{
  if (count < 2) {
    return make_float2(count == 1 ? to_f32(*from) : 0.0f, 0.0f);
  }
  float v[2];
  load(v, from);
  return make_float2(v[0], v[1]);
}

template <typename C>
__device__ __forceinline__ void store_two(C *to, int count, float first, float second)
{
  if (count >= 2) {
    const float v[2] = {first, second};
    store(to, v);
  } else if (count == 1) {
    *to = from_f32<C>(first);
  }
}

/** A thread's part of a block of `kColumns` columns: two rows, 8 apart, and two columns of every 8.
 */
struct gemm_part {
  int row, rows;       /* the first of its rows in C, and how many rows C has */
  int column, columns; /* likewise */

  __device__ __forceinline__ bool has_row(int i) const
  {
    return row + 8 * i < rows;
  }

  /** Of the pair j that exist. */
  __device__ __forceinline__ int count(int j) const
  {
    return columns - column - 8 * j;
  }
};

/** What is added to a thread's part of a block, from rows of an even number of columns. Pairs that
 * do not exist are others', which are not stored: without tests all loads are under way at once. */
template <typename C, int kValues> struct gemm_addends {
  using two = typename std::conditional<sizeof(C) == 2, uint32_t, float2>::type;
  two pair[kValues / 2];

  __device__ __forceinline__ void read(const gemm_part &at, const void *add, int64_t step)
  {
    const int last = at.columns - 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = at.has_row(i) ? at.row + 8 * i : at.rows - 1;
      const C *from = static_cast<const C *>(add) + row * step;
#pragma unroll
      for (int j = 0; j < kValues / 4; j++) {
        const int column = at.column + 8 * j;
        pair[2 * j + i] = *reinterpret_cast<const two *>(from + (column < last ? column : last));
      }
    }
  }

  __device__ __forceinline__ void add_to(float *v) const
  {
#pragma unroll
    for (int i = 0; i < kValues / 2; i++) {
      if constexpr (sizeof(C) == 2) {
        v[2 * i] += half_of<C>(pair[i], 0);
        v[2 * i + 1] += half_of<C>(pair[i], 1);
      } else {
        v[2 * i] += pair[i].x;
        v[2 * i + 1] += pair[i].y;
      }
    }
  }
};

/** The same of rows of an odd number of columns. */
template <typename C, int kValues>
__device__ __forceinline__ void gemm_add_rows(float *v, const gemm_part &at, const void *add,
                                              int64_t step)
{
  const C *from = static_cast<const C *>(add) + at.row * step + at.column;
  float2 more[kValues / 2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < kValues / 4; j++) {
      more[2 * j + i] = at.has_row(i) ? load_two(from + 8 * i * step + 8 * j, at.count(j))
                                      : make_float2(0.0f, 0.0f);
    }
  }
#pragma unroll
  for (int i = 0; i < kValues / 2; i++) {
    v[2 * i] += more[i].x;
    v[2 * i + 1] += more[i].y;
  }
}

template <typename C, int kValues>
__device__ __forceinline__ void gemm_save_rows(const float *v, const gemm_part &at, void *z,
                                               int64_t step)
{
  C *to = static_cast<C *>(z) + at.row * step + at.column;
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int j = 0; j < kValues / 4; j++) {
      if (at.has_row(i)) {
        store_two(to + 8 * i * step + 8 * j, at.count(j), v[4 * j + 2 * i], v[4 * j + 2 * i + 1]);
      }
    }
  }
}

/** The bias from memory: scales of columns have its place. */
template <int kValues>
__device__ __forceinline__ void gemm_add_bias_part(float *v, const gemm_in_step_job &job,
                                                   const gemm_part &at)
{
  if (job.bias) {
#pragma unroll
    for (int j = 0; j < kValues / 2; j++) {
      const int column = j / 2 * 8 + j % 2;
      const float b = at.column + column < at.columns
                          ? load_any(job.bias, job.bias_dtype, at.column + column)
                          : 0.0f;
      v[j / 2 * 4 + j % 2] += b;
      v[j / 2 * 4 + 2 + j % 2] += b;
    }
  }
}

/** Scaled sums and the bias. */
template <int kValues>
__device__ __forceinline__ void gemm_scale_part(float *v, const gemm_in_step_job &job,
                                                const gemm_part &at, const float *scale,
                                                const float (&row)[2])
{
#pragma unroll
  for (int j = 0; j < kValues / 4; j++) {
    const float2 s = *reinterpret_cast<const float2 *>(scale + 8 * j);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      v[4 * j + 2 * i] = v[4 * j + 2 * i] * row[i] * s.x;
      v[4 * j + 2 * i + 1] = v[4 * j + 2 * i + 1] * row[i] * s.y;
    }
  }
  gemm_add_bias_part<kValues>(v, job, at);
}

/** The same of integers: `v` from `sums`, which are within the range of scale_integer. */
template <int kValues>
__device__ __forceinline__ void
gemm_scale_integers(float *v, const int *sums, const gemm_in_step_job &job, const gemm_part &at,
                    const float *scale, const int8_t *zero, const float (&row)[2],
                    const int (&row_sum)[2])
{
#pragma unroll
  for (int j = 0; j < kValues / 4; j++) {
    const float2 s = *reinterpret_cast<const float2 *>(scale + 8 * j);
    const char2 z = *reinterpret_cast<const char2 *>(zero + 8 * j);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int *n = sums + 4 * j + 2 * i;
      v[4 * j + 2 * i] = scale_integer(n[0] - z.x * row_sum[i], row[i]) * s.x;
      v[4 * j + 2 * i + 1] = scale_integer(n[1] - z.y * row_sum[i], row[i]) * s.y;
    }
  }
  gemm_add_bias_part<kValues>(v, job, at);
}

/** Sums to values of C. */
template <typename C, int kValues, bool kActs>
__device__ __forceinline__ void gemm_finish_part(float *v, const gemm_in_step_job &job,
                                                 const gemm_part &at, const float *bias)
{
  if (job.bias) {
#pragma unroll
    for (int j = 0; j < kValues / 4; j++) {
      const float2 b = *reinterpret_cast<const float2 *>(bias + 8 * j);
      v[4 * j] += b.x;
      v[4 * j + 1] += b.y;
      v[4 * j + 2] += b.x;
      v[4 * j + 3] += b.y;
    }
  }
  if (kActs && job.z) {
    gemm_save_rows<C, kValues>(v, at, job.z, job.z_step);
  }
  if (kActs && job.activation == TG_ACTIVATION_GELU_TANH) {
#pragma unroll
    for (int i = 0; i < kValues; i++) {
      v[i] = gelu_tanh<C>(v[i]);
    }
  } else if (kActs && job.activation == TG_ACTIVATION_GELU_ERF) {
#pragma unroll
    for (int i = 0; i < kValues; i++) {
      v[i] = gelu_erf<C>(v[i]);
    }
  }
}

/** Leaves a warpgroup's block of 64 rows of 128 bytes as a page: 64 columns of T or 32 of f32. */
template <typename C> __device__ __forceinline__ void gemm_leave_page(const float *v, uint32_t page)
{
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % kWarpgroup / 32;
  if constexpr (sizeof(C) == 2) {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const float *w = v + 4 * j;
      store_matrices(page_chunk(page, 16 * warp + lane % 16, j + lane / 16),
                     round_pair<C>(w[0], w[1]), round_pair<C>(w[2], w[3]),
                     round_pair<C>(w[4], w[5]), round_pair<C>(w[6], w[7]));
    }
  } else {
    const int row = 16 * warp + lane / 4, q = lane % 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const uint32_t to = page_chunk(page, row, 2 * j + q / 2) + q % 2 * 8;
      store_pair(to, v[4 * j], v[4 * j + 1]);
      store_pair(to + 8 * kPageRow, v[4 * j + 2], v[4 * j + 3]);
    }
  }
}

/** A thread's scales of a tile: of its two rows, and some of the columns; of integers sums of rows
 * and zero points of columns, too. They are read before the products, beside which they come, and
 * shared behind these. */
template <int kN, bool kIntegers> struct gemm_scales {
  static constexpr int kEach = kN / kWarpgroup; /* columns of a thread */
  float row[2], column[kEach];
  int row_sum[2];
  int8_t zero[kEach];

  /** Where the zero points of a warpgroup lie in shared memory: behind both's scales. */
  __device__ __forceinline__ static int8_t *zeros(const gemm_shared &s, int consumer)
  {
    return reinterpret_cast<int8_t *>(s.bias + kGemmConsumers * kN) + consumer * kN;
  }

  __device__ __forceinline__ void read(const gemm_in_step_job &job, const gemm_place &p,
                                       int consumer)
  {
    const int thread = (int)threadIdx.x % kWarpgroup;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int line = p.row + 64 * consumer + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
      row[i] = line < job.tiles.m ? job.row_scale[line] : 0.0f;
      if (kIntegers) {
        row_sum[i] = line < job.tiles.m ? job.row_sum[line] : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int at = p.column_tile * kN + i * kWarpgroup + thread;
      column[i] = at < job.n ? job.column_scale[job.one_column_scale ? 0 : at] : 0.0f;
      if (kIntegers) {
        zero[i] = at < job.n ? job.column_zero[at] : (int8_t)0;
      }
    }
  }

  __device__ __forceinline__ void share(float *to, int8_t *zeros_to) const
  {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      to[i * kWarpgroup + threadIdx.x % kWarpgroup] = column[i];
      if (kIntegers) {
        zeros_to[i * kWarpgroup + threadIdx.x % kWarpgroup] = zero[i];
      }
    }
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
