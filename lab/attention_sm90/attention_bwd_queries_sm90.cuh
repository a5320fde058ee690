/** Attention backward on Hopper: delta and dq. A block has 128 queries of a head, 64 for each
 * warpgroup that computes, and goes through the keys. */
#ifndef TGI_OPS_ATTENTION_BWD_QUERIES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_QUERIES_SM90_CUH

#include "ops/attention/attention_bwd_tiles_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename S> struct alignas(1024) queries_shared {
  static constexpr int kKStages = 3, kVStages = 2, kKeyPage = S::kKeys * kPageRow;
  uint8_t q[S::kGroups][S::kPages * S::kRowsPage], dout[S::kGroups][S::kPages * S::kRowsPage];
  uint8_t out[S::kGroups][S::kPages * S::kRowsPage];
  uint8_t k[kKStages][S::kPages * kKeyPage], v[kVStages][S::kPages * kKeyPage];
  mbarrier rows_full, k_full[kKStages], k_empty[kKStages], v_full[kVStages], v_empty[kVStages];
  query_place place;
};

/** Columns outside low[r] .. high[r] - 1 become 0. */
template <int kN>
__device__ __forceinline__ void hide_gradients(float (&d)[kN], const int (&low)[2],
                                               const int (&high)[2])
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const int column = 8 * (i / 4) + i % 2, r = i / 2 % 2;
    d[i] = column >= high[r] || column < low[r] ? 0.0f : d[i];
  }
}

template <typename S>
__device__ __forceinline__ void fetch_keys(const CUtensorMap *q_map, const CUtensorMap *k_map,
                                           const CUtensorMap *v_map, const CUtensorMap *dout_map,
                                           const CUtensorMap *out_map, int group,
                                           queries_shared<S> &sh)
{
  using M = queries_shared<S>;
  const query_place &x = sh.place;
  const int kv_head = x.head / group, k_row = x.k_row, k_index = x.k_index, low = x.low_block;
  arrive_expecting(&sh.rows_full, 3 * S::kGroups * S::kPages * S::kRowsPage);
#pragma unroll 1
  for (int g = 0; g < S::kGroups; g++) {
#pragma unroll
    for (int i = 0; i < S::kPages; i++) {
      const int row = x.q_row + g * kGroupRows;
      load_page(shared_address(sh.q[g]) + i * S::kRowsPage, q_map, i * kPageCols, row, x.head,
                x.q_index, &sh.rows_full);
      load_page(shared_address(sh.dout[g]) + i * S::kRowsPage, dout_map, i * kPageCols, row, x.head,
                x.q_index, &sh.rows_full);
      load_page(shared_address(sh.out[g]) + i * S::kRowsPage, out_map, i * kPageCols, row, x.head,
                x.q_index, &sh.rows_full);
    }
  }
  unsigned n = 0;
#pragma unroll 1
  for (int block = x.high_block - 1; block >= low; block--, n++) {
    const int ks = n % M::kKStages, vs = n % M::kVStages;
    wait_for(&sh.k_empty[ks], n / M::kKStages & 1 ^ 1);
    arrive_expecting(&sh.k_full[ks], S::kPages * M::kKeyPage);
#pragma unroll
    for (int i = 0; i < S::kPages; i++) {
      load_page(shared_address(sh.k[ks]) + i * M::kKeyPage, k_map, i * kPageCols,
                k_row + block * S::kKeys, kv_head, k_index, &sh.k_full[ks]);
    }
    wait_for(&sh.v_empty[vs], n / M::kVStages & 1 ^ 1);
    arrive_expecting(&sh.v_full[vs], S::kPages * M::kKeyPage);
#pragma unroll
    for (int i = 0; i < S::kPages; i++) {
      load_page(shared_address(sh.v[vs]) + i * M::kKeyPage, v_map, i * kPageCols,
                k_row + block * S::kKeys, kv_head, k_index, &sh.v_full[vs]);
    }
  }
}

/** Scores to p, and dp to ds but for the scale. */
template <typename S, int kN, typename Hides>
__device__ __forceinline__ void gradients_of_rows(float (&s)[kN], float (&dp)[kN],
                                                  const bwd_job &job, const float (&minus)[2],
                                                  const float (&delta)[2], Hides)
{
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const int r = i / 2 % 2;
    float slope = 1;
    float e = s[i];
    if (S::kCap) {
      slope = fmaf(-e, e, 1.0f);
      e = job.cap * e;
    }
    const float p = exp2_flushed(fmaf(e, job.exponent, minus[r]));
    dp[i] = p * (dp[i] - delta[r]);
    if (S::kCap) {
      dp[i] *= slope;
    }
  }
}

template <typename S>
__device__ __forceinline__ void compute_queries(const CUtensorMap *dq_map, const bwd_job &job,
                                                queries_shared<S> &sh, int group)
{
  using T = typename S::T;
  using M = queries_shared<S>;
  constexpr int kKeys = S::kKeys;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int row0 = 16 * warp + lane / 4, col0 = 2 * (lane % 4), first = kGroupRows * group;
  const query_place &x = sh.place;
  const key_rule rule = job.work.rule;
  const int rows = min(x.rows - first, kGroupRows);
  float s[kKeys / 2], dp[kKeys / 2], dq[S::kD / 2], delta[2] = {0, 0}, minus[2];
  uint32_t ds[kKeys / 4];
  const uint32_t q_page = shared_address(sh.q[group]), dout_page = shared_address(sh.dout[group]);
  const uint64_t q = page_operand(q_page), dout = page_operand(dout_page);
  wait_for(&sh.rows_full, 0);
  {
    float d[32]; /* dout out^T, of which the diagonal is delta: as dp is made */
    wgmma_fence();
    multiply_rows_sm90<S, 64>(d, dout, S::kRowsPage, page_operand(shared_address(sh.out[group])),
                              S::kRowsPage);
    wgmma_commit();
    wgmma_wait<0>();
    settle(d);
#pragma unroll
    for (int i = 0; i < 32; i++) {
      const int r = i / 2 % 2;
      if (8 * (i / 4) + i % 2 + col0 == row0 + 8 * r) {
        delta[r] = d[i];
      }
    }
  }
  int low[2], high[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = first + row0 + 8 * r;
    const key_span seen = span_of(rule, x, row);
    /* The lane that has the diagonal: column row0 + 8 r is even or odd, one of four lanes. */
    delta[r] = __shfl_sync(kAllLanes, delta[r], lane / 4 * 4 + (row0 + 8 * r) % 8 / 2);
    minus[r] = -CUDART_INF_F;
    low[r] = high[r] = 0;
    if (row < x.rows) {
      const int64_t at =
          ((int64_t)x.q_index * job.work.q_heads + x.head) * job.work.nq + x.q_row + row;
      const float lse = job.lse[at];
      if (lane % 4 == 0) {
        job.delta[at] = delta[r];
      }
      if (lse != -CUDART_INF_F) {
        minus[r] = -lse * kLog2E;
        low[r] = seen.low - col0;
        high[r] = seen.high - col0;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < S::kD / 2; i++) {
    dq[i] = 0;
  }
  unsigned n = 0;
  auto work = [&](int block, auto later) {
    const unsigned ks = n % M::kKStages, vs = n % M::kVStages,
                   before = (n + M::kKStages - 1) % M::kKStages;
    const uint64_t k = page_operand(shared_address(sh.k[ks])),
                   v = page_operand(shared_address(sh.v[vs]));
    const uint64_t k_before = page_operand(shared_address(sh.k[before]), M::kKeyPage);
    wait_for(&sh.k_full[ks], n / M::kKStages & 1);
    wait_for(&sh.v_full[vs], n / M::kVStages & 1);
    wgmma_fence();
    multiply_rows_sm90<S, kKeys>(s, q, S::kRowsPage, k, M::kKeyPage);
    wgmma_commit();
    multiply_rows_sm90<S, kKeys>(dp, dout, S::kRowsPage, v, M::kKeyPage);
    wgmma_commit();
    if (later.value) {
      add_rows_sm90<S, kKeys>(dq, ds, k_before);
      wgmma_commit();
      wgmma_wait<2>();
    } else {
      wgmma_wait<1>();
    }
    settle(s);
    if (S::kCap) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; i++) {
        s[i] = tanh_close(s[i] * job.cap_by);
      }
    }
    if (later.value) {
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    settle(dp);
    if (thread == 0) {
      arrive(&sh.v_empty[vs]);
    }
    gradients_of_rows<S>(s, dp, job, minus, delta, later);
    const int from = block * kKeys, l[2] = {low[0] - from, low[1] - from},
              h[2] = {high[0] - from, high[1] - from};
    hide_gradients(dp, l, h);
    if (later.value) {
      wgmma_wait<0>();
      settle(dq);
      if (thread == 0) {
        arrive(&sh.k_empty[before]);
      }
    }
    round_pairs<T>(ds, dp);
    n++;
  };
  const int low_block = __shfl_sync(kAllLanes, x.low_block, 0);
  int block = __shfl_sync(kAllLanes, x.high_block, 0) - 1;
  if (block >= low_block) {
    work(block--, flag<false>());
#pragma unroll 1
    for (; block >= low_block; block--) {
      work(block, flag<true>());
    }
    const unsigned before = (n - 1) % M::kKStages;
    wgmma_fence();
    add_rows_sm90<S, kKeys>(dq, ds, page_operand(shared_address(sh.k[before]), M::kKeyPage));
    wgmma_commit();
    wgmma_wait<0>();
    settle(dq);
  }
  if (job.dq.data) {
    const float by = x.state == kOutOfRange ? CUDART_NAN_F : job.scale;
    store_sums<S>(dq_map, job.dq, dq, by, q_page, S::kRowsPage, group, x.q_index, x.q_row + first,
                  x.head, rows, job.head_dim, job.packed);
    if (thread == 0) {
      wait_for_store_reads();
    }
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    attention_bwd_dq_kernel(const __grid_constant__ CUtensorMap q_map,
                            const __grid_constant__ CUtensorMap k_map,
                            const __grid_constant__ CUtensorMap v_map,
                            const __grid_constant__ CUtensorMap dout_map,
                            const __grid_constant__ CUtensorMap out_map,
                            const __grid_constant__ CUtensorMap dq_map,
                            const __grid_constant__ bwd_job job)
{
  extern __shared__ __align__(1024) uint8_t memory[];
  using M = queries_shared<S>;
  M &sh = *reinterpret_cast<M *>(memory);
  if (threadIdx.x == 0) {
    const int64_t place = job.places - 1 - blockIdx.x / job.work.q_heads;
    query_place x;
    if (!listed_place(job.c, job.work, place, x)) {
      x.state = kNoMore;
    }
    x.head = blockIdx.x % job.work.q_heads;
    sh.place = x;
    init_barrier(&sh.rows_full, 1);
    for (int i = 0; i < M::kKStages; i++) {
      init_barrier(&sh.k_full[i], 1);
      init_barrier(&sh.k_empty[i], S::kGroups);
    }
    for (int i = 0; i < M::kVStages; i++) {
      init_barrier(&sh.v_full[i], 1);
      init_barrier(&sh.v_empty[i], S::kGroups);
    }
    publish_barriers();
  }
  __syncthreads();
  if (sh.place.state == kNoMore) {
    return;
  }
  const int group = __shfl_sync(kAllLanes, threadIdx.x / kWarpgroup, 0);
  if (group == 0) {
    give_registers<S::kLoaderRegisters>();
    if (threadIdx.x == 0) {
      fetch_keys<S>(&q_map, &k_map, &v_map, &dout_map, &out_map, job.work.group, sh);
    }
  } else {
    take_registers<S::kRegisters>();
    compute_queries<S>(&dq_map, job, sh, group - 1);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
