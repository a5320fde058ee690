/** Scales, zero points and integers of 8 bits on the device, bit for bit as core/values/quantize.h.
 */
#ifndef TGI_OPS_QUANTIZE_INT8_LANES_CUH
#define TGI_OPS_QUANTIZE_INT8_LANES_CUH

#include "cuda/quantize_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** What a group of values is divided by, and what is added then. */
__device__ __forceinline__ quant int8_quant(quant_bounds b, bool asymmetric)
{
  if (!b.finite()) {
    return {CUDART_NAN_F, 0};
  }
  if (!asymmetric) {
    const float most = b.high > -b.low ? b.high : -b.low;
    return {most > 0 ? scale_up(most / 127.0f) : 1.0f, 0};
  }
  const float scale = b.low < b.high ? scale_up(b.high / 255.0f - b.low / 255.0f) : 1.0f;
  return {scale, -128 - (int)rintf(b.low / scale)};
}

__device__ __forceinline__ int int8_of(float x, quant g, int least)
{
  if (isnan(g.scale)) {
    return 0;
  }
  const float n = rintf(x / g.scale) + (float)g.zero_point;
  return n < (float)least ? least : n > 127 ? 127 : (int)n;
}

} // namespace TGI_CUDA_ENTRY

#endif
