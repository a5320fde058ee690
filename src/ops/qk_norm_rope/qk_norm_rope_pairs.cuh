/**
 * qk_norm_rope backward: kernel parameters, and the kernels for heads without slots
 * (rope/rotation.cuh).
 *
 * Method     Two launches. The first computes the weights' gradients, the second dx. dx may alias
 *            dy, so it is written last.
 * Work       Weights' gradients: a thread per pair and a row of the grid per block of tokens. dx: a
 *            warp per head.
 * Bound      Memory bandwidth: both launches read dy and x.
 */
#ifndef TGI_OPS_QK_NORM_ROPE_PAIRS_CUH
#define TGI_OPS_QK_NORM_ROPE_PAIRS_CUH

#include "ops/shared/rotation/rotate_heads.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{ /* the kernels of each chain entry are separate symbols */

constexpr int kPairThreads = 128; /* of the kernel that sums */

template <typename T> struct bwd_side {
  const T *dy, *x;
  T *dx; /* NULL: not wanted */
  const void *weight;
  const float *rstd; /* [tokens, heads] */
  float *partial;    /* [head_dim] of the first block of tokens; NULL: not wanted */
  int64_t heads;
  int64_t dy_sequence, dy_token, dy_head, x_sequence, x_token, x_head;
  int64_t dx_sequence, dx_token, dx_head;
};

template <typename T> struct bwd_job {
  bwd_side<T> side[2];
  rotation r;
  int64_t seq, tokens, block_tokens, blocks; /* of tokens */
  int64_t partial_stride;                    /* floats from block to block */
  divider by_groups[2], by_seq;              /* groups: of the heads of q and of k per token */
  int slots, lanes;
  bool f32_weights;
  float inverse_dim;
};

/* Sums over a block of tokens. A thread has a pair, or an element that is not rotated. */
template <typename T>
__global__ void __launch_bounds__(kPairThreads)
    qk_norm_rope_bwd_sums_kernel(const __grid_constant__ bwd_job<T> job)
{
  const rotation &r = job.r;
  const int64_t first = blockIdx.x * job.block_tokens;
  const int64_t past = first + job.block_tokens, last = past < job.tokens ? past : job.tokens;
  const int64_t columns = r.half + r.head_dim - r.dim, stride = (int64_t)gridDim.y * kPairThreads;
  const bwd_side<T> &s = job.side[blockIdx.z];
  if (!s.partial) {
    return;
  }
  for (int64_t c = (int64_t)blockIdx.y * kPairThreads + threadIdx.x; c < columns; c += stride) {
    const bool rotated = c < r.half;
    float sum[2] = {0, 0};
    one_pair p = {};
    p.at[0] = p.at[1] = rotated ? c : r.dim + c - r.half;
#pragma unroll 1
    for (int64_t token = first; token < last; token++) {
      const int64_t b = token / job.seq, t = token - b * job.seq;
      if (rotated) {
        p = pair_at<T>(r, b, t, c);
      }
#pragma unroll 1
      for (int64_t h = 0; h < s.heads; h++) {
        const T *dy = s.dy + b * s.dy_sequence + t * s.dy_token + h * s.dy_head;
        const T *x = s.x + b * s.x_sequence + t * s.x_token + h * s.x_head;
        const float rstd = s.rstd[token * s.heads + h];
        const float v[2] = {to_f32(dy[p.at[0]]), to_f32(dy[p.at[1]])};
        float dz[2] = {v[0], v[1]};
        if (rotated) {
          rotate_pair<T, kRotateBack>(dz, v, p.cos, p.sin);
        }
        sum[0] = fmaf(dz[0], to_f32(x[p.at[0]]) * rstd, sum[0]);
        sum[1] = fmaf(dz[1], to_f32(x[p.at[1]]) * rstd, sum[1]);
      }
    }
    float *to = s.partial + blockIdx.x * job.partial_stride;
    to[p.at[0]] = sum[0];
    to[p.at[1]] = sum[1];
  }
}

/* Computes dx. A warp reads its head twice. */
template <typename T>
__global__ void __launch_bounds__(kRotateThreads)
    qk_norm_rope_bwd_pairs_kernel(const __grid_constant__ bwd_job<T> job)
{
  const rotation &r = job.r;
  const int lane = threadIdx.x % kWarp, warps = kRotateThreads / kWarp;
  const int64_t heads = job.side[0].heads + job.side[1].heads;
  for (int64_t unit = (int64_t)blockIdx.x * warps + threadIdx.x / kWarp; unit < job.tokens * heads;
       unit += (int64_t)gridDim.x * warps) {
    const int64_t token = unit / heads, b = token / job.seq, t = token - b * job.seq;
    const int which = unit - token * heads >= job.side[0].heads;
    const bwd_side<T> &s = job.side[which];
    const int64_t head = unit - token * heads - (which ? job.side[0].heads : 0);
    if (!s.dx) {
      continue; /* whole warps */
    }
    const T *dy = s.dy + b * s.dy_sequence + t * s.dy_token + head * s.dy_head;
    const T *x = s.x + b * s.x_sequence + t * s.x_token + head * s.x_head;
    T *dx = s.dx + b * s.dx_sequence + t * s.dx_token + head * s.dx_head;
    const float rstd = s.rstd[token * s.heads + head];
    float mean = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; pass++) {
      float dot = 0;
      const auto visit = [&](int64_t j, float dz) {
        float w[1];
        load_either<false, T>(w, s.weight, j, job.f32_weights);
        const float g = dz * w[0], n = to_f32(x[j]) * rstd;
        dot = fmaf(g, n, dot);
        if (pass) {
          dx[j] = from_f32<T>(rstd * fmaf(-n, mean, g));
        }
      };
#pragma unroll 1
      for (int64_t i = lane; i < r.half; i += kWarp) {
        const one_pair p = pair_at<T>(r, b, t, i);
        const float v[2] = {to_f32(dy[p.at[0]]), to_f32(dy[p.at[1]])};
        float dz[2];
        rotate_pair<T, kRotateBack>(dz, v, p.cos, p.sin);
        visit(p.at[0], dz[0]);
        visit(p.at[1], dz[1]);
      }
#pragma unroll 1
      for (int64_t j = r.dim + lane; j < r.head_dim; j += kWarp) {
        visit(j, to_f32(dy[j]));
      }
      mean = warp_sum(dot) / (float)r.head_dim;
    }
  }
}

template <typename T> tg_status launch_pairs(const tg_context *ctx, const bwd_job<T> &job)
{
  const int64_t chunks = divide_up(job.r.half + job.r.head_dim - job.r.dim, kPairThreads);
  const dim3 grid((unsigned)job.blocks, (unsigned)(chunks < 1024 ? chunks : 1024), 2);
  const int64_t heads = job.tokens * (job.side[0].heads + job.side[1].heads);
  tg_status status = TG_OK;
  if (job.side[0].partial || job.side[1].partial) {
    status = launch(ctx, qk_norm_rope_bwd_sums_kernel<T>, grid, kPairThreads, 0, job);
  }
  if (status == TG_OK && (job.side[0].dx || job.side[1].dx)) {
    status = launch(ctx, qk_norm_rope_bwd_pairs_kernel<T>,
                    grid_of(divide_up(heads, kRotateThreads / kWarp)), kRotateThreads, 0, job);
  }
  return status;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
