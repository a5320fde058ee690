/**
 * Attention forward on Hopper: tiles of a causal window so narrow that 64 queries, from a whole
 * block of keys on, see three blocks of 64 keys at most.
 *
 * A warpgroup makes all scores of its queries at once, so there is no running softmax: one maximum,
 * no factors, and one wait for products of either kind. Warpgroups drift apart: one makes
 * exponentials while another multiplies.
 */
#ifndef TGI_OPS_ATTENTION_FWD_NARROW_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_NARROW_SM90_CUH

#include "ops/attention/sm90/attention_fwd_results_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kSeenBlocks = 3; /* of keys, by a warpgroup's queries */

/** All scores of a row to probabilities, but for the factor of its sum. */
template <typename T, int kBlocks, int kN>
__device__ __forceinline__ void softmax_whole(uint32_t (&p)[kBlocks][kN / 2],
                                              float (&s)[kBlocks][kN], row_state &rows, float c)
{
  float base[2], a[2] = {0, 0}, b[2] = {0, 0};
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float c0 = s[0][2 * r], c1 = s[0][2 * r + 1]; /* a NaN is passed over and shows in the sum */
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

template <typename S>
__device__ __forceinline__ void compute_narrow_tiles(const CUtensorMap *out_map, const fwd_job &job,
                                                     fwd_shared<S> &sh, int group)
{
  using T = typename S::T;
  constexpr int kKeys = S::kKeys, kStages = S::kStages, kSlots = S::kQueryStages;
  static_assert(kSlots > 1, "hand_back() gives the place back");
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int row0 = 16 * warp + lane / 4, col0 = 2 * (lane % 4), first = 64 * group;
  const key_rule rule = job.work.rule;
  unsigned n = 0; /* blocks of keys so far */
  auto await = [&](mbarrier *ring, unsigned i) { wait_for(&ring[i % kStages], i / kStages & 1); };
  auto release = [&](mbarrier *ring, unsigned i) {
    if (thread == 0) {
      arrive(&ring[i % kStages]);
    }
  };
  auto keys_at = [&](unsigned i) { return page_operand(shared_address(sh.k[i % kStages])); };
  auto values_at = [&](unsigned i) {
    return page_operand(shared_address(sh.v[i % kStages]), S::kKeyPage);
  };
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
    /* This warpgroup's blocks are below .. above - 1 of the tile's. */
    const int low_block = uniform(x.low_block), high_block = uniform(x.high_block);
    const int rows = min(uniform(x.rows) - first, 64);
    const key_span top = span_of(rule, x, first), bottom = span_of(rule, x, first + rows - 1);
    int below = uniform(top.low / kKeys), above = uniform((bottom.high + kKeys - 1) / kKeys);
    if (rows <= 0 || above <= below || high_block <= low_block) {
      below = above = low_block;
    }
    const int count = above - below;
    const bool hides = below * kKeys < bottom.low || above * kKeys > top.high;
    row_state state = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}, {1, 1}};
    static_assert(S::kValueDim == kKeys, "results take the first scores' registers");
    float s[kSeenBlocks][kKeys / 2], (&o)[S::kValueDim / 2] = s[0];
    auto pass_over = [&](int blocks) {
      for (; blocks > 0; blocks--, n++) {
        await(sh.k_full, n);
        release(sh.k_empty, n);
        await(sh.v_full, n);
        release(sh.v_empty, n);
      }
    };
    auto hand_back = [&]() { /* the place of the tile before, once its results are read */
                             if (tile > 0 && thread == 0) {
                               wait_for_store_reads();
                               arrive(&sh.q_empty[(tile - 1) % kSlots][group]);
                             }
    };
    pass_over(high_block - above);
    if (count > 0) {
      /* With fewer than three, at a sequence's start, the last one's keys stand for those that
       * there are not, all hidden. */
      unsigned at[kSeenBlocks];
      uint32_t p[kSeenBlocks][kKeys / 4];
#pragma unroll
      for (int j = 0; j < kSeenBlocks; j++) {
        at[j] = n + (unsigned)min(j, count - 1);
        await(sh.k_full, at[j]);
      }
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < kSeenBlocks; j++) {
        multiply_keys<S, kKeys>(s[j], q, keys_at(at[j]));
      }
      wgmma_commit();
      key_span seen[2]; /* beside the products */
#pragma unroll
      for (int r = 0; r < 2; r++) {
        seen[r] = span_of(rule, x, first + row0 + 8 * r);
      }
      wgmma_wait<0>();
#pragma unroll
      for (int j = 0; j < kSeenBlocks; j++) {
        settle(s[j]);
      }
      hand_back();
#pragma unroll
      for (int j = 0; j < kSeenBlocks; j++) {
        const int from = (above - 1 - j) * kKeys;
        if (j < count) {
          release(sh.k_empty, n + j);
        }
        if (j >= count || from + kKeys > top.high || from < bottom.low) {
#pragma unroll
          for (int r = 0; r < 2; r++) {
            const int low = seen[r].low - from - col0, high = seen[r].high - from - col0;
            keep_columns(s[j], r, j < count ? column_bits(low, high) : 0, -CUDART_INF_F);
          }
        }
      }
      softmax_whole<T>(p, s, state, job.exponent);
#pragma unroll
      for (int j = 0; j < kSeenBlocks; j++) {
        await(sh.v_full, at[j]);
      }
      auto add_block = [&](int j) {
#pragma unroll
        for (int i = 0; i < kKeys / 16; i++) {
          multiply_turned<T, S::kValueDim>(
              o, p[j] + 4 * i, operand_at(values_at(at[j]), i * 16 * kPageRow), j > 0 || i > 0);
        }
      };
      if (count == kSeenBlocks) {
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < kSeenBlocks; j++) {
          add_block(j);
        }
        wgmma_commit();
        finish_rows(job, x, first + row0, state);
        wgmma_wait<0>();
        settle(o);
      } else {
#pragma unroll
        for (int j = 0; j < kSeenBlocks; j++) {
          if (j < count) { /* values times 0 that rows see would make NaN of infinity */
            wgmma_fence();
            add_block(j);
            wgmma_commit();
            wgmma_wait<0>();
            settle(o);
          }
        }
        finish_rows(job, x, first + row0, state);
      }
#pragma unroll
      for (int j = 0; j < kSeenBlocks; j++) {
        if (j < count) {
          release(sh.v_empty, n + j);
        }
      }
      n += (unsigned)count;
    } else {
#pragma unroll
      for (int i = 0; i < S::kValueDim / 2; i++) {
        o[i] = 0;
      }
      hand_back();
      finish_rows(job, x, first + row0, state);
    }
    pass_over(below - low_block);
    finish_tile<S>(out_map, job, x, group, page, hides && count > 0, below, above, state, o);
  }
  if (thread == 0) {
    wait_for_store_reads();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
