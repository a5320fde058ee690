/* LayerNorm on CUDA, forward.
 *
 * Method     A row stays in registers. For 16-bit rows one reduction sums the elements and their
 *            squares. If the mean exceeds the standard deviation, the variance would lose precision
 *            to cancellation, and a second reduction uses d = x - mean. f32 rows always have both.
 *            The second reduction sums d and d^2; the sum of d corrects the rounding of the mean
 *            (Chan, Golub & LeVeque 1983). Rows that do not fit in registers, or that do not
 *            consist of aligned vectors, are read again, from the cache. Common widths in bf16 have
 *            fixed-width kernels (layer_norm_fixed.cuh).
 * Work       s.cuh maps rows to threads: up to 1016 16-bit columns use a warp or less
 *            per row, longer rows a block of up to 512 threads. The kernels are not persistent: a
 *            block ends with its rows.
 * Bound      Memory bandwidth: x is read and y is written.
 * Paper      Ba, Kiros & Hinton 2016, arXiv:1607.06450.
 */
#include "ops/kernels.cuh"
#include "ops/layer_norm/layer_norm_fixed.cuh"

namespace
{

/** Minimum of resident blocks of the largest size per multiprocessor. It limits registers where
 * occupancy has to hide memory latency. */
template <typename X, typename W, typename Y> constexpr int blocks_wanted(int vectors)
{
  return sizeof(X) + sizeof(W) + sizeof(Y) > 6 ? 1 : vectors == 2 ? 5 : vectors == 4 ? 2 : 1;
}

/** Rows in registers: kVectors vectors per thread. An absent bias is loaded as a row of 0 columns.
 */
template <typename X, typename W, typename Y, int kVectors>
__global__ void __launch_bounds__(most_threads(kVectors),
                                  resident_blocks(most_threads(kVectors),
                                                  blocks_wanted<X, W, Y>(kVectors)))
    layer_norm_fwd_rows_kernel(const layer_forward f)
{
  constexpr int kN = kLanes<X>;
  __shared__ float scratch[kScratch];
  const row_place place = place_of(f.layout);
  const W *weight = static_cast<const W *>(f.weight), *bias = static_cast<const W *>(f.bias);
  const int64_t row = block_index() * f.layout.rows + place.row;
  const int cols = row < f.rows ? (int)f.cols : 0; /* no columns past the last row */
  const int bias_cols = bias ? cols : 0;
  const X *x_row = static_cast<const X *>(f.x) + row * f.x_step;
  row_bits<X, kN> x[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    load_bits(x[k], x_row, (place.thread + k * f.layout.threads) * kN, cols, true);
  }
  float sums[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    keep_bits(x[k]);
    if ((place.thread + k * f.layout.threads) * kN < cols) {
      add_values(sums, x[k]);
    }
  }
  const moments m = moments_of<X>(f, sums, scratch, [&](auto body) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      keep_bits(x[k]);
      if ((place.thread + k * f.layout.threads) * kN < cols) {
        body(x[k], kN);
      }
    }
  });
  if (place.thread == 0 && cols > 0) {
    write_moments(f, row, m);
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    const int j = (place.thread + k * f.layout.threads) * kN;
    keep_bits(x[k]);
    row_bits<W, kN> w, b; /* cached after the first row; early loads would lower occupancy */
    load_constant(w, weight, j, cols, true);
    load_constant(b, bias, j, bias_cols, true);
    float y[kN];
    results(y, m, x[k], w, b);
    store_values(static_cast<Y *>(f.y) + row * f.y_step, j, cols, y, true);
  }
}

/** Rows of any length at any address, read again from the cache. */
template <typename X, typename W, typename Y>
__global__ void __launch_bounds__(1024) layer_norm_fwd_any_kernel(const layer_forward f)
{
  constexpr int kN = kLanes<X>;
  __shared__ float scratch[kScratch];
  const row_place place = place_of(f.layout);
  const W *weight = static_cast<const W *>(f.weight), *bias = static_cast<const W *>(f.bias);
  const int64_t first = (int64_t)place.thread * kN, step = (int64_t)f.layout.threads * kN;
  const int64_t row = block_index() * f.layout.rows + place.row;
  const int64_t cols = row < f.rows ? f.cols : 0, bias_cols = bias ? cols : 0;
  const X *x_row = static_cast<const X *>(f.x) + row * f.x_step;
  row_bits<X, kN> x;
  row_bits<W, kN> w, b;
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int64_t j = first; j < cols; j += step) {
    load_bits(x, x_row, j, cols, f.whole);
    add_values(sums, x);
  }
  const moments m = moments_of<X>(f, sums, scratch, [&](auto body) {
#pragma unroll 1
    for (int64_t j = first; j < cols; j += step) {
      load_bits(x, x_row, j, cols, f.whole);
      body(x, cols - j);
    }
  });
  if (place.thread == 0 && cols > 0) {
    write_moments(f, row, m);
  }
#pragma unroll 1
  for (int64_t j = first; j < cols; j += step) {
    load_bits(x, x_row, j, cols, f.whole);
    load_constant(w, weight, j, cols, f.whole);
    load_constant(b, bias, j, bias_cols, f.whole);
    float y[kN];
    results(y, m, x, w, b);
    store_values(static_cast<Y *>(f.y) + row * f.y_step, j, cols, y, f.whole);
  }
}

template <typename X, typename W, typename Y>
tg_status launch_forward(const tg_context *ctx, const layer_forward &f)
{
  if constexpr (has_fixed_rows<X, W, Y>()) {
    const tg_status status = launch_for_width<X>(ctx, f);
    if (status != TG_UNSUPPORTED) {
      return status;
    }
  }
  const dim3 grid = grid_for(divide_up(f.rows, f.layout.rows));
  const int threads = f.layout.threads * f.layout.rows;
  switch (f.whole ? f.layout.vectors : 0) {
  case 2:
    return launch(ctx, layer_norm_fwd_rows_kernel<X, W, Y, 2>, grid, threads, 0, f);
  case 4:
    return launch(ctx, layer_norm_fwd_rows_kernel<X, W, Y, 4>, grid, threads, 0, f);
  case 8:
    return launch(ctx, layer_norm_fwd_rows_kernel<X, W, Y, 8>, grid, threads, 0, f);
  default:
    return launch(ctx, layer_norm_fwd_any_kernel<X, W, Y>, grid, threads, 0, f);
  }
}

layer_forward plan_fwd(const tg_layer_norm_fwd_args *a)
{
  const int lanes = 16 / (int)tg_dtype_bytes(a->x.dtype);
  layer_forward f = {};
  f.x = a->x.data, f.weight = a->weight.data, f.bias = a->bias.data, f.y = a->y.data;
  f.mean = static_cast<float *>(a->mean.data);
  f.rstd = static_cast<float *>(a->rstd.data);
  f.x_step = row_step(&a->x), f.y_step = row_step(&a->y);
  f.rows = a->x.shape[0], f.cols = a->x.shape[1];
  f.inverse = 1 / (float)f.cols;
  f.eps = a->eps;
  f.layout = lay_rows(f.cols, lanes, kShortRow);
  f.whole = rows_are_vectors(f.cols, lanes, {&a->x, &a->weight, &a->bias, &a->y});
  return f;
}

} // namespace

extern "C" tg_status TGI_KERNEL(layer_norm_fwd)(const tg_context *ctx,
                                                const tg_layer_norm_fwd_args *a)
{
  const layer_forward f = plan_fwd(a);
  return with_norm_types<true>(&a->x, &a->weight, &a->y, [&](auto types) {
    using t = decltype(types);
    return launch_forward<typename t::x, typename t::weight, typename t::y>(ctx, f);
  });
}

extern "C" void TGI_PLAN(layer_norm_fwd)(const tg_context *, const tg_layer_norm_fwd_args *a,
                                         char *text, size_t bytes)
{
  const layer_forward f = plan_fwd(a);
  explain_rows(f.rows, f.whole, f.layout, text, bytes);
}
