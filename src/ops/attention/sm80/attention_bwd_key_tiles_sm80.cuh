/** Attention backward by mma.sync: what the kernels of dk and dv share. How tiles are copied to
 * shared memory, and recomputing single rows. */
#ifndef TGI_OPS_ATTENTION_BWD_KEY_TILES_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_KEY_TILES_SM80_CUH

#include "ops/attention/sm80/attention_key_place_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Copies the tile's keys and values, which stay for the whole kernel. */
template <typename S, typename Shared>
__device__ __forceinline__ void copy_tile(Shared &sh, const bwd_tiles_job &job, const key_place &x)
{
  constexpr int kWords = kHalves<typename S::T>;
  const int from = x.first - x.key0, to = min(x.end - x.key0, x.rows);
  copy_rows<kWords * S::kHeadDim, S::kRows, S::kThreads>(
      shared_address(sh.k), job.k.data + job.k.at(x.k_index, x.k_row, x.kv_head), job.k.step[1],
      from, to, kWords * job.head_dim, job.k.data);
  copy_rows<kWords * S::kValueDim, S::kRows, S::kThreads>(
      shared_address(sh.v), job.v.data + job.v.at(x.k_index, x.k_row, x.kv_head), job.v.step[1],
      from, to, kWords * job.v_dim, job.v.data);
}

/** The addresses of the first query, and of its dout, of the group's first head: in shared memory,
 * because registers are for sums. */
struct query_rows {
  const uint16_t *q, *dout;
};

__device__ __forceinline__ query_rows query_rows_of(const bwd_tiles_job &job, const key_place &x)
{
  const int head = x.kv_head * job.work.group;
  return {job.q.data + job.q.at(x.q_index, x.q_row, head),
          job.dout.data + job.dout.at(x.q_index, x.q_row, head)};
}

/** Copies a block of a head's queries, with their rows of dout, lse and delta, to buffer `to`. */
template <typename S, typename Shared>
__device__ __forceinline__ void copy_queries(Shared &sh, int to, const bwd_tiles_job &job,
                                             const key_place &x, const query_rows &queries,
                                             int head, int block)
{
  constexpr int kWords = kHalves<typename S::T>;
  const int row = block * S::kQueries, rows = x.nq - row,
            of_group = head - x.kv_head * job.work.group;
  const uint16_t *const q = queries.q + of_group * job.q.step[2];
  const uint16_t *const dout = queries.dout + of_group * job.dout.step[2];
  const uint32_t q_to = shared_address(sh.q[to]), dout_to = shared_address(sh.dout[to]);
  if (rows >= S::kQueries && job.head_dim == S::kHeadDim && job.v_dim == S::kValueDim) {
    copy_whole_rows<kWords * S::kHeadDim, S::kQueries, S::kThreads>(q_to, q, job.q.step[1], row);
    copy_whole_rows<kWords * S::kValueDim, S::kQueries, S::kThreads>(dout_to, dout,
                                                                     job.dout.step[1], row);
  } else {
    copy_rows<kWords * S::kHeadDim, S::kQueries, S::kThreads>(
        q_to, q + row * job.q.step[1], job.q.step[1], 0, rows, kWords * job.head_dim, q);
    copy_rows<kWords * S::kValueDim, S::kQueries, S::kThreads>(
        dout_to, dout + row * job.dout.step[1], job.dout.step[1], 0, rows, kWords * job.v_dim,
        dout);
  }
  const int i = threadIdx.x;
  if (i < S::kQueries) {
    const int64_t at = i < rows ? term_at(job.work, x.q_index, x.q_row + row + i, head) : 0;
    copy_word(shared_address(&sh.lse[to][i]), job.lse + at, i < rows);
    copy_word(shared_address(&sh.delta[to][i]), job.delta + at, i < rows);
  }
}

/** dk, without the scale, and dv of key j of the extent; each lane has a chunk of them. By a warp.
 */
template <typename T>
__device__ __forceinline__ void key_again(float (&dk)[kChunk], float (&dv)[kChunk],
                                          const bwd_tiles_job &job, const key_place &x, int j,
                                          key_span seen)
{
  float k[kChunk], v[kChunk];
  const int row = x.k_row + j - x.key0;
  load_chunk<T>(k, job.k.data + job.k.at(x.k_index, row, x.kv_head), job.head_dim);
  load_chunk<T>(v, job.v.data + job.v.at(x.k_index, row, x.kv_head), job.v_dim);
#pragma unroll
  for (int c = 0; c < kChunk; c++) {
    dk[c] = dv[c] = 0;
  }
#pragma unroll 1
  for (int h = 0; h < job.work.group; h++) {
    const int head = x.kv_head * job.work.group + h;
#pragma unroll 1
    for (int i = seen.low; i < seen.high; i++) {
      const int64_t at = term_at(job.work, x.q_index, x.q_row + i, head);
      float q[kChunk], dout[kChunk], p, g;
      load_chunk<T>(q, job.q.data + job.q.at(x.q_index, x.q_row + i, head), job.head_dim);
      load_chunk<T>(dout, job.dout.data + job.dout.at(x.q_index, x.q_row + i, head), job.v_dim);
      pair_gradient(job, q, k, dout, v, minus_lse(job.lse[at]), job.delta[at], &p, &g);
#pragma unroll
      for (int c = 0; c < kChunk; c++) {
        dk[c] = fmaf(g, q[c], dk[c]);
        dv[c] = fmaf(p, dout[c], dv[c]);
      }
    }
  }
}

/** Recomputes rows that a query which does not see them made NaN; queries low .. high - 1 of each
 * head went into them. kOfKeys, kOfValues: dk and dv go to their pages. */
template <typename S, bool kOfKeys, bool kOfValues>
__device__ __forceinline__ void keys_again(const bwd_tiles_job &job, const key_place &x, int first,
                                           int part, uint32_t dk_page, uint32_t dv_page, int low,
                                           int high, const bool (&bad)[S::kM][2])
{
  using T = typename S::T;
  high = min(high, x.nq);
#pragma unroll 1
  for (int r = 0; r < 16 * S::kM; r++) {
    if (!is_bad_row(bad, r) || first + r >= x.rows) {
      continue;
    }
    const key_span seen = queries_of(job.work.rule, x, x.key0 + first + r);
    const int until = max(min(seen.low, high), low), behind = max(min(seen.high, high), until);
    bool again = false;
#pragma unroll 1
    for (int h = 0; h < job.work.group && !again; h++) {
      const int head = x.kv_head * job.work.group + h;
      again = rows_not_finite<T>(job.q, job.head_dim, x.q_index, x.q_row, head, low, until) ||
              rows_not_finite<T>(job.q, job.head_dim, x.q_index, x.q_row, head, behind, high) ||
              rows_not_finite<T>(job.dout, job.v_dim, x.q_index, x.q_row, head, low, until) ||
              rows_not_finite<T>(job.dout, job.v_dim, x.q_index, x.q_row, head, behind, high);
    }
    if (again) {
      float dk[kChunk], dv[kChunk];
      key_again<T>(dk, dv, job, x, x.key0 + first + r, seen);
      if (kOfKeys) {
        put_row<T, S::kHeadDim, S::kSharers>(dk_page, r, part, dk, job.scale);
      }
      if (kOfValues) {
        put_row<T, S::kValueDim, S::kSharers>(dv_page, r, part, dv, 1.0f);
      }
    }
  }
  __syncwarp();
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
