/** Bounds of groups and scales of integer formats, bit for bit as core/values/quantize.h defines
 * them. */
#ifndef TGI_CUDA_QUANTIZE_MATH_CUH
#define TGI_CUDA_QUANTIZE_MATH_CUH

#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

struct quant {
  float scale;
  int zero_point;
};

/** Ends of the values seen and 0; high is NaN once a value was NaN. In any order: the same. */
struct quant_bounds {
  float low, high;

  __device__ __forceinline__ void widen(float x)
  {
    low = x < low ? x : low;
    high = x > high || isnan(x) ? x : high; /* nothing is above NaN */
  }

  __device__ __forceinline__ void unite(quant_bounds other)
  {
    low = other.low < low ? other.low : low;
    high = other.high > high || isnan(other.high) ? other.high : high;
  }

  __device__ __forceinline__ bool finite() const
  {
    return isfinite(low) && isfinite(high);
  }
};

/** Over `width` neighbouring lanes (a power of two), in each of them. All lanes come here. */
__device__ __forceinline__ quant_bounds unite_lanes(quant_bounds b, int width)
{
  for (int step = width / 2; step > 0; step /= 2) {
    b.unite({__shfl_xor_sync(kAllLanes, b.low, step), __shfl_xor_sync(kAllLanes, b.high, step)});
  }
  return b;
}

/** Over a block of whole warps, in every thread; scratch: 64 floats of shared memory that the call
 * owns until the next barrier after it. */
__device__ __forceinline__ quant_bounds unite_block(quant_bounds b, float *scratch)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  b = unite_lanes(b, kWarp);
  if (lane == 0) {
    scratch[warp] = b.low;
    scratch[kWarp + warp] = b.high;
  }
  __syncthreads();
  quant_bounds all = {0, 0};
  if (lane < warps) {
    all = {scratch[lane], scratch[kWarp + lane]};
  }
  return unite_lanes(all, kWarp);
}

/** v > 0 rounded up to 15 significant bits, after 4 units in the last place. */
__device__ __forceinline__ float scale_up(float v)
{
  return __uint_as_float((__float_as_uint(v) + 4 + 511) & ~511u);
}

/** Further up to the dtype of the scale; NaN beyond its range. */
__device__ __forceinline__ float scale_up_to(bool half, float v)
{
  const float up = scale_up(v);
  if (!half) {
    return up;
  }
  const f16 nearest = from_f32<f16>(up);
  const unsigned short above =
      (unsigned short)(__half_as_ushort(nearest) + (to_f32(nearest) < up ? 1 : 0));
  return above < 0x7c00u ? to_f32(__ushort_as_half(above)) : CUDART_NAN_F;
}

/** v within the finite range of T; NaN stays. */
template <typename T> __device__ __forceinline__ float saturated(float v);

template <> __device__ __forceinline__ float saturated<float>(float v)
{
  return v > 0x1.fffffep127f ? 0x1.fffffep127f : v < -0x1.fffffep127f ? -0x1.fffffep127f : v;
}

template <> __device__ __forceinline__ float saturated<f16>(float v)
{
  return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
}

template <> __device__ __forceinline__ float saturated<bf16>(float v)
{
  return v > 0x1.fep127f ? 0x1.fep127f : v < -0x1.fep127f ? -0x1.fep127f : v;
}

} // namespace TGI_CUDA_ENTRY

#endif
