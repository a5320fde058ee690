/**
 * Attention backward on Hopper's tensor cores (attention_bwd_sm90.cu): the kernel.
 *
 * A thread block has 128 keys of a kv head, two warpgroups 64 each, and goes through the queries of
 * all heads that share them. Scores and dp are made transposed, keys as rows, so that p and ds are
 * registers of the products that dv and dk add up. ds goes to shared memory as well, for the tile's
 * part of dq, which each warpgroup makes half of one tile later: so the two drift apart, and one
 * computes exponentials while the other multiplies.
 */
#ifndef TGI_OPS_ATTENTION_BWD_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_SM90_CUH

#include "ops/attention/attention_bwd_results_sm90.cuh"
#include "ops/attention/attention_bwd_scores_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename S>
__device__ __forceinline__ void compute_keys(const CUtensorMap *dq_map, const CUtensorMap *dk_map,
                                             const CUtensorMap *dv_map, const bwd_job &job,
                                             bwd_shared<S> &sh, int group)
{
  using T = typename S::T;
  constexpr int kN = S::kQueries, kStages = S::kStages;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int col0 = 2 * (lane % 4), first = kGroupRows * group;
  const uint32_t k_page = shared_address(sh.k) + first * kPageRow;
  const uint32_t v_page = shared_address(sh.v) + first * kPageRow;
  const uint64_t k_columns = page_operand(
      shared_address(sh.k) + (S::kPages == 2 ? group * S::kKeyPage : 0)); /* of its part of dq */
  float s[kN / 2], dp[kN / 2], dk[S::kD / 2], dv[S::kD / 2], dq[S::kPart / 2];
  uint32_t p[kN / 4], ds[kN / 4];
  auto uniform = [](int i) { return __shfl_sync(kAllLanes, i, 0); };
  auto make_dq = [&](unsigned buffer) {
    const uint64_t b = page_operand(shared_address(sh.ds[buffer][0]) +
                                    (S::kPages == 2 ? 0 : group * S::kPart * kPageRow));
#pragma unroll
    for (int i = 0; i < S::kKeys / 16; i++) {
      multiply<T, S::kPart, true, false>(dq, operand_at(k_columns, i * 16 * kPageRow),
                                         operand_at(b, i / 4 * S::kQueryPage + i % 4 * 32), i > 0);
    }
    wgmma_commit();
  };
  unsigned n = 0; /* tiles so far */
#pragma unroll 1
  for (unsigned item = 0;; item++) {
    wait_for(&sh.keys_full, item & 1);
    const key_place &x = sh.place[item % 2];
    if (uniform(x.state) == kNoMore) {
      return;
    }
#pragma unroll
    for (int i = 0; i < S::kD / 2; i++) {
      dk[i] = dv[i] = 0;
    }
    const int tiles = uniform((x.high_tile - x.low_tile) * (int)job.c.l.group);
#pragma unroll 1
    for (int turn = 0; turn < tiles; turn++, n++) {
      const unsigned st = n % kStages, u = n & 1;
      const uint32_t q_page = shared_address(sh.q[st]), dout_page = shared_address(sh.dout[st]);
      wait_for(&sh.full[st], n / kStages & 1);
      wgmma_fence();
      multiply_heads<S, kN>(s, page_operand(k_page), S::kKeyPage, page_operand(q_page),
                            S::kQueryPage);
      wgmma_commit();
      multiply_heads<S, kN>(dp, page_operand(v_page), S::kKeyPage, page_operand(dout_page),
                            S::kQueryPage);
      wgmma_commit();
      const int query = sh.tile[n % kTilePlaces].tile * kN;
      const bool hides = uniform(hides_any(job.rule, x, x.key0 + first, query, kN));
      int low[2], high[2];
      auto look = [&]() { /* what the thread's keys are seen by */
                          const int from = query + col0;
#pragma unroll
                          for (int r = 0; r < 2; r++) {
                            const key_span seen = queries_of(
                                job.rule, x, x.key0 + first + 16 * warp + lane / 4 + 8 * r);
                            low[r] = seen.low - from;
                            high[r] = seen.high - from;
                          }
      };
      wgmma_wait<1>();
      settle(s);
      if (S::kCap) {
        look();
        make_capped_p<S>(p, s, job, sh.minus[st] + col0, low, high);
      } else {
        make_p<S>(s, job, sh.minus[st] + col0);
        if (hides) {
          look();
          hide_queries(s, low, high);
        }
        round_pairs<T>(p, s);
      }
      wgmma_wait<0>();
      settle(dp);
      make_ds<S>(dp, s, sh.delta[st] + col0);
      if (hides) {
        look();
        hide_queries(dp, low, high);
      }
      round_pairs<T>(ds, dp);
      wait_for(&sh.ds_empty[u], n / 2 & 1 ^ 1);
#pragma unroll
      for (int i = 0; i < kN / 16; i++) {
        store_matrices_turned(page_chunk(shared_address(sh.ds[u][group]),
                                         16 * i + 8 * (lane / 16) + lane % 8,
                                         2 * warp + lane / 8 % 2),
                              ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]);
      }
      publish_to_copies();
      __syncwarp();
      if (lane == 0) {
        arrive(&sh.ds_full[u]);
      }
      if (turn > 0) {
        wait_for(&sh.ds_full[u ^ 1], (n - 1) / 2 & 1);
      }
      wgmma_fence();
      add_queries<S>(dv, p, page_operand(dout_page, S::kQueryPage));
      add_queries<S>(dk, ds, page_operand(q_page, S::kQueryPage));
      wgmma_commit();
      make_dq(u ^ 1); /* of the tile before; in an item's first turn nobody looks at it */
      wgmma_wait<1>();
      settle(dk);
      settle(dv);
      __syncwarp(); /* minus and delta were read by all */
      if (lane == 0) {
        arrive(&sh.empty[st]);
      }
      wgmma_wait<0>();
      settle(dq);
      if (turn > 0) {
        if (thread == 0) {
          arrive(&sh.ds_empty[u ^ 1]);
        }
        add_sums<S>(dq_map, dq, job, x, n - 1, group, sh);
      }
    }
    if (tiles > 0) {
      const unsigned u = (n - 1) & 1;
      wait_for(&sh.ds_full[u], (n - 1) / 2 & 1);
      wgmma_fence();
      make_dq(u);
      wgmma_wait<0>();
      settle(dq);
      if (thread == 0) {
        arrive(&sh.ds_empty[u]);
      }
      add_sums<S>(dq_map, dq, job, x, n - 1, group, sh);
    }
    sync_some(1, S::kGroups * kWarpgroup); /* both are done with keys and values */
    store_keys<S>(dv_map, job.dv, dv, 1.0f, v_page, job, x, first, group, (int)job.c.l.v_dim);
    store_keys<S>(dk_map, job.dk, dk, job.scale, k_page, job, x, first, group,
                  (int)job.c.l.head_dim);
    sync_some(2 + group, kWarpgroup); /* rows that threads store were read by all */
    if (thread == 0) {
      wait_for_store_reads();
      arrive(&sh.keys_empty);
    }
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1) attention_bwd_tiles_kernel(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap dout_map,
    const __grid_constant__ CUtensorMap dq_map, const __grid_constant__ CUtensorMap dk_map,
    const __grid_constant__ CUtensorMap dv_map, const __grid_constant__ bwd_job job)
{
  extern __shared__ __align__(1024) uint8_t memory[];
  bwd_shared<S> &sh = *reinterpret_cast<bwd_shared<S> *>(memory);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
  if (threadIdx.x == 0) {
    init_barrier(&sh.keys_full, 1);
    init_barrier(&sh.keys_empty, S::kGroups + (job.dq.data ? 3 : 0));
    for (int i = 0; i < S::kStages; i++) {
      init_barrier(&sh.full[i], 1);
      init_barrier(&sh.empty[i], S::kGroups * kGroupWarps);
    }
    for (int i = 0; i < 2; i++) {
      init_barrier(&sh.ds_full[i], S::kGroups * kGroupWarps);
      init_barrier(&sh.ds_empty[i], S::kGroups);
      init_barrier(&sh.turn_come[i], 1);
      init_barrier(&sh.turn_used[i], S::kGroups * kGroupWarps);
      init_barrier(&sh.turn_told[i], 1);
    }
    publish_barriers();
  }
  __syncthreads();
  if (warp < kGroupWarps) {
    give_registers<S::kLoaderRegisters>();
    if (threadIdx.x == 0) {
      fetch_items<S>(&q_map, &k_map, &v_map, &dout_map, job, sh);
    } else if (job.dq.data && warp > 0 && threadIdx.x % kWarp == 0) {
      keep_order<S>(job, sh, warp - 1);
    }
  } else {
    take_registers<S::kRegisters>();
    compute_keys<S>(&dq_map, &dk_map, &dv_map, job, sh, warp / kGroupWarps - 1);
  }
}

/* ---- host ---- */

template <typename S>
tg_status run_keys(const tg_context *ctx, const tg_attention_bwd_args *a,
                   const attention_bwd_plan &p)
{
  CUtensorMap q, k, v, dout, dq, dk, dv;
  const struct {
    CUtensorMap *map;
    const tg_tensor *of;
    int rows;
  } maps[] = {
      {&q, &a->q, S::kQueries},
      {&k, &a->k, S::kKeys},
      {&v, &a->v, S::kKeys},
      {&dout, &a->dout, S::kQueries},
      {&dq, tgi_present(&a->dq) ? &a->dq : &a->q, S::kPart},
      {&dk, tgi_present(&a->dk) ? &a->dk : &a->k, kGroupRows},
      {&dv, tgi_present(&a->dv) ? &a->dv : &a->v, kGroupRows},
  };
  tg_status status = TG_OK;
  for (size_t i = 0; i < sizeof maps / sizeof maps[0] && status == TG_OK; i++) {
    status = make_page_map(ctx, maps[i].of, maps[i].rows, maps[i].map);
  }
  if (status == TG_OK) {
    const bwd_job job = job_of(a, p);
    status = launch(ctx, attention_bwd_tiles_kernel<S>, dim3(blocks_for(ctx, job.items, 1)),
                    S::kThreads, sizeof(bwd_shared<S>), q, k, v, dout, dq, dk, dv, job);
  }
  return status;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
