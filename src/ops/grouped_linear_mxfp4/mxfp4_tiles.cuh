/** Tiles of experts' rows beside packed weights, whose header a kernel compares. */
#ifndef TGI_OPS_MXFP4_TILES_CUH
#define TGI_OPS_MXFP4_TILES_CUH

#include "ops/grouped_linear/expert_tiles.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_weight.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** One thread: a header that does not fit is like an offset out of range. */
__global__ void grouped_linear_mxfp4_bad_header_kernel(const mxfp4_weight w, int32_t *bad)
{
  if (!w.fits(w.packed.data, true)) {
    *bad = 1;
  }
}

} // namespace

/** The tiles of rows, and whether the weight is what the call says. */
inline tg_status find_mxfp4_tiles(const tg_context *ctx, const tg_tensor *offsets,
                                  const expert_tiles &t, const mxfp4_weight &w,
                                  fault_site bad_offset)
{
  const tg_status status = find_tiles(ctx, offsets, t, bad_offset);
  return status ? status
                : launch(ctx, grouped_linear_mxfp4_bad_header_kernel, dim3(1), 1, 0, w, t.bad);
}

} // namespace TGI_CUDA_ENTRY

#endif
