/** Attention backward by mma.sync: the arguments of its kernels, the kernel of delta, and single
 * pairs of a query and a key. */
#ifndef TGI_OPS_ATTENTION_BWD_JOB_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_JOB_SM80_CUH

#include "ops/attention/cuda/attention_hidden.cuh"
#include "ops/attention/sm80/attention_tiles_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kDeltaThreads = 128;

struct bwd_tiles_job {
  attention_call c;
  query_work work;
  heads_view<const uint16_t> q, k, v, out, dout; /* steps in words of 16 bits */
  heads_view<uint16_t> dq, dk, dv;               /* NULL: not wanted */
  const float *lse;
  float *delta; /* where lse has its elements */
  float *sums;  /* of dq, where they are added up: NULL where a kernel makes dq */
  int head_dim, v_dim;
  int64_t key_items;
  float scale, softcap;
  float exponent; /* scores, after the cap, to exponents of 2 */
  float cap_by;   /* scores to tanh's argument; 0: no cap */
};

/** Place in lse of a query's row of q's axis. */
__device__ __forceinline__ int64_t term_at(const query_work &w, int index, int row, int head)
{
  return ((int64_t)index * w.q_heads + head) * w.nq + row;
}

/** What is added to a row's exponents: nothing of it is left where it has no probability. */
__device__ __forceinline__ float minus_lse(float lse)
{
  return lse == -CUDART_INF_F ? -CUDART_INF_F : -lse * kLog2E;
}

/** Score and dp to p and the gradient of the score, without the scale. kCaps: with a softcap; a
 * template argument, because a run-time test would be a branch for each element. */
template <bool kCaps>
__device__ __forceinline__ void gradient_of(const bwd_tiles_job &job, float minus, float delta,
                                            float &s, float &dp)
{
  if constexpr (kCaps) {
    const float t = tanh_close(s * job.cap_by);
    const float p = exp2_flushed(fmaf(job.softcap * t, job.exponent, minus));
    dp = p * (dp - delta) * fmaf(-t, t, 1.0f);
    s = p;
  } else {
    const float p = exp2_flushed(fmaf(s, job.exponent, minus));
    dp = p * (dp - delta);
    s = p;
  }
}

/** p and ds of one pair; each lane has a chunk of its rows. By a warp. */
__device__ __forceinline__ void pair_gradient(const bwd_tiles_job &job, const float (&q)[kChunk],
                                              const float (&k)[kChunk], const float (&dout)[kChunk],
                                              const float (&v)[kChunk], float minus, float delta,
                                              float *p, float *g)
{
  float s = 0, dp = 0;
#pragma unroll
  for (int c = 0; c < kChunk; c++) {
    s = fmaf(q[c], k[c], s);
    dp = fmaf(dout[c], v[c], dp);
  }
  s = warp_sum(s);
  dp = warp_sum(dp);
  if (job.cap_by > 0) {
    gradient_of<true>(job, minus, delta, s, dp);
  } else {
    gradient_of<false>(job, minus, delta, s, dp);
  }
  *p = s;
  *g = dp;
}

/** True if rows from .. to - 1 after `row0` of a head hold a NaN or an infinity. By a warp. */
template <typename T>
__device__ __forceinline__ bool rows_not_finite(const heads_view<const uint16_t> &t, int width,
                                                int index, int row0, int head, int from, int to)
{
#pragma unroll 1
  for (int row = from; row < to; row++) {
    float v[kChunk], zero = 0;
    load_chunk<T>(v, t.data + t.at(index, row0 + row, head), width);
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

/** Writes a warp's accumulators times `by`, rounded, to its own shared memory: one of kParts parts
 * of rows of kCols elements. bad[m][r]: row 16 m + lane / 4 + 8 r has a NaN or an infinity there.
 */
template <typename T, int kM, int kCols, int kParts = 1>
__device__ __forceinline__ void put_sums(uint32_t page, int part,
                                         const float (&d)[kM][kCols / kParts / 2], float by,
                                         bool (&bad)[kM][2])
{
#pragma unroll
  for (int m = 0; m < kM; m++) {
    put_rows<T, kCols, kParts>(page, 16 * m, part, d[m], by, bad[m]);
  }
  __syncwarp();
}

/** True in all lanes if row r of the warp is bad. */
template <int kM> __device__ __forceinline__ bool is_bad_row(const bool (&bad)[kM][2], int r)
{
  const bool mine = bad[0][0] && r / 8 == 0 || bad[0][1] && r / 8 == 1 ||
                    bad[kM - 1][0] && r / 8 == 2 || bad[kM - 1][1] && r / 8 == 3;
  return __any_sync(kAllLanes, mine && threadIdx.x % kWarp / 4 == r % 8);
}

/** Loads two words of a row of `width` elements as an operand register; zeros past its end. */
template <typename T>
__device__ __forceinline__ uint32_t load_pair(const uint16_t *row, int word, int width)
{
  uint32_t pair[1] = {word < kHalves<T> * width ? *reinterpret_cast<const uint32_t *>(row + word)
                                                : 0};
  round_words<T>(pair);
  return pair[0];
}

/** delta by the same products as dp: where a row sees one key, out is its value and dp - delta is
 * exactly 0. A warp for 16 rows: delta is the diagonal of their square. */
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_bwd_delta_tiles_kernel(const __grid_constant__ bwd_tiles_job job, int64_t items)
{
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4, nq = job.work.nq;
  const int64_t item = blockIdx.x * (int64_t)(kDeltaThreads / kWarp) + threadIdx.x / kWarp;
  if (item >= items) {
    return;
  }
  const int blocks = (nq + 15) / 16, row0 = (int)(item % blocks) * 16;
  const int head = (int)(item / blocks % job.work.q_heads);
  const int index = (int)(item / blocks / job.work.q_heads);
  const uint16_t *dout[2], *out[2];
  float d[2][4] = {};
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = min(row0 + g + 8 * r, nq - 1);
    dout[r] = job.dout.data + job.dout.at(index, row, head);
    out[r] = job.out.data + job.out.at(index, row, head);
  }
#pragma unroll 4
  for (int c = 2 * q; c < kHalves<T> * job.v_dim; c += 16) {
    const uint32_t a[4] = {load_pair<T>(dout[0], c, job.v_dim), load_pair<T>(dout[1], c, job.v_dim),
                           load_pair<T>(dout[0], c + 8, job.v_dim),
                           load_pair<T>(dout[1], c + 8, job.v_dim)};
#pragma unroll
    for (int r = 0; r < 2; r++) {
      multiply_small<T>(d[r], a, load_pair<T>(out[r], c, job.v_dim),
                        load_pair<T>(out[r], c + 8, job.v_dim), true);
    }
  }
  if (q == g / 2) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (row0 + g + 8 * r < nq) {
        job.delta[term_at(job.work, index, row0 + g + 8 * r, head)] =
            g % 2 ? d[r][2 * r + 1] : d[r][2 * r];
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
