/**
 * Rows of x in the order of the experts: products on Hopper load tiles whose rows follow each
 * other. A slot out of range is recorded, and its row NaN.
 *
 * Method  A warp copies a row, 16 bytes a lane. Rows of no expert are left out.
 * Bound   Memory: it writes the rows; of k rows that are one row of x, the second-level cache
 * serves all but the first.
 */
#ifndef TGI_OPS_GATHERED_ROWS_SM90_CUH
#define TGI_OPS_GATHERED_ROWS_SM90_CUH

#include "ops/grouped_linear/expert_tiles.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kGatherThreads = 256;

struct gathered_rows {
  expert_tiles tiles;
  row_sources sources;
  const uint4 *from;
  uint4 *to;
  int64_t from_step; /* vectors */
  int vectors;       /* of a row */
};

namespace
{

__global__ void __launch_bounds__(kGatherThreads)
    grouped_linear_gather_kernel(const gathered_rows p)
{
  constexpr int kWarps = kGatherThreads / kWarp, kAtOnce = 4;
  const int lane = threadIdx.x % kWarp;
  const int64_t kept = p.tiles.bound[p.tiles.experts], step = (int64_t)gridDim.x * kWarps;
  for (int64_t r = (int64_t)blockIdx.x * kWarps + threadIdx.x / kWarp; r < kept; r += step) {
    const int64_t source = p.sources.of(r, lane == 0);
    const uint4 *from = p.from + (source < 0 ? 0 : source) * p.from_step;
    uint4 *to = p.to + r * p.vectors;
    for (int first = lane; first < p.vectors; first += kAtOnce * kWarp) {
      uint4 v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        const int at = first + i * kWarp;
        v[i] = source < 0       ? make_uint4(~0u, ~0u, ~0u, ~0u)
               : at < p.vectors ? __ldg(from + at)
                                : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        const int at = first + i * kWarp;
        if (at < p.vectors) {
          to[at] = v[i];
        }
      }
    }
  }
}

} // namespace

/** Where gathered rows of x lie: 16-bit, contiguous, in the workspace. */
inline tg_tensor gathered_tensor(void *memory, const tg_tensor *x, int64_t rows)
{
  return tg_tensor_2d(memory, x->dtype, rows, x->shape[1]);
}

inline size_t gathered_bytes(const tg_tensor *x, int64_t rows)
{
  return ((size_t)rows * (size_t)x->shape[1] * tg_dtype_bytes(x->dtype) + 255) / 256 * 256;
}

/** x in the order of the rows of `tiles`, whose kernel has been launched. */
inline tg_status gather_rows(const tg_context *ctx, const expert_tiles &tiles,
                             const row_sources &sources, const tg_tensor *x, const tg_tensor *to)
{
  gathered_rows p = {};
  p.tiles = tiles;
  p.sources = sources;
  p.from = static_cast<const uint4 *>(x->data);
  p.to = static_cast<uint4 *>(to->data);
  p.from_step = tgi_stride(x, 0) / 8;
  p.vectors = (int)(x->shape[1] / 8);
  const int64_t blocks = divide_up(tiles.rows, (int64_t)(kGatherThreads / kWarp));
  return launch(ctx, grouped_linear_gather_kernel, dim3(blocks_for(ctx, blocks, 8)), kGatherThreads,
                0, p);
}

} // namespace TGI_CUDA_ENTRY

#endif
