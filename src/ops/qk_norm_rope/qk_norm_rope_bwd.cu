/* RMSNorm of heads, then rotary position embedding, on CUDA: the backward.
 *
 * Method     A head's gradient is rotated back in registers, its lanes reduce the dot product of
 *            the contract, and dx is written. A thread accumulates the weights' gradients in
 *            registers until its block ends. qk_norm_rope_pairs.cuh handles heads whose elements do
 *            not fit the slots of rope/rotation.cuh.
 * Work       Blocks of tokens, at most kTokenBlocks on every device. Their sums of the weights'
 *            gradients go to the workspace; a second kernel adds them in order.
 * Bound      Memory bandwidth: dy and x are read, dx is written.
 * Paper      Zhang & Sennrich 2019, arXiv:1910.07467; Su et al. 2021, arXiv:2104.09864.
 */
#include "ops/kernels.cuh"
#include "ops/qk_norm_rope/qk_norm_rope_pairs.cuh"

namespace
{

constexpr int kBwdHeads = 2;       /* heads of a thread in flight */
constexpr int kTokenBlocks = 1024; /* at most */
constexpr int kSumThreads = 1024;  /* of the kernel that adds blocks */
constexpr int kSumColumns = 8;

/* ---- heads with slots ---- */

/* Threads per block. The number of groups of lanes is equal for vectors of 8 and of 4, so that the
 * weights' sums have the same order. */
template <int N> constexpr int kBwdThreads = kRotateThreads *kSlotLanes / N;

/* Processes one side (q or k) of the tokens first .. last - 1. All threads of the block call it. */
template <typename T, typename TT, int N, bool kInterleaved, bool kAligned>
__device__ __forceinline__ void bwd_side_of_block(const bwd_job<T> &job, int which, int lane,
                                                  int local, const slot_place &p, int64_t first,
                                                  int64_t last, float (&sum)[2][N])
{
  const bwd_side<T> &s = job.side[which];
  const int locals = kBwdThreads<N> / job.lanes;
  const int64_t groups = job.by_groups[which].by, units = (last - first) * groups;
  const int64_t step_tokens = divide(locals, job.by_groups[which]);
  const int64_t step_groups = locals - step_tokens * groups;
  int64_t token = divide(local, job.by_groups[which]), group = local - token * groups;
  token += first;
  element_bits<float, N> w[2] = {};
  if (lane < job.slots) {
    load_weight<kAligned, T>(w, s.weight, job.f32_weights, p);
  }
#pragma unroll 1
  for (int64_t start = 0; start < units; start += locals) {
    const int64_t head = kBwdHeads * group;
    const bool active = token < last && lane < job.slots;
    const int64_t b = active ? divide(token, job.by_seq) : 0, t = token - b * job.seq;
    element_bits<T, N> raw_dy[kBwdHeads][2], raw_x[kBwdHeads][2];
    float rstd[kBwdHeads];
    const T *dy = s.dy + b * s.dy_sequence + t * s.dy_token + head * s.dy_head;
    const T *x = s.x + b * s.x_sequence + t * s.x_token + head * s.x_head;
#pragma unroll
    for (int u = 0; u < kBwdHeads; u++) {
      const bool mine = active && head + u < s.heads;
#pragma unroll
      for (int k = 0; k < 2; k++) {
        raw_dy[u][k] = raw_x[u][k] = {};
        if (mine && p.has[k]) {
          load_bits<kAligned>(raw_dy[u][k], dy + u * s.dy_head + p.at[k]);
          load_bits<kAligned>(raw_x[u][k], x + u * s.x_head + p.at[k]);
        }
      }
      rstd[u] = mine ? s.rstd[token * s.heads + head + u] : 0.0f;
    }
    slot_angles<TT, N> angles = {};
    if (active) {
      load_angles<kInterleaved, kAligned>(angles, job.r, b, t, p);
    }
    T *dx = s.dx + b * s.dx_sequence + t * s.dx_token + head * s.dx_head;
#pragma unroll
    for (int u = 0; u < kBwdHeads; u++) {
      const bool mine = active && head + u < s.heads;
      float g[2][N], n[2][N], dots[2][N / kSlotLanes] = {};
#pragma unroll
      for (int i = 0; i < N / 2; i++) {
        float v[2][2], dz[2][2];
        get_two(v[0], raw_dy[u][0], i);
        get_two(v[1], raw_dy[u][1], i);
        rotate_two<T, kInterleaved, kRotateBack>(dz, v, angles_at(angles, i), p);
#pragma unroll
        for (int k = 0; k < 2; k++) {
          float two[2], weight[2];
          get_two(two, raw_x[u][k], i);
          get_two(weight, w[k], i);
#pragma unroll
          for (int j = 0; j < 2; j++) {
            const int e = 2 * i + j;
            n[k][e] = two[j] * rstd[u];
            g[k][e] = dz[k][j] * weight[j];
            dots[k][e / kSlotLanes] = fmaf(g[k][e], n[k][e], dots[k][e / kSlotLanes]);
            sum[k][e] = mine ? fmaf(dz[k][j], n[k][e], sum[k][e]) : sum[k][e];
          }
        }
      }
      float dot[1] = {slot_sum<N>(dots, p)};
      lanes_sum(dot, job.lanes);
      const float mean = dot[0] * job.inverse_dim;
      if (s.dx && mine) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
          element_bits<T, N> out;
#pragma unroll
          for (int i = 0; i < N / 2; i++) {
            const float two[2] = {rstd[u] * fmaf(-n[k][2 * i], mean, g[k][2 * i]),
                                  rstd[u] * fmaf(-n[k][2 * i + 1], mean, g[k][2 * i + 1])};
            set_two(out, i, two);
          }
          if (p.has[k]) {
            store_bits<kAligned>(dx + u * s.dx_head + p.at[k], out);
          }
        }
      }
    }
    token += step_tokens;
    group += step_groups;
    if (group >= groups) {
      group -= groups;
      token++;
    }
  }
}

/* Minimum of resident blocks per multiprocessor: the most that fit without register spills. */
template <typename T, typename TT> constexpr int bwd_blocks(int n, bool aligned)
{
  return !aligned || n == kSlotLanes ? 1 : sizeof(TT) > sizeof(T) ? 3 : 4;
}

template <typename T, typename TT, int N, bool kInterleaved, bool kAligned>
__global__ void __launch_bounds__(kBwdThreads<N>, bwd_blocks<T, TT>(N, kAligned))
    qk_norm_rope_bwd_kernel(const __grid_constant__ bwd_job<T> job)
{
  /* The sums of each group of lanes, including groups without a head. */
  __shared__ __align__(16) float shared[kBwdThreads<N> * 2 * N];
  const int local = (int)(threadIdx.x / (unsigned)job.lanes);
  const int lane = (int)threadIdx.x - local * job.lanes;
  const int dim = (int)job.r.head_dim, locals = kBwdThreads<N> / job.lanes;
  const slot_place p = place_of<kInterleaved, N>(job.r, lane);
  const int64_t first = blockIdx.x * job.block_tokens;
  const int64_t past = first + job.block_tokens, last = past < job.tokens ? past : job.tokens;
#pragma unroll 1
  for (int which = 0; which < 2; which++) {
    const bwd_side<T> &s = job.side[which];
    float sum[2][N] = {};
    if (!s.dx && !s.partial) {
      continue;
    }
    bwd_side_of_block<T, TT, N, kInterleaved, kAligned>(job, which, lane, local, p, first, last,
                                                        sum);
    if (!s.partial) {
      continue;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2; k++) {
      if (lane < job.slots && p.has[k]) {
#pragma unroll
        for (int i = 0; i < N; i += 4) { /* dim and at are multiples of 4 */
          *reinterpret_cast<float4 *>(&shared[local * dim + p.at[k] + i]) =
              make_float4(sum[k][i], sum[k][i + 1], sum[k][i + 2], sum[k][i + 3]);
        }
      }
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < dim; j += kBwdThreads<N>) {
      float total = 0;
      for (int l = 0; l < locals; l++) {
        total += shared[l * dim + j];
      }
      s.partial[blockIdx.x * job.partial_stride + j] = total;
    }
  }
}

/* ---- sums of blocks ---- */

/* The gradients of q_weight and k_weight, and the sums of the first block. */
template <typename D> struct weight_sums {
  D *dweight[2];
  const float *partial[2];
};

/* dweight += the sums of the blocks. A block of threads adds kSumColumns columns. */
template <typename D>
__global__ void __launch_bounds__(kSumThreads)
    qk_norm_rope_bwd_weight_kernel(const __grid_constant__ weight_sums<D> job, int64_t dim,
                                   int64_t stride, int64_t blocks)
{
  constexpr int kRows = kSumThreads / kSumColumns;
  __shared__ float sums[kRows][kSumColumns];
  const int c = threadIdx.x % kSumColumns, row = threadIdx.x / kSumColumns;
  const int64_t j = (int64_t)blockIdx.x * kSumColumns + c;
  const float *partial = blockIdx.y ? job.partial[1] : job.partial[0];
  D *dweight = blockIdx.y ? job.dweight[1] : job.dweight[0];
  float sum = 0;
  if (j < dim) {
#pragma unroll 8
    for (int64_t i = row; i < blocks; i += kRows) {
      sum += partial[i * stride + j];
    }
  }
  sums[row][c] = sum;
  for (int half = kRows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (row < half) {
      sums[row][c] += sums[row + half][c];
    }
  }
  if (row == 0 && j < dim) {
    dweight[j] = from_f32<D>(to_f32(dweight[j]) + sums[0][c]);
  }
}

/* ---- the call ---- */

template <typename T>
bwd_side<T> side_of(const tg_tensor *dy, const tg_tensor *x, const tg_tensor *weight,
                    const tg_tensor *rstd, const tg_tensor *dx)
{
  bwd_side<T> s = {};
  s.dy = static_cast<const T *>(dy->data);
  s.x = static_cast<const T *>(x->data);
  s.weight = weight->data;
  s.rstd = static_cast<const float *>(rstd->data);
  s.heads = x->shape[2];
  s.dy_sequence = tgi_stride(dy, 0), s.dy_token = tgi_stride(dy, 1), s.dy_head = tgi_stride(dy, 2);
  s.x_sequence = tgi_stride(x, 0), s.x_token = tgi_stride(x, 1), s.x_head = tgi_stride(x, 2);
  if (tgi_present(dx)) {
    s.dx = static_cast<T *>(dx->data);
    s.dx_sequence = tgi_stride(dx, 0);
    s.dx_token = tgi_stride(dx, 1);
    s.dx_head = tgi_stride(dx, 2);
  }
  return s;
}

/* The split of the tokens into blocks, and the floats of a block's sums. */
struct token_blocks {
  int64_t tokens, block_tokens, blocks, floats;
};

token_blocks cut_tokens(const tg_qk_norm_rope_bwd_args *a)
{
  token_blocks c;
  c.tokens = a->q.shape[0] * a->q.shape[1];
  c.block_tokens = divide_up(c.tokens, kTokenBlocks);
  c.blocks = c.block_tokens ? divide_up(c.tokens, c.block_tokens) : 0;
  c.floats = (tgi_present(&a->dq_weight) + tgi_present(&a->dk_weight)) * (int64_t)a->q.shape[3];
  return c;
}

template <typename T, typename TT, int N, bool kAligned>
tg_status launch_slots_back(const tg_context *ctx, bwd_job<T> job)
{
  job.slots = (int)slots_of(job.r, N);
  job.lanes = lanes_of(job.slots, true);
  const dim3 grid = grid_of(job.blocks);
  return job.r.interleaved ? launch(ctx, qk_norm_rope_bwd_kernel<T, TT, N, true, kAligned>, grid,
                                    kBwdThreads<N>, 0, job)
                           : launch(ctx, qk_norm_rope_bwd_kernel<T, TT, N, false, kAligned>, grid,
                                    kBwdThreads<N>, 0, job);
}

template <typename T>
tg_status launch_heads(const tg_context *ctx, const bwd_job<T> &job, bool aligned)
{
  constexpr int kWide = kSlotWide<T>, kSmall = kSlotLanes;
  if (aligned && (kWide == kSmall || slots_wide(job.r))) {
    return job.r.f32 ? launch_slots_back<T, float, kWide, true>(ctx, job)
                     : launch_slots_back<T, T, kWide, true>(ctx, job);
  }
  return job.r.f32 ? launch_slots_back<T, float, kSmall, false>(ctx, job)
                   : launch_slots_back<T, T, kSmall, false>(ctx, job);
}

/* Adds both weights' gradients in one launch if their dtypes are equal; NULL: none. */
tg_status add_sums(const tg_context *ctx, const tg_tensor *dq_weight, const tg_tensor *dk_weight,
                   const float *dq_partial, const float *dk_partial, const token_blocks &c)
{
  const tg_tensor *first = dq_weight ? dq_weight : dk_weight;
  const int64_t dim = first->shape[0];
  const dim3 grid((unsigned)divide_up(dim, kSumColumns), dq_weight && dk_weight ? 2 : 1);
  tg_status status = TG_OK;
  SWITCH_FLOAT(
      first->dtype, D, weight_sums<D> job = {}; job.dweight[0] = static_cast<D *>(first->data);
      job.partial[0] = dq_weight ? dq_partial : dk_partial;
      job.dweight[1] = dk_weight ? static_cast<D *>(dk_weight->data) : NULL;
      job.partial[1] = dk_partial; status = launch(ctx, qk_norm_rope_bwd_weight_kernel<D>, grid,
                                                   kSumThreads, 0, job, dim, c.floats, c.blocks));
  return status;
}

bool all_aligned(const tg_qk_norm_rope_bwd_args *a)
{
  return slots_aligned(&a->dq_out) && slots_aligned(&a->dk_out) && slots_aligned(&a->q) &&
         slots_aligned(&a->k) && slots_aligned(&a->dq) && slots_aligned(&a->dk) &&
         slots_aligned(&a->q_weight) && slots_aligned(&a->k_weight) && slots_aligned(&a->cos) &&
         slots_aligned(&a->sin);
}

rotation rotation_of_args(const tg_qk_norm_rope_bwd_args *a)
{
  return rotation_of(&a->cos, &a->sin, a->q.shape[3], a->rotary_dim, a->position_offset,
                     a->pairing);
}

template <typename T> tg_status backward(const tg_context *ctx, const tg_qk_norm_rope_bwd_args *a)
{
  const token_blocks c = cut_tokens(a);
  const int64_t dim = a->q.shape[3];
  float *partial = static_cast<float *>(a->workspace);
  bwd_job<T> job = {};
  job.side[0] = side_of<T>(&a->dq_out, &a->q, &a->q_weight, &a->q_rstd, &a->dq);
  job.side[1] = side_of<T>(&a->dk_out, &a->k, &a->k_weight, &a->k_rstd, &a->dk);
  job.side[0].partial = tgi_present(&a->dq_weight) ? partial : NULL;
  job.side[1].partial = !tgi_present(&a->dk_weight)  ? NULL
                        : tgi_present(&a->dq_weight) ? partial + dim
                                                     : partial;
  job.r = rotation_of_args(a);
  job.seq = a->q.shape[1];
  job.tokens = c.tokens;
  job.block_tokens = c.block_tokens;
  job.blocks = c.blocks;
  job.partial_stride = c.floats;
  job.f32_weights = a->q_weight.dtype == TG_F32;
  job.inverse_dim = 1 / (float)dim;
  job.by_seq = divider_of(job.seq, job.tokens);
  for (int side = 0; side < 2; side++) {
    job.by_groups[side] = divider_of(divide_up(job.side[side].heads, kBwdHeads), kRotateThreads);
  }
  tg_status status =
      cut_in_slots(job.r) ? launch_heads(ctx, job, all_aligned(a)) : launch_pairs(ctx, job);
  const tg_tensor *dq_weight = job.side[0].partial ? &a->dq_weight : NULL;
  const tg_tensor *dk_weight = job.side[1].partial ? &a->dk_weight : NULL;
  if (dq_weight && dk_weight && dq_weight->dtype == dk_weight->dtype) {
    return status == TG_OK
               ? add_sums(ctx, dq_weight, dk_weight, job.side[0].partial, job.side[1].partial, c)
               : status;
  }
  if (status == TG_OK && dq_weight) {
    status = add_sums(ctx, dq_weight, NULL, job.side[0].partial, NULL, c);
  }
  if (status == TG_OK && dk_weight) {
    status = add_sums(ctx, NULL, dk_weight, NULL, job.side[1].partial, c);
  }
  return status;
}

} // namespace

extern "C" tg_status TGI_KERNEL(qk_norm_rope_bwd)(const tg_context *ctx,
                                                  const tg_qk_norm_rope_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->q.dtype, T, status = backward<T>(ctx, a));
  return status;
}

extern "C" size_t TGI_WORKSPACE(qk_norm_rope_bwd)(const tg_context *,
                                                  const tg_qk_norm_rope_bwd_args *a)
{
  const token_blocks c = cut_tokens(a);
  return (size_t)(c.blocks * c.floats) * sizeof(float);
}

extern "C" void TGI_PLAN(qk_norm_rope_bwd)(const tg_context *, const tg_qk_norm_rope_bwd_args *a,
                                           char *text, size_t bytes)
{
  const token_blocks c = cut_tokens(a);
  snprintf(text, bytes, "%lld blocks of %lld tokens, %s", (long long)c.blocks,
           (long long)c.block_tokens,
           cut_in_slots(rotation_of_args(a)) ? "heads in registers" : "heads pair by pair");
}
