/* tg_memory_put: rows to a place, or each to a place of its own, that the device knows.
 *
 * Work       A row of the grid for each row of the tensor, a thread for each word of it: 16 bytes
 *            where all addresses allow it, else an element.
 * Bound      A launch: rows are those of a few tokens.
 */
#include "cuda/launch.cuh"

extern "C" {
#include "core/tensor_view.h"
}

namespace
{

constexpr int kThreads = 256;
constexpr int64_t kMostRows = 65535; /* of a grid */

struct put_job {
  char *to;
  const char *from;
  const int32_t *index;
  int64_t rows, places, words;            /* words of a row */
  int64_t index_step;                     /* 0: one place for all rows */
  int64_t to_step, place_step, from_step; /* bytes */
};

template <typename W> __global__ void __launch_bounds__(kThreads) put_rows_kernel(const put_job job)
{
  for (int64_t row = blockIdx.y; row < job.rows; row += gridDim.y) {
    const int64_t place = job.index[row * job.index_step];
    if (place < 0 || place >= job.places) {
      continue;
    }
    W *to = reinterpret_cast<W *>(job.to + row * job.to_step + place * job.place_step);
    const W *from = reinterpret_cast<const W *>(job.from + row * job.from_step);
    for (int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x; i < job.words;
         i += (int64_t)gridDim.x * kThreads) {
      to[i] = from[i];
    }
  }
}

template <typename W> tg_status put(const tg_context *ctx, put_job job, int64_t row_bytes)
{
  job.words = row_bytes / (int64_t)sizeof(W);
  dim3 grid = grid_of(divide_up(job.words, kThreads));
  grid.y = (unsigned)(job.rows < kMostRows ? job.rows : kMostRows);
  return launch(ctx, put_rows_kernel<W>, grid, kThreads, 0, job);
}

} // namespace

extern "C" tg_status tgi_device_put(const tg_context *ctx, const tg_tensor *to,
                                    const tg_tensor *from, const tg_tensor *index)
{
  const int64_t element = (int64_t)tg_dtype_bytes(to->dtype);
  const int64_t row_bytes = to->shape[2] * element;
  put_job job = {};
  job.to = static_cast<char *>(to->data);
  job.from = static_cast<const char *>(from->data);
  job.index = static_cast<const int32_t *>(index->data);
  job.rows = to->shape[0];
  job.places = to->shape[1];
  job.index_step = index->shape[0] > 1;
  job.to_step = tgi_stride(to, 0) * element;
  job.place_step = tgi_stride(to, 1) * element;
  job.from_step = tgi_stride(from, 0) * element;
  const uint64_t bits = (uint64_t)(uintptr_t)job.to | (uint64_t)(uintptr_t)job.from |
                        (uint64_t)job.to_step | (uint64_t)job.place_step | (uint64_t)job.from_step |
                        (uint64_t)row_bytes;
  if (bits % sizeof(uint4) == 0) {
    return put<uint4>(ctx, job, row_bytes);
  }
  switch (element) {
  case 1:
    return put<uint8_t>(ctx, job, row_bytes);
  case 2:
    return put<uint16_t>(ctx, job, row_bytes);
  case 4:
    return put<uint32_t>(ctx, job, row_bytes);
  default:
    return put<uint64_t>(ctx, job, row_bytes);
  }
}
