/* LayerNorm on CUDA, forward.
 *
 * Method     The row in registers. 16-bit: one pass adds the elements and their squares; where the
 *            mean exceeds the standard deviation, so that the variance would lose digits, a second
 *            one goes by the mean. f32: always two. The second pass adds d = x - mean and d^2; the
 *            former corrects the rounding of the mean (Chan, Golub & LeVeque 1983). Then the
 *            result. Rows that registers do not hold, or that are not made of aligned vectors, are
 *            read again, from the cache. The commonest widths in bf16 have kernels of their own.
 * Work       cuda/norm_rows.cuh lays rows on threads: up to 512 16-bit columns a part of a warp for
 *            a row, then a block of up to 512 threads. Blocks are short and end with their rows.
 * Bound      Memory: x is read and y is written.
 */
#include "cuda/norm_rows.cuh"

namespace
{

constexpr int kShortRow = 64; /* vectors of a row, up to which a thread has 2 of them */

struct layer_forward {
  const void *x, *weight, *bias; /* bias may be NULL */
  void *y;
  float *mean, *rstd; /* NULL: not asked for */
  int64_t x_step, y_step, rows, cols;
  float inverse, eps; /* inverse: of cols */
  bool whole;         /* rows are made of aligned vectors */
  row_layout layout;
};

struct moments {
  float mean, correction, rstd; /* of a row, whose mean is mean + correction */
};

/** sums += those of x and x^2 over a vector, whose elements are 0 where there are none. */
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

/** Of the first n elements: d = x - mean, and d^2. */
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

constexpr int kScratch = 4 * kWarp; /* floats */

/** From the thread's `sums` of its vectors, by add_values. each(body): body(vector, how many of its
 * elements are there) for these vectors. All threads of the block must come here, with kScratch
 * floats of shared memory. */
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
      asm volatile("" : "+f"(about[0]), "+f"(about[1])); /* one vector's floats at a time */
    });
    row_sum(about, f.layout, scratch + 2 * kWarp);
    const float shift = about[0] * f.inverse, spread = fmaf(-shift, shift, about[1] * f.inverse);
    if (cancels) { /* whatever the warp's other rows do */
      variance = spread < 0 ? 0 : spread;
      /* A mean near zero needs no correction, and the rounding of d could only bias it. */
      m.correction = m.mean * m.mean > variance ? shift : 0;
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

/** Of the most threads, on a multiprocessor: what limits registers where rows wait for memory. */
template <typename X, typename W, typename Y> constexpr int blocks_wanted(int vectors)
{
  return sizeof(X) + sizeof(W) + sizeof(Y) > 6 ? 1 : vectors == 2 ? 5 : vectors == 4 ? 2 : 1;
}

/** Rows in registers: kVectors for each thread. An absent bias is read as if it had no columns. */
template <typename X, typename W, typename Y, int kVectors>
__global__ void __launch_bounds__(most_threads(kVectors), blocks_wanted<X, W, Y>(kVectors))
    layer_norm_fwd_rows_kernel(const layer_forward f)
{
  constexpr int kN = kLanes<X>;
  __shared__ float scratch[kScratch];
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
    row_bits<W, kN> w, b; /* near, after the first row: registers are better used by other rows */
    load_constant(w, weight, j, cols, true);
    load_constant(b, bias, j, bias_cols, true);
    float y[kN];
    results(y, m, x[k], w, b);
    store_values(static_cast<Y *>(f.y) + row * f.y_step, j, cols, y, true);
  }
}

/**
 * Rows of kCols 16-bit columns, one after the other: no vector is missing and no distance is a
 * variable. The bits are those of the kernel above, whose threads of a row these are. kEarly:
 * weight and bias come with x. kBlocks: least on a multiprocessor, as registers go.
 */
template <typename T, int kCols, int kRows, bool kEarly, int kBlocks>
__global__ void __launch_bounds__(lay_rows(kCols, kLanes<T>, kShortRow).threads *kRows, kBlocks)
    layer_norm_fwd_fixed_kernel(const layer_forward given)
{
  constexpr row_layout kAny = lay_rows(kCols, kLanes<T>, kShortRow);
  constexpr int kN = kLanes<T>, kStep = kCols / kN, kVectors = kStep / kAny.threads;
  static_assert(kCols == kVectors * kAny.threads * kN && kVectors <= kAny.vectors, "whole vectors");
  __shared__ float scratch[kScratch];
  layer_forward f = given;
  f.layout = make_layout(kAny.threads, kRows, kVectors);
  f.inverse = 1 / (float)kCols;
  const int thread = kRows == 1 ? (int)threadIdx.x : (int)threadIdx.x % kAny.threads;
  const int row = blockIdx.x * kRows + (kRows == 1 ? 0 : (int)threadIdx.x / kAny.threads);
  const bool there = kRows == 1 || row < f.rows;
  const int64_t at = (int64_t)row * kStep + thread;
  const uint4 *from = static_cast<const uint4 *>(f.x) + at;
  const uint4 *weight = static_cast<const uint4 *>(f.weight) + thread;
  const uint4 *bias = static_cast<const uint4 *>(f.bias) + thread;
  uint4 *to = static_cast<uint4 *>(f.y) + at;
  row_bits<T, kN> x[kVectors], w[kVectors], b[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    x[k].q[0] = there ? from[k * kAny.threads] : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int k = 0; k < kVectors && kEarly; k++) {
    w[k].q[0] = load_constant_now(weight + k * kAny.threads);
    b[k].q[0] = load_constant_now(bias + k * kAny.threads);
  }
  float sums[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    add_values(sums, x[k]);
  }
  const moments m = moments_of<T>(f, sums, scratch, [&](auto body) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      keep_bits(x[k]);
      body(x[k], kN);
    }
  });
  if (thread == 0 && there) {
    write_moments(f, row, m);
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    keep_bits(x[k]);
    if constexpr (!kEarly) {
      w[k].q[0] = __ldg(weight + k * kAny.threads);
      b[k].q[0] = __ldg(bias + k * kAny.threads);
    }
    float y[kN];
    results(y, m, x[k], w[k], b[k]);
    pack_bits(x[k], y);
    if (there) {
      to[k * kAny.threads] = x[k].q[0];
    }
  }
}

/** Any rows: of any length, at any address. */
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

template <typename T, int kCols, int kRows, bool kEarly, int kBlocks>
tg_status launch_fixed(const tg_context *ctx, const layer_forward &f)
{
  constexpr int kThreads = lay_rows(kCols, kLanes<T>, kShortRow).threads * kRows;
  const dim3 grid((unsigned)divide_up(f.rows, kRows));
  return launch(ctx, layer_norm_fwd_fixed_kernel<T, kCols, kRows, kEarly, kBlocks>, grid, kThreads,
                0, f);
}

/** TG_UNSUPPORTED: no kernel is compiled for the rows. */
template <typename T> tg_status launch_for_width(const tg_context *ctx, const layer_forward &f)
{
  if (!f.whole || !f.bias || f.x_step != f.cols || f.y_step != f.cols || f.rows > INT32_MAX / 2) {
    return TG_UNSUPPORTED;
  }
  switch (f.cols) {
  case 128:
    return launch_fixed<T, 128, 16, true, 1>(ctx, f);
  case 768:
    return launch_fixed<T, 768, 1, false, 32>(ctx, f);
  case 1024:
    return launch_fixed<T, 1024, 1, true, 20>(ctx, f);
  case 2048:
    return launch_fixed<T, 2048, 1, false, 1>(ctx, f);
  case 4096: /* few rows leave multiprocessors idle: then what counts is how soon a row is done */
    return f.rows <= 512 ? launch_fixed<T, 4096, 1, true, 1>(ctx, f)
                         : launch_fixed<T, 4096, 1, false, 1>(ctx, f);
  case 8192:
    return launch_fixed<T, 8192, 1, false, 4>(ctx, f);
  default:
    return TG_UNSUPPORTED;
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
