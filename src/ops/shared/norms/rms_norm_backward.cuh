/**
 * RMSNorm backward on CUDA, for rms_norm and the ops that fuse a step before or after it:
 *
 *   rms_norm         dx = norm'(dy)
 *   add_rms_norm     dx = norm'(dy) + dsum
 *   rms_norm_swiglu  dx = norm'(dy * silu(gate)), dgate = dy * norm(x) * silu'(gate)
 *
 * Method     A thread owns 16 columns. Their weights and their sums of dweight stay in registers
 *            over all rows of the block, and the next row is loaded while the current one is
 *            computed. Each block writes its partial sums to the workspace; a second kernel
 *            (s.cuh) adds them. Rows of more than 8192 columns are read twice, the
 *            second time from the cache; their sums are in shared memory if they fit. For few rows
 *            without a gate, extra blocks of the dx launch reduce dweight directly
 *            (s.cuh): partial sums and a second kernel would cost more than reading
 *            the rows again.
 * Work       A block processes a group of rows. The number of groups, and so the bits, depend on
 *            the shape alone.
 * Bound      Memory bandwidth: dy, x and dsum or gate are read, dx and dgate are written.
 * Paper      Zhang & Sennrich 2019, arXiv:1910.07467.
 */
#ifndef TGI_OPS_RMS_NORM_BACKWARD_CUH
#define TGI_OPS_RMS_NORM_BACKWARD_CUH

#include "cuda/rows/few_rows.cuh"
#include "ops/shared/norms/rms_norm_gradients.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A group is every groups-th set of `layout.rows` rows. Blocks after the groups sum few rows. */
template <bool kGated, typename X, typename W, typename Y, bool kWhole>
__global__ void __launch_bounds__(kGradientThreads, 1)
    rms_norm_bwd_rows_kernel(const norm_backward b, const few_rows few)
{
  if (!kGated && blockIdx.x >= b.groups) {
    sum_few_rows<1, X, Y>(few, blockIdx.x - b.groups);
    return;
  }
  constexpr int kN = kLanes<X>, kV = kSumsEach / kN;
  /* As far as registers allow: loads the next row during the current one, and keeps the gate's
   * exponential for the second pass. */
  constexpr bool kAhead = kWhole && sizeof(X) == 2 && (!kGated || sizeof(W) == 2);
  constexpr bool kKeepsE = kGated && sizeof(X) == 2;
  extern __shared__ float shared[];
  __shared__ float scratch[2][kWarp]; /* double-buffered: one barrier per row */
  const row_place place = place_of(b.layout);
  const int64_t step = (int64_t)b.groups * b.layout.rows;
  row_bits<W, kN> w[kV];
  row_inputs<kGated, X, Y, kV> now, next;
  float sums[kV][kN];
  const auto load_row = [&](row_inputs<kGated, X, Y, kV> &in, int64_t row) {
    const int cols = row < b.rows ? (int)b.cols : 0; /* no columns past the last row */
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

/** Rows of any length, read twice. No two threads share a column of the row or of the sums. */
template <bool kGated, typename X, typename W, typename Y>
__global__ void __launch_bounds__(kGradientThreads, 1)
    rms_norm_bwd_pieces_kernel(const norm_backward b, const few_rows few)
{
  if (!kGated && blockIdx.x >= b.groups) {
    sum_few_rows<1, X, Y>(few, blockIdx.x - b.groups);
    return;
  }
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
  for (int64_t row = blockIdx.x; row < b.rows; row += b.groups, turn ^= 1) {
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

/** The grid has the blocks of the groups, then those that sum few rows. */
template <bool kGated, typename X, typename W, typename Y>
tg_status launch_backward(const tg_context *ctx, const norm_backward &b, const few_rows &few)
{
  const int threads = b.layout.threads * b.layout.rows;
  const dim3 grid(b.groups + few_rows_blocks(few));
  if (!b.layout.vectors) {
    const size_t bytes = b.sums_shared ? (size_t)partial_step(b.cols) * sizeof(float) : 0;
    return launch(ctx, rms_norm_bwd_pieces_kernel<kGated, X, W, Y>, grid, threads,
                  shared_with_room(bytes), b, few);
  }
  const size_t bytes = b.partial ? sums_shared_bytes(b.layout) : 0;
  return b.whole ? launch(ctx, rms_norm_bwd_rows_kernel<kGated, X, W, Y, true>, grid, threads,
                          bytes, b, few)
                 : launch(ctx, rms_norm_bwd_rows_kernel<kGated, X, W, Y, false>, grid, threads,
                          bytes, b, few);
}

/** The tensors of a call; absent ones zeroed. */
struct gradient_views {
  const tg_tensor *dy, *x, *gate, *weight, *rstd, *dsum, *dx, *dgate, *dweight;
};

inline int64_t backward_groups(const tg_tensor *x)
{
  return row_groups(x->shape[0], lay_gradient_rows(x->shape[1]).rows);
}

/** Without a gate only: the extra blocks would have to recompute the gate's exponential. */
inline bool has_few_rows(const tg_tensor *x, const tg_tensor *gate, const tg_tensor *dweight)
{
  return tgi_present(dweight) && x->shape[0] <= kFewRows && !tgi_present(gate);
}

/** Workspace bytes: the partial sums. */
inline size_t backward_bytes(const tg_tensor *x, const tg_tensor *gate, const tg_tensor *dweight)
{
  const int64_t floats = backward_groups(x) * partial_step(x->shape[1]);
  const bool partial = tgi_present(dweight) && !has_few_rows(x, gate, dweight);
  return partial ? (size_t)floats * sizeof(float) : 0;
}

inline norm_backward plan_backward(const tg_context *ctx, const gradient_views &v, float offset,
                                   void *workspace)
{
  const size_t sums = (size_t)partial_step(v.x->shape[1]) * sizeof(float);
  norm_backward b = {};
  b.dy = v.dy->data, b.x = v.x->data, b.gate = v.gate->data, b.weight = v.weight->data;
  b.dsum = v.dsum->data, b.dx = v.dx->data, b.dgate = v.dgate->data;
  b.rstd = static_cast<const float *>(v.rstd->data);
  b.few = has_few_rows(v.x, v.gate, v.dweight);
  b.partial = tgi_present(v.dweight) && !b.few ? static_cast<float *>(workspace) : nullptr;
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
  column_sums s = column_sums_of(b.partial, b.groups, b.cols);
  add_target(s, v.dweight);
  few_rows f = {b.x, b.dy, nullptr, b.rstd, b.x_step, b.dy_step, b.rows, {}};
  if (b.few) {
    f.sums = s;
  }
  const tg_status status = with_norm_types<!kGated>(v.x, v.weight, v.dy, [&](auto types) {
    using t = decltype(types);
    return run_with_few_rows(f, b.groups, b.dx, [&](unsigned groups, const few_rows &few) {
      norm_backward part = b;
      part.groups = groups;
      return launch_backward<kGated, typename t::x, typename t::weight, typename t::y>(ctx, part,
                                                                                       few);
    });
  });
  return status == TG_OK && b.partial ? add_column_sums(ctx, s) : status;
}

inline void explain_backward(const norm_backward &b, char *text, size_t bytes)
{
  snprintf(text, bytes, "%u groups, %d rows of %d threads at once, %s%s", b.groups, b.layout.rows,
           b.layout.threads, b.layout.vectors ? "rows in registers" : "rows in pieces",
           b.few ? "; sums from the inputs" : "");
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
