/** Running softmax (arXiv:1805.02867) on accumulators of tensor cores. s[i] is of row i / 2 % 2 of
 * the thread's two, and of column 8 (i / 4) + i % 2 from its first one; four neighbouring lanes
 * share a row. Exponents are of base 2. */
#ifndef TGI_OPS_ATTENTION_SOFTMAX_CUH
#define TGI_OPS_ATTENTION_SOFTMAX_CUH

#include "cuda/exp2.cuh"
#include "cuda/half_pair.cuh"
#include "cuda/reduce.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr float kLog2E = 0x1.715476p+0f, kLn2 = 0x1.62e430p-1f;

/** The thread's two rows: the maximum of their exponents so far, the thread's part of their sums,
 * and the factor of earlier sums. */
struct row_state {
  float top[2], sum[2], factor[2];
};

/** tanh with an absolute and a relative error below 2^-21. */
__device__ __forceinline__ float tanh_close(float x)
{
  const float square = x * x;
  const float near =
      fmaf(x * square,
           fmaf(square, fmaf(square, fmaf(square, 0.0218694885f, -0.0539682540f), 0.1333333333f),
                -0.3333333333f),
           x);
  const float power = exp2_flushed(fabsf(x) * (2 * kLog2E));
  const float far = copysignf(fmaf(-2.0f, reciprocal_flushed(power + 1.0f), 1.0f), x);
  return fabsf(x) < 0.35f ? near : x != x ? x : far;
}

/** Scores to cap * tanh(score / cap). */
template <int kN> __device__ __forceinline__ void cap_scores(float (&s)[kN], float cap, float by)
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    s[i] = cap * tanh_close(s[i] * by);
  }
}

/** Columns from high[r] on, and with kBoth those below low[r], become -infinity; a column is
 * counted from the thread's first one. */
template <bool kBoth, int kN>
__device__ __forceinline__ void hide_keys(float (&s)[kN], const int (&low)[2], const int (&high)[2])
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const int column = 8 * (i / 4) + i % 2, r = i / 2 % 2;
    if (column >= high[r] || (kBoth && column < low[r])) {
      s[i] = -CUDART_INF_F;
    }
  }
}

/** A bit for each column of the thread, two of every eight, that is in low .. high - 1, counted
 * from its first one. */
__device__ __forceinline__ uint32_t column_bits(int low, int high)
{
  const auto before = [](int column) {
    const int c = max(column, 0);
    return c / 8 * 2 + min(c % 8, 2);
  };
  const int from = before(low), count = max(before(high) - from, 0);
  uint32_t bits;
  asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(bits) : "r"(from), "r"(count));
  return bits;
}

/** Sets row r's columns without a bit to `hidden`. */
template <int kN>
__device__ __forceinline__ void keep_columns(float (&s)[kN], int r, uint32_t bits, float hidden)
{
#pragma unroll
  for (int i = 0; i < kN / 2; i++) {
    if (!(bits >> i & 1)) {
      s[i / 2 * 4 + 2 * r + i % 2] = hidden;
    }
  }
}

constexpr float kSlack = 8; /* exponents that may exceed a row's top before it is updated */

/** Scores to 2^(s c - top). kStays: top stays while no exponent exceeds it by more than kSlack, so
 * that earlier sums seldom need a factor. Results depend on top only by rounding. */
template <bool kStays = false, int kN>
__device__ __forceinline__ void softmax_block(float (&s)[kN], row_state &rows, float c)
{
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float a = s[2 * r], b = s[2 * r + 1]; /* fmaxf drops a NaN, which then shows in the sum */
#pragma unroll
    for (int i = 4; i < kN; i += 4) {
      a = fmaxf(a, s[i + 2 * r]);
      b = fmaxf(b, s[i + 2 * r + 1]);
    }
    a = fmaxf(a, b);
    a = fmaxf(a, __shfl_xor_sync(kAllLanes, a, 1));
    a = fmaxf(a, __shfl_xor_sync(kAllLanes, a, 2));
    float top = fmaxf(rows.top[r], a * c);
    if (kStays && top <= rows.top[r] + kSlack) {
      top = rows.top[r];
    }
    base[r] = top > -CUDART_INF_F ? top : 0.0f; /* nothing seen yet: 2^-inf = 0 */
    rows.factor[r] = exp2_flushed(rows.top[r] - base[r]);
    rows.top[r] = top;
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float a = 0, b = 0;
#pragma unroll
    for (int i = 0; i < kN; i += 4) {
      a += s[i + 2 * r] = exp2_flushed(fmaf(s[i + 2 * r], c, -base[r]));
      b += s[i + 2 * r + 1] = exp2_flushed(fmaf(s[i + 2 * r + 1], c, -base[r]));
    }
    rows.sum[r] = fmaf(rows.sum[r], rows.factor[r], a + b);
  }
}

template <int kN> __device__ __forceinline__ void rescale(float (&o)[kN], const float (&factor)[2])
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    o[i] *= factor[i / 2 % 2];
  }
}

struct row_result {
  float factor, lse; /* factor: of the row's sums */
};

/** Ends a row. `sink`: -infinity if there is none. */
__device__ __forceinline__ row_result finish_row(float top, float sum, float sink)
{
  const float sink_top = sink * kLog2E, most = fmaxf(top, sink_top);
  const float base = most > -CUDART_INF_F ? most : 0.0f, mine = exp2f(top - base);
  const float total = fmaf(sum, mine, exp2f(sink_top - base));
  return {total == 0 ? 0.0f : mine / total, (base + log2f(total)) * kLn2};
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
