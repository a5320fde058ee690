/** The best experts of a row on CUDA, one after the other: a warp for a row.
 *
 * The order is total: by logit, then the lower index; 0 and -0 are equal. Up to 32 * kPer
 * experts a lane keeps its logits as integers of the same order, and a round takes two votes of
 * the warp. More experts are read again in every round, from the first-level cache. */
#ifndef TGI_OPS_ROUTER_SELECT_CUH
#define TGI_OPS_ROUTER_SELECT_CUH

#include "ops/topk_router/router_warp.cuh"

inline namespace TGI_CUDA_ENTRY
{

struct candidate {
  float logit;
  int expert;
};

/* ---- in registers ---- */

/** Above 0 for every number; NaN is not asked for. */
__device__ __forceinline__ uint32_t ordered_key(float logit)
{
  const uint32_t bits = __float_as_uint(logit + 0.0f); /* -0 becomes 0 */
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float of_key(uint32_t key)
{
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ uint32_t largest_of_warp(uint32_t v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, v);
#else
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    v = max(v, __shfl_xor_sync(kAllLanes, v, step));
  }
  return v;
#endif
}

/** Logits of a row whose expert e is element e / 32 of lane e % 32. */
template <int kPer> struct kept_logits {
  uint32_t key[kPer]; /* 0: chosen already, or no expert */

  template <typename T> __device__ __forceinline__ kept_logits(const T *row, int experts)
  {
#pragma unroll
    for (int i = 0; i < kPer; i++) {
      const int e = i * kWarp + threadIdx.x % kWarp;
      key[i] = e < experts ? ordered_key(to_f32(row[e])) : 0;
    }
  }

  /** The best one, in every lane; it is not found again. */
  __device__ __forceinline__ candidate take()
  {
    uint32_t own = key[0];
#pragma unroll
    for (int i = 1; i < kPer; i++) {
      own = max(own, key[i]);
    }
    const uint32_t best = largest_of_warp(own);
    int first = INT32_MAX;
#pragma unroll
    for (int i = kPer - 1; i >= 0; i--) {
      const unsigned equal = __ballot_sync(kAllLanes, key[i] == best);
      first = equal ? i * kWarp + __ffs((int)equal) - 1 : first;
    }
#pragma unroll
    for (int i = 0; i < kPer; i++) {
      key[i] = first == i * kWarp + (int)(threadIdx.x % kWarp) ? 0 : key[i];
    }
    return {of_key(best), first};
  }
};

/* ---- from memory ---- */

__device__ __forceinline__ bool is_before(candidate a, candidate b)
{
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

__device__ __forceinline__ candidate before_all()
{
  return {CUDART_INF_F, -1};
}

/** The best candidate of the warp, in every lane. */
__device__ __forceinline__ candidate best_of_warp(candidate c)
{
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const candidate other = {__shfl_xor_sync(kAllLanes, c.logit, step),
                             __shfl_xor_sync(kAllLanes, c.expert, step)};
    c = is_before(other, c) ? other : c;
  }
  return c;
}

/** The same of a row of any length, which is in memory. */
template <typename T> struct read_logits {
  const T *row;
  int experts;
  candidate last;

  __device__ __forceinline__ read_logits(const T *first, int count)
      : row(first), experts(count), last(before_all())
  {
  }

  __device__ __forceinline__ candidate take()
  {
    candidate best = {-CUDART_INF_F, INT32_MAX};
    for (int e = threadIdx.x % kWarp; e < experts; e += kWarp) {
      const candidate c = {to_f32(row[e]), e};
      best = is_before(last, c) && is_before(c, best) ? c : best;
    }
    last = best_of_warp(best);
    return last;
  }
};

/** What serves rows of up to kPer * 32 experts; 0: of any number. */
template <typename T, int kPer> struct logits_by {
  using type = kept_logits<kPer>;
};
template <typename T> struct logits_by<T, 0> {
  using type = read_logits<T>;
};

} // namespace TGI_CUDA_ENTRY

#endif
