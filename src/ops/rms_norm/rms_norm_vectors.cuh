/** A vector of an RMSNorm forward: its squares, its results, and what kernels are told. */
#ifndef TGI_OPS_RMS_NORM_VECTORS_CUH
#define TGI_OPS_RMS_NORM_VECTORS_CUH

#include "cuda/rows/norm_rows.cuh"
#include "cuda/silu_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kShortRow = 512; /* vectors of a row, up to which a thread has 2 of them */

enum norm_kind { kNormAlone, kNormOfSum, kNormGated };

/** other: residual or gate. */
struct norm_forward {
  const void *x, *other, *weight;
  void *sum, *y;
  float *rstd; /* NULL: not asked for */
  int64_t x_step, other_step, sum_step, y_step;
  int64_t rows, cols;
  float eps, offset, inverse; /* inverse: of cols */
  bool rounds;                /* every step: the normalised row, its product with the weight */
  bool whole;                 /* rows are made of aligned vectors */
  row_layout layout;
  int at_once; /* rows of a thread */
};

/** x + other, rounded to their dtype. */
template <typename X, int N>
__device__ __forceinline__ void add_rounded(row_bits<X, N> &x, const row_bits<X, N> &other)
{
  float a[N], b[N];
  unpack(a, x);
  unpack(b, other);
#pragma unroll
  for (int i = 0; i < N; i++) {
    a[i] = b[i] + a[i];
  }
  pack_bits(x, a);
}

/** Of a vector. */
template <typename X, int N> __device__ __forceinline__ float square_sum(const row_bits<X, N> &bits)
{
  float x[N];
  unpack(x, bits);
  float sum = x[0] * x[0];
#pragma unroll
  for (int i = 1; i < N; i++) {
    sum = fmaf(x[i], x[i], sum);
  }
  return sum;
}

__device__ __forceinline__ float rstd_of(const norm_forward &f, float squares)
{
  return 1.0f / sqrtf(fmaf(squares, f.inverse, f.eps));
}

/** silu(gate) of a vector, element by element. */
template <typename X, int N> struct silu_of {
  float gate[N];

  __device__ __forceinline__ explicit silu_of(const row_bits<X, N> &bits)
  {
    unpack(gate, bits);
  }

  __device__ __forceinline__ float operator()(int i) const
  {
    return silu<X>(gate[i]);
  }
};

/** From vectors of the row and the weight, and silu(gate), element by element. kRounds: see
 * norm_forward. */
template <norm_kind kKind, bool kRounds, typename X, typename W, int N, typename Gate>
__device__ __forceinline__ void results_of(float (&y)[N], const norm_forward &f, float rstd,
                                           const row_bits<X, N> &x, const row_bits<W, N> &weight,
                                           const Gate &gate)
{
  float w[N];
  unpack(y, x);
  unpack(w, weight);
#pragma unroll
  for (int i = 0; i < N; i++) {
    const float scaled = y[i] * rstd, n = kRounds ? rounded<X>(scaled) : scaled;
    if constexpr (kKind == kNormGated) {
      const float m = n * w[i];
      y[i] = (kRounds ? rounded<W>(m) : m) * gate(i);
    } else {
      y[i] = n * (w[i] + f.offset);
    }
  }
}

/** One branch for a vector. */
template <norm_kind kKind, typename X, typename W, int N, typename Gate>
__device__ __forceinline__ void results(float (&y)[N], const norm_forward &f, float rstd,
                                        const row_bits<X, N> &x, const row_bits<W, N> &weight,
                                        const Gate &gate)
{
  if (f.rounds) {
    results_of<kKind, true>(y, f, rstd, x, weight, gate);
  } else {
    results_of<kKind, false>(y, f, rstd, x, weight, gate);
  }
}
} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
