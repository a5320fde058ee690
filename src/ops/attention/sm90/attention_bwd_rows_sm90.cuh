/** Attention backward on Hopper: recomputing single rows. Products of tiles multiply a masked value
 * by 0, which makes NaN of NaN and infinity. Rows of dq, dk and dv that have a NaN are recomputed
 * here, a warp for each, along visible pairs alone. This is seldom, and its speed does not matter.
 */
#ifndef TGI_OPS_ATTENTION_BWD_ROWS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_ROWS_SM90_CUH

#include "ops/attention/cuda/attention_hidden.cuh"
#include "ops/attention/sm90/attention_bwd_plan_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** p and ds of a pair of query and key. */
struct pair_terms {
  float p, ds;
};

/** From whole rows, of which each lane has a chunk. */
__device__ __forceinline__ pair_terms terms_of(const bwd_job &job, const float (&q)[kChunk],
                                               const float (&k)[kChunk],
                                               const float (&dout)[kChunk],
                                               const float (&v)[kChunk], float minus, float delta)
{
  float score = 0, dp = 0, slope = 1;
#pragma unroll
  for (int c = 0; c < kChunk; c++) {
    score = fmaf(q[c], k[c], score);
    dp = fmaf(dout[c], v[c], dp);
  }
  score = warp_sum(score);
  dp = warp_sum(dp);
  if (job.cap > 0) {
    const float t = tanh_close(score * job.cap_by);
    score = t * job.cap;
    slope = fmaf(-t, t, 1.0f);
  }
  const float p = exp2f(fmaf(score, job.exponent, minus));
  return {p, p * slope * (dp + delta)};
}

template <typename T>
__device__ __forceinline__ void store_chunk(uint16_t *row, const float (&sum)[kChunk], float by,
                                            int width)
{
  const int c = threadIdx.x % kWarp * kChunk;
  float scaled[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; i++) {
    scaled[i] = sum[i] * by;
  }
  if (c < width) {
    store(reinterpret_cast<T *>(row) + c, scaled);
  }
}

/** dq of query i of a sequence. */
template <typename T>
__device__ inline void compute_query(const bwd_job &job, const tgi_attention_sequence &s, int64_t i,
                                     int head, float minus, float delta)
{
  const int kv_head = head / (int)job.c.l.group, d = (int)job.c.l.head_dim;
  float q[kChunk], dout[kChunk], sum[kChunk] = {};
  load_chunk<T>(q, job.q.data + job.q.at(s.q_index, s.q_first + i, head), d);
  load_chunk<T>(dout, job.dout.data + job.dout.at(s.q_index, s.q_first + i, head),
                (int)job.c.l.v_dim);
  int64_t low, high;
  visible_keys(job.c.l, s, i, &low, &high);
#pragma unroll 1
  for (int64_t key = low; key < high; key++) {
    float k[kChunk], v[kChunk];
    load_chunk<T>(k, job.k.data + job.k.at(s.k_index, s.k_first + key, kv_head), d);
    load_chunk<T>(v, job.v.data + job.v.at(s.k_index, s.k_first + key, kv_head),
                  (int)job.c.l.v_dim);
    const pair_terms t = terms_of(job, q, k, dout, v, minus, delta);
#pragma unroll
    for (int c = 0; c < kChunk; c++) {
      sum[c] = fmaf(t.ds, k[c], sum[c]);
    }
  }
  store_chunk<T>(job.dq.data + job.dq.at(s.q_index, s.q_first + i, head), sum, job.scale, d);
}

/** dk and dv of key `row` of a block. */
template <typename T>
__device__ inline void compute_key(const bwd_job &job, const key_place &x, int row)
{
  const int d = (int)job.c.l.head_dim, v_dim = (int)job.c.l.v_dim, group = (int)job.c.l.group;
  const int q_heads = (int)job.c.l.q_heads;
  float k[kChunk], v[kChunk], dk[kChunk] = {}, dv[kChunk] = {};
  load_chunk<T>(k, job.k.data + job.k.at(x.k_index, x.k_row + row, x.kv_head), d);
  load_chunk<T>(v, job.v.data + job.v.at(x.k_index, x.k_row + row, x.kv_head), v_dim);
  const key_span seen = queries_of(job.rule, x, x.key0 + row);
#pragma unroll 1
  for (int head = x.kv_head * group; head < (x.kv_head + 1) * group; head++) {
#pragma unroll 1
    for (int i = seen.low; i < seen.high; i++) {
      float q[kChunk], dout[kChunk];
      const int tile = x.q_tile + i / job.queries;
      const int64_t at = ((int64_t)tile * q_heads + head) * job.queries + i % job.queries;
      load_chunk<T>(q, job.q.data + job.q.at(x.q_index, x.q_row + i, head), d);
      load_chunk<T>(dout, job.dout.data + job.dout.at(x.q_index, x.q_row + i, head), v_dim);
      const pair_terms t = terms_of(job, q, k, dout, v, job.minus[at], job.delta[at]);
#pragma unroll
      for (int c = 0; c < kChunk; c++) {
        dk[c] = fmaf(t.ds, q[c], dk[c]);
        dv[c] = fmaf(t.p, dout[c], dv[c]);
      }
    }
  }
  if (job.dk.data) {
    store_chunk<T>(job.dk.data + job.dk.at(x.k_index, x.k_row + row, x.kv_head), dk, job.scale, d);
  }
  if (job.dv.data) {
    store_chunk<T>(job.dv.data + job.dv.at(x.k_index, x.k_row + row, x.kv_head), dv, 1.0f, v_dim);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
