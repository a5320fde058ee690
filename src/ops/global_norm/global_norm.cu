/* Global norm on CUDA.
 *
 * Method     Each block adds the squares of 65536 elements of one tensor, one block then adds their
 *            sums in order. A thread adds the squares of 16 bytes in f32, and again in f64 where
 *            the sum is no healthy f32; everything after that is f64.
 * Work       A block for every 65536 elements or part of a tensor; tables of 120 tensors a launch.
 * Bound      Memory: reads every element once.
 */
#include "cuda/reduce.cuh"
#include "cuda/tensor_list.cuh"
#include "cuda/vec.cuh"
#include "ops/kernels.cuh"

#include <float.h>

extern "C" {
#include "ops/shared/lists/list_chunks.h"
}

namespace
{

constexpr int kChunk = 65536, kThreads = 256, kRoom = 120;

/* Below this, squares may have lost bits to denormals or vanished. */
constexpr float kSmallestSum = 0x1p-80f;

struct norm_entry {
  const void *data;
  int64_t count, first;
  int dtype;
};

using norm_table = tensor_table<norm_entry, kRoom>;
static_assert(sizeof(norm_table) + 16 <= 4096, "kernel parameters");

template <int kN> __device__ __forceinline__ double sum_of_squares(const float (&v)[kN])
{
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kN; i++) {
    sum = fmaf(v[i], v[i], sum);
  }
  if (sum >= kSmallestSum && sum <= FLT_MAX) {
    return (double)sum;
  }
  double exact = 0.0;
#pragma unroll
  for (int i = 0; i < kN; i++) {
    exact = fma((double)v[i], (double)v[i], exact);
  }
  return exact;
}

/* A thread's part of elements [0, n) of x; the same bits on either way. */
template <typename T> __device__ __forceinline__ double thread_sum(const T *x, int n)
{
  constexpr int kN = kLanes<T>;
  const bool aligned = (uintptr_t)x % 16 == 0;
  double sum = 0.0;
  if (aligned && n == kChunk) {
#pragma unroll 4
    for (int k = 0; k < kChunk / (kThreads * kN); k++) {
      float v[kN];
      load(v, x + (k * kThreads + threadIdx.x) * kN);
      sum += sum_of_squares(v);
    }
    return sum;
  }
#pragma unroll 1
  for (int j = threadIdx.x * kN; j < n; j += kThreads * kN) {
    float v[kN];
    if (aligned && j + kN <= n) {
      load(v, x + j);
    } else {
#pragma unroll
      for (int i = 0; i < kN; i++) {
        v[i] = j + i < n ? to_f32(x[j + i]) : 0.0f;
      }
    }
    sum += sum_of_squares(v);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    global_norm_fwd_chunk_kernel(const norm_table table, double *partial)
{
  __shared__ double scratch[kWarp];
  for (int64_t block = blockIdx.x; block < table.blocks; block += gridDim.x) {
    const norm_entry &e = entry_of(table, block);
    const int64_t first = (block - e.first) * kChunk, left = e.count - first;
    const int n = (int)(left < kChunk ? left : kChunk);
    double sum[1];
    if (e.dtype == TG_F32) {
      sum[0] = thread_sum((const float *)e.data + first, n);
    } else if (e.dtype == TG_F16) {
      sum[0] = thread_sum((const f16 *)e.data + first, n);
    } else {
      sum[0] = thread_sum((const bf16 *)e.data + first, n);
    }
    block_sum(sum, scratch);
    if (threadIdx.x == 0) {
      partial[block] = sum[0];
    }
    __syncthreads(); /* the scratch is free again */
  }
}

__global__ void __launch_bounds__(1024)
    global_norm_fwd_kernel(const double *partial, int64_t count, float *norm, float *clip,
                           float max_norm)
{
  __shared__ double scratch[kWarp];
  double sum[1] = {0.0};
  for (int64_t i = threadIdx.x; i < count; i += 1024) {
    sum[0] += partial[i];
  }
  block_sum(sum, scratch);
  if (threadIdx.x == 0) {
    const float result = (float)sqrt(sum[0]);
    norm[0] = result;
    if (clip) {
      const float factor = max_norm / (result + 1e-6f);
      clip[0] = !(result <= FLT_MAX) ? CUDART_NAN_F : factor < 1.0f ? factor : 1.0f;
    }
  }
}

} // namespace

extern "C" size_t TGI_WORKSPACE(global_norm_fwd)(const tg_context *,
                                                 const tg_global_norm_fwd_args *a)
{
  return (size_t)count_chunks(a->tensors, a->num_tensors, kChunk) * sizeof(double);
}

extern "C" tg_status TGI_KERNEL(global_norm_fwd)(const tg_context *ctx,
                                                 const tg_global_norm_fwd_args *a)
{
  double *const partial = (double *)a->workspace;
  int64_t done = 0;
  norm_table table = {};
  tg_status status = TG_OK;
  for (int64_t i = 0; i < a->num_tensors && status == TG_OK; i++) {
    const tg_tensor *t = &a->tensors[i];
    const int64_t count = tgi_numel(t);
    if (count > 0) {
      table.entry[table.count++] = {t->data, count, table.blocks, (int)t->dtype};
      table.blocks += divide_up(count, kChunk);
    }
    if (table.count == kRoom || (i + 1 == a->num_tensors && table.count > 0)) {
      status = launch(ctx, global_norm_fwd_chunk_kernel, grid_of(table.blocks), kThreads, 0, table,
                      partial + done);
      done += table.blocks;
      table.count = 0;
      table.blocks = 0;
    }
  }
  if (status != TG_OK) {
    return status;
  }
  return launch(ctx, global_norm_fwd_kernel, dim3(1), 1024, 0, partial, done, (float *)a->norm.data,
                tgi_present(&a->clip) ? (float *)a->clip.data : nullptr, a->max_norm);
}

extern "C" void TGI_PLAN(global_norm_fwd)(const tg_context *, const tg_global_norm_fwd_args *a,
                                          char *text, size_t bytes)
{
  snprintf(text, bytes, "%lld chunks of %d elements, a block each; then one block",
           (long long)count_chunks(a->tensors, a->num_tensors, kChunk), kChunk);
}
