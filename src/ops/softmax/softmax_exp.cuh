/**
 * The arithmetic of softmax's forward: the largest element of vectors, exponentials less it, sums.
 *
 * 16-bit rows take eleven instructions an element: the largest is found on pairs as they are
 * stored; the reciprocal of the sum is a term of the second exponent (2^(z - log2 sum)).
 */
#ifndef TGI_OPS_SOFTMAX_SOFTMAX_EXP_CUH
#define TGI_OPS_SOFTMAX_SOFTMAX_EXP_CUH

#include "cuda/exp2.cuh"
#include "ops/softmax/softmax_rows.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Of a call's scale. */
struct softmax_factors {
  float high, low; /* scale * log2(e) in two parts */
  float floor;     /* where the exponential has vanished */
};

inline softmax_factors softmax_factors_of(float scale)
{
  const double factor = (double)scale * 1.44269504088896340736;
  softmax_factors f;
  f.high = (float)(factor < FLT_MAX ? factor : FLT_MAX);
  f.low = (float)(factor - (double)f.high);
  f.floor = -105.0f / scale;
  return f;
}

/* ---- device ---- */

/** What sums over many vectors are kept in: f32 is fine enough for 16-bit results. */
template <typename T> struct sum_of {
  using type = float;
};

template <> struct sum_of<float> {
  using type = double;
};

/** The largest element so far, and the sum of exponentials less it. Finite before the first, as a
 * row may be -infinity alone: its sum is 0 then, and its results NaN. */
template <typename T> struct softmax_sum {
  float top = -FLT_MAX;
  typename sum_of<T>::type sum = 0;
};

/** e^(scale * d) for d <= 0, or NaN. */
template <typename T>
__device__ __forceinline__ float exponential(const softmax_factors &f, float d)
{
  if (sizeof(T) > 2) { /* one step finer than 16-bit results can tell */
    const float z = d < f.floor ? f.floor : d;
    return exp2_flushed(fmaf(z, f.low, z * f.high));
  }
  return exp2_flushed(d * f.high);
}

/* Pairs as they are stored; NaN counts as less than anything. */
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b, bf16)
{
#if TGI_VIRTUAL >= 80
  asm("max.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
#endif
  return a;
}

__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b, f16)
{
#if TGI_VIRTUAL >= 80
  asm("max.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
#endif
  return a;
}

/** The largest of a warp's; none is NaN. */
__device__ __forceinline__ float warp_top(float v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto ordered = [](int i) { return i ^ (i >> 31 & INT32_MAX); }; /* as the floats are */
  return __int_as_float(ordered(__reduce_max_sync(kAllLanes, ordered(__float_as_int(v)))));
#else
  return warp_max(v);
#endif
}

/** The larger of `top` and the elements of kN vectors, raw(i); NaN counts in the sum alone. With
 * kRolled the loop is one, as registers are short. */
template <typename T, int kN, bool kRolled, typename F>
__device__ __forceinline__ float largest_of(float top, F raw)
{
  constexpr int kUnrolled = kRolled || kN == 0 ? 1 : kN;
  if constexpr (sizeof(T) == 2 && TGI_VIRTUAL >= 80) {
    const uint32_t least = to_bits<T>(-CUDART_INF_F) * 0x10001u;
    uint4 most = {least, least, least, least};
#pragma unroll kUnrolled
    for (int i = 0; i < kN; i++) {
      const uint4 next = raw(i);
      most.x = larger_pair(most.x, next.x, T());
      most.y = larger_pair(most.y, next.y, T());
      most.z = larger_pair(most.z, next.z, T());
      most.w = larger_pair(most.w, next.w, T());
    }
    most.x = larger_pair(larger_pair(most.x, most.y, T()), larger_pair(most.z, most.w, T()), T());
    float v[8];
    widen(v, most, T());
    top = fmaxf(top, fmaxf(v[0], v[1]));
  } else {
#pragma unroll kUnrolled
    for (int i = 0; i < kN; i++) {
      float v[kLanes<T>];
      widen(v, raw(i), T());
#pragma unroll
      for (int j = 0; j < kLanes<T>; j++) {
        top = fmaxf(top, v[j]);
      }
    }
  }
  return top;
}

/** Takes kN vectors, raw(i), into a sum; each is asked for twice, as registers may be too few for
 * all of them. More vectors of -infinity leave its bits as they are. */
template <int kN, bool kRolled, typename T, typename F>
__device__ __forceinline__ void add_vectors(const softmax_factors &f, softmax_sum<T> *s, F raw)
{
  constexpr int kUnrolled = kRolled || kN == 0 ? 1 : kN;
  const float top = largest_of<T, kN, kRolled>(s->top, raw);
  float part[2] = {0.0f, 0.0f};
#pragma unroll kUnrolled
  for (int i = 0; i < kN; i++) {
    float v[kLanes<T>];
    widen(v, raw(i), T());
#pragma unroll
    for (int j = 0; j < kLanes<T>; j++) {
      part[j % 2] += exponential<T>(f, v[j] - top);
    }
  }
  s->sum = s->sum * exponential<T>(f, s->top - top) + (part[0] + part[1]);
  s->top = top;
}

/** What the second pass needs of a row's sum: log2 of it for 16-bit results, the inverse else. */
template <typename T> __device__ __forceinline__ float softmax_divisor(const softmax_sum<T> &s)
{
  if (sizeof(T) > 2) {
    return 1.0f / (float)s.sum;
  }
  float log2_sum;
  asm("lg2.approx.f32 %0, %1;" : "=f"(log2_sum) : "f"((float)s.sum));
  return -log2_sum;
}

template <typename T>
__device__ __forceinline__ void softmax_results(const softmax_factors &f, float (&v)[kLanes<T>],
                                                uint4 raw, float top, float divisor)
{
  widen(v, raw, T());
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    const float d = v[i] - top;
    v[i] = sizeof(T) > 2 ? exponential<T>(f, d) * divisor : exp2_flushed(fmaf(d, f.high, divisor));
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
