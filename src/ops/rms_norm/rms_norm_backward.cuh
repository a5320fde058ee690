/**
 * The rows of RMSNorm's backward, for the ops that are one with something before or behind it:
 *
 *   rms_norm         dx = norm'(dy)
 *   add_rms_norm     dx = norm'(dy) + dsum
 *   rms_norm_swiglu  dx = norm'(dy * silu(gate)), dgate = dy * norm(x) * silu'(gate)
 *
 * Method     Groups of rows, each a block. A thread keeps 16 columns: their weight and their sums
 *            of dweight stay in registers while the rows pass by, and the next row is on its way
 *            while this one is worked on. The sums go to the workspace, where a second kernel
 *            (cuda/column_sums.cuh) adds those of the groups. Rows of more columns are read twice,
 *            the second time from the cache, their sums are in shared memory as far as it goes.
 * Work       The number of groups depends on the shape alone, and so do the bits.
 * Bound      Memory: dy, x and dsum or gate are read, dx and dgate are written.
 */
#ifndef TGI_OPS_RMS_NORM_BACKWARD_CUH
#define TGI_OPS_RMS_NORM_BACKWARD_CUH

#include "cuda/column_sums.cuh"
#include "cuda/norm_rows.cuh"
#include "cuda/silu_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** dsum, dx, dgate, partial: NULL without one. */
struct norm_backward {
  const void *dy, *x, *gate, *weight, *dsum;
  void *dx, *dgate;
  const float *rstd;
  float *partial; /* [groups, partial_step(cols)] */
  int64_t dy_step, x_step, gate_step, dsum_step, dx_step, dgate_step;
  int64_t rows, cols;
  float offset;
  bool whole;       /* rows are made of aligned vectors */
  bool sums_shared; /* of rows in pieces: shared memory holds them */
  row_layout layout;
  unsigned groups;
};

/** Kept of a gate from the first pass to the second is e = exp(-bounded_gate(gate)). */
__device__ __forceinline__ float bounded_gate(float gate)
{
  /* Beyond 87 nothing changes by more than 2^-118; NaN passes. */
  return at_least(-87.0f, at_most(87.0f, gate));
}

/** silu(gate) and its slope from e. */
__device__ __forceinline__ float silu_of(float gate, float e, float *slope)
{
  const float c = bounded_gate(gate), s = reciprocal_flushed(1.0f + e); /* of at most 2^126 */
  *slope = fmaf(c * s, e * s, s);
  return gate > 87.0f ? gate : c * s;
}

/** Vectors of a row: kV for a thread. */
template <bool kGated, typename X, typename Y, int kV> struct row_inputs {
  row_bits<Y, kLanes<X>> dy[kV];
  row_bits<X, kLanes<X>> x[kV];
  row_bits<X, kLanes<X>> gate[kGated ? kV : 1];
  float rstd;
};

/** Vector k holds the elements from j on; 0 from `cols` on. */
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

/** dot += sum(g * x). e: of gates. */
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
      g = dy[i] * silu_of(gate[i], e[i], &slope) * w[i];
    }
    dot = fmaf(g, x[i], dot);
  }
}

/** Writes dx and dgate of a vector and adds to its columns' sums. mean: of g * n. */
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
      u *= silu_of(gate[i], e[i], &slope);
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

/** A group is every gridDim.x-th set of `layout.rows` rows. */
template <bool kGated, typename X, typename W, typename Y, bool kWhole>
__global__ void __launch_bounds__(kGradientThreads, 1)
    rms_norm_bwd_rows_kernel(const norm_backward b)
{
  constexpr int kN = kLanes<X>, kV = kSumsEach / kN;
  /* As far as registers go: the next row while this one is worked on, a gate's exponential until
   * the second pass. */
  constexpr bool kAhead = kWhole && sizeof(X) == 2 && (!kGated || sizeof(W) == 2);
  constexpr bool kKeepsE = kGated && sizeof(X) == 2;
  extern __shared__ float shared[];
  __shared__ float scratch[2][kWarp]; /* in turns: one barrier for a row */
  const row_place place = place_of(b.layout);
  const int64_t step = (int64_t)gridDim.x * b.layout.rows;
  row_bits<W, kN> w[kV];
  row_inputs<kGated, X, Y, kV> now, next;
  float sums[kV][kN];
  const auto load_row = [&](row_inputs<kGated, X, Y, kV> &in, int64_t row) {
    const int cols = row < b.rows ? (int)b.cols : 0; /* nothing past the last row */
#pragma unroll
    for (int k = 0; k < kV; k++) {
      load_inputs(in, k, b, row, (place.thread + k * b.layout.threads) * kN, cols, kWhole);
    }
    in.rstd = cols ? b.rstd[row] : 0.0f;
  };
#pragma unroll
  for (int k = 0; k < kV; k++) {
    load_constant(w[k], static_cast<const W *>(b.weight),
                  (place.thread + k * b.layout.threads) * kN, (int)b.cols, kWhole);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      sums[k][i] = 0;
    }
  }
  int64_t first = (int64_t)blockIdx.x * b.layout.rows;
  load_row(now, first + place.row);
  for (int turn = 0; first < b.rows; first += step, turn ^= 1) {
    const int64_t row = first + place.row;
    const int cols = row < b.rows ? (int)b.cols : 0;
    if constexpr (kAhead) {
      load_row(next, row + step);
    }
    row_bits<X, kN> dsum[kV];
    float e[kV][kN], dot[1] = {0};
#pragma unroll
    for (int k = 0; k < kV; k++) {
      const int j = (place.thread + k * b.layout.threads) * kN;
      if (!kGated && b.dsum) {
        load_bits(dsum[k], static_cast<const X *>(b.dsum) + row * b.dsum_step, j, cols, kWhole);
      }
    }
#pragma unroll
    for (int k = 0; k < kV; k++) {
      keep_bits(w[k]);
      if constexpr (kGated) {
        find_exponentials(e[k], now.gate[k]);
      }
      add_products(dot[0], e[k], b, now, k, w[k]);
    }
    if (b.dx) {
      row_sum(dot, b.layout, scratch[turn]);
    }
    const float mean = now.rstd * (dot[0] / (float)b.cols);
#pragma unroll
    for (int k = 0; k < kV; k++) {
      keep_bits(w[k]);
      keep_bits(now.dy[k]);
      keep_bits(now.x[k]);
      if constexpr (kGated) {
        keep_bits(now.gate[k]);
      }
      if constexpr (kGated && !kKeepsE) {
        find_exponentials(e[k], now.gate[k]);
      }
      write_gradients(sums[k], e[k], b, now, k, w[k], dsum[k], mean, row,
                      (place.thread + k * b.layout.threads) * kN, cols, kWhole);
    }
    if constexpr (kAhead) {
      now = next;
    } else {
      load_row(now, row + step);
    }
  }
  if (b.partial) {
    store_sums(b.partial + blockIdx.x * partial_step(b.cols), sums, b.layout, place, (int)b.cols,
               shared);
  }
}

/** Rows of any length: each thread has its columns of the row and of the sums to itself. */
template <bool kGated, typename X, typename W, typename Y>
__global__ void __launch_bounds__(kGradientThreads, 1)
    rms_norm_bwd_pieces_kernel(const norm_backward b)
{
  constexpr int kN = kLanes<X>;
  extern __shared__ float shared[];
  __shared__ float scratch[2][kWarp];
  const int64_t begin = (int64_t)threadIdx.x * kN, step = (int64_t)blockDim.x * kN;
  float *partial = b.partial ? b.partial + blockIdx.x * partial_step(b.cols) : nullptr;
  float *sums = b.sums_shared ? shared : partial;
  row_inputs<kGated, X, Y, 1> in;
  row_bits<W, kN> w;
  row_bits<X, kN> dsum;
  float e[kN], s[kN];
  for (int64_t j = begin; j < b.cols && partial; j += step) {
    for (int i = 0; i < kN; i++) {
      sums[j + i] = 0;
    }
  }
  int turn = 0;
  for (int64_t row = blockIdx.x; row < b.rows; row += gridDim.x, turn ^= 1) {
    float dot[1] = {0};
    in.rstd = b.rstd[row];
#pragma unroll 1
    for (int64_t j = begin; j < b.cols && b.dx; j += step) {
      load_inputs(in, 0, b, row, j, b.cols, b.whole);
      load_constant(w, static_cast<const W *>(b.weight), j, b.cols, b.whole);
      if constexpr (kGated) {
        find_exponentials(e, in.gate[0]);
      }
      add_products(dot[0], e, b, in, 0, w);
    }
    if (b.dx) {
      row_sum(dot, b.layout, scratch[turn]);
    }
    const float mean = in.rstd * (dot[0] / (float)b.cols);
#pragma unroll 1
    for (int64_t j = begin; j < b.cols; j += step) {
      load_inputs(in, 0, b, row, j, b.cols, b.whole);
      load_constant(w, static_cast<const W *>(b.weight), j, b.cols, b.whole);
      if (!kGated && b.dsum) {
        load_bits(dsum, static_cast<const X *>(b.dsum) + row * b.dsum_step, j, b.cols, b.whole);
      }
      if constexpr (kGated) {
        find_exponentials(e, in.gate[0]);
      }
      for (int i = 0; i < kN; i++) {
        s[i] = partial ? sums[j + i] : 0.0f;
      }
      write_gradients(s, e, b, in, 0, w, dsum, mean, row, j, b.cols, b.whole);
      for (int i = 0; i < kN && partial; i++) {
        sums[j + i] = s[i];
      }
    }
  }
  for (int64_t j = begin; j < b.cols && partial && b.sums_shared; j += step) {
    for (int i = 0; i < kN; i++) {
      partial[j + i] = sums[j + i];
    }
  }
}

template <bool kGated, typename X, typename W, typename Y>
tg_status launch_backward(const tg_context *ctx, const norm_backward &b)
{
  const int threads = b.layout.threads * b.layout.rows;
  if (!b.layout.vectors) {
    const size_t bytes = b.sums_shared ? (size_t)partial_step(b.cols) * sizeof(float) : 0;
    return launch(ctx, rms_norm_bwd_pieces_kernel<kGated, X, W, Y>, b.groups, threads,
                  shared_with_room(bytes), b);
  }
  const size_t bytes = b.partial ? sums_shared_bytes(b.layout) : 0;
  return b.whole ? launch(ctx, rms_norm_bwd_rows_kernel<kGated, X, W, Y, true>, b.groups, threads,
                          bytes, b)
                 : launch(ctx, rms_norm_bwd_rows_kernel<kGated, X, W, Y, false>, b.groups, threads,
                          bytes, b);
}

/** The tensors of a call; absent ones zeroed. */
struct gradient_views {
  const tg_tensor *dy, *x, *gate, *weight, *rstd, *dsum, *dx, *dgate, *dweight;
};

inline int64_t backward_groups(const tg_tensor *x)
{
  return row_groups(x->shape[0], lay_gradient_rows(x->shape[1]).rows);
}

/** Bytes of the partial sums. */
inline size_t backward_bytes(const tg_tensor *x, const tg_tensor *dweight)
{
  const int64_t floats = backward_groups(x) * partial_step(x->shape[1]);
  return tgi_present(dweight) ? (size_t)floats * sizeof(float) : 0;
}

inline norm_backward plan_backward(const tg_context *ctx, const gradient_views &v, float offset,
                                   void *workspace)
{
  const size_t sums = (size_t)partial_step(v.x->shape[1]) * sizeof(float);
  norm_backward b = {};
  b.dy = v.dy->data, b.x = v.x->data, b.gate = v.gate->data, b.weight = v.weight->data;
  b.dsum = v.dsum->data, b.dx = v.dx->data, b.dgate = v.dgate->data;
  b.rstd = static_cast<const float *>(v.rstd->data);
  b.partial = tgi_present(v.dweight) ? static_cast<float *>(workspace) : nullptr;
  b.dy_step = row_step(v.dy), b.x_step = row_step(v.x), b.gate_step = row_step(v.gate);
  b.dsum_step = row_step(v.dsum), b.dx_step = row_step(v.dx), b.dgate_step = row_step(v.dgate);
  b.rows = v.x->shape[0], b.cols = v.x->shape[1];
  b.offset = offset;
  b.whole = rows_are_vectors(b.cols, 16 / (int)tg_dtype_bytes(v.x->dtype),
                             {v.dy, v.x, v.gate, v.weight, v.dsum, v.dx, v.dgate});
  b.layout = lay_gradient_rows(b.cols);
  b.sums_shared = b.partial && shared_has_room(ctx, sums);
  b.groups = (unsigned)backward_groups(v.x);
  return b;
}

template <bool kGated>
tg_status run_backward(const tg_context *ctx, const norm_backward &b, const gradient_views &v)
{
  const tg_status status = with_norm_types<!kGated>(v.x, v.weight, v.dy, [&](auto types) {
    using t = decltype(types);
    return launch_backward<kGated, typename t::x, typename t::weight, typename t::y>(ctx, b);
  });
  if (status != TG_OK || !b.partial) {
    return status;
  }
  column_sums s = column_sums_of(b.partial, b.groups, b.cols);
  add_target(s, v.dweight);
  return add_column_sums(ctx, s);
}

inline void explain_backward(const norm_backward &b, char *text, size_t bytes)
{
  snprintf(text, bytes, "%u groups, %d rows of %d threads at once, %s", b.groups, b.layout.rows,
           b.layout.threads, b.layout.vectors ? "rows in registers" : "rows in pieces");
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
