/**
 * Attention forward on Hopper: a consumer warp group for narrow causal windows, where 64 queries
 * that begin at a block's first key see at most three blocks of 64 keys.
 *
 * A warp group computes all scores of its queries at once, so there is no running softmax: one
 * maximum, no rescaling, and one wait for each kind of product. Warp groups drift apart: one
 * computes exponentials while another multiplies.
 */
#ifndef TGI_OPS_ATTENTION_FWD_NARROW_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_NARROW_SM90_CUH

#include "ops/attention/sm90/attention_fwd_pipeline_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kSeenBlocks = 3; /* blocks of keys that a warp group's queries see */

/** All scores of a row to probabilities, which are not yet divided by their sum. */
template <typename T, int kBlocks, int kN>
__device__ __forceinline__ void softmax_whole(uint32_t (&p)[kBlocks][kN / 2],
                                              float (&s)[kBlocks][kN], row_state &rows, float c)
{
  float base[2], a[2] = {0, 0}, b[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float c0 = s[0][2 * r],
          c1 = s[0][2 * r + 1]; /* fmaxf drops a NaN, which then shows in the sum */
#pragma unroll
    for (int j = 0; j < kBlocks; j++) {
#pragma unroll
      for (int i = 0; i < kN; i += 4) {
        c0 = fmaxf(c0, s[j][i + 2 * r]);
        c1 = fmaxf(c1, s[j][i + 2 * r + 1]);
      }
    }
    c0 = fmaxf(c0, c1);
    c0 = fmaxf(c0, __shfl_xor_sync(kAllLanes, c0, 1));
    c0 = fmaxf(c0, __shfl_xor_sync(kAllLanes, c0, 2));
    rows.top[r] = c0 * c;
    base[r] = rows.top[r] > -CUDART_INF_F ? rows.top[r] : 0.0f;
  }
#pragma unroll
  for (int j = 0; j < kBlocks; j++) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const int r = i / 2 % 2;
      const float x = exp2_flushed(fmaf(s[j][i], c, -base[r]));
      const float y = exp2_flushed(fmaf(s[j][i + 1], c, -base[r]));
      a[r] += x;
      b[r] += y;
      p[j][i / 2] = round_pair<T>(x, y);
    }
  }
  rows.sum[0] = a[0] + b[0];
  rows.sum[1] = a[1] + b[1];
}

/** A warp group's tile, and the thread's registers for it (references, as fwd_registers). */
template <typename S> struct narrow_tile {
  const query_place &x;
  const fwd_blocks &b;
  int count;                   /* of blocks that the warp group computes */
  unsigned (&at)[kSeenBlocks]; /* where they are in the pipelines */
  key_span (&seen)[2];         /* keys that the thread's two rows see */
  float (&s)[kSeenBlocks][S::kKeys / 2];
  uint32_t (&p)[kSeenBlocks][S::kKeys / 4];
  row_state &rows;
};

/** Skips blocks of keys that no row of the warp group sees. */
template <typename S> __device__ __forceinline__ void pass_over(fwd_consumer<S> &c, int blocks)
{
  for (; blocks > 0; blocks--, c.n++) {
    await_stage(c, c.sh.k_full, c.n);
    release_stage(c, c.sh.k_empty, c.n);
    await_stage(c, c.sh.v_full, c.n);
    release_stage(c, c.sh.v_empty, c.n);
  }
}

/** Scores of all blocks. With fewer than three, at a sequence's start, the last block's keys stand
 * in for those that do not exist, all masked. */
template <typename S>
__device__ __forceinline__ void score_blocks(const fwd_consumer<S> &c, const narrow_tile<S> &t,
                                             uint64_t q)
{
#pragma unroll
  for (int j = 0; j < kSeenBlocks; j++) {
    t.at[j] = c.n + (unsigned)min(j, t.count - 1);
    await_stage(c, c.sh.k_full, t.at[j]);
  }
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < kSeenBlocks; j++) {
    multiply_keys<S, S::kKeys>(t.s[j], q, keys_at(c, t.at[j]));
  }
  wgmma_commit();
#pragma unroll
  for (int r = 0; r < 2; r++) { /* overlaps the products */
    t.seen[r] = span_of(c.rule, t.x, c.first + c.row0 + 8 * r);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int j = 0; j < kSeenBlocks; j++) {
    settle(t.s[j]);
  }
}

/** Masks scores, and releases the keys. */
template <typename S>
__device__ __forceinline__ void mask_blocks(const fwd_consumer<S> &c, const narrow_tile<S> &t)
{
  constexpr int kKeys = S::kKeys;
#pragma unroll
  for (int j = 0; j < kSeenBlocks; j++) {
    const int from = (t.b.above - 1 - j) * kKeys;
    if (j < t.count) {
      release_stage(c, c.sh.k_empty, c.n + j);
    }
    if (j >= t.count || from + kKeys > t.b.top.high || from < t.b.bottom.low) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int low = t.seen[r].low - from - c.col0, high = t.seen[r].high - from - c.col0;
        keep_columns(t.s[j], r, j < t.count ? column_bits(low, high) : 0, -CUDART_INF_F);
      }
    }
  }
}

/** o += probabilities times values of block j. */
template <typename S>
__device__ __forceinline__ void add_block(const fwd_consumer<S> &c, const narrow_tile<S> &t,
                                          float (&o)[S::kValueDim / 2], int j)
{
#pragma unroll
  for (int i = 0; i < S::kKeys / 16; i++) {
    multiply_turned<typename S::T, S::kValueDim>(
        o, t.p[j] + 4 * i, operand_at(values_at(c, t.at[j]), i * 16 * kPageRow), j > 0 || i > 0);
  }
}

/** Results from all blocks: with three of them in one group of products. */
template <typename S>
__device__ __forceinline__ void add_blocks(fwd_consumer<S> &c, const narrow_tile<S> &t,
                                           float (&o)[S::kValueDim / 2])
{
#pragma unroll
  for (int j = 0; j < kSeenBlocks; j++) {
    await_stage(c, c.sh.v_full, t.at[j]);
  }
  if (t.count == kSeenBlocks) {
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kSeenBlocks; j++) {
      add_block(c, t, o, j);
    }
    wgmma_commit();
    finish_rows(c.job, t.x, c.first + c.row0, t.rows);
    wgmma_wait<0>();
    settle(o);
  } else {
#pragma unroll
    for (int j = 0; j < kSeenBlocks; j++) {
      if (j < t.count) { /* one by one: 0 times a stand-in's infinity would be NaN */
        wgmma_fence();
        add_block(c, t, o, j);
        wgmma_commit();
        wgmma_wait<0>();
        settle(o);
      }
    }
    finish_rows(c.job, t.x, c.first + c.row0, t.rows);
  }
#pragma unroll
  for (int j = 0; j < kSeenBlocks; j++) {
    if (j < t.count) {
      release_stage(c, c.sh.v_empty, c.n + j);
    }
  }
  c.n += (unsigned)t.count;
}

template <typename S>
__device__ __forceinline__ void compute_narrow_tiles(const CUtensorMap *out_map, const fwd_job &job,
                                                     fwd_shared<S> &sh, int group)
{
  constexpr int kKeys = S::kKeys, kSlots = S::kQueryStages;
  static_assert(kSlots > 1, "release_queries() gives the buffer back");
  fwd_consumer<S> c = consumer_of(sh, job, group);
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
    const fwd_blocks b = blocks_of(c, x);
    const int count = b.above - b.below;
    const bool hides = b.below * kKeys < b.bottom.low || b.above * kKeys > b.top.high;
    row_state rows = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}, {1, 1}};
    static_assert(S::kValueDim == kKeys, "results take the first scores' registers");
    float s[kSeenBlocks][kKeys / 2], (&o)[S::kValueDim / 2] = s[0];
    pass_over(c, b.high_block - b.above);
    if (count > 0) {
      unsigned at[kSeenBlocks];
      uint32_t p[kSeenBlocks][kKeys / 4];
      key_span seen[2];
      const narrow_tile<S> t = {x, b, count, at, seen, s, p, rows};
      score_blocks(c, t, q);
      release_queries(c, tile);
      mask_blocks(c, t);
      softmax_whole<typename S::T>(p, s, rows, job.exponent);
      add_blocks(c, t, o);
    } else {
#pragma unroll
      for (int i = 0; i < S::kValueDim / 2; i++) {
        o[i] = 0;
      }
      release_queries(c, tile);
      finish_rows(job, x, c.first + c.row0, rows);
    }
    pass_over(c, b.below - b.low_block);
    finish_tile<S>(out_map, job, x, group, page, hides && count > 0, b.below, b.above, rows, o);
  }
  if (c.thread == 0) {
    wait_for_store_reads();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
