/**
 * Gradients of a normalisation's parameters from few rows, by blocks of the launch that makes dx:
 * partial sums would take longer to write and read than the rows themselves, and a second kernel
 * longer to start. The rows are read twice, at the same time, and no block waits for another. The
 * order of a sum depends on the shape alone.
 */
#ifndef TGI_CUDA_FEW_ROWS_CUH
#define TGI_CUDA_FEW_ROWS_CUH

#include "cuda/reduce.cuh"
#include "cuda/rows/column_sums.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int64_t kFewRows = 128;  /* with more, groups of rows take no longer */
constexpr int kFewColumns = kWarp; /* of a block, one for each lane: with so little to read, vectors
                                    * would only be more code */
constexpr int kColumnWarps = 16;   /* most of a block; they take the rows in turns, */
constexpr int kFewEach = 4;        /* each so many at once */

/** target[0][j] += sum(dy * n), target[1][j] += sum(dy), n = (x - mean) * rstd. */
struct few_rows {
  const void *x, *dy;
  const float *mean, *rstd; /* mean: NULL for 0 */
  int64_t x_step, dy_step, rows;
  column_sums sums;
};

inline unsigned few_rows_blocks(const few_rows &f)
{
  return (unsigned)divide_up(f.sums.cols, kFewColumns);
}

/**
 * run(groups, f) starts blocks for so many groups of rows, which make dx (NULL: absent), and blocks
 * for the sums. They come one after the other where dx replaces what the sums read.
 */
template <typename Run>
tg_status run_with_few_rows(few_rows f, unsigned groups, const void *dx, Run run)
{
  if (f.sums.cols > 0 && (!dx || dx == f.dy || dx == f.x)) {
    const tg_status status = run(0u, f);
    if (status != TG_OK || !dx) {
      return status;
    }
    f.sums.cols = 0;
  }
  return run(groups, f);
}

/** The columns of a block, by all of its threads: at least as many warps as targets. */
template <int kTargets, typename X, typename Y>
__device__ __forceinline__ void sum_few_rows(const few_rows &f, int block)
{
  __shared__ float parts[kColumnWarps][kTargets * kFewColumns];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int64_t j = (int64_t)block * kFewColumns + lane;
  const sum_target target = target_of(f.sums, warp);
  const bool ends = warp < kTargets && j < f.sums.cols && target.data;
  const uint32_t before = ends ? target_bits(target, j) : 0;
  const int64_t column = j < f.sums.cols ? j : f.sums.cols - 1;
  const X *x = static_cast<const X *>(f.x) + column;
  const Y *dy = static_cast<const Y *>(f.dy) + column;
  float sum[2] = {0, 0};
#pragma unroll 1
  for (int64_t first = warp; first < f.rows; first += kFewEach * warps) {
    X v[kFewEach];
    Y g[kFewEach];
    float mean[kFewEach], rstd[kFewEach];
#pragma unroll
    for (int u = 0; u < kFewEach; u++) { /* all on their way before the first is looked at */
      const int64_t next = first + u * warps, row = next < f.rows ? next : f.rows - 1;
      g[u] = dy[row * f.dy_step];
      v[u] = x[row * f.x_step];
      mean[u] = f.mean ? f.mean[row] : 0.0f;
      rstd[u] = f.rstd[row];
    }
#pragma unroll
    for (int u = 0; u < kFewEach; u++) {
      const bool there = first + u * warps < f.rows;
      const float d = there ? to_f32(g[u]) : 0.0f;
      sum[0] = fmaf(d, there ? (to_f32(v[u]) - mean[u]) * rstd[u] : 0.0f, sum[0]);
      sum[1] += d;
    }
  }
#pragma unroll
  for (int t = 0; t < kTargets; t++) {
    parts[warp][t * kFewColumns + lane] = sum[t];
  }
  __syncthreads();
  if (!ends) {
    return;
  }
  float total = 0;
  for (int i = 0; i < warps; i++) {
    total += parts[i][threadIdx.x]; /* of the first warps: one for a target */
  }
  add_to_target(target, j, before, total);
}

} // namespace TGI_CUDA_ENTRY

#endif
