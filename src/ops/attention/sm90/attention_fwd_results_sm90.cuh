/** Attention forward on Hopper: products of a consumer warp group, and the epilogue of a tile.
 * Results are rounded, staged in the warp group's buffer of queries and stored by TMA. */
#ifndef TGI_OPS_ATTENTION_FWD_RESULTS_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_RESULTS_SM90_CUH

#include "ops/attention/sm90/attention_fwd_tiles_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename S, int kN>
__device__ __forceinline__ void multiply_keys(float (&s)[kN / 2], uint64_t q, uint64_t k)
{
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 16; i++) {
    multiply<typename S::T, kN>(s, operand_at(q, i / 4 * S::kQueryPage + i % 4 * 32),
                                operand_at(k, i / 4 * S::kKeyPage + i % 4 * 32), i > 0);
  }
}

template <typename S>
__device__ __forceinline__ void add_values(float (&o)[S::kValueDim / 2],
                                           const uint32_t (&p)[S::kKeys / 4], uint64_t v)
{
#pragma unroll
  for (int i = 0; i < S::kKeys / 16; i++) {
    multiply_turned<typename S::T, S::kValueDim>(o, p + 4 * i, operand_at(v, i * 16 * kPageRow),
                                                 true);
  }
}

__device__ __forceinline__ int uniform(int v)
{
  return __shfl_sync(kAllLanes, v, 0);
}

/** Recomputes rows of the warp that a masked value made NaN. `page`: the warp group's results in
 * shared memory. */
template <typename S>
__device__ __forceinline__ void compute_again(const fwd_job &job, const query_place &x, int first,
                                              int low_block, int high_block, uint32_t page,
                                              const bool (&bad)[2])
{
  using T = typename S::T;
  const int lane = threadIdx.x % kWarp, row0 = threadIdx.x % kWarpgroup / kWarp * 16;
  const float sink = job.sinks.data ? job.sinks.at(x.head) : -CUDART_INF_F;
  attend_again<T>(job.from, job.work, x, first + row0, low_block * S::kKeys, high_block * S::kKeys,
                  sink, bad, [&](int r, const float(&o)[kChunk]) {
                    if (lane * kChunk < S::kValueDim) {
                      store_shared(page_chunk(page + lane / 8 * S::kQueryPage, row0 + r, lane % 8),
                                   round_pair<T>(o[0], o[1]), round_pair<T>(o[2], o[3]),
                                   round_pair<T>(o[4], o[5]), round_pair<T>(o[6], o[7]));
                    }
                  });
}

/** Zeros rows from .. to - 1 of a block of values in shared memory, in each warp group that
 * multiplies it. So rows beside the sequence's own, whatever memory holds there, change no bit of a
 * result. */
template <typename S>
__device__ __forceinline__ void clear_values(uint32_t page, int from, int to, int group)
{
#pragma unroll 1
  for (int e = threadIdx.x % kWarpgroup; e < (to - from) * 8 * S::kValuePages; e += kWarpgroup) {
    const int chunk = e % (8 * S::kValuePages), row = from + e / (8 * S::kValuePages);
    store_shared(page_chunk(page + chunk / 8 * S::kKeyPage, row, chunk % 8), 0, 0, 0, 0);
  }
  publish_to_copies();
  sync_some(8 + group, kWarpgroup);
}

/** Stores the sequence's own rows, by all threads of the warp group. */
template <typename S>
__device__ __forceinline__ void store_rows(const fwd_job &job, const query_place &x, int first,
                                           uint32_t page)
{
  const int chunks = job.from.v_dim / kChunk, rows = x.rows - first;
#pragma unroll 1
  for (int e = threadIdx.x % kWarpgroup; e < 64 * chunks; e += kWarpgroup) {
    const int row = e / chunks, chunk = e % chunks;
    if (row < rows) {
      uint32_t w[4];
      const uint32_t from = page_chunk(page + chunk / 8 * S::kQueryPage, row, chunk % 8);
      load_shared(w, from);
      store_words(
          job.out.data + job.out.at(x.q_index, x.q_row + first + row, x.head) + chunk * kChunk, w);
    }
  }
}

/** Stores a warp group's rows. `page`: its buffer of queries. `hides`: some row does not see some
 * key of the blocks below .. above - 1, which went into the results. */
template <typename S>
__device__ __forceinline__ void finish_tile(const CUtensorMap *out_map, const fwd_job &job,
                                            const query_place &x, int group, uint32_t page,
                                            bool hides, int below, int above,
                                            const row_state &state, float (&o)[S::kValueDim / 2])
{
  using T = typename S::T;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int first = kGroupRows * group, rows = x.rows - first;
  uint32_t zero[2] = {0, 0}; /* sum of 0 times all elements: NaN if one is not finite */
  rescale(o, state.factor);
#pragma unroll
  for (int i = 0; i < S::kValueDim / 16; i++) {
    uint32_t pair[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      pair[j] = round_pair<T>(o[8 * i + 2 * j], o[8 * i + 2 * j + 1]);
      zero[j % 2] = add_zero_times<T>(zero[j % 2], pair[j]);
    }
    store_matrices(
        page_chunk(page + i / 4 * S::kQueryPage, 16 * warp + lane % 16, 2 * (i % 4) + lane / 16),
        pair[0], pair[1], pair[2], pair[3]);
  }
  const bool bad[2] = {(zero[0] & 0x7fff7fff) != 0, (zero[1] & 0x7fff7fff) != 0};
  if (hides && __any_sync(kAllLanes, bad[0] || bad[1])) {
    __syncwarp();
    compute_again<S>(job, x, first, below, above, page, bad);
  }
  publish_to_copies();
  sync_some(8 + group, kWarpgroup);
  if (job.packed && rows < kGroupRows) {
    store_rows<S>(job, x, first, page);
    sync_some(8 + group, kWarpgroup);
  } else if (thread == 0 && rows > 0) {
#pragma unroll
    for (int i = 0; i < S::kValuePages; i++) {
      store_page(out_map, i * kPageCols, x.q_row + first, x.head, x.q_index,
                 page + i * S::kQueryPage);
    }
    commit_stores();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
