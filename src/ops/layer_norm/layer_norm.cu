/* LayerNorm on CUDA, forward.
 *
 * Method     The row in registers. 16-bit: each warp finds the mean of what it has and the squares
 *            about it; one exchange between warps merges these (Chan, Golub & LeVeque 1983), so
 *            that a row waits once. f32: the row's sum; then the sums of d = x - mean and of d^2,
 *            whose first corrects the rounding of the mean (same source). Then the result. Rows
 *            that registers do not hold, or that are not made of aligned vectors, are read three
 *            times; from the cache after the first.
 * Work       cuda/norm_rows.cuh lays rows on threads: up to 1024 16-bit columns a warp or less for
 *            a row, then a block of up to 512 threads. Blocks are short and end with their rows.
 * Bound      Memory: x is read and y is written.
 */
#include "cuda/norm_rows.cuh"

#include <float.h>

namespace
{

struct layer_forward {
  const void *x, *weight, *bias; /* bias may be NULL */
  void *y;
  float *mean, *rstd; /* NULL: not asked for */
  int64_t x_step, y_step, rows, cols;
  int64_t turns; /* of all threads of a row, a vector for each, */
  int rest;      /* and the columns that are left */
  float eps;
  bool whole; /* rows are made of aligned vectors */
  row_layout layout;
};

struct moments {
  float mean, correction, rstd; /* of a row, whose mean is mean + correction */
};

template <typename X, int N>
__device__ __forceinline__ void add_values(float &sum, const row_bits<X, N> &bits)
{
  float x[N];
  unpack(x, bits);
#pragma unroll
  for (int step = 1; step < N; step *= 2) { /* a tree: few additions wait for others */
#pragma unroll
    for (int i = 0; i < N; i += 2 * step) {
      x[i] += x[i + step];
    }
  }
  sum += x[0];
}

/** Of the first n elements. */
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

/** += (x - mean)^2 of the first n elements. */
template <typename X, int N, typename Index>
__device__ __forceinline__ void add_squares(float &sum, float mean, const row_bits<X, N> &bits,
                                            Index n)
{
  float x[N];
  float even = 0, odd = 0;
  unpack(x, bits);
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const float d = i < n ? x[i] - mean : 0.0f, next = i + 1 < n ? x[i + 1] - mean : 0.0f;
    even = fmaf(d, d, even);
    odd = fmaf(next, next, odd);
  }
  sum += even + odd;
}

/** sum / n is value + lost; the latter is 0 where the former is not finite. */
struct quotient {
  float value, lost;
};

__device__ __forceinline__ quotient divide(float sum, float n)
{
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(n));
  inverse = fmaf(inverse, fmaf(-n, inverse, 1.0f), inverse);
  const float near = sum * inverse, value = fmaf(fmaf(-near, n, sum), inverse, near);
  const bool finite = fabsf(near) <= FLT_MAX;
  return {finite ? value : near, finite ? fmaf(-value, n, sum) * inverse : 0.0f};
}

/** Of the elements that a warp, or a smaller row's threads, have of a row. */
struct part {
  float sum, n;
  quotient mean;
  float squares; /* about the mean */
};

/** The sum over a warp, or over the threads of a smaller row. */
__device__ __forceinline__ float part_sum(float v, const row_layout &l)
{
  if (l.threads >= kWarp) {
    return warp_sum(v);
  }
  for (int step = l.threads / 2; step > 0; step /= 2) {
    v += __shfl_xor_sync(kAllLanes, v, step);
  }
  return v;
}

/** Elements of a part; `most`: of one vector for each of its threads. Rows of more than a warp are
 * blocks. */
__device__ __forceinline__ float part_size(const layer_forward &f, int most)
{
  if (f.layout.threads <= kWarp) {
    return (float)f.cols;
  }
  const int left = f.rest - (int)threadIdx.x / kWarp * most;
  return (float)(f.turns * most + (left < 0 ? 0 : left < most ? left : most));
}

constexpr int kPartFloats = 5;

/** The moments of the row that has these parts. All threads of the block must come here, with
 * `scratch` of kPartFloats * 32 floats. */
__device__ __forceinline__ moments merge_parts(const layer_forward &f, const part &p,
                                               float *scratch)
{
  const float n = (float)f.cols;
  quotient mean = p.mean;
  float squares = p.squares;
  if (f.layout.threads > kWarp) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const bool there = lane < f.layout.threads / kWarp;
    if (lane == 0) {
      scratch[warp] = p.sum;
      scratch[kWarp + warp] = p.n;
      scratch[2 * kWarp + warp] = p.mean.value;
      scratch[3 * kWarp + warp] = p.mean.lost;
      scratch[4 * kWarp + warp] = p.squares;
    }
    __syncthreads();
    mean = divide(warp_sum(there ? scratch[lane] : 0.0f), n);
    squares = 0;
    if (there) {
      const float d =
          (scratch[2 * kWarp + lane] - mean.value) + (scratch[3 * kWarp + lane] - mean.lost);
      squares = fmaf(scratch[kWarp + lane] * d, d, scratch[4 * kWarp + lane]);
    }
    squares = warp_sum(squares);
  }
  return {mean.value, mean.lost, rsqrtf(divide(squares, n).value + f.eps)};
}

/** sums: of the differences from the mean and their squares. */
__device__ __forceinline__ moments moments_of(const layer_forward &f, float mean,
                                              const float (&sums)[2])
{
  const float n = (float)f.cols, shift = sums[0] / n, spread = sums[1] / n - shift * shift;
  const float variance = spread < 0 ? 0 : spread;
  /* A mean near zero needs no correction, and the rounding of d could only bias it. */
  return {mean, mean * mean > variance ? shift : 0, 1.0f / sqrtf(variance + f.eps)};
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

/** Of the most threads, on a multiprocessor: what limits registers where rows wait for memory. */
template <typename X, typename W, typename Y> constexpr int blocks_wanted(int vectors)
{
  return sizeof(X) + sizeof(W) + sizeof(Y) > 6 ? 1 : vectors == 2 ? 5 : 1;
}

/** Rows in registers: kVectors for each thread. An absent bias is read as if it had no columns. */
template <typename X, typename W, typename Y, int kVectors>
__global__ void __launch_bounds__(most_threads(kVectors), blocks_wanted<X, W, Y>(kVectors))
    layer_norm_fwd_rows_kernel(const layer_forward f)
{
  constexpr int kN = kLanes<X>;
  __shared__ float scratch[kPartFloats * kWarp];
  const row_place place = place_of(f.layout);
  const W *weight = static_cast<const W *>(f.weight), *bias = static_cast<const W *>(f.bias);
  const int64_t row = block_index() * f.layout.rows + place.row;
  const int cols = row < f.rows ? (int)f.cols : 0; /* nothing past the last row */
  const int bias_cols = bias ? cols : 0;
  const X *x_row = static_cast<const X *>(f.x) + row * f.x_step;
  row_bits<X, kN> x[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    load_bits(x[k], x_row, (place.thread + k * f.layout.threads) * kN, cols, true);
  }
  float sum[1] = {0}, sums[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    add_values(sum[0], x[k]);
  }
  moments m;
  if constexpr (sizeof(X) == 4) {
    row_sum(sum, f.layout, scratch);
    const float mean = sum[0] / (float)f.cols;
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      const int j = (place.thread + k * f.layout.threads) * kN;
      keep_bits(x[k]);
      add_differences(sums, mean, x[k], j < cols ? kN : 0);
    }
    row_sum(sums, f.layout, scratch + kWarp);
    m = moments_of(f, mean, sums);
  } else {
    part p = {part_sum(sum[0], f.layout), part_size(f, kWarp * kN)};
    p.mean = divide(p.sum, p.n);
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      if constexpr (kVectors > 2) {
        keep_bits(x[k]);
      }
      if ((place.thread + k * f.layout.threads) * kN < cols) {
        add_squares(p.squares, p.mean.value, x[k], kN);
      }
    }
    p.squares = part_sum(p.squares, f.layout);
    m = merge_parts(f, p, scratch);
  }
  if (place.thread == 0 && cols > 0) {
    write_moments(f, row, m);
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    const int j = (place.thread + k * f.layout.threads) * kN;
    if constexpr (sizeof(X) == 4 || kVectors > 2) {
      keep_bits(x[k]);
    }
    row_bits<W, kN> w, b; /* near, after the first row: registers are better used by other rows */
    if constexpr (kVectors == 2) {
      load_constant(w, weight, j, cols, true);
      load_constant(b, bias, j, bias_cols, true);
    } else { /* not ahead of the vectors before */
      load_bits(w, weight, j, cols, true);
      load_bits(b, bias, j, bias_cols, true);
    }
    float y[kN];
    results(y, m, x[k], w, b);
    store_values(static_cast<Y *>(f.y) + row * f.y_step, j, cols, y, true);
  }
}

/** Any rows: of any length, at any address. */
template <typename X, typename W, typename Y>
__global__ void __launch_bounds__(1024) layer_norm_fwd_any_kernel(const layer_forward f)
{
  constexpr int kN = kLanes<X>;
  __shared__ float scratch[kPartFloats * kWarp];
  const row_place place = place_of(f.layout);
  const W *weight = static_cast<const W *>(f.weight), *bias = static_cast<const W *>(f.bias);
  const int64_t first = (int64_t)place.thread * kN, step = (int64_t)f.layout.threads * kN;
  const int64_t row = block_index() * f.layout.rows + place.row;
  const int64_t cols = row < f.rows ? f.cols : 0, bias_cols = bias ? cols : 0;
  const X *x_row = static_cast<const X *>(f.x) + row * f.x_step;
  row_bits<X, kN> x;
  row_bits<W, kN> w, b;
  float sum[1] = {0}, sums[2] = {0, 0};
#pragma unroll 1
  for (int64_t j = first; j < cols; j += step) {
    load_bits(x, x_row, j, cols, f.whole);
    add_values(sum[0], x);
  }
  moments m;
  if constexpr (sizeof(X) == 4) {
    row_sum(sum, f.layout, scratch);
    const float mean = sum[0] / (float)f.cols;
#pragma unroll 1
    for (int64_t j = first; j < cols; j += step) {
      load_bits(x, x_row, j, cols, f.whole);
      add_differences(sums, mean, x, cols - j);
    }
    row_sum(sums, f.layout, scratch + kWarp);
    m = moments_of(f, mean, sums);
  } else {
    part p = {part_sum(sum[0], f.layout), part_size(f, kWarp * kN)};
    p.mean = divide(p.sum, p.n);
#pragma unroll 1
    for (int64_t j = first; j < cols; j += step) {
      load_bits(x, x_row, j, cols, f.whole);
      add_squares(p.squares, p.mean.value, x, cols - j);
    }
    p.squares = part_sum(p.squares, f.layout);
    m = merge_parts(f, p, scratch);
  }
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
  f.eps = a->eps;
  f.layout = lay_rows(f.cols, lanes);
  f.turns = f.cols / (f.layout.threads * lanes);
  f.rest = (int)(f.cols % (f.layout.threads * lanes));
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
