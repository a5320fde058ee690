/**
 * Attention backward on Hopper's tensor cores (attention_bwd_sm90.cu): the kernel.
 *
 * A thread block has 128 keys of a kv head, two warpgroups 64 each, and goes through the queries of
 * all heads that share them. Scores and dp are made transposed, keys as rows, so that p and ds are
 * registers of the products that dv and dk add up. ds goes to shared memory as well, for the tile's
 * part of dq, which each warpgroup makes half of one tile later: so the two drift apart, and one
 * computes exponentials while the other multiplies. dq is made first, and leaves while the products
 * for dv and dk run.
 */
#ifndef TGI_OPS_ATTENTION_BWD_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_SM90_CUH

#include "ops/attention/sm90/attention_bwd_results_sm90.cuh"
#include "ops/attention/sm90/attention_bwd_scores_sm90.cuh"
#include "ops/kernels.cuh"

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
  const int heads = job.heads, q_heads = (int)job.c.l.q_heads;
  const uint32_t k_page = shared_address(sh.k) + first * kPageRow;
  const uint32_t v_page = shared_address(sh.v) + first * kPageRow;
  const uint64_t k_columns = page_operand(
      shared_address(sh.k) + (S::kPages == 2 ? group * S::kKeyPage : 0)); /* of its part of dq */
  float s[kN / 2], dp[kN / 2], dk[S::kHeadDim / 2], dv[S::kHeadDim / 2], dq[S::kPart / 2];
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
    const key_place &x = sh.place[item % kItemPlaces];
    if (uniform(x.state) == kNoMore) {
      return;
    }
#pragma unroll
    for (int i = 0; i < S::kHeadDim / 2; i++) {
      dk[i] = dv[i] = 0;
    }
    const int high_tile = uniform(x.high_tile), tiles = (high_tile - uniform(x.low_tile)) * heads;
    /* Tiles from query whole_low to whole_high see all of the warpgroup's keys. */
    const int key = x.key0 + first;
    const bool edge = key < x.first || key + kGroupRows > x.end;
    const int whole_low =
        uniform(edge ? kMostRows : queries_of(job.rule, x, key + kGroupRows - 1).low);
    const int whole_high = uniform(queries_of(job.rule, x, key).high) - kN;
    int tile = high_tile - 1, head = 0, before = 0;
    int place = uniform((x.q_tile + tile) * q_heads + first_head(job, x));
#pragma unroll 1
    for (int turn = 0; turn < tiles; turn++, n++) {
      const unsigned st = n % kStages, u = n & 1;
      const uint32_t q_page = shared_address(sh.q[st]), dout_page = shared_address(sh.dout[st]);
      const column_terms minus = {sh.minus[st] + col0}, delta = {sh.delta[st] + col0};
      wait_for(&sh.full[st], n / kStages & 1);
      float2 early[kN / 8];
      if (S::kReadsFirst) {
#pragma unroll
        for (int i = 0; i < kN / 8; i++) {
          early[i] = minus(i);
          asm volatile("" : "+f"(early[i].x), "+f"(early[i].y)); /* not later */
          const float2 d = delta(i);
          dp[4 * i] = dp[4 * i + 2] = d.x;
          dp[4 * i + 1] = dp[4 * i + 3] = d.y;
        }
        settle(dp);
      }
      wgmma_fence();
      multiply_heads<S, kN>(s, page_operand(k_page), S::kKeyPage, page_operand(q_page),
                            S::kQueryPage);
      wgmma_commit();
      multiply_heads<S, kN, S::kReadsFirst>(dp, page_operand(v_page), S::kKeyPage,
                                            page_operand(dout_page), S::kQueryPage);
      wgmma_commit();
      const int query = tile * kN;
      const bool hides = query < whole_low || query > whole_high;
      int low[2], high[2];
      auto look = [&]() { /* what the thread's keys are seen by */
                          const int from = query + col0;
#pragma unroll
                          for (int r = 0; r < 2; r++) {
                            const key_span seen =
                                queries_of(job.rule, x, key + 16 * warp + lane / 4 + 8 * r);
                            low[r] = seen.low - from;
                            high[r] = seen.high - from;
                          }
      };
      wgmma_wait<1>();
      settle(s);
      if (S::kSoftcap) {
        look();
        make_capped_p<S>(p, s, job, minus.first, low, high);
      } else {
        if constexpr (S::kReadsFirst) {
          make_p<S>(s, job, [&](int i) { return early[i]; });
        } else {
          make_p<S>(s, job, minus);
        }
        if (hides) {
          look();
          if (S::kHidesTwice) {
            hide_queries(s, low, high);
          } else {
#pragma unroll
            for (int r = 0; r < 2; r++) {
              keep_columns(s, r, column_bits(low[r], high[r]), 0.0f);
            }
          }
        }
        round_pairs<T>(p, s);
      }
      wgmma_wait<0>();
      settle(dp);
      if constexpr (S::kReadsFirst) {
        make_ds<S>(dp, s);
      } else {
        make_ds<S>(dp, s, delta.first);
      }
      if (S::kHidesTwice && hides) {
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
      make_dq(u ^ 1); /* of the tile before; in an item's first turn nobody looks at it */
      add_queries<S>(dv, p, page_operand(dout_page, S::kQueryPage));
      add_queries<S>(dk, ds, page_operand(q_page, S::kQueryPage));
      wgmma_commit();
      wgmma_wait<1>();
      settle(dq);
      if (turn > 0) { /* beside the products for dv and dk */
        if (thread == 0) {
          arrive(&sh.ds_empty[u ^ 1]);
        }
        add_sums<S>(dq_map, dq, job, x, n - 1, before, group, sh);
      }
      wgmma_wait<0>();
      settle(dk);
      settle(dv);
      __syncwarp(); /* minus and delta were read by all */
      if (lane == 0) {
        arrive(&sh.empty[st]);
      }
      before = place++;
      if (++head == heads) {
        head = 0;
        tile--;
        place -= heads + q_heads;
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
    }
    if (lane == 0) { /* the next item's come while this one's results leave */
      arrive(&sh.keys_empty);
    }
    if (tiles > 0) {
      add_sums<S>(dq_map, dq, job, x, n - 1, before, group, sh);
    }
    if (job.dv.data && join_parts<S>(dv, job, x, 0, group, sh)) {
      wait_for_staged(group);
      store_keys<S>(dv_map, job.dv, dv, 1.0f, shared_address(sh.staged[0][group]), job, x, first,
                    group, (int)job.c.l.v_dim);
    }
    if (job.dk.data && join_parts<S>(dk, job, x, 1, group, sh)) {
      wait_for_staged(group);
      store_keys<S>(dk_map, job.dk, dk, job.scale, shared_address(sh.staged[S::kStaged - 1][group]),
                    job, x, first, group, (int)job.c.l.head_dim);
    }
  }
}

template <typename T, typename Config>
__global__ void __launch_bounds__(bwd_tile<T, Config>::kThreads, 1) attention_bwd_tiles_kernel(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap dout_map,
    const __grid_constant__ CUtensorMap dq_map, const __grid_constant__ CUtensorMap dk_map,
    const __grid_constant__ CUtensorMap dv_map, const __grid_constant__ bwd_job job)
{
  using S = bwd_tile<T, Config>;
  extern __shared__ __align__(1024) uint8_t memory[];
  bwd_shared<S> &sh = *reinterpret_cast<bwd_shared<S> *>(memory);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
  if (threadIdx.x == 0) {
    init_barrier(&sh.keys_full, 1);
    init_barrier(&sh.keys_empty,
                 S::kWarpGroups * kGroupWarps + (S::kOrdered && job.dq.data ? 3 : 0));
    for (int i = 0; i < S::kStages; i++) {
      init_barrier(&sh.full[i], 1);
      init_barrier(&sh.empty[i], S::kWarpGroups * kGroupWarps);
    }
    for (int i = 0; i < 2; i++) {
      init_barrier(&sh.ds_full[i], S::kWarpGroups * kGroupWarps);
      init_barrier(&sh.ds_empty[i], S::kWarpGroups);
      init_barrier(&sh.turn_come[i], 1);
      init_barrier(&sh.turn_used[i], S::kWarpGroups * kGroupWarps);
      init_barrier(&sh.turn_told[i], 1);
    }
    init_barrier(&sh.place_full, 1);
    init_barrier(&sh.place_used, 1);
    publish_barriers();
  }
  await_kernel_before();
  let_next_begin();
  __syncthreads();
  if (warp < kGroupWarps) {
    give_registers<S::kLoaderRegisters>();
    if constexpr (S::kOrdered) {
      if (threadIdx.x == 0) {
        fetch_items<S>(&q_map, &k_map, &v_map, &dout_map, job, sh);
      } else if (job.dq.data && warp > 0 && threadIdx.x % kWarp == 0) {
        keep_order<S>(job, sh, warp - 1);
      }
    } else if (threadIdx.x == 0) {
      fetch_tiles<S>(&q_map, &dout_map, job, sh);
    } else if (threadIdx.x == kWarp) {
      take_items<S>(&k_map, &v_map, job, sh);
    }
  } else {
    take_registers<S::kRegisters>();
    compute_keys<S>(&dq_map, &dk_map, &dv_map, job, sh, warp / kGroupWarps - 1);
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_keys_of(const tg_context *ctx, const tg_attention_bwd_args *a,
                      const attention_bwd_plan &p)
{
  using S = bwd_tile<T, Config>;
  static_assert(sizeof(bwd_shared<S>) <= 227 << 10, "a block has no more");
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
    status =
        launch_next(ctx, attention_bwd_tiles_kernel<T, Config>, dim3(blocks_for(ctx, job.items, 1)),
                    S::kThreads, sizeof(bwd_shared<S>), q, k, v, dout, dq, dk, dv, job);
  }
  return status;
}

template <typename Config>
tg_status run_keys(const tg_context *ctx, const tg_attention_bwd_args *a,
                   const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_keys_of<f16, Config>(ctx, a, p)
                              : run_keys_of<bf16, Config>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
