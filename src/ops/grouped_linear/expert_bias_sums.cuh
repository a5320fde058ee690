/**
 * Sums of columns over each expert's rows on CUDA: gradients of biases.
 *
 * Method  A block adds up 32 columns of an expert, or 32 pairs: warp i of eight adds rows i, i + 8,
 * .. of each group of 64 rows, then the groups' sums; in the end the eight totals are added in
 *         order.
 */
#ifndef TGI_OPS_EXPERT_BIAS_SUMS_CUH
#define TGI_OPS_EXPERT_BIAS_SUMS_CUH

#include "ops/grouped_linear/expert_product.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kBiasGroup = 64, kBiasSlices = 8, kBiasThreads = kBiasSlices * kWarp;

/** A gradient of parameters: += the sum, or = it. */
struct gradient {
  void *data;
  tg_dtype dtype;
  bool overwrite;

  __device__ __forceinline__ void add(int64_t at, float sum) const
  {
    store_any(data, dtype, at, overwrite ? sum : load_any(data, dtype, at) + sum);
  }
};

inline gradient gradient_of(const tg_tensor *t, bool overwrite)
{
  return {t->data, t->dtype, overwrite};
}

/** The weights of slots [tokens, k]. By value to kernels. */
struct slot_weights {
  const void *data; /* NULL: none */
  tg_dtype dtype;
  int64_t step;

  /** Of row r, whose slot is in range. */
  __device__ __forceinline__ float of(const row_sources &sources, int64_t r) const
  {
    const int s = sources.slot[r], t = s / sources.slots_per_row;
    return load_any(data, dtype, t * step + (s - t * sources.slots_per_row));
  }
};

/** to[e, n] += sum of dy[g(r), n] over the rows of e, each times its weight where there are. */
struct bias_sums {
  expert_tiles tiles;
  row_sources sources; /* no slot: g(r) is r */
  slot_weights weights;
  expert_matrix dy;
  gradient to;
  int64_t to_step, cols, column_tiles;
};

namespace
{

constexpr int kBiasRows = kBiasGroup / kBiasSlices; /* of a warp in a group */

/* Adds columns n .. n + kCols - 1 of rows r, r + 8, .. of a group that ends at `end`: all of them
 * are under way at once. NaN where a slot is out of range. */
template <typename T, int kCols>
__device__ __forceinline__ void add_group(float (&total)[kCols], const bias_sums &p, int64_t r,
                                          int64_t end, int64_t n)
{
  int64_t from[kBiasRows];
  float v[kBiasRows][kCols], w[kBiasRows], sum[kCols];
#pragma unroll
  for (int i = 0; i < kBiasRows; i++) {
    const int64_t row = r + i * kBiasSlices;
    from[i] = row < end ? p.sources.of(row, n == 0) : -1;
    w[i] = p.weights.data && from[i] >= 0 ? p.weights.of(p.sources, row) : 1.0f;
  }
  const T *dy = static_cast<const T *>(p.dy.data) + n;
#pragma unroll
  for (int i = 0; i < kBiasRows; i++) {
    load(v[i], dy + (from[i] < 0 ? 0 : from[i]) * p.dy.row_step);
  }
#pragma unroll
  for (int c = 0; c < kCols; c++) {
    sum[c] = 0;
#pragma unroll
    for (int i = 0; i < kBiasRows; i++) {
      if (r + i * kBiasSlices < end) {
        sum[c] += from[i] < 0 ? CUDART_NAN_F : v[i][c] * w[i];
      }
    }
    total[c] += sum[c];
  }
}

template <typename T, int kCols>
__device__ __forceinline__ void add_groups(float (&total)[kCols], const bias_sums &p, int64_t first,
                                           int64_t end, int64_t n)
{
  for (int64_t group = first; group < end; group += kBiasGroup) {
    add_group<T>(total, p, group + threadIdx.x / kWarp, end, n);
  }
}

/* 1024 threads of a multiprocessor: left to itself, the compiler spills to fit twice as many. */
template <int kCols>
__global__ void __launch_bounds__(kBiasThreads, resident_blocks(kBiasThreads, 1024 / kBiasThreads))
    expert_bias_sums_kernel(const bias_sums p)
{
  __shared__ float sums[kBiasSlices][kCols * kWarp];
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const int64_t tiles = p.tiles.experts * p.column_tiles;
  const bool bad = *p.tiles.bad != 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t e = tile / p.column_tiles;
    const int64_t n = ((tile - e * p.column_tiles) * kWarp + lane) * kCols;
    const int64_t first = p.tiles.bound[e], end = p.tiles.bound[e + 1];
    float total[kCols] = {};
    if (n < p.cols) {
      if (p.dy.dtype == TG_F32) {
        add_groups<float>(total, p, first, end, n);
      } else if (p.dy.dtype == TG_F16) {
        add_groups<f16>(total, p, first, end, n);
      } else {
        add_groups<bf16>(total, p, first, end, n);
      }
    }
#pragma unroll
    for (int c = 0; c < kCols; c++) {
      sums[slice][c * kWarp + lane] = total[c];
    }
    __syncthreads();
    if (slice < kCols && n < p.cols && (first < end || p.to.overwrite || bad)) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kBiasSlices; i++) {
        sum += sums[i][slice * kWarp + lane];
      }
      p.to.add(e * p.to_step + n + slice, bad ? CUDART_NAN_F : sum);
    }
    __syncthreads();
  }
}

} // namespace

inline tg_status add_bias_sums(const tg_context *ctx, bias_sums p, const tg_tensor *to,
                               bool overwrite)
{
  constexpr int kPair = 2;
  p.to = gradient_of(to, overwrite);
  p.to_step = tgi_stride(to, 0);
  p.cols = to->shape[1];
  const int64_t bytes = kPair * (int64_t)tg_dtype_bytes(p.dy.dtype);
  const bool pairs = p.cols % kPair == 0 && p.dy.row_step % kPair == 0 &&
                     (uintptr_t)p.dy.data % (uintptr_t)bytes == 0;
  p.column_tiles = divide_up(p.cols, (int64_t)kWarp * (pairs ? kPair : 1));
  return launch(ctx, pairs ? expert_bias_sums_kernel<kPair> : expert_bias_sums_kernel<1>,
                grid_of(p.tiles.experts * p.column_tiles), kBiasThreads, 0, p);
}

} // namespace TGI_CUDA_ENTRY

#endif
