/* Attention in its materialised form on CUDA: products of matrices (e.cuh) with a pass
 * over the rows of scores between them.
 *
 *   forward    S = Q K^T;  P = softmax(S) row by row, in place;  O = P V
 *   backward   dV = P^T dO;  dP = dO V^T;  dS from P and dP row by row, in place;
 *              dQ = dS K;  dK = dS^T Q
 *
 * Work       As many kv heads at a time as kSliceBytes of f32 scores hold, at least one. The passes
 *            give a row to a warp. dk and dv are summed in f32 over the heads that share a kv head,
 *            one head after the other, in the workspace where they are 16-bit.
 * Bound      f32 arithmetic, and the memory of the scores: tg_attention_fwd computes the same
 *            without them.
 */
#include "cuda/reduce.cuh"
#include "ops/attention_naive/attention_naive_slices.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kRowThreads = 256, kRowsPerBlock = kRowThreads / kWarp;

/* ---- forward ---- */

/** A row of scores, and the same row of a tensor [batch, heads, nq, keys]. */
struct row_walk {
  slice s;
  place p;
  float *scores;
  int64_t step[3];
  int64_t rows;

  __device__ int64_t at(int64_t row) const
  {
    const int64_t heads = p.heads * s.group, i = row % s.nq, head = row / s.nq % heads;
    return (p.b + row / s.nq / heads) * step[0] + (p.h * s.group + head) * step[1] + i * step[2];
  }
};

row_walk walk_rows(const slice &s, const place &p, float *scores, const tg_tensor *t)
{
  row_walk w = {};
  w.s = s;
  w.p = p;
  w.scores = scores;
  w.rows = p.sequences * p.heads * s.group * s.nq;
  for (int axis = 0; axis < 3 && tgi_present(t); axis++) {
    w.step[axis] = tgi_stride(t, axis);
  }
  return w;
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    attention_naive_fwd_softmax_kernel(const row_walk w, T *probabilities, float scale, bool causal)
{
  const int lane = threadIdx.x % kWarp;
  const int64_t keys = w.s.keys;
  for (int64_t row = blockIdx.x * (int64_t)kRowsPerBlock + threadIdx.x / kWarp; row < w.rows;
       row += gridDim.x * (int64_t)kRowsPerBlock) {
    float *s = w.scores + row * w.s.pitch;
    const int64_t last = keys - w.s.nq + row % w.s.nq;
    const int64_t seen = !causal ? keys : last < 0 ? 0 : last + 1;
    float most = -CUDART_INF_F, sum = 0;
    for (int64_t j = lane; j < seen; j += kWarp) {
      most = fmaxf(most, s[j] * scale); /* a NaN shows in the sum */
    }
    most = warp_max(most);
    const float base = most > -CUDART_INF_F ? most : 0.0f;
    for (int64_t j = lane; j < seen; j += kWarp) {
      const float e = expf(s[j] * scale - base);
      s[j] = e;
      sum += e;
    }
    sum = warp_sum(sum);
    T *to = probabilities ? probabilities + w.at(row) : nullptr;
    for (int64_t j = lane; j < keys; j += kWarp) {
      const float p = j >= seen || sum == 0 ? 0.0f : s[j] / sum;
      s[j] = p;
      if (to) {
        to[j] = from_f32<T>(p);
      }
    }
  }
}

template <typename T> tg_status run_fwd(const tg_context *ctx, const tg_attention_naive_fwd_args *a)
{
  const slice s = plan_slice(&a->q, &a->k);
  float *scores = static_cast<float *>(a->workspace);
  return each_slice(s, [&](const place &p) {
    tg_status status = plain_product(ctx, score_product(s, p, &a->q, &a->k, scores));
    if (status == TG_OK) {
      const row_walk w = walk_rows(s, p, scores, &a->probabilities);
      status = launch(ctx, attention_naive_fwd_softmax_kernel<T>,
                      grid_of(divide_up(w.rows, kRowsPerBlock)), kRowThreads, 0, w,
                      static_cast<T *>(a->probabilities.data), a->scale, a->causal);
    }
    return status == TG_OK ? plain_product(ctx, row_product(s, p, scores, &a->v, &a->out)) : status;
  });
}

/* ---- backward ---- */

/** ds = scale * p * (dp - sum_j p dp), over dp. */
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    attention_naive_bwd_rows_kernel(const row_walk w, const T *probabilities, float scale)
{
  const int lane = threadIdx.x % kWarp;
  for (int64_t row = blockIdx.x * (int64_t)kRowsPerBlock + threadIdx.x / kWarp; row < w.rows;
       row += gridDim.x * (int64_t)kRowsPerBlock) {
    float *dp = w.scores + row * w.s.pitch, sum = 0;
    const T *p = probabilities + w.at(row);
    for (int64_t j = lane; j < w.s.keys; j += kWarp) {
      sum = fmaf(to_f32(p[j]), dp[j], sum);
    }
    sum = warp_sum(sum);
    for (int64_t j = lane; j < w.s.keys; j += kWarp) {
      dp[j] = to_f32(p[j]) * (dp[j] - sum) * scale;
    }
  }
}

/** Sums [sequences][heads][keys][dim] to rows of dk or dv. */
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    attention_naive_bwd_round_kernel(const float *sums, T *to, int64_t heads, int64_t keys,
                                     int64_t dim, int64_t elements, int64_t step0, int64_t step1,
                                     int64_t step2)
{
  for (int64_t i = blockIdx.x * (int64_t)kRowThreads + threadIdx.x; i < elements;
       i += gridDim.x * (int64_t)kRowThreads) {
    const int64_t c = i % dim, row = i / dim % keys, rest = i / dim / keys;
    to[rest / heads * step0 + row * step1 + rest % heads * step2 + c] = from_f32<T>(sums[i]);
  }
}

bool needs_sums(const tg_attention_naive_bwd_args *a, const slice &s)
{
  return s.group > 1 && a->q.dtype != TG_F32;
}

/** to = sum over the group's heads of M^T Y: for dk with ds and q, for dv with p and dout.
 * weights(member) is M^T of that head of each group. */
template <typename T, typename Weights>
tg_status key_product(const tg_context *ctx, const slice &s, const place &p, const Weights &weights,
                      const tg_tensor *y, const tg_tensor *to, float *sums)
{
  const int64_t width = y->shape[3];
  T *result = reinterpret_cast<T *>(const_cast<char *>(head_at(to, p.b, p.h)));
  gemm_call c;
  c.m = s.keys;
  c.n = width;
  c.k = s.nq;
  c.outer = p.sequences;
  c.inner = p.heads;
  c.c = sums ? static_cast<void *>(sums) : result;
  c.c_dtype = sums ? TG_F32 : to->dtype;
  c.c_row_step = sums ? width : tgi_stride(to, 1);
  c.c_batch_step = sums ? p.heads * s.keys * width : tgi_stride(to, 0);
  c.c_batch_step2 = sums ? s.keys * width : tgi_stride(to, 2);
  tg_status status = TG_OK;
  for (int64_t member = 0; member < s.group && status == TG_OK; member++) {
    c.a = weights(member);
    c.b = rows_of(y, p, p.h * s.group + member, s.group, false);
    c.accumulate = member > 0;
    status = plain_product(ctx, c);
  }
  const int64_t elements = p.sequences * p.heads * s.keys * width;
  return status != TG_OK || !sums ? status
                                  : launch(ctx, attention_naive_bwd_round_kernel<T>,
                                           grid_of(divide_up(elements, kRowThreads)), kRowThreads,
                                           0, sums, result, p.heads, s.keys, width, elements,
                                           tgi_stride(to, 0), tgi_stride(to, 1), tgi_stride(to, 2));
}

/** P^T as the forward wrote it: [keys, nq] of a member of each group. */
gemm_operand turned_probabilities(const slice &s, const place &p, const tg_tensor *t,
                                  int64_t member)
{
  gemm_operand o;
  const int64_t at = p.b * tgi_stride(t, 0) + (p.h * s.group + member) * tgi_stride(t, 1);
  o.data = static_cast<const char *>(t->data) + at * (int64_t)tg_dtype_bytes(t->dtype);
  o.dtype = t->dtype;
  o.row_step = 1;
  o.col_step = tgi_stride(t, 2);
  o.batch_step = tgi_stride(t, 0);
  o.batch_step2 = s.group * tgi_stride(t, 1);
  return o;
}

template <typename T> tg_status run_bwd(const tg_context *ctx, const tg_attention_naive_bwd_args *a)
{
  const slice s = plan_slice(&a->q, &a->k);
  float *scores = static_cast<float *>(a->workspace);
  float *sums = needs_sums(a, s) ? scores + score_bytes(s) / sizeof(float) : nullptr;
  return each_slice(s, [&](const place &p) {
    tg_status status = TG_OK;
    if (tgi_present(&a->dv)) {
      const auto weights = [&](int64_t member) {
        return turned_probabilities(s, p, &a->probabilities, member);
      };
      status = key_product<T>(ctx, s, p, weights, &a->dout, &a->dv, sums);
    }
    if (status == TG_OK) {
      status = plain_product(ctx, score_product(s, p, &a->dout, &a->v, scores));
    }
    if (status == TG_OK) {
      const row_walk w = walk_rows(s, p, scores, &a->probabilities);
      status =
          launch(ctx, attention_naive_bwd_rows_kernel<T>, grid_of(divide_up(w.rows, kRowsPerBlock)),
                 kRowThreads, 0, w, static_cast<const T *>(a->probabilities.data), a->scale);
    }
    if (status == TG_OK && tgi_present(&a->dq)) {
      status = plain_product(ctx, row_product(s, p, scores, &a->k, &a->dq));
    }
    if (status == TG_OK && tgi_present(&a->dk)) {
      const auto weights = [&](int64_t member) { return turned_scores(s, p, scores, member); };
      status = key_product<T>(ctx, s, p, weights, &a->q, &a->dk, sums);
    }
    return status;
  });
}

void plan_text(const slice &s, char *text, size_t bytes)
{
  snprintf(text, bytes, "f32 multiply-adds, scores of %lld heads at a time",
           (long long)(s.sequences * s.heads * s.group));
}

} // namespace

extern "C" size_t TGI_WORKSPACE(attention_naive_fwd)(const tg_context *,
                                                     const tg_attention_naive_fwd_args *a)
{
  return score_bytes(plan_slice(&a->q, &a->k));
}

extern "C" tg_status TGI_KERNEL(attention_naive_fwd)(const tg_context *ctx,
                                                     const tg_attention_naive_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->q.dtype, T, status = run_fwd<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(attention_naive_fwd)(const tg_context *,
                                              const tg_attention_naive_fwd_args *a, char *text,
                                              size_t bytes)
{
  plan_text(plan_slice(&a->q, &a->k), text, bytes);
}

extern "C" size_t TGI_WORKSPACE(attention_naive_bwd)(const tg_context *,
                                                     const tg_attention_naive_bwd_args *a)
{
  const slice s = plan_slice(&a->q, &a->k);
  const int64_t dim = a->k.shape[3] > a->v.shape[3] ? a->k.shape[3] : a->v.shape[3];
  return score_bytes(s) +
         (needs_sums(a, s) ? whole_blocks(s.sequences * s.heads * s.keys * dim) : 0);
}

extern "C" tg_status TGI_KERNEL(attention_naive_bwd)(const tg_context *ctx,
                                                     const tg_attention_naive_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->q.dtype, T, status = run_bwd<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(attention_naive_bwd)(const tg_context *,
                                              const tg_attention_naive_bwd_args *a, char *text,
                                              size_t bytes)
{
  plan_text(plan_slice(&a->q, &a->k), text, bytes);
}
