/** RMSNorm backward: the inputs, products and gradients of one vector, and the kernels' parameters.
 */
#ifndef TGI_OPS_RMS_NORM_GRADIENTS_CUH
#define TGI_OPS_RMS_NORM_GRADIENTS_CUH

#include "cuda/rows/norm_rows.cuh"
#include "cuda/silu_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Kernel parameters. dsum, dx, dgate, partial: NULL if absent. */
struct norm_backward {
  const void *dy, *x, *gate, *weight, *dsum;
  void *dx, *dgate;
  const float *rstd;
  float *partial; /* [groups, partial_step(cols)] */
  int64_t dy_step, x_step, gate_step, dsum_step, dx_step, dgate_step;
  int64_t rows, cols;
  float offset;
  bool whole;       /* rows consist of aligned vectors */
  bool sums_shared; /* rows in pieces: shared memory holds the sums */
  bool few;         /* extra blocks compute dweight from x and dy */
  row_layout layout;
  unsigned groups;
};

/** silu(gate) and its derivative, from e = exp(-bounded_gate(gate)), which kernels keep for the
 * second pass. */
template <typename X> __device__ __forceinline__ float silu_of(float gate, float e, float *slope)
{
  /* The reciprocal of at most 2^126, or of infinity. */
  const float c = bounded_gate(gate), s = reciprocal_flushed(one_plus<X>(gate, e));
  *slope = fmaf(c * s, e * s, s);
  return gate > 87.0f ? gate : c * s;
}

/** A thread's kV vectors of a row. */
template <bool kGated, typename X, typename Y, int kV> struct row_inputs {
  row_bits<Y, kLanes<X>> dy[kV];
  row_bits<X, kLanes<X>> x[kV];
  row_bits<X, kLanes<X>> gate[kGated ? kV : 1];
  float rstd;
};

/** Loads vector k, the elements from j on; 0 from `cols` on. */
template <bool kGated, typename X, typename Y, int kV, typename Index>
__device__ __forceinline__ void load_inputs(row_inputs<kGated, X, Y, kV> &in, int k,
                                            const norm_backward &b, int64_t row, Index j,
                                            Index cols, bool whole)
{
  load_bits(in.dy[k], static_cast<const Y *>(b.dy) + row * b.dy_step, j, cols, whole);
  load_bits(in.x[k], static_cast<const X *>(b.x) + row * b.x_step, j, cols, whole);
  if constexpr (kGated) {
    load_bits(in.gate[k], static_cast<const X *>(b.gate) + row * b.gate_step, j, cols, whole);
  }
}

template <typename X, int kN>
__device__ __forceinline__ void find_exponentials(float (&e)[kN], const row_bits<X, kN> &bits)
{
  unpack(e, bits);
#pragma unroll
  for (int i = 0; i < kN; i++) {
    e[i] = exp_of_minus<X>(bounded_gate(e[i]));
  }
}

/** dot += sum(g * x). e: exponentials of the gates. */
template <bool kGated, typename X, typename W, typename Y, int kV, int kN>
__device__ __forceinline__ void
add_products(float &dot, const float (&e)[kN], const norm_backward &b,
             const row_inputs<kGated, X, Y, kV> &in, int k, const row_bits<W, kN> &weight)
{
  float dy[kN], x[kN], w[kN], gate[kN];
  unpack(dy, in.dy[k]);
  unpack(x, in.x[k]);
  unpack(w, weight);
  if constexpr (kGated) {
    unpack(gate, in.gate[k]);
  }
#pragma unroll
  for (int i = 0; i < kN; i++) {
    float g = dy[i] * (w[i] + b.offset);
    if constexpr (kGated) {
      float slope;
      g = dy[i] * silu_of<X>(gate[i], e[i], &slope) * w[i];
    }
    dot = fmaf(g, x[i], dot);
  }
}

/** Writes dx and dgate of a vector and adds to its columns' sums. mean: that of g * n. */
template <bool kGated, typename X, typename W, typename Y, int kV, int kN, typename Index>
__device__ __forceinline__ void
write_gradients(float (&sums)[kN], const float (&e)[kN], const norm_backward &b,
                const row_inputs<kGated, X, Y, kV> &in, int k, const row_bits<W, kN> &weight,
                const row_bits<X, kN> &dsum, float mean, int64_t row, Index j, Index cols,
                bool whole)
{
  float dy[kN], x[kN], w[kN], gate[kN], past[kN], dx[kN], dgate[kN];
  unpack(dy, in.dy[k]);
  unpack(x, in.x[k]);
  unpack(w, weight);
  if constexpr (kGated) {
    unpack(gate, in.gate[k]);
  }
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const float normal = x[i] * in.rstd, offset_w = kGated ? w[i] : w[i] + b.offset;
    float u = dy[i];
    if constexpr (kGated) {
      float slope;
      u *= silu_of<X>(gate[i], e[i], &slope);
      dgate[i] = dy[i] * (normal * w[i]) * slope;
    }
    sums[i] = fmaf(u, normal, sums[i]);
    dx[i] = in.rstd * fmaf(-normal, mean, u * offset_w);
  }
  if (b.dx) {
    if (!kGated && b.dsum) {
      unpack(past, dsum);
#pragma unroll
      for (int i = 0; i < kN; i++) {
        dx[i] = past[i] + dx[i];
      }
    }
    store_values(static_cast<X *>(b.dx) + row * b.dx_step, j, cols, dx, whole);
  }
  if constexpr (kGated) {
    if (b.dgate) {
      store_values(static_cast<X *>(b.dgate) + row * b.dgate_step, j, cols, dgate, whole);
    }
  }
}
} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
