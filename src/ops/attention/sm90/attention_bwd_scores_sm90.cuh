/** Attention backward on Hopper: products of a tile, and how scores become p and ds. Template
 * argument S has T, kHeadDim and kQueries. Scores and dp are transposed: a thread's columns are
 * queries. */
#ifndef TGI_OPS_ATTENTION_BWD_SCORES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_SCORES_SM90_CUH

#include "ops/attention/sm90/attention_bwd_plan_sm90.cuh"

#include "cuda/tma.cuh"
#include "cuda/wgmma.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** d = a b over kHeadDim, or d += a b. Pages of the operands are a_page and b_page bytes apart. */
template <typename S, int kN, bool kAdd = false>
__device__ __forceinline__ void multiply_heads(float (&d)[kN / 2], uint64_t a, int a_page,
                                               uint64_t b, int b_page)
{
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 16; i++) {
    multiply<typename S::T, kN>(d, operand_at(a, i / 4 * a_page + i % 4 * 32),
                                operand_at(b, i / 4 * b_page + i % 4 * 32), kAdd || i > 0);
  }
}

/** d += a b: a from registers; its columns, the queries of the tile, are the rows of b. */
template <typename S>
__device__ __forceinline__ void add_queries(float (&d)[S::kHeadDim / 2],
                                            const uint32_t (&a)[S::kQueries / 4], uint64_t b)
{
#pragma unroll
  for (int i = 0; i < S::kQueries / 16; i++) {
    multiply_turned<typename S::T, S::kHeadDim>(d, a + 4 * i, operand_at(b, i * 16 * kPageRow),
                                                true);
  }
}

/** Columns below low[r] and from high[r] on become 0. */
template <int kN>
__device__ __forceinline__ void hide_queries(float (&s)[kN], const int (&low)[2],
                                             const int (&high)[2])
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const int column = 8 * (i / 4) + i % 2, r = i / 2 % 2;
    if (column >= high[r] || column < low[r]) {
      s[i] = 0;
    }
  }
}

/** A term of each query, in shared memory, in the order of the thread's columns: two of every
 * eight. */
struct column_terms {
  const float *first;
  __device__ __forceinline__ float2 operator()(int i) const
  {
    return *reinterpret_cast<const float2 *>(first + 8 * i);
  }
};

/** Scores to p. `minus`: as column_terms. */
template <typename S, typename Terms>
__device__ __forceinline__ void make_p(float (&s)[S::kQueries / 2], const bwd_job &job, Terms minus)
{
#pragma unroll
  for (int i = 0; i < S::kQueries / 8; i++) {
    const float2 m = minus(i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      s[4 * i + j] = exp2_flushed(fmaf(s[4 * i + j], job.exponent, j % 2 ? m.y : m.x));
    }
  }
}

/** Scores to p times the derivative of tanh, and p itself, rounded. */
template <typename S>
__device__ __forceinline__ void
make_capped_p(uint32_t (&p)[S::kQueries / 4], float (&s)[S::kQueries / 2], const bwd_job &job,
              const float *minus, const int (&low)[2], const int (&high)[2])
{
#pragma unroll
  for (int i = 0; i < S::kQueries / 4; i++) {
    const float2 m = *reinterpret_cast<const float2 *>(minus + 8 * (i / 2));
    float shown[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int column = 8 * (i / 2) + j, r = i % 2;
      const float t = tanh_close(s[2 * i + j] * job.cap_by);
      const float e = exp2_flushed(fmaf(t * job.cap, job.exponent, j ? m.y : m.x));
      shown[j] = column >= high[r] || column < low[r] ? 0.0f : e;
      s[2 * i + j] = shown[j] * fmaf(-t, t, 1.0f);
    }
    p[i] = round_pair<typename S::T>(shown[0], shown[1]);
  }
}

/** dp - delta to ds. s: p times the derivative of the cap. */
template <typename S>
__device__ __forceinline__ void make_ds(float (&dp)[S::kQueries / 2],
                                        const float (&s)[S::kQueries / 2])
{
#pragma unroll
  for (int i = 0; i < S::kQueries / 2; i++) {
    dp[i] *= s[i];
  }
}

/** dp to ds. */
template <typename S>
__device__ __forceinline__ void make_ds(float (&dp)[S::kQueries / 2],
                                        const float (&s)[S::kQueries / 2], const float *delta)
{
#pragma unroll
  for (int i = 0; i < S::kQueries / 8; i++) {
    const float2 d = *reinterpret_cast<const float2 *>(delta + 8 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      dp[4 * i + j] = s[4 * i + j] * (dp[4 * i + j] + (j % 2 ? d.y : d.x));
    }
  }
}

/** True if some of the warp group's keys, from `key` on, are masked for some of `count` queries. */
__device__ __forceinline__ bool hides_any(key_rule rule, const key_place &x, int key, int query,
                                          int count)
{
  const key_span top = queries_of(rule, x, key), bottom = queries_of(rule, x, key + kGroupRows - 1);
  return key < x.first || key + kGroupRows > x.end || bottom.low > query ||
         top.high < query + count;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
