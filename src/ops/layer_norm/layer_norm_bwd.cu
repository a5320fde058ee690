/* LayerNorm on CUDA, backward.
 *
 * Method     A thread owns 16 columns. Their weights and their sums of dweight and dbias stay in
 *            registers over all rows of the block, and the next row is loaded while the current one
 *            is computed. Each block writes its partial sums to the workspace; a second kernel
 *            (s.cuh) adds them. Rows of more than 8192 columns are read twice, the
 *            second time from the cache; their sums are in shared memory if they fit. For few rows,
 *            extra blocks of the dx launch reduce dweight and dbias directly (s.cuh).
 * Work       A block processes a group of rows. The number of groups, and so the bits, depend on
 *            the shape alone.
 * Bound      Memory bandwidth: dy, x and dresidual are read, dx is written.
 * Paper      Ba, Kiros & Hinton 2016, arXiv:1607.06450.
 */
#include "cuda/rows/few_rows.cuh"
#include "cuda/rows/norm_rows.cuh"
#include "ops/kernels.cuh"

namespace
{

/** Kernel parameters. dresidual, dx, partial: NULL if absent. */
struct layer_backward {
  const void *dy, *x, *weight, *dresidual;
  void *dx;
  const float *mean, *rstd;
  float *partial; /* [groups, 2, partial_step(cols)]: of dweight, of dbias */
  int64_t dy_step, x_step, dresidual_step, dx_step;
  int64_t rows, cols;
  bool whole;       /* rows consist of aligned vectors */
  bool sums_shared; /* rows in pieces: shared memory holds the sums */
  row_layout layout;
  unsigned groups;
};

/** A thread's kV vectors of a row. */
template <typename X, typename Y, int kV> struct row_inputs {
  row_bits<Y, kLanes<X>> dy[kV];
  row_bits<X, kLanes<X>> x[kV];
  float mean, rstd;
};

/** Loads vector k, the elements from j on; 0 from `cols` on. */
template <typename X, typename Y, int kV, typename Index>
__device__ __forceinline__ void load_inputs(row_inputs<X, Y, kV> &in, int k,
                                            const layer_backward &b, int64_t row, Index j,
                                            Index cols, bool whole)
{
  load_bits(in.dy[k], static_cast<const Y *>(b.dy) + row * b.dy_step, j, cols, whole);
  load_bits(in.x[k], static_cast<const X *>(b.x) + row * b.x_step, j, cols, whole);
}

/** dots[0] += sum(g), dots[1] += sum(g * (x - mean)); g is 0 past the last column, as dy is. */
template <typename X, typename W, typename Y, int kV, int kN>
__device__ __forceinline__ void add_products(float (&dots)[2], const row_inputs<X, Y, kV> &in,
                                             int k, const row_bits<W, kN> &weight)
{
  float dy[kN], x[kN], w[kN];
  unpack(dy, in.dy[k]);
  unpack(x, in.x[k]);
  unpack(w, weight);
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const float g = dy[i] * w[i];
    dots[0] += g;
    dots[1] = fmaf(g, x[i] - in.mean, dots[1]);
  }
}

/** mean_j(g), mean_j(g * n) */
struct row_means {
  float g, gn;
};

/** Writes dx of a vector and adds to its columns' sums. */
template <typename X, typename W, typename Y, int kV, int kN, typename Index>
__device__ __forceinline__ void
write_gradients(float (&weight_sums)[kN], float (&bias_sums)[kN], const layer_backward &b,
                const row_inputs<X, Y, kV> &in, int k, const row_bits<W, kN> &weight,
                const row_bits<X, kN> &dresidual, row_means mean, int64_t row, Index j, Index cols,
                bool whole)
{
  float dy[kN], x[kN], w[kN], past[kN], dx[kN];
  unpack(dy, in.dy[k]);
  unpack(x, in.x[k]);
  unpack(w, weight);
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const float normal = (x[i] - in.mean) * in.rstd;
    weight_sums[i] = fmaf(dy[i], normal, weight_sums[i]);
    bias_sums[i] += dy[i];
    dx[i] = in.rstd * (fmaf(-normal, mean.gn, dy[i] * w[i]) - mean.g);
  }
  if (b.dx) {
    if (b.dresidual) {
      unpack(past, dresidual);
#pragma unroll
      for (int i = 0; i < kN; i++) {
        dx[i] = past[i] + dx[i];
      }
    }
    store_values(static_cast<X *>(b.dx) + row * b.dx_step, j, cols, dx, whole);
  }
}

/** A group is every groups-th set of `layout.rows` rows. Blocks after the groups sum few rows. */
template <typename X, typename W, typename Y, bool kWhole>
__global__ void __launch_bounds__(kGradientThreads, 1)
    layer_norm_bwd_rows_kernel(const layer_backward b, const few_rows few)
{
  if (blockIdx.x >= b.groups) {
    sum_few_rows<2, X, Y>(few, blockIdx.x - b.groups);
    return;
  }
  constexpr int kN = kLanes<X>, kV = kSumsEach / kN;
  constexpr bool kAhead = kWhole && sizeof(X) + sizeof(W) + sizeof(Y) == 6; /* register limit */
  extern __shared__ float shared[];
  __shared__ float scratch[2][2 * kWarp]; /* double-buffered: one barrier per row */
  const row_place place = place_of(b.layout);
  const int64_t step = (int64_t)b.groups * b.layout.rows;
  row_bits<W, kN> w[kV];
  row_inputs<X, Y, kV> now, next;
  float weight_sums[kV][kN], bias_sums[kV][kN];
  const auto load_row = [&](row_inputs<X, Y, kV> &in, int64_t row) {
    const int cols = row < b.rows ? (int)b.cols : 0; /* no columns past the last row */
#pragma unroll
    for (int k = 0; k < kV; k++) {
      load_inputs(in, k, b, row, (place.thread + k * b.layout.threads) * kN, cols, kWhole);
    }
    in.mean = cols ? b.mean[row] : 0.0f;
    in.rstd = cols ? b.rstd[row] : 0.0f;
  };
#pragma unroll
  for (int k = 0; k < kV; k++) {
    load_constant(w[k], static_cast<const W *>(b.weight),
                  (place.thread + k * b.layout.threads) * kN, (int)b.cols, kWhole);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      weight_sums[k][i] = 0;
      bias_sums[k][i] = 0;
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
    row_bits<X, kN> dresidual[kV];
    float dots[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < kV; k++) {
      const int j = (place.thread + k * b.layout.threads) * kN;
      if (kWhole && b.dresidual) {
        load_bits(dresidual[k], static_cast<const X *>(b.dresidual) + row * b.dresidual_step, j,
                  cols, true);
      }
    }
#pragma unroll
    for (int k = 0; k < kV; k++) {
      keep_bits(w[k]);
      add_products(dots, now, k, w[k]);
    }
    if (b.dx) {
      row_sum(dots, b.layout, scratch[turn]);
    }
    const row_means mean = {dots[0] / (float)b.cols, now.rstd * (dots[1] / (float)b.cols)};
#pragma unroll
    for (int k = 0; k < kV; k++) {
      keep_bits(w[k]);
      keep_bits(now.dy[k]);
      keep_bits(now.x[k]);
      const int j = (place.thread + k * b.layout.threads) * kN;
      if (!kWhole && b.dresidual) { /* not loaded early: too many addresses in registers */
        load_bits(dresidual[k], static_cast<const X *>(b.dresidual) + row * b.dresidual_step, j,
                  cols, false);
      }
      write_gradients(weight_sums[k], bias_sums[k], b, now, k, w[k], dresidual[k], mean, row, j,
                      cols, kWhole);
    }
    if constexpr (kAhead) {
      now = next;
    } else {
      load_row(now, row + step);
    }
  }
  if (b.partial) {
    float *to = b.partial + 2 * blockIdx.x * partial_step(b.cols);
    store_sums(to, weight_sums, b.layout, place, (int)b.cols, shared);
    __syncthreads(); /* shared memory can be reused */
    store_sums(to + partial_step(b.cols), bias_sums, b.layout, place, (int)b.cols, shared);
  }
}

/** Rows of any length, read twice. No two threads share a column of the row or of the sums. */
template <typename X, typename W, typename Y>
__global__ void __launch_bounds__(kGradientThreads, 1)
    layer_norm_bwd_pieces_kernel(const layer_backward b, const few_rows few)
{
  if (blockIdx.x >= b.groups) {
    sum_few_rows<2, X, Y>(few, blockIdx.x - b.groups);
    return;
  }
  constexpr int kN = kLanes<X>;
  extern __shared__ float shared[];
  __shared__ float scratch[2][2 * kWarp];
  const int64_t begin = (int64_t)threadIdx.x * kN, step = (int64_t)blockDim.x * kN;
  const int64_t between = partial_step(b.cols); /* sums of dweight and of dbias */
  float *partial = b.partial ? b.partial + 2 * blockIdx.x * between : nullptr;
  float *sums = b.sums_shared ? shared : partial;
  row_inputs<X, Y, 1> in;
  row_bits<W, kN> w;
  row_bits<X, kN> dresidual;
  float weight_sums[kN], bias_sums[kN];
  for (int64_t j = begin; j < b.cols && partial; j += step) {
    for (int i = 0; i < kN; i++) {
      sums[j + i] = 0;
      sums[between + j + i] = 0;
    }
  }
  int turn = 0;
  for (int64_t row = blockIdx.x; row < b.rows; row += b.groups, turn ^= 1) {
    float dots[2] = {0, 0};
    in.mean = b.mean[row];
    in.rstd = b.rstd[row];
#pragma unroll 1
    for (int64_t j = begin; j < b.cols && b.dx; j += step) {
      load_inputs(in, 0, b, row, j, b.cols, b.whole);
      load_constant(w, static_cast<const W *>(b.weight), j, b.cols, b.whole);
      add_products(dots, in, 0, w);
    }
    if (b.dx) {
      row_sum(dots, b.layout, scratch[turn]);
    }
    const row_means mean = {dots[0] / (float)b.cols, in.rstd * (dots[1] / (float)b.cols)};
#pragma unroll 1
    for (int64_t j = begin; j < b.cols; j += step) {
      load_inputs(in, 0, b, row, j, b.cols, b.whole);
      load_constant(w, static_cast<const W *>(b.weight), j, b.cols, b.whole);
      if (b.dresidual) {
        load_bits(dresidual, static_cast<const X *>(b.dresidual) + row * b.dresidual_step, j,
                  b.cols, b.whole);
      }
      for (int i = 0; i < kN; i++) {
        weight_sums[i] = partial ? sums[j + i] : 0.0f;
        bias_sums[i] = partial ? sums[between + j + i] : 0.0f;
      }
      write_gradients(weight_sums, bias_sums, b, in, 0, w, dresidual, mean, row, j, b.cols,
                      b.whole);
      for (int i = 0; i < kN && partial; i++) {
        sums[j + i] = weight_sums[i];
        sums[between + j + i] = bias_sums[i];
      }
    }
  }
  for (int64_t j = begin; j < b.cols && partial && b.sums_shared; j += step) {
    for (int i = 0; i < kN; i++) {
      partial[j + i] = sums[j + i];
      partial[between + j + i] = sums[between + j + i];
    }
  }
}

/** Blocks for the groups, then for the columns of few rows. */
template <typename X, typename W, typename Y>
tg_status launch_backward(const tg_context *ctx, const layer_backward &b, const few_rows &few)
{
  const int threads = b.layout.threads * b.layout.rows;
  const dim3 grid(b.groups + few_rows_blocks(few));
  if (!b.layout.vectors) {
    const size_t bytes = b.sums_shared ? 2 * (size_t)partial_step(b.cols) * sizeof(float) : 0;
    return launch(ctx, layer_norm_bwd_pieces_kernel<X, W, Y>, grid, threads,
                  shared_with_room(bytes), b, few);
  }
  const size_t bytes = b.partial ? sums_shared_bytes(b.layout) : 0;
  return b.whole
             ? launch(ctx, layer_norm_bwd_rows_kernel<X, W, Y, true>, grid, threads, bytes, b, few)
             : launch(ctx, layer_norm_bwd_rows_kernel<X, W, Y, false>, grid, threads, bytes, b,
                      few);
}

bool has_few_rows(const tg_layer_norm_bwd_args *a)
{
  return a->x.shape[0] <= kFewRows;
}

int64_t groups_of(const tg_layer_norm_bwd_args *a)
{
  return row_groups(a->x.shape[0], lay_gradient_rows(a->x.shape[1]).rows);
}

bool has_sums(const tg_layer_norm_bwd_args *a)
{
  return tgi_present(&a->dweight) || tgi_present(&a->dbias);
}

layer_backward plan_bwd(const tg_context *ctx, const tg_layer_norm_bwd_args *a)
{
  const size_t sums = 2 * (size_t)partial_step(a->x.shape[1]) * sizeof(float);
  layer_backward b = {};
  b.dy = a->dy.data, b.x = a->x.data, b.weight = a->weight.data;
  b.dresidual = a->dresidual.data, b.dx = a->dx.data;
  b.mean = static_cast<const float *>(a->mean.data);
  b.rstd = static_cast<const float *>(a->rstd.data);
  b.partial = has_sums(a) && !has_few_rows(a) ? static_cast<float *>(a->workspace) : nullptr;
  b.dy_step = row_step(&a->dy), b.x_step = row_step(&a->x);
  b.dresidual_step = row_step(&a->dresidual), b.dx_step = row_step(&a->dx);
  b.rows = a->x.shape[0], b.cols = a->x.shape[1];
  b.whole = rows_are_vectors(b.cols, 16 / (int)tg_dtype_bytes(a->x.dtype),
                             {&a->dy, &a->x, &a->weight, &a->dresidual, &a->dx});
  b.layout = lay_gradient_rows(b.cols);
  b.sums_shared = b.partial && shared_has_room(ctx, sums);
  b.groups = (unsigned)groups_of(a);
  return b;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(layer_norm_bwd)(const tg_context *, const tg_layer_norm_bwd_args *a)
{
  const int64_t floats = groups_of(a) * 2 * partial_step(a->x.shape[1]);
  return has_sums(a) && !has_few_rows(a) ? (size_t)floats * sizeof(float) : 0;
}

extern "C" tg_status TGI_KERNEL(layer_norm_bwd)(const tg_context *ctx,
                                                const tg_layer_norm_bwd_args *a)
{
  const layer_backward b = plan_bwd(ctx, a);
  column_sums s = column_sums_of(b.partial, b.groups, b.cols);
  add_target(s, &a->dweight);
  add_target(s, &a->dbias);
  few_rows f = {b.x, b.dy, b.mean, b.rstd, b.x_step, b.dy_step, b.rows, {}};
  if (has_sums(a) && has_few_rows(a)) {
    f.sums = s;
  }
  const tg_status status = with_norm_types<true>(&a->x, &a->weight, &a->dy, [&](auto types) {
    using t = decltype(types);
    return run_with_few_rows(f, b.groups, b.dx, [&](unsigned groups, const few_rows &few) {
      layer_backward part = b;
      part.groups = groups;
      return launch_backward<typename t::x, typename t::weight, typename t::y>(ctx, part, few);
    });
  });
  return status == TG_OK && b.partial ? add_column_sums(ctx, s) : status;
}

extern "C" void TGI_PLAN(layer_norm_bwd)(const tg_context *ctx, const tg_layer_norm_bwd_args *a,
                                         char *text, size_t bytes)
{
  const layer_backward b = plan_bwd(ctx, a);
  snprintf(text, bytes, "%u groups, %d rows of %d threads at once, %s%s", b.groups, b.layout.rows,
           b.layout.threads, b.layout.vectors ? "rows in registers" : "rows in pieces",
           has_sums(a) && has_few_rows(a) ? "; sums from the inputs" : "");
}
