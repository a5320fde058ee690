/** Packed MXFP4 weights of experts on the device: where their codes and scales lie, and the check
 * of a header that no host code can look at. */
#ifndef TGI_OPS_MXFP4_WEIGHT_CUH
#define TGI_OPS_MXFP4_WEIGHT_CUH

#include "cuda/packed_weight.cuh"
#include "ops/kernels.cuh"

extern "C" {
#include "ops/grouped_linear_mxfp4/mxfp4_packed.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** By value to kernels. The host has compared the bytes with the extents, so whatever the header
 * says, all that these lead to is there. */
struct mxfp4_weight {
  packed_weight packed;
  int64_t experts, panels, groups;

  /** The first group of a panel. */
  __device__ __forceinline__ const uint8_t *panel(int64_t e, int64_t p) const
  {
    return packed.data + TGI_PACKED_HEADER_BYTES +
           (e * panels + p) * groups * TGI_MXFP4_GROUP_BYTES;
  }

  /** True if the header, of which `h` is a copy, says what the call says. `recorder`: this thread
   * records what does not fit. */
  __device__ __forceinline__ bool fits(const uint8_t *h, bool recorder) const
  {
    if (!packed_header_fits(packed, h, recorder)) {
      return false;
    }
    const int64_t count = packed_long(h + offsetof(tgi_packed_header, experts), packed.aligned);
    if (count != experts && recorder) {
      record_fault(packed.site, 0, count, experts, experts);
    }
    return count == experts;
  }
};

inline mxfp4_weight mxfp4_weight_of(const tg_tensor *weight, int64_t experts, int64_t out,
                                    int64_t in, fault_site site)
{
  mxfp4_weight w = {};
  w.packed = packed_weight_of(weight, TGI_MXFP4_MAGIC, TGI_MXFP4_VERSION, out, in, site);
  w.experts = experts;
  w.panels = tgi_panel_count(out);
  w.groups = in / TGI_MXFP4_GROUP;
  return w;
}

/** 2^(scale - 128), from its bits; the first two are denormal. */
__device__ __forceinline__ float half_scale_of(uint32_t scale)
{
  return __uint_as_float(scale >= 2 ? (scale - 1) << 23 : 0x200000u << scale);
}

/** Twice the value of a code: the magnitude is a maximum of three lines. */
__device__ __forceinline__ float twice_of(uint32_t code)
{
  const float m = (float)(code & 7u);
  const float twice = fmaxf(m, fmaxf(2.0f * m - 4.0f, 4.0f * m - 16.0f));
  return code & 8u ? -twice : twice;
}

/** W[o, i] of an expert whose first panel this is. */
__device__ __forceinline__ float mxfp4_value(const mxfp4_weight &w, const uint8_t *panels,
                                             int64_t o, int64_t i)
{
  const uint8_t *group =
      panels + (o / TGI_PANEL_ROWS * w.groups + i / TGI_MXFP4_GROUP) * TGI_MXFP4_GROUP_BYTES;
  const int row = (int)(o % TGI_PANEL_ROWS), k = (int)(i % TGI_MXFP4_GROUP);
  const uint8_t byte = group[TGI_PANEL_ROWS + k / TGI_MXFP4_LINE_K * TGI_MXFP4_LINE_BYTES +
                             4 * row + k % TGI_MXFP4_LINE_K / 2];
  return twice_of(k % 2 ? byte >> 4 : byte & 15u) * half_scale_of(group[row]);
}

} // namespace TGI_CUDA_ENTRY

#endif
