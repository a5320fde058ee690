/**
 * Attention forward on Hopper's tensor cores (attention_sm90.cu): the kernel.
 *
 * A block has one thread that fetches tiles (the rest of its warpgroup idles and has given its
 * registers away) and warpgroups that compute, 64 queries each. Keys and values go through rings of
 * shared memory that run on from one tile of queries to the next; each warpgroup has its own places
 * for queries.
 */
#ifndef TGI_OPS_ATTENTION_FWD_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_SM90_CUH

#include "ops/attention/sm90/attention_fwd_narrow_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename S>
__device__ __forceinline__ void compute_tiles(const CUtensorMap *out_map, const fwd_job &job,
                                              fwd_shared<S> &sh, int group)
{
  using T = typename S::T;
  constexpr int kKeys = S::kKeys, kStages = S::kStages, kSlots = S::kQueryStages;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int row0 = 16 * warp + lane / 4, col0 = 2 * (lane % 4), first = 64 * group;
  const key_rule rule = job.work.rule;
  float s[kKeys / 2], o[S::kValueDim / 2];
  uint32_t p[kKeys / 4];
  unsigned n = 0; /* blocks of keys so far */
  auto await = [&](mbarrier *ring, unsigned i) { wait_for(&ring[i % kStages], i / kStages & 1); };
  auto release = [&](mbarrier *ring, unsigned i) {
    if (thread == 0) {
      arrive(&ring[i % kStages]);
    }
  };
  auto turn = [&]() {
    if (S::kPingPong) {
      sync_some(1 + group, 2 * kWarpgroup);
    }
  };
  auto pass = [&]() {
    if (S::kPingPong) {
      arrive_some(1 + (group + 1) % S::kWarpGroups, 2 * kWarpgroup);
    }
  };
  auto keys_at = [&](unsigned i) { return page_operand(shared_address(sh.k[i % kStages])); };
  auto values_at = [&](unsigned i) {
    return page_operand(shared_address(sh.v[i % kStages]), S::kKeyPage);
  };
  if (S::kPingPong && group == S::kWarpGroups - 1) {
    arrive_some(1, 2 * kWarpgroup);
  }
#pragma unroll 1
  for (int tile = 0;; tile++) {
    const int slot = tile % kSlots;
    wait_for(&sh.q_full[slot][group], tile / kSlots & 1);
    const query_place &x = sh.place[tile % kPlaces];
    if (uniform(x.state) == kNoMore) {
      break;
    }
    const uint32_t page = shared_address(sh.q[slot][group]);
    const uint64_t q = page_operand(page);
    /* This warpgroup's blocks are below .. above - 1 of the tile's; those from `plain_to` on, and
     * with kWindow those before `plain_from`, hold keys that some row does not see. */
    const int low_block = uniform(x.low_block), high_block = uniform(x.high_block);
    const int rows = min(uniform(x.rows) - first, 64);
    const key_span top = span_of(rule, x, first), bottom = span_of(rule, x, first + rows - 1);
    int below = uniform(top.low / kKeys), above = uniform((bottom.high + kKeys - 1) / kKeys);
    if (S::kSplitKeys) {
      below = max(below, low_block);
      above = min(above, high_block);
    }
    if (rows <= 0 || above <= below || high_block <= low_block) {
      below = above = low_block;
    }
    const int plain_to = uniform(max(top.high, 0) / kKeys);
    const int plain_from = uniform((bottom.low + kKeys - 1) / kKeys);
    const bool hides = below * kKeys < bottom.low || above * kKeys > top.high;
    int low[2], high[2];
    row_state state = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}, {1, 1}};
    auto begin = [&]() { /* beside the first products */
#pragma unroll
                         for (int r = 0; r < 2; r++) {
                           const key_span seen = span_of(rule, x, first + row0 + 8 * r);
                           low[r] = seen.low - col0;
                           high[r] = seen.high - col0;
                         }
#pragma unroll
                         for (int i = 0; i < S::kValueDim / 2; i++) {
                           o[i] = 0;
                         }
    };
    int block = high_block - 1;
    auto skip = [&](bool takes_turn) {
      await(sh.k_full, n);
      release(sh.k_empty, n);
      if (takes_turn) {
        turn();
        pass();
      }
      await(sh.v_full, n);
      release(sh.v_empty, n);
      n++, block--;
    };
    auto hand_back = [&]() { /* the place of the tile before, once its results are read */
                             if (kSlots > 1 && tile > 0 && thread == 0) {
                               wait_for_store_reads();
                               arrive(&sh.q_empty[(tile - 1) % kSlots][group]);
                             }
    };
    auto softmax = [&](auto &part, auto hides) {
      if (S::kSoftcap) {
        cap_scores(part, job.from.softcap, job.cap_by);
      }
      if (hides.value) {
        const int from = block * kKeys, l[2] = {low[0] - from, low[1] - from},
                  h[2] = {high[0] - from, high[1] - from};
        hide_keys<S::kWindow>(part, l, h);
      }
      softmax_block(part, state, job.exponent);
    };
    auto step = [&](auto hides) { /* scores of a block beside values of the one before */
                                  const uint64_t k = keys_at(n), v = values_at(n - 1);
                                  await(sh.k_full,
                                        n); /* both here: a loop between products costs a fence */
                                  await(sh.v_full, n - 1);
                                  turn();
                                  wgmma_fence();
                                  multiply_keys<S, kKeys>(s, q, k);
                                  wgmma_commit();
                                  add_values<S>(o, p, v);
                                  wgmma_commit();
                                  pass();
                                  wgmma_wait<1>();
                                  settle(s);
                                  release(sh.k_empty, n);
                                  softmax(s, hides);
                                  wgmma_wait<0>();
                                  settle(o);
                                  release(sh.v_empty, n - 1);
                                  round_pairs<T>(p, s);
                                  rescale(o, state.factor);
                                  n++, block--;
    };
    auto clear = [&](unsigned i, int from,
                     int to) { /* where other rows follow a sequence's */
                               if (job.work.list && from < to) {
                                 await(sh.v_full, i);
                                 clear_values<S>(shared_address(sh.v[i % kStages]), from, to,
                                                 group);
                               }
    };
    while (block >= above) {
      skip(above > below || block > low_block); /* all but one of a tile's blocks take a turn */
    }
    if (above > below) {
      const uint64_t k = keys_at(n);
      await(sh.k_full, n);
      if (S::kHalfBlock && uniform(bottom.high) - block * kKeys <= kKeys / 2) {
        float half[kKeys / 4];
        wgmma_fence();
        multiply_keys<S, kKeys / 2>(half, q, k);
        wgmma_commit();
        begin();
        wgmma_wait<0>();
        settle(half);
        release(sh.k_empty, n);
        softmax(half, flag<true>());
#pragma unroll
        for (int i = 0; i < kKeys / 8; i++) {
          p[i] = round_pair<T>(half[2 * i], half[2 * i + 1]);
          p[kKeys / 8 + i] = 0;
        }
      } else {
        wgmma_fence();
        multiply_keys<S, kKeys>(s, q, k);
        wgmma_commit();
        begin();
        wgmma_wait<0>();
        settle(s);
        release(sh.k_empty, n);
        softmax(s, flag<true>());
        round_pairs<T>(p, s);
      }
      hand_back();
      clear(n, uniform(x.end) - block * kKeys, kKeys);
      n++, block--;
      if (!S::kWindow) {
        while (block >= max(plain_to, below)) {
          step(flag<true>());
        }
        while (block >= below) {
          step(flag<false>());
        }
      } else {
        while (block >= below) {
          if (S::kSoftcap || block >= plain_to ||
              block < plain_from) { /* beside tanh it is little */
            step(flag<true>());
          } else {
            step(flag<false>());
          }
        }
      }
      const uint64_t v = values_at(n - 1);
      await(sh.v_full, n - 1);
      if (S::kWindow) {
        clear(n - 1, 0, uniform(x.first) - below * kKeys);
      }
      wgmma_fence();
      add_values<S>(o, p, v);
      wgmma_commit();
      if (!S::kSplitKeys) {
        finish_rows(job, x, first + row0, state);
      }
      wgmma_wait<0>();
      settle(o);
      release(sh.v_empty, n - 1);
      while (block >= low_block) {
        skip(true);
      }
    } else {
      begin();
      hand_back();
      if (!S::kSplitKeys) {
        finish_rows(job, x, first + row0, state);
      }
    }

    if constexpr (S::kSplitKeys) {
      static_assert(kSlots > 1, "hand_back() gives the place back");
      leave_split(job, x, uniform(sh.split[tile % kPlaces]), first + row0, state, o);
    } else {
      finish_tile<S>(out_map, job, x, group, page, hides && above > below, below, above, state, o);
      if (kSlots == 1 && thread == 0) {
        wait_for_store_reads();
        arrive(&sh.q_empty[slot][group]);
      }
    }
  }
  if (thread == 0) {
    wait_for_store_reads();
  }
}

/** Has a kernel's arguments come to the multiprocessor's cache, which does not have them yet, all
 * of its lines at a time. By a warp with nothing else to do: who reads them waits once, not for one
 * line after the other. `shared`: kWarp words of shared memory, without which the assembler would
 * leave out a load that nobody needs. */
template <typename Job>
__device__ __forceinline__ void fetch_arguments(const Job &job, uint32_t *shared)
{
  constexpr int kWords = sizeof(Job) / sizeof(uint32_t), kLine = 16;
  const int word = (int)threadIdx.x % kWarp * kLine;
  static_assert(kWords <= kWarp * kLine, "a lane for each line");
  if (word < kWords) {
    shared[threadIdx.x % kWarp] = reinterpret_cast<const uint32_t *>(&job)[word];
  }
}

template <typename T, typename Config>
__global__ void __launch_bounds__(fwd_tile<T, Config>::kThreads, 1)
    attention_fwd_tiles_kernel(const __grid_constant__ CUtensorMap q_map,
                               const __grid_constant__ CUtensorMap k_map,
                               const __grid_constant__ CUtensorMap v_map,
                               const __grid_constant__ CUtensorMap out_map,
                               const __grid_constant__ fwd_job job)
{
  using S = fwd_tile<T, Config>;
  extern __shared__ __align__(1024) uint8_t memory[];
  fwd_shared<S> &sh = *reinterpret_cast<fwd_shared<S> *>(memory);
  if (threadIdx.x == 0) {
    for (int g = 0; g < S::kWarpGroups; g++) {
      for (int slot = 0; slot < S::kQueryStages; slot++) {
        init_barrier(&sh.q_full[slot][g], 1);
        init_barrier(&sh.q_empty[slot][g], 1);
      }
    }
    for (int s = 0; s < S::kStages; s++) {
      init_barrier(&sh.k_full[s], 1);
      init_barrier(&sh.k_empty[s], S::kWarpGroups);
      init_barrier(&sh.v_full[s], 1);
      init_barrier(&sh.v_empty[s], S::kWarpGroups);
    }
    publish_barriers();
  } else if (threadIdx.x / kWarp == 1) {
    fetch_map(&q_map);
    fetch_map(&k_map);
    fetch_map(&v_map);
    static_assert(sizeof sh.place >= kWarp * sizeof(uint32_t), "a word for each lane");
    fetch_arguments(job, reinterpret_cast<uint32_t *>(sh.place));
  }
  await_kernel_before();
  let_next_begin();
  __syncthreads();
  const int group = uniform(threadIdx.x / kWarpgroup);
  if (group == 0) {
    give_registers<S::kLoaderRegisters>();
    if (threadIdx.x == 0) {
      fetch_tiles<S>(&q_map, &k_map, &v_map, job, sh);
    }
  } else {
    take_registers<S::kRegisters>();
    if constexpr (S::kNarrow) {
      compute_narrow_tiles<S>(&out_map, job, sh, group - 1);
    } else {
      compute_tiles<S>(&out_map, job, sh, group - 1);
    }
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_tiles_of(const tg_context *ctx, const tg_attention_fwd_args *a,
                       const attention_fwd_plan &p)
{
  using S = fwd_tile<T, Config>;
  CUtensorMap q, k, v, out;
  tg_status status = make_page_map(ctx, &a->q, kGroupRows, &q);
  if (status == TG_OK) {
    status = make_page_map(ctx, &a->k, S::kKeys, &k);
  }
  if (status == TG_OK) {
    status = make_page_map(ctx, &a->v, S::kKeys, &v);
  }
  if (status == TG_OK) {
    status = make_page_map(ctx, &a->out, kGroupRows, &out);
  }
  if (status == TG_OK) {
    status = launch_kernel(ctx, p.counted || p.lengths, attention_fwd_tiles_kernel<T, Config>,
                           dim3((unsigned)p.blocks), S::kThreads, sizeof(fwd_shared<S>), q, k, v,
                           out, job_of(a, p));
  }
  return status;
}

template <typename Config>
tg_status run_tiles(const tg_context *ctx, const tg_attention_fwd_args *a,
                    const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_tiles_of<f16, Config>(ctx, a, p)
                              : run_tiles_of<bf16, Config>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
