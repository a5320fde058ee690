/* tg_memory_convert: elements from one dtype to another.
 *
 * Work       A row of the grid for each row of the tensors, a thread for each element of it.
 * Bound      Memory where both sides are contiguous along the columns; rows of a few tokens are
 *            bound by the launch.
 */
#include "cuda/vec.cuh"

namespace
{

constexpr int kThreads = 256;
constexpr int64_t kMostRows = 65535; /* of a grid */

struct convert_job {
  void *to;
  const void *from;
  int64_t rows, cols;
  int64_t to_row, to_col, from_row, from_col; /* elements */
};

template <typename T> __device__ __forceinline__ T converted(T v, T)
{
  return v; /* bits, so that every NaN stays the one it is */
}

template <typename T, typename F> __device__ __forceinline__ T converted(F v, T)
{
  return from_f32<T>(to_f32(v));
}

template <typename T, typename F>
__global__ void __launch_bounds__(kThreads) convert_rows_kernel(const convert_job job)
{
  for (int64_t row = blockIdx.y; row < job.rows; row += gridDim.y) {
    T *to = static_cast<T *>(job.to) + row * job.to_row;
    const F *from = static_cast<const F *>(job.from) + row * job.from_row;
    for (int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x; i < job.cols;
         i += (int64_t)gridDim.x * kThreads) {
      to[i * job.to_col] = converted(from[i * job.from_col], T());
    }
  }
}

template <typename T, typename F> tg_status convert(const tg_context *ctx, const convert_job &job)
{
  dim3 grid = grid_of(divide_up(job.cols, kThreads));
  grid.y = (unsigned)(job.rows < kMostRows ? job.rows : kMostRows);
  return launch(ctx, convert_rows_kernel<T, F>, grid, kThreads, 0, job);
}

template <typename T>
tg_status convert_from(const tg_context *ctx, const convert_job &job, tg_dtype from)
{
  switch (from) {
  case TG_F32:
    return convert<T, float>(ctx, job);
  case TG_F16:
    return convert<T, f16>(ctx, job);
  default:
    return convert<T, bf16>(ctx, job);
  }
}

} // namespace

extern "C" tg_status tgi_device_convert(const tg_context *ctx, const tg_tensor *to,
                                        const tg_tensor *from)
{
  convert_job job = {};
  job.to = to->data;
  job.from = from->data;
  job.rows = to->shape[0];
  job.cols = to->shape[1];
  job.to_row = tgi_stride(to, 0);
  job.to_col = tgi_stride(to, 1);
  job.from_row = tgi_stride(from, 0);
  job.from_col = tgi_stride(from, 1);
  switch (to->dtype) {
  case TG_F32:
    return convert_from<float>(ctx, job, from->dtype);
  case TG_F16:
    return convert_from<f16>(ctx, job, from->dtype);
  default:
    return convert_from<bf16>(ctx, job, from->dtype);
  }
}
