/**
 * RMSNorm forward on CUDA, for rms_norm and the ops that fuse a step before or after it:
 *
 *   rms_norm         y = norm(x)
 *   add_rms_norm     s = round(residual + x), y = norm(s)
 *   rms_norm_swiglu  y = norm(x) * silu(gate)
 *
 *   norm(s) = s * rstd * (offset + weight),  rstd = 1 / sqrt(mean(s^2) + eps)
 *
 * Method     A row stays in registers: load, one reduction over its threads, results. Rows that do
 *            not fit in registers, or that do not consist of aligned vectors, are read twice, the
 *            second time from the cache. rms_norm and rms_norm_swiglu have fixed-width kernels for
 *            some widths in bf16 (rms_norm_fixed.cuh).
 * Work       s.cuh maps rows to threads: up to 512 16-bit columns use a warp or less
 *            per row, longer rows a block of up to 512 threads. The kernels are not persistent: a
 *            block ends with its rows.
 * Bound      Memory bandwidth: each input is read once, each output written once.
 * Paper      Zhang & Sennrich 2019, arXiv:1910.07467.
 */
#ifndef TGI_OPS_RMS_NORM_FORWARD_CUH
#define TGI_OPS_RMS_NORM_FORWARD_CUH

#include "ops/shared/norms/rms_norm_fixed.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Minimum of resident blocks of the largest size per multiprocessor. It limits registers where
 * occupancy has to hide memory latency. */
template <norm_kind kKind, typename W> constexpr int blocks_wanted(int vectors)
{
  return kKind == kNormGated && sizeof(W) == 2 && vectors == 2 ? 5 : 1;
}

/** Rows in registers: a thread has kVectors vectors of each of kRows rows. */
template <norm_kind kKind, typename X, typename W, typename Y, int kVectors, int kRows>
__global__ void __launch_bounds__(most_threads(kVectors),
                                  resident_blocks(most_threads(kVectors),
                                                  blocks_wanted<kKind, W>(kVectors)))
    rms_norm_fwd_rows_kernel(const norm_forward f)
{
  constexpr int kN = kLanes<X>;
  /* Inputs loaded before the reduction, as far as registers allow. */
  constexpr bool kEarlyGate = kKind == kNormGated && kVectors <= 4;
  constexpr bool kEarlyWeight = kVectors * sizeof(row_bits<W, kN>) <= 64;
  __shared__ float scratch[kRows * kWarp];
  const row_place place = place_of(f.layout);
  const W *weight = static_cast<const W *>(f.weight);
  const int64_t row = block_index() * (kRows * f.layout.rows) + place.row;
  row_bits<X, kN> x[kRows][kVectors], other[kRows][kVectors];
  row_bits<W, kN> w[kVectors];
  const auto cols_of = [&](int64_t r) { /* no columns past the last row */
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
      results<kKind>(y, f, rstd, x[u][k], w[k], silu_of<X, kN>(other[u][k]));
      store_values(static_cast<Y *>(f.y) + r * f.y_step, j, cols, y, true);
    }
  }
}

/** Rows of any length at any address, read twice. */
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
    results<kKind>(y, f, rstd, x, w, silu_of<X, kN>(other));
    store_values(static_cast<Y *>(f.y) + row * f.y_step, j, cols, y, f.whole);
  }
}

template <norm_kind kKind, typename X, typename W, typename Y>
tg_status launch_forward(const tg_context *ctx, const norm_forward &f)
{
  if constexpr (kKind != kNormOfSum && has_fixed_rows<X, W, Y>()) {
    const tg_status status = launch_for_width<kKind, X>(ctx, f);
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

/** Parameters of a call without its scalars; other, sum: NULL if absent. */
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
