/**
 * Rotating the heads of tokens on CUDA, with or without a norm before it: the kernels of rope (both
 * directions) and of the forward of qk_norm_rope.
 *
 * Method     A thread reads the angles of its slot (rotation.cuh) once for four heads of a
 *            token, keeps their elements in registers and writes them. With a norm, a head's slots
 *            lie on 2^n neighbouring lanes, which add their squares.
 * Work       Four heads of q, or of k, of a token for each group of lanes; q and k in one launch.
 *            Heads that have no slots get a warp each and are read once more.
 * Bound      Memory: reads x and writes y. Heads of a token find the tables in the first cache.
 */
#ifndef TGI_OPS_ROTATE_HEADS_CUH
#define TGI_OPS_ROTATE_HEADS_CUH

#include "cuda/reduce.cuh"
#include "ops/rope/rotation.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{ /* each entry of the chain has kernels of its own */

constexpr int kRotateThreads = 256;
constexpr int kRotateHeads = 4;     /* of a thread */
constexpr int kRotateSlotsMax = 32; /* of a head: the lanes of a warp */

/** q or k, and what becomes of it. Strides count elements. */
template <typename T> struct head_side {
  const T *x;
  T *y;
  const void *weight; /* [head_dim]; read with a norm alone */
  float *rstd;        /* [tokens, heads] or NULL */
  int64_t heads;
  int64_t x_sequence, x_token, x_head, y_sequence, y_token, y_head;
};

template <typename T> struct rotate_job {
  head_side<T> side[2];
  rotation r;
  int64_t seq, tokens;
  int64_t first_groups, groups; /* groups of heads of a token: of q, of both */
  int64_t blocks;
  int slots, lanes, groups_per_block;
  bool f32_weights;
  float eps;
};

template <typename T> head_side<T> head_side_of(const tg_tensor *x, const tg_tensor *y)
{
  head_side<T> s = {};
  s.x = static_cast<const T *>(x->data);
  s.y = static_cast<T *>(y->data);
  if (tgi_present(x)) {
    s.heads = x->shape[2];
    s.x_sequence = tgi_stride(x, 0), s.x_token = tgi_stride(x, 1), s.x_head = tgi_stride(x, 2);
    s.y_sequence = tgi_stride(y, 0), s.y_token = tgi_stride(y, 1), s.y_head = tgi_stride(y, 2);
  }
  return s;
}

/** Two vectors of the weight. */
template <bool kAligned, typename T>
__device__ __forceinline__ void load_weight(float (&w)[2][kSlotLanes], const void *weight, bool f32,
                                            const slot_place &p)
{
#pragma unroll
  for (int k = 0; k < 2; k++) {
    if (p.has[k]) {
      load_either<kAligned, T>(w[k], weight, p.at[k], f32);
    } else {
#pragma unroll
      for (int i = 0; i < kSlotLanes; i++) {
        w[k][i] = 0;
      }
    }
  }
}

/** The sum over the 2^n lanes of a head, in each of them. */
__device__ __forceinline__ float lanes_sum(float v, int lanes)
{
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    v += __shfl_xor_sync(kAllLanes, v, distance);
  }
  return v;
}

template <typename T, typename TT, bool kInterleaved, int kMode, bool kNormed, bool kAligned>
__global__ void __launch_bounds__(kRotateThreads, kAligned ? 3 : 2)
    rotate_heads_kernel(const __grid_constant__ rotate_job<T> job)
{
  constexpr int kN = kSlotLanes;
  constexpr bool kSteps = kMode == kRotateHf;
  const int lane = (int)threadIdx.x % job.lanes, local = (int)threadIdx.x / job.lanes;
  const slot_place p = place_of<kInterleaved>(job.r, lane);
  for (int64_t block = blockIdx.x; block < job.blocks; block += gridDim.x) {
    const int64_t unit = block * job.groups_per_block + local;
    const int64_t token = unit / job.groups, group = unit - token * job.groups;
    const int64_t b = token / job.seq, t = token - b * job.seq;
    const int which = group >= job.first_groups;
    const head_side<T> &s = job.side[which];
    const int64_t head = kRotateHeads * (group - (which ? job.first_groups : 0));
    const bool active = local < job.groups_per_block && token < job.tokens && lane < job.slots;
    const T *x = s.x + b * s.x_sequence + t * s.x_token + head * s.x_head;
    pack<T, kN> raw[kRotateHeads][2];
#pragma unroll
    for (int u = 0; u < kRotateHeads; u++) {
#pragma unroll
      for (int k = 0; k < 2; k++) {
        raw[u][k] = {};
        if (active && head + u < s.heads && p.has[k]) {
          raw[u][k] = load_pack<kAligned>(x + u * s.x_head + p.at[k]);
        }
      }
    }
    slot_angles angles;
    if (active) {
      load_angles<TT, kInterleaved, kAligned>(angles, job.r, b, t, p);
    }
#pragma unroll
    for (int u = 0; u < kRotateHeads; u++) {
      float v[2][kN], y[2][kN];
      float squares = 0;
#pragma unroll
      for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int i = 0; i < kN; i++) {
          v[k][i] = to_f32(raw[u][k].e[i]);
          squares = fmaf(v[k][i], v[k][i], squares);
        }
      }
      const bool mine = active && head + u < s.heads;
      if (kNormed) {
        squares = lanes_sum(squares, job.lanes);
        const float rstd = __frsqrt_rn(squares / (float)job.r.head_dim + job.eps);
        if (mine) {
          float w[2][kN];
          load_weight<kAligned, T>(w, s.weight, job.f32_weights, p);
#pragma unroll
          for (int k = 0; k < 2; k++) {
#pragma unroll
            for (int i = 0; i < kN; i++) {
              v[k][i] = step<T, kSteps>(step<T, kSteps>(v[k][i] * rstd) * w[k][i]);
            }
          }
          if (s.rstd && lane == 0) {
            s.rstd[token * s.heads + head + u] = rstd;
          }
        }
      }
      if (mine) {
        T *to = s.y + b * s.y_sequence + t * s.y_token + (head + u) * s.y_head;
        rotate_slot<T, kInterleaved, kMode>(y, v, angles, p);
#pragma unroll
        for (int k = 0; k < 2; k++) {
          if (p.has[k]) {
            store_vector<kAligned>(to + p.at[k], y[k]);
          }
        }
      }
    }
  }
}

/** A warp for a head; a pair is read whole, by one lane, before it is written. */
template <typename T, int kMode, bool kNormed>
__global__ void __launch_bounds__(kRotateThreads)
    rotate_heads_pairs_kernel(const __grid_constant__ rotate_job<T> job)
{
  constexpr bool kSteps = kMode == kRotateHf;
  const rotation &r = job.r;
  const int lane = threadIdx.x % kWarp, warps = kRotateThreads / kWarp;
  const int64_t heads = job.side[0].heads + job.side[1].heads;
  for (int64_t block = blockIdx.x; block < job.blocks; block += gridDim.x) {
    const int64_t unit = block * warps + threadIdx.x / kWarp;
    if (unit >= job.tokens * heads) {
      continue; /* whole warps */
    }
    const int64_t token = unit / heads, b = token / job.seq, t = token - b * job.seq;
    const int which = unit - token * heads >= job.side[0].heads;
    const head_side<T> &s = job.side[which];
    const int64_t head = unit - token * heads - (which ? job.side[0].heads : 0);
    const T *x = s.x + b * s.x_sequence + t * s.x_token + head * s.x_head;
    T *y = s.y + b * s.y_sequence + t * s.y_token + head * s.y_head;
    float rstd = 1;
    if (kNormed) {
      float squares = 0;
#pragma unroll 1
      for (int64_t j = lane; j < r.head_dim; j += kWarp) {
        const float v = to_f32(x[j]);
        squares = fmaf(v, v, squares);
      }
      rstd = __frsqrt_rn(warp_sum(squares) / (float)r.head_dim + job.eps);
      if (s.rstd && lane == 0) {
        s.rstd[token * s.heads + head] = rstd;
      }
    }
    const auto normed = [&](int64_t j) {
      const float v = to_f32(x[j]);
      if (!kNormed) {
        return v;
      }
      float w[1];
      load_either<false, T>(w, s.weight, j, job.f32_weights);
      return step<T, kSteps>(step<T, kSteps>(v * rstd) * w[0]);
    };
#pragma unroll 1
    for (int64_t i = lane; i < r.half; i += kWarp) {
      const one_pair p = pair_at<T>(r, b, t, i);
      const float v[2] = {normed(p.at[0]), normed(p.at[1])};
      float out[2];
      rotate_pair<T, kMode>(out, v, p);
      y[p.at[0]] = from_f32<T>(out[0]);
      y[p.at[1]] = from_f32<T>(out[1]);
    }
#pragma unroll 1
    for (int64_t j = r.dim + lane; j < r.head_dim; j += kWarp) {
      y[j] = from_f32<T>(normed(j));
    }
  }
}

/** Lays the work out; false: the heads have no slots. */
template <typename T> bool plan_rotation(rotate_job<T> *job, bool normed)
{
  const int64_t slots = slots_of(job->r);
  const int64_t heads = job->side[0].heads + job->side[1].heads;
  if (slots == 0 || slots > kRotateSlotsMax) {
    job->blocks = divide_up(job->tokens * heads, kRotateThreads / kWarp);
    return false;
  }
  job->slots = (int)slots;
  job->lanes = 1;
  while (normed && job->lanes < job->slots) {
    job->lanes *= 2;
  }
  job->lanes = normed ? job->lanes : job->slots;
  job->groups_per_block = kRotateThreads / job->lanes;
  job->first_groups = divide_up(job->side[0].heads, kRotateHeads);
  job->groups = job->first_groups + divide_up(job->side[1].heads, kRotateHeads);
  job->blocks = divide_up(job->tokens * job->groups, job->groups_per_block);
  return true;
}

template <typename T, typename TT, int kMode, bool kNormed>
tg_status launch_slots(const tg_context *ctx, const rotate_job<T> &job, bool aligned)
{
  const dim3 grid = grid_of(job.blocks);
  if (job.r.interleaved) {
    return aligned ? launch(ctx, rotate_heads_kernel<T, TT, true, kMode, kNormed, true>, grid,
                            kRotateThreads, 0, job)
                   : launch(ctx, rotate_heads_kernel<T, TT, true, kMode, kNormed, false>, grid,
                            kRotateThreads, 0, job);
  }
  return aligned ? launch(ctx, rotate_heads_kernel<T, TT, false, kMode, kNormed, true>, grid,
                          kRotateThreads, 0, job)
                 : launch(ctx, rotate_heads_kernel<T, TT, false, kMode, kNormed, false>, grid,
                          kRotateThreads, 0, job);
}

template <int kMode, bool kNormed, typename T>
tg_status rotate_heads(const tg_context *ctx, rotate_job<T> job, bool aligned)
{
  if (!plan_rotation(&job, kNormed)) {
    return launch(ctx, rotate_heads_pairs_kernel<T, kMode, kNormed>, grid_of(job.blocks),
                  kRotateThreads, 0, job);
  }
  return job.r.f32 ? launch_slots<T, float, kMode, kNormed>(ctx, job, aligned)
                   : launch_slots<T, T, kMode, kNormed>(ctx, job, aligned);
}

/** With f32 both roundings give the same bits. */
template <bool kNormed, typename T>
tg_status rotate_heads_rounding(const tg_context *ctx, const rotate_job<T> &job,
                                tg_rounding rounding, bool aligned)
{
  if (sizeof(T) == 2 && rounding == TG_ROUNDING_HF) {
    return rotate_heads < sizeof(T) == 2 ? kRotateHf : kRotateOnce, kNormed > (ctx, job, aligned);
  }
  return rotate_heads<kRotateOnce, kNormed>(ctx, job, aligned);
}

inline void describe_rotation(const tg_tensor *q, const rotation &r, char *text, size_t bytes)
{
  const int64_t slots = slots_of(r);
  const bool cut = slots > 0 && slots <= kRotateSlotsMax;
  snprintf(text, bytes,
           cut ? "%lld tokens, %d heads a thread, %d threads a block"
               : "%lld tokens, a warp for a head of %d in blocks of %d threads",
           (long long)(q->shape[0] * q->shape[1]), cut ? kRotateHeads : (int)q->shape[3],
           kRotateThreads);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
