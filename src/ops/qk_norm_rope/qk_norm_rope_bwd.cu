/* RMSNorm of heads, then rotation, on CUDA: the backward.
 *
 * Method     A head's gradient is rotated back in registers, its lanes add up the dot product of
 *            the contract, and dx is written; what a thread adds to the weight's gradient stays in
 *            its registers until its block ends. qk_norm_rope_pairs.cuh has heads without slots.
 * Work       Blocks of tokens, at most kTokenBlocks whatever the device: their sums of the weights'
 *            gradients lie in the workspace and are added in order.
 * Bound      Memory: reads dy and x and writes dx.
 */
#include "ops/qk_norm_rope/qk_norm_rope_pairs.cuh"

namespace
{

constexpr int kBwdHeads = 4;       /* of a thread at once */
constexpr int kTokenBlocks = 1024; /* at most */
constexpr int kSumThreads = 1024;  /* of the addition of blocks */
constexpr int kSumColumns = 8;

/* ---- heads with slots ---- */

/* One side of the tokens first .. last - 1. Every thread of the block comes here. */
template <typename T, typename TT, bool kInterleaved, bool kAligned>
__device__ __forceinline__ void bwd_side_of_block(const bwd_job<T> &job, const bwd_side<T> &s,
                                                  int64_t first, int64_t last,
                                                  float (&sum)[2][kSlotLanes])
{
  constexpr int kN = kSlotLanes;
  const int lane = (int)threadIdx.x % job.lanes, local = (int)threadIdx.x / job.lanes;
  const slot_place p = place_of<kInterleaved>(job.r, lane);
  const int64_t groups = divide_up(s.heads, kBwdHeads), units = (last - first) * groups;
  float w[2][kN];
  if (lane < job.slots) {
    load_weight<kAligned, T>(w, s.weight, job.f32_weights, p);
  }
#pragma unroll 1
  for (int64_t start = 0; start < units; start += kRotateThreads / job.lanes) {
    const int64_t unit = start + local;
    const int64_t token = first + unit / groups, head = kBwdHeads * (unit % groups);
    const int64_t b = token / job.seq, t = token - b * job.seq;
    const bool active = unit < units && lane < job.slots;
    pack<T, kN> raw_dy[kBwdHeads][2], raw_x[kBwdHeads][2];
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
          raw_dy[u][k] = load_pack<kAligned>(dy + u * s.dy_head + p.at[k]);
          raw_x[u][k] = load_pack<kAligned>(x + u * s.x_head + p.at[k]);
        }
      }
      rstd[u] = mine ? s.rstd[token * s.heads + head + u] : 0.0f;
    }
    slot_angles angles = {};
    if (active) {
      load_angles<TT, kInterleaved, kAligned>(angles, job.r, b, t, p);
    }
#pragma unroll
    for (int u = 0; u < kBwdHeads; u++) {
      float v[2][kN], dz[2][kN], n[2][kN];
      float dot = 0;
#pragma unroll
      for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int i = 0; i < kN; i++) {
          v[k][i] = to_f32(raw_dy[u][k].e[i]);
          n[k][i] = to_f32(raw_x[u][k].e[i]) * rstd[u];
        }
      }
      rotate_slot<T, kInterleaved, kRotateBack>(dz, v, angles, p);
#pragma unroll
      for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int i = 0; i < kN; i++) {
          if (active && head + u < s.heads && p.has[k]) {
            sum[k][i] = fmaf(dz[k][i], n[k][i], sum[k][i]);
            dot = fmaf(dz[k][i] * w[k][i], n[k][i], dot);
          }
        }
      }
      const float mean = lanes_sum(dot, job.lanes) / (float)job.r.head_dim;
      if (s.dx && active && head + u < s.heads) {
        T *dx = s.dx + b * s.dx_sequence + t * s.dx_token + (head + u) * s.dx_head;
#pragma unroll
        for (int k = 0; k < 2; k++) {
#pragma unroll
          for (int i = 0; i < kN; i++) {
            v[k][i] = rstd[u] * fmaf(-n[k][i], mean, dz[k][i] * w[k][i]);
          }
          if (p.has[k]) {
            store_vector<kAligned>(dx + p.at[k], v[k]);
          }
        }
      }
    }
  }
}

template <typename T, typename TT, bool kInterleaved, bool kAligned>
__global__ void __launch_bounds__(kRotateThreads, kAligned && sizeof(T) == 2 ? 2 : 1)
    qk_norm_rope_bwd_kernel(const __grid_constant__ bwd_job<T> job)
{
  /* The sums of each group of lanes, and of those without a head. */
  __shared__ float shared[kRotateThreads * 2 * kSlotLanes];
  const int lane = (int)threadIdx.x % job.lanes, local = (int)threadIdx.x / job.lanes;
  const int dim = (int)job.r.head_dim, locals = kRotateThreads / job.lanes;
  const slot_place p = place_of<kInterleaved>(job.r, lane);
  const int64_t first = blockIdx.x * job.block_tokens;
  const int64_t past = first + job.block_tokens, last = past < job.tokens ? past : job.tokens;
#pragma unroll 1
  for (int which = 0; which < 2; which++) {
    const bwd_side<T> &s = job.side[which];
    float sum[2][kSlotLanes] = {};
    if (!s.dx && !s.partial) {
      continue;
    }
    bwd_side_of_block<T, TT, kInterleaved, kAligned>(job, s, first, last, sum);
    if (!s.partial) {
      continue;
    }
    __syncthreads();
    for (int k = 0; k < 2; k++) {
      for (int i = 0; i < kSlotLanes && lane < job.slots && p.has[k]; i++) {
        shared[local * dim + p.at[k] + i] = sum[k][i];
      }
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; j < dim; j += kRotateThreads) {
      float total = 0;
      for (int l = 0; l < locals; l++) {
        total += shared[l * dim + j];
      }
      s.partial[blockIdx.x * job.partial_stride + j] = total;
    }
  }
}

/* ---- sums of blocks ---- */

/* dweight += the sums of the blocks: kSumColumns columns of a block of threads. */
template <typename D>
__global__ void __launch_bounds__(kSumThreads)
    qk_norm_rope_bwd_weight_kernel(D *dweight, const float *partial, int64_t dim, int64_t stride,
                                   int64_t blocks)
{
  constexpr int kRows = kSumThreads / kSumColumns;
  __shared__ float sums[kRows][kSumColumns];
  const int c = threadIdx.x % kSumColumns, row = threadIdx.x / kSumColumns;
  const int64_t j = (int64_t)blockIdx.x * kSumColumns + c;
  float sum = 0;
  for (int64_t i = row; i < blocks && j < dim; i += kRows) {
    sum += partial[i * stride + j];
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

/* How the tokens are cut, and the floats of a block's sums. */
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

template <typename T>
tg_status launch_heads(const tg_context *ctx, const bwd_job<T> &job, bool aligned)
{
  const dim3 grid = grid_of(job.blocks);
#define WITH(TT)                                                                                   \
  (job.r.interleaved ? (aligned ? launch(ctx, qk_norm_rope_bwd_kernel<T, TT, true, true>, grid,    \
                                         kRotateThreads, 0, job)                                   \
                                : launch(ctx, qk_norm_rope_bwd_kernel<T, TT, true, false>, grid,   \
                                         kRotateThreads, 0, job))                                  \
                     : (aligned ? launch(ctx, qk_norm_rope_bwd_kernel<T, TT, false, true>, grid,   \
                                         kRotateThreads, 0, job)                                   \
                                : launch(ctx, qk_norm_rope_bwd_kernel<T, TT, false, false>, grid,  \
                                         kRotateThreads, 0, job)))
  return job.r.f32 ? WITH(float) : WITH(T);
#undef WITH
}

tg_status add_sums(const tg_context *ctx, const tg_tensor *dweight, const float *partial,
                   const token_blocks &c)
{
  const int64_t dim = dweight->shape[0];
  const dim3 grid = grid_of(divide_up(dim, kSumColumns));
  tg_status status = TG_OK;
  SWITCH_FLOAT(dweight->dtype, D,
               status = launch(ctx, qk_norm_rope_bwd_weight_kernel<D>, grid, kSumThreads, 0,
                               static_cast<D *>(dweight->data), partial, dim, c.floats, c.blocks));
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
  const int64_t slots = slots_of(job.r);
  tg_status status;
  if (slots > 0 && slots <= kRotateSlotsMax) {
    job.slots = (int)slots;
    job.lanes = 1;
    while (job.lanes < job.slots) {
      job.lanes *= 2;
    }
    status = launch_heads(ctx, job, all_aligned(a));
  } else {
    status = launch_pairs(ctx, job);
  }
  if (status == TG_OK && job.side[0].partial) {
    status = add_sums(ctx, &a->dq_weight, job.side[0].partial, c);
  }
  if (status == TG_OK && job.side[1].partial) {
    status = add_sums(ctx, &a->dk_weight, job.side[1].partial, c);
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
  const int64_t slots = slots_of(rotation_of_args(a));
  snprintf(text, bytes, "%lld blocks of %lld tokens, %s", (long long)c.blocks,
           (long long)c.block_tokens,
           slots > 0 && slots <= kRotateSlotsMax ? "heads in registers" : "heads pair by pair");
}
