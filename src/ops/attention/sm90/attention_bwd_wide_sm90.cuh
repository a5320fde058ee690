/**
 * Attention backward on Hopper's tensor cores, heads of more than 128 elements
 * (attention_bwd_sm90.cu): the kernel.
 *
 * A thread block has 64 keys of a kv head: the sums of dk and dv for more would not fit in its
 * registers. Each of two warpgroups has all of these keys, and sums of its own: one makes scores, p
 * and dv, the other one dp, ds and dk. Scores and dp are transposed, keys as rows, so that p and ds
 * are registers of the products that dv and dk add up, whose other operand then is read once. p
 * goes from thread to thread through shared memory, and so does ds, for the tile's part of dq, of
 * which each warpgroup makes some columns one tile later. So the two drift apart, and one
 * multiplies while the other does not.
 */
#ifndef TGI_OPS_ATTENTION_BWD_WIDE_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_WIDE_SM90_CUH

#include "ops/attention/sm90/attention_bwd_scores_sm90.cuh"
#include "ops/attention/sm90/attention_bwd_wide_tiles_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A tile's products and sums, of p and dv or of ds and dk. */
template <typename S, bool kOfValues>
__device__ __forceinline__ void compute_side(const CUtensorMap *map, const bwd_job &job,
                                             bwd_shared<S> &sh)
{
  using T = typename S::T;
  constexpr int kN = S::kQueries, kStages = S::kStages, kGroup = kOfValues ? 0 : 1;
  constexpr int kPage = kOfValues ? 0 : S::kFirstPages; /* of dq */
  constexpr int kColumns = (kOfValues ? S::kFirstPages : S::kPages - S::kFirstPages) * kPageCols;
  using product = bwd_wide_part<S, kOfValues ? S::kHeadDim : S::kValueDim>;
  using result = bwd_wide_part<S, kOfValues ? S::kValueDim : S::kHeadDim>;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int col0 = 2 * (lane % 4);
  const uint32_t k_page = shared_address(sh.k), v_page = shared_address(sh.v);
  float s[kN / 2], sum[result::kHeadDim / 2], dq[kColumns / 2];
  uint32_t a[kN / 4]; /* s, rounded */
  auto uniform = [](int i) { return __shfl_sync(kAllLanes, i, 0); };
  auto make_dq = [&](unsigned buffer) {
    const uint64_t ds = page_operand(shared_address(sh.ds[buffer]));
    const uint64_t k = page_operand(k_page + kPage * S::kKeyPage, S::kKeyPage);
#pragma unroll
    for (int i = 0; i < S::kKeys / 16; i++) {
      multiply<T, kColumns, false, true>(dq, operand_at(ds, i * 32),
                                         operand_at(k, i * 16 * kPageRow), i > 0);
    }
    wgmma_commit();
  };
  auto finish_dq = [&](const key_place &x, unsigned tile) {
    if (thread == 0) {
      arrive(&sh.ds_empty[tile & 1]);
    }
    add_columns<S>(dq, job, x, tile, kPage, sh);
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
    for (int i = 0; i < result::kHeadDim / 2; i++) {
      sum[i] = 0;
    }
    const int tiles = uniform((x.high_tile - x.low_tile) * (int)job.c.l.group);
#pragma unroll 1
    for (int turn = 0; turn < tiles; turn++, n++) {
      const unsigned st = n % kStages, u = n & 1;
      const uint32_t q_page = shared_address(sh.q[st]), dout_page = shared_address(sh.dout[st]);
      wait_for(&sh.full[st], n / kStages & 1);
      if (S::kEarly && turn > 0) {
        wait_for(&sh.ds_full[u ^ 1], (n - 1) / 2 & 1);
      }
      wgmma_fence();
      multiply_heads<product, kN>(s, page_operand(kOfValues ? k_page : v_page), S::kKeyPage,
                                  page_operand(kOfValues ? q_page : dout_page), S::kQueryPage);
      wgmma_commit();
      if (S::kEarly) {
        make_dq(u ^ 1); /* of the tile before; in an item's first turn nobody looks at it */
      }
      const int query = sh.tile[n % kTilePlaces].tile * kN;
      const bool hides = uniform(hides_any(job.rule, x, x.key0, query, kN));
      int low[2], high[2];
      auto look = [&]() { /* what the thread's keys are seen by */
                          const int from = query + col0;
#pragma unroll
                          for (int r = 0; r < 2; r++) {
                            const key_span seen =
                                queries_of(job.rule, x, x.key0 + 16 * warp + lane / 4 + 8 * r);
                            low[r] = seen.low - from;
                            high[r] = seen.high - from;
                          }
      };
      wgmma_wait<S::kEarly ? 1 : 0>();
      settle(s);
      if constexpr (kOfValues) {
        if (S::kSoftcap) {
          look();
          make_capped_p<product>(a, s, job, sh.minus[st] + col0, low, high);
        } else {
          make_p<product>(s, job, column_terms{sh.minus[st] + col0});
          if (hides) {
            look();
            hide_queries(s, low, high);
          }
          round_pairs<T>(a, s);
        }
        wait_for(&sh.p_empty[warp], n & 1 ^ 1);
#pragma unroll
        for (int i = 0; i < kN / 8; i++) {
          sh.p[i][thread] = {s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]};
        }
        __syncwarp();
        if (lane == 0) {
          arrive(&sh.p_full[warp]);
        }
      } else {
        float p[kN / 2];
        wait_for(&sh.p_full[warp], n & 1);
#pragma unroll
        for (int i = 0; i < kN / 8; i++) {
          const float4 four = sh.p[i][thread];
          p[4 * i] = four.x;
          p[4 * i + 1] = four.y;
          p[4 * i + 2] = four.z;
          p[4 * i + 3] = four.w;
        }
        make_ds<product>(s, p, sh.delta[st] + col0);
        if (hides) {
          look();
          hide_queries(s, low, high);
        }
        round_pairs<T>(a, s);
        wait_for(&sh.ds_empty[u], n / 2 & 1 ^ 1);
#pragma unroll
        for (int i = 0; i < kN / 16; i++) {
          store_matrices_turned(page_chunk(shared_address(sh.ds[u]),
                                           16 * i + 8 * (lane / 16) + lane % 8,
                                           2 * warp + lane / 8 % 2),
                                a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]);
        }
        publish_to_copies();
        __syncwarp(); /* p was read, and ds written, by all */
        if (lane == 0) {
          arrive(&sh.p_empty[warp]);
          arrive(&sh.ds_full[u]);
        }
      }
      if (!S::kEarly && turn > 0) {
        wait_for(&sh.ds_full[u ^ 1], (n - 1) / 2 & 1);
      }
      wgmma_fence();
      if (!S::kEarly) {
        make_dq(u ^ 1);
      }
      add_queries<result>(sum, a, page_operand(kOfValues ? dout_page : q_page, S::kQueryPage));
      wgmma_commit();
      wgmma_wait<1>();
      settle(dq);
      if (turn > 0) {
        finish_dq(x, n - 1); /* beside the product */
      }
      wgmma_wait<0>();
      settle(sum);
      __syncwarp(); /* minus and delta were read by all */
      if (lane == 0) {
        arrive(&sh.empty[st]);
      }
    }
    if (tiles > 0) {
      wait_for(&sh.ds_full[(n - 1) & 1], (n - 1) / 2 & 1);
      wgmma_fence();
      make_dq((n - 1) & 1);
      wgmma_wait<0>();
      settle(dq);
      finish_dq(x, n - 1);
    }
    __syncwarp();
    if (lane == 0) {
      arrive(&sh.keys_read);
    }
    wait_for(&sh.keys_read, item & 1); /* both are done with keys and values */
    store_keys<result>(map, kOfValues ? job.dv : job.dk, sum, kOfValues ? 1.0f : job.scale,
                       kOfValues ? v_page : k_page, job, x, 0, kGroup,
                       (int)(kOfValues ? job.c.l.v_dim : job.c.l.head_dim));
    sync_some(2 + kGroup, kWarpgroup); /* rows that threads store were read by all */
    if (thread == 0) {
      wait_for_store_reads();
      arrive(&sh.keys_empty);
    }
  }
}

template <typename T, typename Config>
__global__ void __launch_bounds__(bwd_wide_tile<T, Config>::kThreads, 1)
    attention_bwd_wide_kernel(const __grid_constant__ CUtensorMap q_map,
                              const __grid_constant__ CUtensorMap k_map,
                              const __grid_constant__ CUtensorMap v_map,
                              const __grid_constant__ CUtensorMap dout_map,
                              const __grid_constant__ CUtensorMap dk_map,
                              const __grid_constant__ CUtensorMap dv_map,
                              const __grid_constant__ bwd_job job)
{
  using S = bwd_wide_tile<T, Config>;
  extern __shared__ __align__(1024) uint8_t memory[];
  bwd_shared<S> &sh = *reinterpret_cast<bwd_shared<S> *>(memory);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
  if (threadIdx.x == 0) {
    init_barrier(&sh.keys_full, 1);
    init_barrier(&sh.keys_empty, S::kWarpGroups + (job.dq.data ? 3 : 0));
    init_barrier(&sh.keys_read, S::kWarpGroups * kGroupWarps);
    for (int i = 0; i < S::kStages; i++) {
      init_barrier(&sh.full[i], 1);
      init_barrier(&sh.empty[i], S::kWarpGroups * kGroupWarps);
    }
    for (int i = 0; i < kGroupWarps; i++) {
      init_barrier(&sh.p_full[i], 1);
      init_barrier(&sh.p_empty[i], 1);
    }
    for (int i = 0; i < 2; i++) {
      init_barrier(&sh.ds_full[i], kGroupWarps);
      init_barrier(&sh.ds_empty[i], S::kWarpGroups);
      init_barrier(&sh.turn_come[i], 1);
      init_barrier(&sh.turn_used[i], S::kWarpGroups * kGroupWarps);
      init_barrier(&sh.turn_told[i], 1);
    }
    publish_barriers();
  }
  await_kernel_before();
  let_next_begin();
  __syncthreads();
  if (warp < kGroupWarps) {
    give_registers<S::kLoaderRegisters>();
    if (threadIdx.x == 0) {
      fetch_items<S>(&q_map, &k_map, &v_map, &dout_map, job, sh);
    } else if (job.dq.data && warp > 0 && threadIdx.x % kWarp == 0) {
      keep_order<S>(job, sh, warp - 1);
    }
    return;
  }
  take_registers<S::kRegisters>();
  if (warp < 2 * kGroupWarps) {
    compute_side<S, true>(&dv_map, job, sh);
  } else {
    compute_side<S, false>(&dk_map, job, sh);
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_wide_of(const tg_context *ctx, const tg_attention_bwd_args *a,
                      const attention_bwd_plan &p)
{
  using S = bwd_wide_tile<T, Config>;
  static_assert(sizeof(bwd_shared<S>) <= 227 << 10, "a block has no more");
  CUtensorMap q, k, v, dout, dk, dv;
  const struct {
    CUtensorMap *map;
    const tg_tensor *of;
    int rows;
  } maps[] = {
      {&q, &a->q, S::kQueries},
      {&k, &a->k, S::kKeys},
      {&v, &a->v, S::kKeys},
      {&dout, &a->dout, S::kQueries},
      {&dk, tgi_present(&a->dk) ? &a->dk : &a->k, S::kKeys},
      {&dv, tgi_present(&a->dv) ? &a->dv : &a->v, S::kKeys},
  };
  tg_status status = TG_OK;
  for (size_t i = 0; i < sizeof maps / sizeof maps[0] && status == TG_OK; i++) {
    status = make_page_map(ctx, maps[i].of, maps[i].rows, maps[i].map);
  }
  if (status == TG_OK) {
    const bwd_job job = job_of(a, p);
    status =
        launch_next(ctx, attention_bwd_wide_kernel<T, Config>, dim3(blocks_for(ctx, job.items, 1)),
                    S::kThreads, sizeof(bwd_shared<S>), q, k, v, dout, dk, dv, job);
  }
  return status;
}

template <typename Config>
tg_status run_wide(const tg_context *ctx, const tg_attention_bwd_args *a,
                   const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_wide_of<f16, Config>(ctx, a, p)
                              : run_wide_of<bf16, Config>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
