/**
 * Rotating the heads of tokens on CUDA, with or without a norm before it: the kernels of rope (both
 * directions) and of the forward of qk_norm_rope.
 *
 * Method     A thread reads the angles of its slot (rotation.cuh) once for two heads of a
 *            token, keeps everything packed in registers, rotates two elements of each vector
 *            at a time (in 16 bits where every step is rounded to them, else in f32) and writes
 *            the heads. With a norm, a head's slots lie on 2^n neighbouring lanes, which add
 *            their squares.
 * Work       Two heads of q, or of k, of a token for each group of lanes; blocks of q, then of
 *            k, in one launch (rotate_heads_launch.cuh). Heads that have no slots get a warp
 *            each and are read once more.
 * Bound      Memory: reads x and writes y. Heads of a token find the tables in the first cache.
 */
#ifndef TGI_OPS_ROTATE_HEADS_CUH
#define TGI_OPS_ROTATE_HEADS_CUH

#include "cuda/reduce.cuh"
#include "ops/shared/rotation/rotation.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{ /* each entry of the chain has kernels of its own */

constexpr int kRotateThreads = 256;
constexpr int kSlotThreads = 128; /* of heads with slots */
constexpr int kRotateHeads = 2;   /* of a thread */

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
  divider by_groups[2], by_seq; /* groups: of a token's heads of q, of k */
  int64_t first_blocks, blocks; /* of q, of both */
  int slots, lanes, groups_per_block;
  bool f32_weights;
  float eps, inverse_dim;
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

template <bool kFirst, typename A, typename B> struct pick {
  using type = A;
};

template <typename A, typename B> struct pick<false, A, B> {
  using type = B;
};

/** The sums over the 2^n lanes of each of some heads, in each of them; neighbours first, see
 * slot_sum. */
template <int kHeads> __device__ __forceinline__ void lanes_sum(float (&v)[kHeads], int lanes)
{
  for (int distance = 1; distance < lanes; distance *= 2) {
#pragma unroll
    for (int u = 0; u < kHeads; u++) {
      v[u] += __shfl_xor_sync(kAllLanes, v[u], distance);
    }
  }
}

/** Two vectors of the weight. */
template <bool kAligned, typename T, int N>
__device__ __forceinline__ void load_weight(element_bits<float, N> (&w)[2], const void *weight,
                                            bool f32, const slot_place &p)
{
#pragma unroll
  for (int k = 0; k < 2; k++) {
    w[k] = {};
    if (p.has[k]) {
      if (sizeof(T) == 4 || f32) {
        load_bits<kAligned>(w[k], static_cast<const float *>(weight) + p.at[k]);
      } else {
        element_bits<T, N> own;
        load_bits<kAligned>(own, static_cast<const T *>(weight) + p.at[k]);
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
          float two[2];
          get_two(two, own, i);
          set_two(w[k], i, two);
        }
      }
    }
  }
}

/** The same, packed: of the elements' own dtype. */
template <bool kAligned, typename T, int N>
__device__ __forceinline__ void load_own_weight(element_bits<T, N> (&w)[2], const void *weight,
                                                const slot_place &p)
{
#pragma unroll
  for (int k = 0; k < 2; k++) {
    w[k] = {};
    if (p.has[k]) {
      load_bits<kAligned>(w[k], static_cast<const T *>(weight) + p.at[k]);
    }
  }
}

/** Blocks of a multiprocessor that the registers are cut for: as many as fit without spills. */
template <typename T, typename TT>
constexpr int slot_blocks(bool interleaved, int mode, bool normed, bool aligned, bool packed)
{
  if (packed) {
    return normed ? 7 : 9;
  }
  const int fewer = (sizeof(TT) > sizeof(T)) + normed;
  const int steps = mode == kRotateHf ? (TGI_VIRTUAL < 80 ? 2 : 1) : 0; /* < 80: long roundings */
  return !aligned ? 4 : fewer ? 6 - fewer : 7 - interleaved - steps;
}

/** kPacked: every step is rounded to T, and tables and weights are of T. */
template <typename T, typename TT, int N, bool kInterleaved, int kMode, bool kNormed, bool kAligned,
          bool kPacked>
__global__ void __launch_bounds__(kSlotThreads,
                                  resident_blocks(kSlotThreads,
                                                  slot_blocks<T, TT>(kInterleaved, kMode, kNormed,
                                                                     kAligned, kPacked)))
    rotate_heads_kernel(const __grid_constant__ rotate_job<T> job)
{
  using W = typename pick<kPacked, T, float>::type;
  constexpr int kQuads = N / kSlotLanes;
  constexpr bool kSteps = kMode == kRotateHf;
  const int local = (int)(threadIdx.x / (unsigned)job.lanes);
  const int lane = (int)threadIdx.x - local * job.lanes;
  const slot_place p = place_of<kInterleaved, N>(job.r, lane);
  for (int64_t block = blockIdx.x; block < job.blocks; block += gridDim.x) {
    const int which = block >= job.first_blocks;
    const head_side<T> &s = job.side[which];
    const int64_t unit = (block - (which ? job.first_blocks : 0)) * job.groups_per_block + local;
    const int64_t token = divide(unit, job.by_groups[which]), b = divide(token, job.by_seq);
    const int64_t head = kRotateHeads * (unit - token * job.by_groups[which].by);
    const int64_t t = token - b * job.seq;
    const bool active = local < job.groups_per_block && token < job.tokens && lane < job.slots;
    if (!kNormed && !active) {
      continue; /* a norm needs all lanes of a warp */
    }
    const T *x = s.x + b * s.x_sequence + t * s.x_token + head * s.x_head;
    element_bits<T, N> v[kRotateHeads][2];
#pragma unroll
    for (int u = 0; u < kRotateHeads; u++) {
#pragma unroll
      for (int k = 0; k < 2; k++) {
        v[u][k] = {};
        if (active && head + u < s.heads && p.has[k]) {
          load_bits<kAligned>(v[u][k], x + u * s.x_head + p.at[k]);
        }
      }
    }
    slot_angles<TT, N> angles = {};
    element_bits<W, N> w[2] = {};
    if (active) {
      load_angles<kInterleaved, kAligned>(angles, job.r, b, t, p);
      if constexpr (kNormed && kPacked) {
        load_own_weight<kAligned>(w, s.weight, p);
      } else if constexpr (kNormed) {
        load_weight<kAligned, T>(w, s.weight, job.f32_weights, p);
      }
    }
    float rstd[kRotateHeads];
    if (kNormed) {
#pragma unroll
      for (int u = 0; u < kRotateHeads; u++) {
        float squares[2][kQuads] = {};
#pragma unroll
        for (int k = 0; k < 2; k++) {
#pragma unroll
          for (int i = 0; i < N / 2; i++) {
            float two[2];
            float &sum = squares[k][2 * i / kSlotLanes];
            get_two(two, v[u][k], i);
            sum = fmaf(two[1], two[1], fmaf(two[0], two[0], sum));
          }
        }
        rstd[u] = slot_sum<N>(squares, p);
      }
      lanes_sum(rstd, job.lanes);
#pragma unroll
      for (int u = 0; u < kRotateHeads; u++) {
        rstd[u] = __frsqrt_rn(rstd[u] * job.inverse_dim + job.eps);
        if (s.rstd && active && lane == 0 && head + u < s.heads) {
          s.rstd[token * s.heads + head + u] = rstd[u];
        }
      }
    }
    if constexpr (kPacked) {
#pragma unroll
      for (int i = 0; i < N / 2; i++) {
#pragma unroll
        for (int u = 0; u < kRotateHeads; u++) {
#pragma unroll
          for (int k = 0; k < 2 && kNormed; k++) {
            float two[2];
            get_two(two, v[u][k], i);
            v[u][k].w[i] =
                multiply_words<T>(two_from_f32<T>(two[0] * rstd[u], two[1] * rstd[u]), w[k].w[i]);
          }
          rotate_words<T, kInterleaved>(v[u], i, angles, p);
        }
      }
    } else if (kNormed || p.rotated[0] || p.rotated[1]) {
#pragma unroll
      for (int i = 0; i < N / 2; i++) {
        const two_angles a = angles_at(angles, i);
#pragma unroll
        for (int u = 0; u < kRotateHeads; u++) {
          float z[2][2], y[2][2];
#pragma unroll
          for (int k = 0; k < 2; k++) {
            get_two(z[k], v[u][k], i);
            if (kNormed) {
              float weight[2];
              get_two(weight, w[k], i);
              z[k][0] *= rstd[u], z[k][1] *= rstd[u];
              step_two<T, kSteps>(z[k]);
              z[k][0] *= weight[0], z[k][1] *= weight[1];
              step_two<T, kSteps>(z[k]);
            }
          }
          rotate_two<T, kInterleaved, kMode>(y, z, a, p);
          set_two(v[u][0], i, y[0]);
          set_two(v[u][1], i, y[1]);
        }
      }
    }
    T *y = s.y + b * s.y_sequence + t * s.y_token + head * s.y_head;
#pragma unroll
    for (int u = 0; u < kRotateHeads; u++) {
#pragma unroll
      for (int k = 0; k < 2; k++) {
        if (active && head + u < s.heads && p.has[k]) {
          store_bits<kAligned>(y + u * s.y_head + p.at[k], v[u][k]);
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
      rotate_pair<T, kMode>(out, v, p.cos, p.sin);
      y[p.at[0]] = from_f32<T>(out[0]);
      y[p.at[1]] = from_f32<T>(out[1]);
    }
#pragma unroll 1
    for (int64_t j = r.dim + lane; j < r.head_dim; j += kWarp) {
      y[j] = from_f32<T>(normed(j));
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
