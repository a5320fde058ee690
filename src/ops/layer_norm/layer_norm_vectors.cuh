/** LayerNorm forward: the moments of a row, and the results of one vector. */
#ifndef TGI_OPS_LAYER_NORM_VECTORS_CUH
#define TGI_OPS_LAYER_NORM_VECTORS_CUH

#include "cuda/rows/norm_rows.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kShortRow = 64; /* vectors of a row, up to which a thread has 2 of them (lay_rows) */

struct layer_forward {
  const void *x, *weight, *bias; /* bias may be NULL */
  void *y;
  float *mean, *rstd; /* NULL: not wanted */
  int64_t x_step, y_step, rows, cols;
  float inverse, eps; /* inverse: 1 / cols */
  bool whole;         /* rows consist of aligned vectors */
  row_layout layout;
};

struct moments {
  float mean, correction, rstd; /* of a row; its mean is mean + correction */
};

/** sums += the sums of x and x^2 over a vector, whose elements past the row's end are 0. */
template <typename X, int N>
__device__ __forceinline__ void add_values(float (&sums)[2], const row_bits<X, N> &bits)
{
  float x[N];
  unpack(x, bits);
  float even = x[0], odd = x[1], even_squares = x[0] * x[0], odd_squares = x[1] * x[1];
#pragma unroll
  for (int i = 2; i < N; i += 2) {
    even += x[i];
    odd += x[i + 1];
    even_squares = fmaf(x[i], x[i], even_squares);
    odd_squares = fmaf(x[i + 1], x[i + 1], odd_squares);
  }
  sums[0] += even + odd;
  sums[1] += even_squares + odd_squares;
}

/** sums += the sums of d = x - mean and d^2 over the first n elements. */
template <typename X, int N, typename Index>
__device__ __forceinline__ void add_differences(float (&sums)[2], float mean,
                                                const row_bits<X, N> &bits, Index n)
{
  float x[N];
  unpack(x, bits);
#pragma unroll
  for (int i = 0; i < N; i++) {
    const float d = i < n ? x[i] - mean : 0.0f;
    sums[0] += d;
    sums[1] = fmaf(d, d, sums[1]);
  }
}

/** Applies the second reduction. shift: mean of d; spread: variance of d. */
__device__ __forceinline__ void use_differences(moments &m, float &variance, float shift,
                                                float spread)
{
  variance = spread < 0 ? 0 : spread;
  /* A mean near zero needs no correction: the rounding errors of d would bias it. */
  m.correction = m.mean * m.mean > variance ? shift : 0;
}

constexpr int kScratch = 4 * kWarp; /* floats */

/** The moments of a row. `sums` are the thread's sums by add_values. each(body) calls body(vector,
 * number of its valid elements) for the thread's vectors. All threads of the block must call this;
 * `scratch` is kScratch floats of shared memory. */
template <typename X, typename Each>
__device__ __forceinline__ moments moments_of(const layer_forward &f, float (&sums)[2],
                                              float *scratch, Each each)
{
  row_sum(sums, f.layout, scratch);
  moments m = {sums[0] * f.inverse, 0, 0};
  float variance = fmaf(-m.mean, m.mean, sums[1] * f.inverse);
  const bool cancels = sizeof(X) == 4 || m.mean * m.mean > variance;
  if (f.layout.threads < kWarp ? __any_sync(kAllLanes, cancels) : cancels) {
    float about[2] = {0, 0};
    each([&](const row_bits<X, kLanes<X>> &x, int64_t there) {
      add_differences(about, m.mean, x, there);
      asm volatile("" : "+f"(about[0]), "+f"(about[1])); /* unpacks one vector at a time */
    });
    row_sum(about, f.layout, scratch + 2 * kWarp);
    const float shift = about[0] * f.inverse, spread = fmaf(-shift, shift, about[1] * f.inverse);
    if (cancels) { /* not if only another row of the warp cancels */
      use_differences(m, variance, shift, spread);
    }
  }
  m.rstd = inverse_root(variance + f.eps);
  return m;
}

template <typename X, typename W, int N>
__device__ __forceinline__ void results(float (&y)[N], const moments &m, const row_bits<X, N> &x,
                                        const row_bits<W, N> &weight, const row_bits<W, N> &bias)
{
  const float offset = -(m.correction * m.rstd);
  float w[N], b[N];
  unpack(y, x);
  unpack(w, weight);
  unpack(b, bias);
#pragma unroll
  for (int i = 0; i < N; i++) {
    if constexpr (sizeof(X) == 4) {
      const float d = (y[i] - m.mean) - m.correction;
      y[i] = fmaf(d * m.rstd, w[i], b[i]);
    } else {
      const float d = y[i] - m.mean;
      y[i] = fmaf(fmaf(d, m.rstd, offset), w[i], b[i]);
    }
  }
}

__device__ __forceinline__ void write_moments(const layer_forward &f, int64_t row, const moments &m)
{
  if (f.mean) {
    f.mean[row] = m.mean + m.correction;
  }
  if (f.rstd) {
    f.rstd[row] = m.rstd;
  }
}
} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
