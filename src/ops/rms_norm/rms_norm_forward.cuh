/**
 * The rows of RMSNorm's forward, for the ops that are one with something before or behind it:
 *
 *   rms_norm         y = norm(x)
 *   add_rms_norm     s = round(residual + x), y = norm(s)
 *   rms_norm_swiglu  y = norm(x) * silu(gate)
 *
 *   norm(s) = s * rstd * (offset + weight),  rstd = 1 / sqrt(mean(s^2) + eps)
 *
 * Method     The row in registers, one sum over its threads, the results. Rows that registers do
 *            not hold, or that are not made of aligned vectors, are read twice; the second time
 *            comes from the cache. Of rms_norm the commonest widths in bf16 have kernels of
 *            their own.
 * Work       cuda/norm_rows.cuh lays rows on threads: up to 1024 16-bit columns a warp or less for
 *            a row, then a block of up to 512 threads. Blocks are short and end with their rows.
 * Bound      Memory: each input is read once, each result written once.
 */
#ifndef TGI_OPS_RMS_NORM_FORWARD_CUH
#define TGI_OPS_RMS_NORM_FORWARD_CUH

#include "cuda/norm_rows.cuh"
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

/** From vectors of the row, the weight and the gate. kRounds: see norm_forward. */
template <norm_kind kKind, bool kRounds, typename X, typename W, int N>
__device__ __forceinline__ void results_of(float (&y)[N], const norm_forward &f, float rstd,
                                           const row_bits<X, N> &x, const row_bits<W, N> &weight,
                                           const row_bits<X, N> &gate)
{
  float w[N], g[N];
  unpack(y, x);
  unpack(w, weight);
  if constexpr (kKind == kNormGated) {
    unpack(g, gate);
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    const float scaled = y[i] * rstd, n = kRounds ? rounded<X>(scaled) : scaled;
    if constexpr (kKind == kNormGated) {
      const float m = n * w[i];
      y[i] = (kRounds ? rounded<W>(m) : m) * silu<X>(g[i]);
    } else {
      y[i] = n * (w[i] + f.offset);
    }
  }
}

/** One branch for a vector. */
template <norm_kind kKind, typename X, typename W, int N>
__device__ __forceinline__ void results(float (&y)[N], const norm_forward &f, float rstd,
                                        const row_bits<X, N> &x, const row_bits<W, N> &weight,
                                        const row_bits<X, N> &gate)
{
  if (f.rounds) {
    results_of<kKind, true>(y, f, rstd, x, weight, gate);
  } else {
    results_of<kKind, false>(y, f, rstd, x, weight, gate);
  }
}

/** Of the most threads, on a multiprocessor: a limit of registers where rows wait for memory. */
template <norm_kind kKind, typename W> constexpr int blocks_wanted(int vectors)
{
  return kKind == kNormGated && sizeof(W) == 2 && vectors == 2 ? 5 : 1;
}

/** Rows in registers: of kRows rows kVectors each for a thread. */
template <norm_kind kKind, typename X, typename W, typename Y, int kVectors, int kRows>
__global__ void __launch_bounds__(most_threads(kVectors), blocks_wanted<kKind, W>(kVectors))
    rms_norm_fwd_rows_kernel(const norm_forward f)
{
  constexpr int kN = kLanes<X>;
  /* What comes while the row's sum is made, as far as registers go. */
  constexpr bool kEarlyGate = kKind == kNormGated && kVectors <= 4;
  constexpr bool kEarlyWeight = kVectors * sizeof(row_bits<W, kN>) <= 64;
  __shared__ float scratch[kRows * kWarp];
  const row_place place = place_of(f.layout);
  const W *weight = static_cast<const W *>(f.weight);
  const int64_t row = block_index() * (kRows * f.layout.rows) + place.row;
  row_bits<X, kN> x[kRows][kVectors], other[kRows][kVectors];
  row_bits<W, kN> w[kVectors];
  const auto cols_of = [&](int64_t r) { /* nothing past the last row */
                                        return r < f.rows ? (int)f.cols : 0;
  };
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    const int64_t r = row + u * f.layout.rows;
    const X *x_row = static_cast<const X *>(f.x) + r * f.x_step;
    const X *other_row = static_cast<const X *>(f.other) + r * f.other_step;
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      const int j = (place.thread + k * f.layout.threads) * kN;
      load_bits(x[u][k], x_row, j, cols_of(r), true);
      if constexpr (kKind == kNormOfSum || kEarlyGate) {
        load_bits(other[u][k], other_row, j, cols_of(r), true);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kVectors && kEarlyWeight; k++) {
    const int j = (place.thread + k * f.layout.threads) * kN;
    load_constant(w[k], weight, j, (int)f.cols, true);
  }
  float squares[kRows] = {};
#pragma unroll
  for (int u = 0; u < kRows; u++) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      if constexpr (kKind == kNormOfSum) {
        add_rounded(x[u][k], other[u][k]);
      }
      squares[u] += square_sum(x[u][k]);
    }
  }
  row_sum(squares, f.layout, scratch);
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    const int64_t r = row + u * f.layout.rows;
    const int cols = cols_of(r);
    const float rstd = rstd_of(f, squares[u]);
    if (f.rstd && place.thread == 0 && cols > 0) {
      f.rstd[r] = rstd;
    }
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      const int j = (place.thread + k * f.layout.threads) * kN;
      keep_bits(x[u][k]);
      if constexpr (kKind == kNormGated && !kEarlyGate) {
        load_bits(other[u][k], static_cast<const X *>(f.other) + r * f.other_step, j, cols, true);
      }
      if constexpr (!kEarlyWeight) {
        load_constant(w[k], weight, j, cols, true);
      }
      if constexpr (kKind == kNormOfSum) {
        X *sum_row = static_cast<X *>(f.sum) + r * f.sum_step;
        if (j < cols) {
          *reinterpret_cast<uint4 *>(sum_row + j) = x[u][k].q[0];
        }
      }
      float y[kN];
      results<kKind>(y, f, rstd, x[u][k], w[k], other[u][k]);
      store_values(static_cast<Y *>(f.y) + r * f.y_step, j, cols, y, true);
    }
  }
}

/**
 * Rows of kCols 16-bit columns, one after the other: no vector is missing and no distance is a
 * variable. Of kRows rows a thread has kVectors; a block has kGroups such sets of rows. The bits
 * are those of the kernel above: threads with one vector in the place of half as many with two add
 * these two first, as the lanes of a warp do. kBlocks: least on a multiprocessor, as registers go.
 */
template <typename T, int kCols, int kVectors, int kRows, int kGroups, int kBlocks>
__global__ void __launch_bounds__(kCols / kLanes<T> / kVectors * kGroups, kBlocks)
    rms_norm_fwd_fixed_kernel(const norm_forward given)
{
  constexpr row_layout kAny = lay_rows(kCols, kLanes<T>, kShortRow);
  constexpr int kN = kLanes<T>, kStep = kCols / kN, kThreads = kStep / kVectors;
  static_assert(kCols == kVectors * kThreads * kN &&
                    (kThreads == kAny.threads || kThreads <= kWarp),
                "whole vectors, added in the other kernel's order");
  __shared__ float scratch[kRows * kWarp];
  norm_forward f = given;
  f.layout = make_layout(kThreads, kGroups, kVectors);
  f.inverse = 1 / (float)kCols;
  const int thread = kGroups == 1 ? (int)threadIdx.x : (int)threadIdx.x % kThreads;
  const int row = blockIdx.x * (kRows * kGroups) + (kGroups == 1 ? 0 : (int)threadIdx.x / kThreads);
  const auto there = [&](int u) { return kRows * kGroups == 1 || row + u * kGroups < f.rows; };
  const int64_t at = (int64_t)row * kStep + thread;
  const uint4 *from = static_cast<const uint4 *>(f.x) + at;
  const uint4 *weight = static_cast<const uint4 *>(f.weight) + thread;
  uint4 *to = static_cast<uint4 *>(f.y) + at;
  row_bits<T, kN> x[kRows][kVectors], w[kVectors];
#pragma unroll
  for (int u = 0; u < kRows; u++) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      x[u][k].q[0] = there(u) ? from[u * kGroups * kStep + k * kThreads] : make_uint4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    w[k].q[0] = load_constant_now(weight + k * kThreads);
  }
  float squares[kRows] = {};
#pragma unroll
  for (int u = 0; u < kRows; u++) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      squares[u] += square_sum(x[u][k]);
    }
  }
  row_sum(squares, f.layout, scratch);
  float rstd[kRows];
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    rstd[u] = rstd_of(f, squares[u]);
    if (f.rstd && thread == 0 && there(u)) {
      f.rstd[row + u * kGroups] = rstd[u];
    }
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
#pragma unroll
    for (int u = 0; u < kRows; u++) {
      keep_bits(x[u][k]);
      float y[kN];
      results<kNormAlone>(y, f, rstd[u], x[u][k], w[k], x[u][k]);
      pack_bits(x[u][k], y);
      if (there(u)) {
        to[u * kGroups * kStep + k * kThreads] = x[u][k].q[0];
      }
    }
  }
}

/** Any rows: of any length, at any address. */
template <norm_kind kKind, typename X, typename W, typename Y>
__global__ void __launch_bounds__(1024) rms_norm_fwd_any_kernel(const norm_forward f)
{
  constexpr int kN = kLanes<X>;
  __shared__ float scratch[kWarp];
  const row_place place = place_of(f.layout);
  const W *weight = static_cast<const W *>(f.weight);
  const int64_t first = (int64_t)place.thread * kN, step = (int64_t)f.layout.threads * kN;
  const int64_t row = block_index() * f.layout.rows + place.row;
  const int64_t cols = row < f.rows ? f.cols : 0;
  const X *x_row = static_cast<const X *>(f.x) + row * f.x_step;
  const X *other_row = static_cast<const X *>(f.other) + row * f.other_step;
  row_bits<X, kN> x, other;
  row_bits<W, kN> w;
  float squares[1] = {0};
#pragma unroll 1
  for (int64_t j = first; j < cols; j += step) {
    load_bits(x, x_row, j, cols, f.whole);
    if constexpr (kKind == kNormOfSum) {
      load_bits(other, other_row, j, cols, f.whole);
      add_rounded(x, other);
    }
    squares[0] += square_sum(x);
  }
  row_sum(squares, f.layout, scratch);
  const float rstd = rstd_of(f, squares[0]);
  if (f.rstd && place.thread == 0 && cols > 0) {
    f.rstd[row] = rstd;
  }
#pragma unroll 1
  for (int64_t j = first; j < cols; j += step) {
    load_bits(x, x_row, j, cols, f.whole);
    load_constant(w, weight, j, cols, f.whole);
    if constexpr (kKind != kNormAlone) {
      load_bits(other, other_row, j, cols, f.whole);
    }
    if constexpr (kKind == kNormOfSum) {
      float s[kN];
      add_rounded(x, other);
      unpack(s, x);
      store_values(static_cast<X *>(f.sum) + row * f.sum_step, j, cols, s, f.whole);
    }
    float y[kN];
    results<kKind>(y, f, rstd, x, w, other);
    store_values(static_cast<Y *>(f.y) + row * f.y_step, j, cols, y, f.whole);
  }
}

template <typename T, int kCols, int kVectors, int kRows, int kGroups, int kBlocks>
tg_status launch_fixed(const tg_context *ctx, const norm_forward &f)
{
  const dim3 grid((unsigned)divide_up(f.rows, kRows * kGroups));
  return launch(ctx, rms_norm_fwd_fixed_kernel<T, kCols, kVectors, kRows, kGroups, kBlocks>, grid,
                kCols / kLanes<T> / kVectors * kGroups, 0, f);
}

/** TG_UNSUPPORTED: no kernel is compiled for the rows. */
template <typename T> tg_status launch_for_width(const tg_context *ctx, const norm_forward &f)
{
  if (!f.whole || f.x_step != f.cols || f.y_step != f.cols || f.rows > INT32_MAX / 2) {
    return TG_UNSUPPORTED;
  }
  switch (f.cols) {
  case 128:
    return launch_fixed<T, 128, 1, 2, 32, 1>(ctx, f);
  case 2048:
    return launch_fixed<T, 2048, 2, 1, 1, 12>(ctx, f);
  case 4096:
    return launch_fixed<T, 4096, 2, 1, 1, 6>(ctx, f);
  default:
    return TG_UNSUPPORTED;
  }
}

template <norm_kind kKind, typename X, typename W, typename Y>
tg_status launch_forward(const tg_context *ctx, const norm_forward &f)
{
  if constexpr (kKind == kNormAlone && has_fixed_rows<X, W, Y>()) {
    const tg_status status = launch_for_width<X>(ctx, f);
    if (status != TG_UNSUPPORTED) {
      return status;
    }
  }
  const dim3 grid = grid_for(divide_up(f.rows, f.layout.rows));
  const int threads = f.layout.threads * f.layout.rows;
  if constexpr (kKind == kNormAlone && sizeof(X) == 2) {
    if (f.at_once == 2) {
      const dim3 half = grid_for(divide_up(f.rows, 2 * f.layout.rows));
      return launch(ctx, rms_norm_fwd_rows_kernel<kKind, X, W, Y, 2, 2>, half, threads, 0, f);
    }
  }
  switch (f.whole ? f.layout.vectors : 0) {
  case 2:
    return launch(ctx, rms_norm_fwd_rows_kernel<kKind, X, W, Y, 2, 1>, grid, threads, 0, f);
  case 4:
    return launch(ctx, rms_norm_fwd_rows_kernel<kKind, X, W, Y, 4, 1>, grid, threads, 0, f);
  case 8:
    return launch(ctx, rms_norm_fwd_rows_kernel<kKind, X, W, Y, 8, 1>, grid, threads, 0, f);
  default:
    return launch(ctx, rms_norm_fwd_any_kernel<kKind, X, W, Y>, grid, threads, 0, f);
  }
}

/** The call without its scalars; other, sum: NULL without one. */
inline norm_forward plan_forward(const tg_tensor *x, const tg_tensor *other,
                                 const tg_tensor *weight, const tg_tensor *sum, const tg_tensor *y,
                                 const tg_tensor *rstd)
{
  static const tg_tensor kAbsent = {};
  other = other ? other : &kAbsent;
  sum = sum ? sum : &kAbsent;
  const int lanes = 16 / (int)tg_dtype_bytes(x->dtype);
  norm_forward f = {};
  f.x = x->data, f.other = other->data, f.weight = weight->data;
  f.sum = sum->data, f.y = y->data, f.rstd = static_cast<float *>(rstd->data);
  f.x_step = row_step(x), f.other_step = row_step(other);
  f.sum_step = row_step(sum), f.y_step = row_step(y);
  f.layout = lay_rows(x->shape[1], lanes, kShortRow);
  f.rows = x->shape[0], f.cols = x->shape[1];
  f.inverse = 1 / (float)f.cols;
  f.whole = rows_are_vectors(f.cols, lanes, {x, other, weight, sum, y});
  f.at_once = 1;
  return f;
}

template <norm_kind kKind>
tg_status run_forward(const tg_context *ctx, const norm_forward &f, const tg_tensor *x,
                      const tg_tensor *weight, const tg_tensor *y)
{
  return with_norm_types<kKind != kNormGated>(x, weight, y, [&](auto types) {
    using t = decltype(types);
    return launch_forward<kKind, typename t::x, typename t::weight, typename t::y>(ctx, f);
  });
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
