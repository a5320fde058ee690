/** Recomputing rows with a NaN. Products of blocks multiply masked values by 0, which makes NaN of
 * NaN and infinity. After its tile, a row with a NaN is checked: if a value that it does not see
 * may be the cause, the row is recomputed key by key. */
#ifndef TGI_OPS_ATTENTION_HIDDEN_CUH
#define TGI_OPS_ATTENTION_HIDDEN_CUH

#include "cuda/tf32.cuh"
#include "ops/attention/cuda/attention_softmax.cuh"
#include "ops/attention/cuda/attention_work.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kChunk = 8; /* elements: a lane's part of a row of up to 256 */

/** Operands in memory; strides are in words of 16 bits, elements are T. */
struct fwd_operands {
  heads_view<const uint16_t> q, k, v;
  int head_dim, v_dim;
  int k_rows; /* of k's axis */
  float scale, softcap;
};

/** Loads a chunk of a row; zeros past `width` elements. f32 is rounded to TF32, as in products. */
template <typename T>
__device__ __forceinline__ void load_chunk(float (&to)[kChunk], const uint16_t *row, int width)
{
  const int c = threadIdx.x % kWarp * kChunk;
#pragma unroll
  for (int i = 0; i < kChunk; i++) {
    to[i] = 0;
  }
  if (c < width) {
    if constexpr (kIsTf32<T>) {
#pragma unroll
      for (int half = 0; half < kChunk; half += 4) {
        float v[4];
        load(v, reinterpret_cast<const float *>(row) + c + half);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          to[half + i] = rounded_tf32(v[i]);
        }
      }
    } else {
      load(to, reinterpret_cast<const T *>(row) + c);
    }
  }
}

/** True if rows from .. to - 1 of a kv head's values hold a NaN or an infinity. By a warp. */
template <typename T>
__device__ __forceinline__ bool any_not_finite(const fwd_operands &a, const query_place &x,
                                               int kv_head, int from, int to)
{
  to = min(to, a.k_rows - x.k_row);
#pragma unroll 1
  for (int key = from; key < to; key++) {
    float v[kChunk], zero = 0;
    load_chunk<T>(v, a.v.data + a.v.at(x.k_index, x.k_row + key, kv_head), a.v_dim);
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      zero = fmaf(v[i], 0.0f, zero);
    }
    if (__any_sync(kAllLanes, zero != 0)) {
      return true;
    }
  }
  return false;
}

/** Computes the row of query i of the place; each lane has a chunk of it. By a warp. */
template <typename T>
__device__ __forceinline__ void attend_keys(float (&o)[kChunk], const fwd_operands &a,
                                            const query_place &x, int i, int kv_head, key_span seen,
                                            float sink)
{
  float q[kChunk], top = -CUDART_INF_F, sum = 0;
  load_chunk<T>(q, a.q.data + a.q.at(x.q_index, x.q_row + i, x.head), a.head_dim);
#pragma unroll
  for (int c = 0; c < kChunk; c++) {
    o[c] = 0;
  }
#pragma unroll 1
  for (int key = seen.low; key < seen.high; key++) {
    float k[kChunk], v[kChunk], score = 0;
    load_chunk<T>(k, a.k.data + a.k.at(x.k_index, x.k_row + key, kv_head), a.head_dim);
    load_chunk<T>(v, a.v.data + a.v.at(x.k_index, x.k_row + key, kv_head), a.v_dim);
#pragma unroll
    for (int c = 0; c < kChunk; c++) {
      score = fmaf(q[c], k[c], score);
    }
    score = warp_sum(score) * a.scale;
    if (a.softcap > 0) {
      score = a.softcap * tanh_close(score / a.softcap);
    }
    const float most = fmaxf(top, score * kLog2E), base = most > -CUDART_INF_F ? most : 0.0f;
    const float factor = exp2f(top - base), p = exp2f(fmaf(score, kLog2E, -base));
    top = most;
    sum = fmaf(sum, factor, p);
    bool lost = true;
#pragma unroll
    for (int c = 0; c < kChunk; c++) {
      o[c] = fmaf(o[c], factor, p * v[c]);
      lost = lost && o[c] != o[c];
    }
    if (__all_sync(kAllLanes, lost || threadIdx.x % kWarp * kChunk >= a.v_dim)) {
      break; /* NaN from here on */
    }
  }
  const float factor = finish_row(top, sum, sink).factor;
#pragma unroll
  for (int c = 0; c < kChunk; c++) {
    o[c] *= factor;
  }
}

/** Recomputes those of the warp's 16 rows that a masked value made NaN, and passes each to store(r,
 * o). The rows begin at query row0 of the place; keys low .. high - 1 went into them. `bad`: which
 * of the thread's two rows, lane / 4 and lane / 4 + 8, have a NaN or an infinity. */
template <typename T, typename Store>
__device__ __forceinline__ void attend_again(const fwd_operands &a, const query_work &work,
                                             const query_place &x, int row0, int low, int high,
                                             float sink, const bool (&bad)[2], const Store &store)
{
  const int kv_head = x.head / work.group;
  const unsigned rows[2] = {__ballot_sync(kAllLanes, bad[0]), __ballot_sync(kAllLanes, bad[1])};
#pragma unroll 1
  for (int r = 0; r < 16; r++) {
    const int i = row0 + r;
    const key_span seen = span_of(work.rule, x, i);
    if (!((r < 8 ? rows[0] : rows[1]) >> r % 8 * 4 & 15) || i >= x.rows) {
      continue;
    }
    const int until = max(min(seen.low, high), low), from = max(min(seen.high, high), until);
    if (any_not_finite<T>(a, x, kv_head, low, until) ||
        any_not_finite<T>(a, x, kv_head, from, high)) {
      float o[kChunk];
      attend_keys<T>(o, a, x, i, kv_head, seen, sink);
      store(r, o);
    }
  }
}

/* ---- host ---- */

/** Sets the tensors and scalars of a forward job. */
template <typename Job>
void set_tensors(Job &job, const tg_attention_fwd_args *a, const tgi_attention_layout &l)
{
  job.from.q = words_of<const uint16_t>(&a->q);
  job.from.k = words_of<const uint16_t>(&a->k);
  job.from.v = words_of<const uint16_t>(&a->v);
  job.from.head_dim = (int)l.head_dim;
  job.from.v_dim = (int)l.v_dim;
  job.from.scale = a->scale;
  job.from.softcap = a->softcap;
  job.out = words_of<uint16_t>(&a->out);
  job.lse = static_cast<float *>(a->lse.data);
  job.sinks = {a->sinks.data, a->sinks.dtype};
  job.exponent = (a->softcap > 0 ? 1.0f : a->scale) * kLog2E;
  job.cap_by = a->softcap > 0 ? a->scale / a->softcap : 0.0f;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
