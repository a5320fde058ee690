/** Attention backward on Hopper: dk and dv. A block has 128 keys of a kv head, 64 for each
 * warpgroup that computes, and goes through the queries of all heads of its group: scores and dp
 * transposed, so that p and ds are registers of the products that dv and dk add up. */
#ifndef TGI_OPS_ATTENTION_BWD_KEYS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_KEYS_SM90_CUH

#include "ops/attention/attention_bwd_tiles_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A tile of keys: row key0 of the extent and the next; `rows` are the sequence's. Queries of its
 * blocks low_block .. high_block - 1 see some of them. */
struct key_place {
  int q_row, nq, q_index;
  int k_row, rows, k_index, key0, kv_head;
  int first, end, position;
  int low_block, high_block, state;
};

template <typename S> struct alignas(1024) keys_shared {
  static constexpr int kStages = 2, kQueryPage = S::kQueries * kPageRow;
  static constexpr int kKeyPage = S::kTileRows * kPageRow;
  uint8_t k[S::kPages * kKeyPage], v[S::kPages * kKeyPage];
  uint8_t q[kStages][S::kPages * kQueryPage], dout[kStages][S::kPages * kQueryPage];
  float minus[kStages][S::kQueries], delta[kStages][S::kQueries];
  mbarrier keys_full, full[kStages], terms_full[kStages], empty[kStages];
  key_place place;
};

/** Queries low .. high - 1 see key j of the extent. */
__device__ __forceinline__ key_span queries_of(key_rule rule, const key_place &x, int j)
{
  key_span s = {0, x.nq};
  if (j < x.first || j >= x.end) {
    s.high = 0;
  }
  if (rule.causal) {
    s.low = max(s.low, j - x.position);
  } else if (rule.window > 0) {
    s.low = max(s.low, j - x.position - rule.window + 1);
  }
  if (rule.window > 0) {
    s.high = min(s.high, j - x.position + rule.window);
  }
  return s;
}

__device__ inline bool key_place_at(const attention_call &c, key_rule rule, int64_t item, int size,
                                    int queries, key_place &x)
{
  int64_t number;
  const tgi_attention_sequence s =
      sequence_at(c, sequence_of_place(c, true, item / c.l.kv_heads, 1, size, &number));
  const int64_t row = number * size, far = 2 * (int64_t)kMostWindow - kMostRows;
  if (row >= s.extent) {
    return false;
  }
  x.q_row = (int)s.q_first;
  x.nq = (int)s.nq;
  x.q_index = (int)s.q_index;
  x.k_row = (int)(s.k_first + row);
  x.rows = (int)(s.extent - row);
  x.k_index = (int)s.k_index;
  x.key0 = (int)row;
  x.kv_head = (int)(item % c.l.kv_heads);
  x.first = (int)s.first;
  x.end = (int)(s.first + s.count);
  x.position = (int)(s.position < -far ? -far : s.position > far ? far : s.position);
  x.state = s.count < 0 ? kOutOfRange : kFine;
  x.low_block = x.high_block = 0;
  const int from = max(x.key0, x.first), to = min(min(x.key0 + size, x.end), x.key0 + x.rows) - 1;
  if (x.state == kFine && to >= from) {
    const int low = queries_of(rule, x, from).low, high = queries_of(rule, x, to).high;
    if (high > low) {
      x.low_block = low / queries;
      x.high_block = (high + queries - 1) / queries;
    }
  }
  return true;
}

template <typename S>
__device__ __forceinline__ void fetch_queries(const CUtensorMap *q_map, const CUtensorMap *k_map,
                                              const CUtensorMap *v_map, const CUtensorMap *dout_map,
                                              int group, keys_shared<S> &sh)
{
  using M = keys_shared<S>;
  const key_place &x = sh.place;
  arrive_expecting(&sh.keys_full, 2 * S::kPages * M::kKeyPage);
#pragma unroll
  for (int i = 0; i < S::kPages; i++) {
    load_page(shared_address(sh.k) + i * M::kKeyPage, k_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
    load_page(shared_address(sh.v) + i * M::kKeyPage, v_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
  }
  const int q_row = x.q_row, q_index = x.q_index, low = x.low_block, high = x.high_block;
  unsigned n = 0;
#pragma unroll 1
  for (int head = x.kv_head * group; head < (x.kv_head + 1) * group; head++) {
#pragma unroll 1
    for (int block = low; block < high; block++, n++) {
      const int s = n % M::kStages;
      wait_for(&sh.empty[s], n / M::kStages & 1 ^ 1);
      arrive_expecting(&sh.full[s], 2 * S::kPages * M::kQueryPage);
#pragma unroll
      for (int i = 0; i < S::kPages; i++) {
        load_page(shared_address(sh.q[s]) + i * M::kQueryPage, q_map, i * kPageCols,
                  q_row + block * S::kQueries, head, q_index, &sh.full[s]);
        load_page(shared_address(sh.dout[s]) + i * M::kQueryPage, dout_map, i * kPageCols,
                  q_row + block * S::kQueries, head, q_index, &sh.full[s]);
      }
    }
  }
}

/** lse and delta of each block's rows, by a warp. */
template <typename S>
__device__ __forceinline__ void fetch_terms(const bwd_job &job, keys_shared<S> &sh)
{
  using M = keys_shared<S>;
  const key_place &x = sh.place;
  const int lane = threadIdx.x % kWarp, group = job.work.group;
  unsigned n = 0;
#pragma unroll 1
  for (int head = x.kv_head * group; head < (x.kv_head + 1) * group; head++) {
    const int64_t at = ((int64_t)x.q_index * job.work.q_heads + head) * job.work.nq + x.q_row;
#pragma unroll 1
    for (int block = x.low_block; block < x.high_block; block++, n++) {
      const int s = n % M::kStages;
      wait_for(&sh.empty[s], n / M::kStages & 1 ^ 1);
#pragma unroll 1
      for (int i = lane; i < S::kQueries; i += kWarp) {
        const int row = block * S::kQueries + i;
        const float lse = row < x.nq ? job.lse[at + row] : -CUDART_INF_F;
        const bool none = lse == -CUDART_INF_F;
        sh.minus[s][i] = none ? -CUDART_INF_F : -lse * kLog2E;
        sh.delta[s][i] = none ? 0.0f : job.delta[at + row];
      }
      __syncwarp();
      if (lane == 0) {
        arrive(&sh.terms_full[s]);
      }
    }
  }
}

template <typename S>
__device__ __forceinline__ void compute_keys(const CUtensorMap *dk_map, const CUtensorMap *dv_map,
                                             const bwd_job &job, keys_shared<S> &sh, int group)
{
  using T = typename S::T;
  using M = keys_shared<S>;
  constexpr int kN = S::kQueries;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x % kWarpgroup / kWarp;
  const int row0 = 16 * warp + lane / 4, col0 = 2 * (lane % 4), first = kGroupRows * group;
  const key_place &x = sh.place;
  float s[kN / 2], dp[kN / 2], dk[S::kD / 2], dv[S::kD / 2];
  uint32_t p[kN / 4], ds[kN / 4];
  const uint32_t k_page = shared_address(sh.k) + first * kPageRow;
  const uint32_t v_page = shared_address(sh.v) + first * kPageRow;
  const uint64_t k = page_operand(k_page), v = page_operand(v_page);
  int low[2], high[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const key_span seen = queries_of(job.work.rule, x, x.key0 + first + row0 + 8 * r);
    low[r] = seen.low - col0;
    high[r] = seen.high - col0;
  }
#pragma unroll
  for (int i = 0; i < S::kD / 2; i++) {
    dk[i] = dv[i] = 0;
  }
  const int low_block = __shfl_sync(kAllLanes, x.low_block, 0);
  const int high_block = __shfl_sync(kAllLanes, x.high_block, 0);
  unsigned n = 0;
  wait_for(&sh.keys_full, 0);
#pragma unroll 1
  for (int head = 0; head < job.work.group; head++) {
#pragma unroll 1
    for (int block = low_block; block < high_block; block++, n++) {
      const int st = n % M::kStages, turn = n / M::kStages & 1;
      const uint32_t q_page = shared_address(sh.q[st]), o_page = shared_address(sh.dout[st]);
      const uint64_t q = page_operand(q_page), dout = page_operand(o_page);
      const uint64_t q_turned = page_operand(q_page, M::kQueryPage);
      const uint64_t dout_turned = page_operand(o_page, M::kQueryPage);
      wait_for(&sh.full[st], turn);
      wait_for(&sh.terms_full[st], turn);
      wgmma_fence();
      multiply_rows_sm90<S, kN>(s, k, M::kKeyPage, q, M::kQueryPage);
      wgmma_commit();
      multiply_rows_sm90<S, kN>(dp, v, M::kKeyPage, dout, M::kQueryPage);
      wgmma_commit();
      wgmma_wait<1>();
      settle(s);
      const int from = block * kN, l[2] = {low[0] - from, low[1] - from},
                h[2] = {high[0] - from, high[1] - from};
#pragma unroll
      for (int i = 0; i < kN / 2; i++) {
        const int column = 8 * (i / 4) + i % 2, r = i / 2 % 2;
        if (S::kCap) {
          s[i] = tanh_close(s[i] * job.cap_by);
        }
        const float e = S::kCap ? s[i] * job.cap : s[i];
        const float seen = exp2_flushed(fmaf(e, job.exponent, sh.minus[st][column + col0]));
        const float shown = column >= h[r] || column < l[r] ? 0.0f : seen;
        s[i] = S::kCap ? s[i] : shown;
        if (i % 2) {
          p[i / 2] = round_pair<T>(__uint_as_float(p[i / 2]), shown);
        } else {
          p[i / 2] = __float_as_uint(shown);
        }
      }
      wgmma_wait<0>();
      settle(dp);
#pragma unroll
      for (int i = 0; i < kN / 2; i++) {
        const int column = 8 * (i / 4) + i % 2, r = i / 2 % 2;
        const float delta = sh.delta[st][column + col0];
        float g = dp[i] - delta;
        if (S::kCap) {
          const float seen =
              exp2_flushed(fmaf(s[i] * job.cap, job.exponent, sh.minus[st][column + col0]));
          g *= seen * fmaf(-s[i], s[i], 1.0f);
        } else {
          g *= s[i];
        }
        dp[i] = column >= h[r] || column < l[r] ? 0.0f : g;
      }
      round_pairs<T>(ds, dp);
      wgmma_fence();
      add_rows_sm90<S, kN>(dv, p, dout_turned);
      add_rows_sm90<S, kN>(dk, ds, q_turned);
      wgmma_commit();
      wgmma_wait<0>();
      settle(dv);
      settle(dk);
      __syncwarp();
      if (lane == 0) {
        arrive(&sh.empty[st]);
      }
    }
  }
  sync_some(1, S::kGroups * kWarpgroup); /* keys and values are done with */
  const int rows = min(x.rows - first, kGroupRows);
  const bool lost = x.state == kOutOfRange;
  if (job.dv.data) {
    store_sums<S>(dv_map, job.dv, dv, lost ? CUDART_NAN_F : 1.0f, v_page, M::kKeyPage, group,
                  x.k_index, x.k_row + first, x.kv_head, rows, job.v_dim, job.packed);
  }
  if (job.dk.data) {
    store_sums<S>(dk_map, job.dk, dk, lost ? CUDART_NAN_F : job.scale, k_page, M::kKeyPage, group,
                  x.k_index, x.k_row + first, x.kv_head, rows, job.head_dim, job.packed);
  }
  if (threadIdx.x % kWarpgroup == 0) {
    wait_for_store_reads();
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    attention_bwd_dkv_kernel(const __grid_constant__ CUtensorMap q_map,
                             const __grid_constant__ CUtensorMap k_map,
                             const __grid_constant__ CUtensorMap v_map,
                             const __grid_constant__ CUtensorMap dout_map,
                             const __grid_constant__ CUtensorMap dk_map,
                             const __grid_constant__ CUtensorMap dv_map,
                             const __grid_constant__ bwd_job job)
{
  extern __shared__ __align__(1024) uint8_t memory[];
  using M = keys_shared<S>;
  M &sh = *reinterpret_cast<M *>(memory);
  if (threadIdx.x == 0) {
    key_place x;
    if (!key_place_at(job.c, job.work.rule, blockIdx.x, S::kTileRows, S::kQueries, x)) {
      x.state = kNoMore;
    }
    sh.place = x;
    init_barrier(&sh.keys_full, 1);
    for (int i = 0; i < M::kStages; i++) {
      init_barrier(&sh.full[i], 1);
      init_barrier(&sh.terms_full[i], 1);
      init_barrier(&sh.empty[i], S::kGroups * kWarpgroup / kWarp);
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
      fetch_queries<S>(&q_map, &k_map, &v_map, &dout_map, job.work.group, sh);
    } else if (threadIdx.x / kWarp == 1) {
      fetch_terms<S>(job, sh);
    }
  } else {
    take_registers<S::kRegisters>();
    compute_keys<S>(&dk_map, &dv_map, job, sh, group - 1);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
