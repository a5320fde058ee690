/* Experts' feed-forward blocks on CUDA, backward.
 *
 * Method     The steps of moe_mlp_steps.h, which are kernels of other ops, and three of its own.
 *            rows: a block for a row computes dh from h and q, w a in q's place, and the sum that
 *            is the gradient of the row's weight, four columns a thread at a time where rows of 16
 *            bits are whole vectors; lanes add products in f32, their sums in f64.
 *            scores: these sums to the slots. biases: expert_bias_sums.cuh, weighed and gathered.
 * Work       rows: a block of 256 threads for a row; scores: a thread for a slot.
 * Bound      The products' f32 arithmetic; rows: memory, it reads h and q and writes dh and w a.
 */
#include "ops/grouped_linear/expert_bias_sums.cuh"
#include "ops/grouped_linear/grouped_sites.cuh"
#include "ops/moe_combine/combine_vectors.cuh"
#include "ops/moe_mlp/moe_mlp_between.cuh"
#include "ops/shared/gated/swiglu_functions.cuh"

namespace
{

constexpr int kRowThreads = 256, kSumTerms = 1024;
constexpr int kVectorColumns = 4; /* of gate and up in 16 bytes of 16-bit elements */

/* T: the dtype of x. What is not wanted is NULL. */
template <typename T> struct rows_job {
  expert_tiles tiles;
  row_sources sources;
  slot_weights weights;
  expert_matrix bias; /* of down */
  const T *h, *dy;
  const T *q_in;
  T *q_out, *dh;
  float *scores;
  int64_t h_step, q_step, dh_step, dy_step, cols, hidden, spread, up_at;
};

/* The expert of row r, which one has. */
__device__ __forceinline__ int64_t expert_of_row(const expert_tiles &t, int64_t r)
{
  int64_t low = 0, high = t.experts; /* bound[low] <= r < bound[high] */
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (t.bound[middle] <= r) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/* A thread's share of a sum over n terms, of `each` products: f64 of f32 sums of at most kSumTerms
 * products. */
template <typename Term>
__device__ __forceinline__ double sum_terms(int64_t n, int each, const Term &term)
{
  double sum = 0;
  const int64_t block = (int64_t)kRowThreads * (kSumTerms / each);
  for (int64_t first = threadIdx.x; first < n; first += block) {
    const int64_t end = first + block;
    float part = 0;
    for (int64_t i = first; i < end && i < n; i += kRowThreads) {
      part = term(i, part);
    }
    sum += (double)part;
  }
  return sum;
}

/* kN columns of gate and up from column c on; where kN is 1, rows may begin anywhere. */
template <int kN, typename T>
__device__ __forceinline__ void load_pairs(const rows_job<T> &job, const T *row, int64_t c,
                                           float (&gate)[kN], float (&up)[kN])
{
  if constexpr (kN > 1) {
    if (job.spread == 2) {
      float both[2 * kN];
      load(both, row + 2 * c);
#pragma unroll
      for (int i = 0; i < kN; i++) {
        gate[i] = both[2 * i];
        up[i] = both[2 * i + 1];
      }
      return;
    }
  }
  load(gate, row + c * job.spread);
  load(up, row + c * job.spread + job.up_at);
}

template <int kN, typename T>
__device__ __forceinline__ void store_pairs(const rows_job<T> &job, T *row, int64_t c,
                                            const float (&gate)[kN], const float (&up)[kN])
{
  if constexpr (kN > 1) {
    if (job.spread == 2) {
      float both[2 * kN];
#pragma unroll
      for (int i = 0; i < kN; i++) {
        both[2 * i] = gate[i];
        both[2 * i + 1] = up[i];
      }
      store(row + 2 * c, both);
      return;
    }
  }
  store(row + c * job.spread, gate);
  store(row + c * job.spread + job.up_at, up);
}

/* dh and w a of row r, kN columns at a time; returns the thread's share of the sum of q a. */
template <int kN, typename T, typename Forward, typename Backward>
__device__ __forceinline__ double compute_row(const rows_job<T> &job, int64_t r, float w,
                                              const Forward &forward, const Backward &backward)
{
  const T *h = job.h + r * job.h_step;
  return sum_terms(job.cols / kN, kN, [&](int64_t i, float part) {
    const int64_t c = i * kN, q_at = r * job.q_step + c;
    float gate[kN], up[kN], q[kN], a[kN], dgate[kN], dup[kN];
    load_pairs(job, h, c, gate, up);
    if (job.q_in) {
      load(q, job.q_in + q_at);
    }
#pragma unroll
    for (int j = 0; j < kN; j++) {
      q[j] = job.q_in ? q[j] : 0.0f;
      a[j] = forward(gate[j], up[j]);
      backward(q[j] * w, gate[j], up[j], &dgate[j], &dup[j]);
      part = fmaf(q[j], a[j], part);
      a[j] = a[j] * w;
    }
    if (job.dh) {
      store_pairs(job, job.dh + r * job.dh_step, c, dgate, dup);
    }
    if (job.q_out) {
      store(job.q_out + q_at, a);
    }
    return part;
  });
}

/* The thread's share of the product of dy's row and the bias of the expert's result. */
template <typename T>
__device__ __forceinline__ double dot_bias(const rows_job<T> &job, int64_t r, int64_t token)
{
  const T *dy = job.dy + token * job.dy_step;
  const int64_t at = expert_of_row(job.tiles, r) * job.bias.row_step;
  return sum_terms(job.hidden, 1, [&](int64_t i, float part) {
    return fmaf(to_f32(dy[i]), load_any(job.bias.data, job.bias.dtype, at + i), part);
  });
}

/* A row of no expert has no gradient. */
template <typename T>
__device__ __forceinline__ void fill_row(const rows_job<T> &job, int64_t r, float value)
{
  for (int64_t c = threadIdx.x; job.dh && c < 2 * job.cols; c += kRowThreads) {
    job.dh[r * job.dh_step + c] = from_f32<T>(value);
  }
}

/* 1024 threads of a multiprocessor: left to itself, the compiler spills to fit twice as many. */
template <int kN, typename T, typename Forward, typename Backward>
__global__ void __launch_bounds__(kRowThreads, resident_blocks(kRowThreads, 1024 / kRowThreads))
    moe_mlp_bwd_rows_kernel(const __grid_constant__ rows_job<T> job, const Forward forward,
                            const Backward backward)
{
  __shared__ double scratch[kWarp];
  const bool bad = *job.tiles.bad != 0;
  const int64_t kept = job.tiles.bound[job.tiles.experts];
  for (int64_t r = blockIdx.x; r < job.tiles.rows; r += gridDim.x) {
    if (bad || r >= kept) {
      fill_row(job, r, bad ? CUDART_NAN_F : 0.0f);
      continue;
    }
    const int64_t token = job.sources.of(r, threadIdx.x == 0);
    const float w = token < 0 ? CUDART_NAN_F : job.weights.of(job.sources, r);
    double sum[1] = {compute_row<kN>(job, r, w, forward, backward)};
    if (job.scores) {
      if (job.bias.data && token >= 0) {
        sum[0] += dot_bias(job, r, token);
      }
      block_sum(sum, scratch);
      if (threadIdx.x == 0) {
        job.scores[r] = token < 0 ? CUDART_NAN_F : (float)sum[0];
      }
      __syncthreads(); /* the sums may be written again */
    }
  }
}

template <int kN, typename T>
tg_status pass_rows_as(const tg_context *ctx, const tg_moe_mlp_bwd_args *a, const rows_job<T> &job)
{
  const dim3 grid = grid_of(job.tiles.rows);
  if (a->activation == TG_GATED_SWIGLU) {
    return launch(ctx, moe_mlp_bwd_rows_kernel<kN, T, swiglu_forward<T, float>, swiglu_backward<T>>,
                  grid, kRowThreads, 0, job, swiglu_forward<T, float>(), swiglu_backward<T>());
  }
  const clamps c = clamps_of(a->x.dtype, a->alpha, a->limit);
  return launch(ctx, moe_mlp_bwd_rows_kernel<kN, T, clamped_forward<T, float>, clamped_backward<T>>,
                grid, kRowThreads, 0, job, clamped_forward<T, float>{c}, clamped_backward<T>{c});
}

expert_tiles tiles_of(const tg_moe_mlp_bwd_args *a, const moe_mlp_bwd_steps *s)
{
  char *at = static_cast<char *>(a->workspace) + s->bytes;
  return expert_tiles_in(at, a->gate_up.shape[0], a->slot.shape[0]);
}

row_sources sources_of(const tg_context *ctx, const tg_moe_mlp_bwd_args *a)
{
  row_sources s = {};
  s.slot = static_cast<const int32_t *>(a->slot.data);
  s.slots = a->slot.shape[0];
  s.slots_per_row = (int)a->row.shape[1];
  s.bad_slot = FAULT_SITE(ctx, moe_mlp_bwd, slot);
  return s;
}

slot_weights weights_of(const tg_moe_mlp_bwd_args *a)
{
  return {a->weights.data, a->weights.dtype, tgi_stride(&a->weights, 0)};
}

template <typename T>
tg_status pass_rows(const tg_context *ctx, const tg_moe_mlp_bwd_args *a, const moe_mlp_bwd_steps *s)
{
  const bool halves = a->packing == TG_GATE_UP_HALVES;
  rows_job<T> job = {};
  job.tiles = tiles_of(a, s);
  job.sources = sources_of(ctx, a);
  job.weights = weights_of(a);
  job.bias = matrix_of_rank(&a->down_bias);
  job.h = static_cast<const T *>(a->preactivation.data);
  job.dy = static_cast<const T *>(a->dy.data);
  job.q_in = s->has_back ? static_cast<const T *>(s->q.data) : NULL;
  job.q_out = s->has_down ? static_cast<T *>(s->q.data) : NULL;
  job.dh = static_cast<T *>(s->dh.data);
  job.scores = static_cast<float *>(s->scores.data);
  job.cols = a->preactivation.shape[1] / 2;
  job.hidden = a->dy.shape[1];
  job.h_step = tgi_stride(&a->preactivation, 0);
  job.dy_step = tgi_stride(&a->dy, 0);
  job.q_step = job.cols;
  job.dh_step = tgi_present(&s->dh) ? tgi_stride(&s->dh, 0) : 0;
  job.spread = halves ? 1 : 2;
  job.up_at = halves ? job.cols : 1;
  /* Whether gate and up, dh and q come in whole vectors of 16 and 8 bytes. */
  if constexpr (sizeof(T) == 2) {
    if (job.cols % kVectorColumns == 0 && rows_aligned(&a->preactivation, 16) &&
        rows_aligned(&s->q, 8) && (!tgi_present(&s->dh) || rows_aligned(&s->dh, 16))) {
      return pass_rows_as<kVectorColumns>(ctx, a, job);
    }
  }
  return pass_rows_as<1>(ctx, a, job);
}

struct scores_job {
  expert_tiles tiles;
  const int32_t *row;
  const float *scores;
  void *dweights;
  tg_dtype dtype;
  int64_t slots, k, row_step, dweights_step;
  fault_site bad_row;
};

__global__ void __launch_bounds__(kRowThreads) moe_mlp_bwd_scores_kernel(const scores_job job)
{
  for (int64_t block = blockIdx.x; block * kRowThreads < job.slots; block += gridDim.x) {
    const int64_t s = block * kRowThreads + threadIdx.x;
    if (s < job.slots) {
      const int64_t t = s / job.k, j = s - t * job.k, r = job.row[t * job.row_step + j];
      const bool known = r >= -1 && r < job.tiles.rows;
      float v = 0.0f;
      if (!known) {
        record_fault(job.bad_row, s, r, -1, job.tiles.rows - 1);
      }
      if (!known || *job.tiles.bad != 0) {
        v = CUDART_NAN_F;
      } else if (r >= 0 && r < job.tiles.bound[job.tiles.experts]) {
        v = job.scores[r];
      }
      store_any(job.dweights, job.dtype, t * job.dweights_step + j, v);
    }
  }
}

tg_status store_scores(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                       const moe_mlp_bwd_steps *s)
{
  scores_job job = {};
  job.tiles = tiles_of(a, s);
  job.row = static_cast<const int32_t *>(a->row.data);
  job.scores = static_cast<const float *>(s->scores.data);
  job.dweights = a->dweights.data;
  job.dtype = a->dweights.dtype;
  job.slots = a->slot.shape[0];
  job.k = a->row.shape[1];
  job.row_step = tgi_stride(&a->row, 0);
  job.dweights_step = tgi_stride(&a->dweights, 0);
  job.bad_row = FAULT_SITE(ctx, moe_mlp_bwd, row);
  const dim3 grid = grid_of(divide_up(job.slots, (int64_t)kRowThreads));
  return launch(ctx, moe_mlp_bwd_scores_kernel, grid, kRowThreads, 0, job);
}

tg_status add_ddown_bias(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                         const moe_mlp_bwd_steps *s)
{
  bias_sums p = {};
  p.tiles = tiles_of(a, s);
  p.sources = sources_of(ctx, a);
  p.weights = weights_of(a);
  p.dy = matrix_of_rank(&a->dy);
  return add_bias_sums(ctx, p, &a->ddown_bias, a->overwrite);
}

/* What comes between dy through down and the products: the op's own kernels, on tiles that lie
 * where every product has its own. */
tg_status run_between(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                      const moe_mlp_bwd_steps *s)
{
  tg_status status =
      find_tiles(ctx, &a->offsets, tiles_of(a, s), FAULT_SITE(ctx, moe_mlp_bwd, offsets));
  if (status == TG_OK && (s->has_back || s->has_down)) {
    SWITCH_FLOAT(a->x.dtype, T, status = pass_rows<T>(ctx, a, s));
  }
  if (status == TG_OK && tgi_present(&a->dweights)) {
    status = store_scores(ctx, a, s);
  }
  if (status == TG_OK && tgi_present(&a->ddown_bias)) {
    status = add_ddown_bias(ctx, a, s);
  }
  return status;
}

} // namespace

/* Also for the entry sm90, which has the products alone. */
extern "C" tg_status TGI_MOE_MLP_BETWEEN(TGI_ENTRY)(const tg_context *ctx,
                                                    const tg_moe_mlp_bwd_args *a,
                                                    const moe_mlp_bwd_steps *s)
{
  return run_between(ctx, a, s);
}

extern "C" size_t TGI_WORKSPACE(moe_mlp_bwd)(const tg_context *, const tg_moe_mlp_bwd_args *a)
{
  return moe_mlp_bwd_steps_of(a).bytes + expert_tiles_bytes(a->gate_up.shape[0]);
}

extern "C" tg_status TGI_KERNEL(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a)
{
  const moe_mlp_bwd_steps s = moe_mlp_bwd_steps_of(a);
  const grouped_sites sites = {FAULT_SITE(ctx, moe_mlp_bwd, offsets),
                               FAULT_SITE(ctx, moe_mlp_bwd, slot)};
  tg_status status = s.has_back ? run_grouped_linear_fwd(ctx, &s.back, sites) : TG_OK;
  if (status == TG_OK) {
    status = run_between(ctx, a, &s);
  }
  if (status == TG_OK && s.has_down) {
    status = run_grouped_linear_bwd(ctx, &s.down, sites);
  }
  if (status == TG_OK && s.has_up) {
    status = run_grouped_linear_bwd(ctx, &s.up, sites);
  }
  if (status == TG_OK && tgi_present(&a->dx)) {
    status = run_moe_combine_fwd(ctx, &s.sum, FAULT_SITE(ctx, moe_mlp_bwd, row));
  }
  return status;
}

extern "C" void TGI_PLAN(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                                      char *text, size_t bytes)
{
  const moe_mlp_bwd_steps s = moe_mlp_bwd_steps_of(a);
  TGI_PLAN(grouped_linear_bwd)(ctx, &s.up, text, bytes);
}
