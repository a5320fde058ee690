/**
 * Attention forward on Hopper: a consumer warp group with a running softmax (arXiv:1805.02867).
 *
 * A warp group has 64 queries of a tile; scores, probabilities and results stay in registers. In
 * each step it issues the scores of a block of keys and the values of the block before, then
 * computes exponentials of the scores while the values multiply (arXiv:2407.08608). Blocks go from
 * the last one down; only those with keys that some row does not see are masked.
 */
#ifndef TGI_OPS_ATTENTION_FWD_RUNNING_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_RUNNING_SM90_CUH

#include "ops/attention/sm90/attention_fwd_pipeline_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Where a warp group is in its tile. */
struct fwd_cursor {
  int block;                /* of keys: the next one */
  int plain_from, plain_to; /* blocks from .. to - 1 need no mask */
  uint64_t q;               /* queries, as operand */
};

/** A thread's registers for a tile. References: the arrays must stay apart, for the compiler keeps
 * an array in registers only once its loops are unrolled. */
template <typename S> struct fwd_registers {
  float (&s)[S::kKeys / 2], (&o)[S::kValueDim / 2]; /* scores; results */
  uint32_t (&p)[S::kKeys / 4];                      /* probabilities, rounded */
  row_state &rows;                                  /* the running softmax */
  int (&low)[2], (&high)[2];                        /* columns that the thread's two rows see */
};

/** Skips a block of keys that no row of the warp group sees. */
template <typename S>
__device__ __forceinline__ void skip_block(fwd_consumer<S> &c, fwd_cursor &at, bool takes_turn)
{
  await_stage(c, c.sh.k_full, c.n);
  release_stage(c, c.sh.k_empty, c.n);
  if (takes_turn) {
    await_turn(c);
    pass_turn(c);
  }
  await_stage(c, c.sh.v_full, c.n);
  release_stage(c, c.sh.v_empty, c.n);
  c.n++, at.block--;
}

/** Computes the thread's masks and clears its results, while the first products run. */
template <typename S>
__device__ __forceinline__ void begin_rows(const fwd_consumer<S> &c, const query_place &x,
                                           const fwd_registers<S> &r)
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const key_span seen = span_of(c.rule, x, c.first + c.row0 + 8 * i);
    r.low[i] = seen.low - c.col0;
    r.high[i] = seen.high - c.col0;
  }
#pragma unroll
  for (int i = 0; i < S::kValueDim / 2; i++) {
    r.o[i] = 0;
  }
}

/** Scores of the block to probabilities. kMasks: some row does not see some key of it. */
template <typename S, bool kMasks, int kN>
__device__ __forceinline__ void weigh_block(const fwd_consumer<S> &c, const fwd_cursor &at,
                                            const fwd_registers<S> &r, float (&s)[kN])
{
  if (S::kSoftcap) {
    cap_scores(s, c.job.from.softcap, c.job.cap_by);
  }
  if (kMasks) {
    const int from = at.block * S::kKeys, l[2] = {r.low[0] - from, r.low[1] - from},
              h[2] = {r.high[0] - from, r.high[1] - from};
    hide_keys<S::kWindow>(s, l, h);
  }
  softmax_block(s, r.rows, c.job.exponent);
}

/** Issues the scores of a block together with the values of the block before. */
template <typename S, bool kMasks>
__device__ __forceinline__ void step_block(fwd_consumer<S> &c, fwd_cursor &at,
                                           const fwd_registers<S> &r)
{
  const uint64_t k = keys_at(c, c.n), v = values_at(c, c.n - 1);
  await_stage(c, c.sh.k_full, c.n); /* both here: a wait loop between products would cost a fence */
  await_stage(c, c.sh.v_full, c.n - 1);
  await_turn(c);
  wgmma_fence();
  multiply_keys<S, S::kKeys>(r.s, at.q, k);
  wgmma_commit();
  add_values<S>(r.o, r.p, v);
  wgmma_commit();
  pass_turn(c);
  wgmma_wait<1>();
  settle(r.s);
  release_stage(c, c.sh.k_empty, c.n);
  weigh_block<S, kMasks>(c, at, r, r.s);
  wgmma_wait<0>();
  settle(r.o);
  release_stage(c, c.sh.v_empty, c.n - 1);
  round_pairs<typename S::T>(r.p, r.s);
  rescale(r.o, r.rows.factor);
  c.n++, at.block--;
}

/** Zeros values beside a sequence's own, where other sequences' rows are adjacent in memory. */
template <typename S>
__device__ __forceinline__ void clear_beside(const fwd_consumer<S> &c, unsigned i, int from, int to)
{
  if (c.job.work.list && from < to) {
    await_stage(c, c.sh.v_full, i);
    clear_values<S>(shared_address(c.sh.v[i % S::kStages]), from, to, c.group);
  }
}

/** Scores and probabilities of the first block, which is masked, or of its first half where no row
 * sees more. */
template <typename S>
__device__ __forceinline__ void begin_blocks(const fwd_consumer<S> &c, const fwd_cursor &at,
                                             const fwd_registers<S> &r, const query_place &x,
                                             int last)
{
  using T = typename S::T;
  constexpr int kKeys = S::kKeys;
  const uint64_t k = keys_at(c, c.n);
  await_stage(c, c.sh.k_full, c.n);
  if (S::kHalfBlock && uniform(last) - at.block * kKeys <= kKeys / 2) {
    float half[kKeys / 4];
    wgmma_fence();
    multiply_keys<S, kKeys / 2>(half, at.q, k);
    wgmma_commit();
    begin_rows(c, x, r);
    wgmma_wait<0>();
    settle(half);
    release_stage(c, c.sh.k_empty, c.n);
    weigh_block<S, true>(c, at, r, half);
#pragma unroll
    for (int i = 0; i < kKeys / 8; i++) {
      r.p[i] = round_pair<T>(half[2 * i], half[2 * i + 1]);
      r.p[kKeys / 8 + i] = 0;
    }
  } else {
    wgmma_fence();
    multiply_keys<S, kKeys>(r.s, at.q, k);
    wgmma_commit();
    begin_rows(c, x, r);
    wgmma_wait<0>();
    settle(r.s);
    release_stage(c, c.sh.k_empty, c.n);
    weigh_block<S, true>(c, at, r, r.s);
    round_pairs<T>(r.p, r.s);
  }
}

/** The values of the last block. */
template <typename S>
__device__ __forceinline__ void end_blocks(const fwd_consumer<S> &c, const fwd_registers<S> &r,
                                           const query_place &x, int below)
{
  const uint64_t v = values_at(c, c.n - 1);
  await_stage(c, c.sh.v_full, c.n - 1);
  if (S::kWindow) {
    clear_beside(c, c.n - 1, 0, uniform(x.first) - below * S::kKeys);
  }
  wgmma_fence();
  add_values<S>(r.o, r.p, v);
  wgmma_commit();
  if (!S::kSplitKeys) {
    finish_rows(c.job, x, c.first + c.row0, r.rows);
  }
  wgmma_wait<0>();
  settle(r.o);
  release_stage(c, c.sh.v_empty, c.n - 1);
}

/** Stores the results of a tile, or the partial sums of a split. */
template <typename S>
__device__ __forceinline__ void end_tile(const fwd_consumer<S> &c, const fwd_registers<S> &r,
                                         const CUtensorMap *out_map, const query_place &x, int tile,
                                         int below, int above, bool hides)
{
  constexpr int kSlots = S::kQueryStages;
  const int slot = tile % kSlots;
  if constexpr (S::kSplitKeys) {
    static_assert(kSlots > 1, "release_queries() gives the buffer back");
    leave_split(c.job, x, uniform(c.sh.split[tile % kPlaces]), c.first + c.row0, r.rows, r.o);
  } else {
    finish_tile<S>(out_map, c.job, x, c.group, shared_address(c.sh.q[slot][c.group]), hides, below,
                   above, r.rows, r.o);
    if (kSlots == 1 && c.thread == 0) {
      wait_for_store_reads();
      arrive(&c.sh.q_empty[slot][c.group]);
    }
  }
}

template <typename S>
__device__ __forceinline__ void compute_tiles(const CUtensorMap *out_map, const fwd_job &job,
                                              fwd_shared<S> &sh, int group)
{
  constexpr int kKeys = S::kKeys, kSlots = S::kQueryStages;
  fwd_consumer<S> c = consumer_of(sh, job, group);
  float s[kKeys / 2], o[S::kValueDim / 2];
  uint32_t p[kKeys / 4];
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
    fwd_cursor at;
    at.q = page_operand(shared_address(sh.q[slot][group]));
    const fwd_blocks b = blocks_of(c, x);
    at.plain_to = uniform(max(b.top.high, 0) / kKeys);
    at.plain_from = uniform((b.bottom.low + kKeys - 1) / kKeys);
    const bool hides = b.below * kKeys < b.bottom.low || b.above * kKeys > b.top.high;
    int low[2], high[2];
    row_state rows = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}, {1, 1}};
    const fwd_registers<S> r = {s, o, p, rows, low, high};
    at.block = b.high_block - 1;
    while (at.block >= b.above) { /* each of a tile's blocks but one has a ping-pong turn */
      skip_block(c, at, b.above > b.below || at.block > b.low_block);
    }
    if (b.above > b.below) {
      begin_blocks(c, at, r, x, b.bottom.high);
      release_queries(c, tile);
      clear_beside(c, c.n, uniform(x.end) - at.block * kKeys, kKeys);
      c.n++, at.block--;
      if (!S::kWindow) {
        while (at.block >= max(at.plain_to, b.below)) {
          step_block<S, true>(c, at, r);
        }
        while (at.block >= b.below) {
          step_block<S, false>(c, at, r);
        }
      } else {
        while (at.block >= b.below) {
          if (S::kSoftcap || at.block >= at.plain_to || at.block < at.plain_from) {
            step_block<S, true>(c, at, r);
          } else {
            step_block<S, false>(c, at, r);
          }
        }
      }
      end_blocks(c, r, x, b.below);
      while (at.block >= b.low_block) {
        skip_block(c, at, true);
      }
    } else {
      begin_rows(c, x, r);
      release_queries(c, tile);
      if (!S::kSplitKeys) {
        finish_rows(job, x, c.first + c.row0, rows);
      }
    }
    end_tile(c, r, out_map, x, tile, b.below, b.above, hides && b.above > b.below);
  }
  if (c.thread == 0) {
    wait_for_store_reads();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
