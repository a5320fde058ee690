/**
 * Sums over the rows of a matrix, for gradients of parameters: groups of rows, whose number is a
 * matter of the shape alone, each leave a row of f32 partial sums, and a second kernel adds these
 * in an order of their own. No atomics: the same bits on every run and every GPU.
 */
#ifndef TGI_CUDA_COLUMN_SUMS_CUH
#define TGI_CUDA_COLUMN_SUMS_CUH

#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Twice the multiprocessors of an H200; a smaller GPU takes the groups in a few rounds. */
constexpr int kRowGroupsMax = 264;

/** Groups for rows that are taken `at_once` by a group: as few as take the same time. */
inline int64_t row_groups(int64_t rows, int at_once)
{
  const int64_t turns = divide_up(rows, (int64_t)at_once * kRowGroupsMax);
  return divide_up(rows, turns * at_once);
}

/** Floats from one row of partial sums to the next: vectors may end past the last column. */
__host__ __device__ constexpr int64_t partial_step(int64_t cols)
{
  return divide_up(cols, 16) * 16;
}

/** target[t][j] += the partial sums [groups][targets][cols]; an absent target is skipped. */
struct column_sums {
  const float *partial;
  void *target[2]; /* NULL: absent */
  tg_dtype dtype[2];
  int64_t groups, cols, step; /* step: floats between partial sums of targets and groups */
  int targets;
};

inline column_sums column_sums_of(const void *partial, int64_t groups, int64_t cols)
{
  column_sums s = {};
  s.partial = static_cast<const float *>(partial);
  s.groups = groups, s.cols = cols, s.step = partial_step(cols);
  return s;
}

inline void add_target(column_sums &s, const tg_tensor *target)
{
  s.target[s.targets] = target->data;
  s.dtype[s.targets] = target->dtype;
  s.targets++;
}

namespace
{

constexpr int kSumColumns = 32, kSumSlices = 32;

struct sum_target {
  void *data;
  tg_dtype dtype;
};

/** An index that is no constant would have the kernel copy its parameters to memory first. */
__device__ __forceinline__ sum_target target_of(const column_sums &s, int t)
{
  return t == 0 ? sum_target{s.target[0], s.dtype[0]} : sum_target{s.target[1], s.dtype[1]};
}

/** Column j of a target as it lies in memory. To be read before the sum is made, which then need
 * not wait for it. */
__device__ __forceinline__ uint32_t target_bits(const sum_target &t, int64_t j)
{
  return t.dtype == TG_F32 ? static_cast<const uint32_t *>(t.data)[j]
                           : static_cast<const uint16_t *>(t.data)[j];
}

/** Column j of a target, whose bits were `bits`, += sum. */
__device__ __forceinline__ void add_to_target(const sum_target &t, int64_t j, uint32_t bits,
                                              float sum)
{
  switch (t.dtype) {
  case TG_F32:
    static_cast<float *>(t.data)[j] = __uint_as_float(bits) + sum;
    break;
  case TG_F16:
    static_cast<f16 *>(t.data)[j] = from_f32<f16>(to_f32(__ushort_as_half((uint16_t)bits)) + sum);
    break;
  default:
    static_cast<bf16 *>(t.data)[j] = from_f32<bf16>(__uint_as_float(bits << 16) + sum);
    break;
  }
}

/** A block for 32 columns: each warp adds every 32nd group, the first warp adds the warps. */
template <int kSlices>
__global__ void __launch_bounds__(kSumColumns *kSlices) column_sums_kernel(const column_sums s)
{
  __shared__ float sums[kSlices][kSumColumns];
  const int lane = threadIdx.x % kSumColumns, slice = threadIdx.x / kSumColumns, t = blockIdx.y;
  const int64_t j = (int64_t)blockIdx.x * kSumColumns + lane;
  const sum_target target = target_of(s, t);
  if (!target.data) {
    return;
  }
  const bool ends = slice == 0 && j < s.cols;
  const uint32_t before = ends ? target_bits(target, j) : 0;
  float sum = 0;
  if (j < s.cols) {
#pragma unroll 8
    for (int64_t group = slice; group < s.groups; group += kSlices) {
      sum += s.partial[(group * s.targets + t) * s.step + j];
    }
  }
  sums[slice][lane] = sum;
  __syncthreads();
  if (!ends) {
    return;
  }
  sum = 0;
#pragma unroll
  for (int i = 0; i < kSlices; i++) {
    sum += sums[i][lane];
  }
  add_to_target(target, j, before, sum);
}

inline tg_status add_column_sums(const tg_context *ctx, const column_sums &s)
{
  const dim3 grid((unsigned)divide_up(s.cols, kSumColumns), (unsigned)s.targets);
  return launch(ctx, column_sums_kernel<kSumSlices>, grid, kSumColumns * kSumSlices, 0, s);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
