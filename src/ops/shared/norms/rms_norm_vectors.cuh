/** RMSNorm forward: the arithmetic of one vector, and the kernels' parameters. */
#ifndef TGI_OPS_RMS_NORM_VECTORS_CUH
#define TGI_OPS_RMS_NORM_VECTORS_CUH

#include "cuda/rows/norm_rows.cuh"
#include "cuda/silu_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kShortRow = 512; /* vectors of a row, up to which a thread has 2 of them (lay_rows) */

enum norm_kind { kNormAlone, kNormOfSum, kNormGated };

/** Kernel parameters. other: residual or gate. */
struct norm_forward {
  const void *x, *other, *weight;
  void *sum, *y;
  float *rstd; /* NULL: not wanted */
  int64_t x_step, other_step, sum_step, y_step;
  int64_t rows, cols;
  float eps, offset, inverse; /* inverse: 1 / cols */
  bool rounds;                /* round every step: the normalised row and its product with weight */
  bool whole;                 /* rows consist of aligned vectors */
  row_layout layout;
  int at_once; /* rows per thread */
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

/** Sum of squares of a vector. */
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

/** Results from vectors of the row and the weight, and from gate(i), the silu of element i's gate.
 * kRounds: see norm_forward::rounds. */
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

/** The same, with one branch on f.rounds per vector. */
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
