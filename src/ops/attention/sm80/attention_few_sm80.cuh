/**
 * Attention forward of few queries by mma.sync (attention_sm80.cu): the kernel, split-KV
 * (arXiv:2311.01282).
 *
 * A thread block of four warps has some splits of the keys of one kv head, and up to 64 rows of its
 * group. Each warp copies 16 keys of every 64, and their values, through a ring of stages
 * (cp.async); warps that have rows of their own share the copies. Bound by memory.
 */
#ifndef TGI_OPS_ATTENTION_FEW_SM80_CUH
#define TGI_OPS_ATTENTION_FEW_SM80_CUH

#include "ops/attention/sm80/attention_configs_sm80.cuh"
#include "ops/attention/sm80/attention_few_sums_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A configuration with its dtype, and what follows from them. */
template <typename T_, typename Config> struct few_tile : Config {
  using T = T_;
  static constexpr int kStageBytes = kStageKeys * Config::kHeadDim * 4;
};

/** Waits until at most `groups` of the latest groups of copies of this thread are in flight. */
__device__ __forceinline__ void wait_for_copies_but(int groups)
{
  switch (groups) {
  case 0:
    return wait_for_copies<0>();
  case 1:
    return wait_for_copies<1>();
  case 2:
    return wait_for_copies<2>();
  default:
    return wait_for_copies<kMostStages - 1>();
  }
}

/** What a warp's 16 rows see of the block's keys: keys below .. above - 1 are seen by some row,
 * keys all_from .. all_to - 1 by all. low, high: of the thread's two rows. */
struct few_sight {
  int below, above, all_from, all_to;
  int low[2], high[2];
};

/** The view of the tile's rows from `first` on; empty where there are none. */
__device__ __forceinline__ few_sight sight_of(const few_job &job, const few_place &x, int first)
{
  const int last = min(first + 15, x.rows - 1);
  few_sight s = {0, 0, 0, 0, {0, 0}, {0, 0}};
  if (first <= last) {
    const key_span top = span_of(job.rule, x.all, job.group.quotient(x.row0 + first));
    const key_span bottom = span_of(job.rule, x.all, job.group.quotient(x.row0 + last));
    s.below = max(top.low, x.low);
    s.above = min(bottom.high, x.high);
    s.all_from = bottom.low;
    s.all_to = top.high;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = x.row0 + min(first + (int)threadIdx.x % kWarp / 4 + 8 * r, last);
      const key_span mine = span_of(job.rule, x.all, job.group.quotient(row));
      s.low[r] = mine.low;
      s.high[r] = mine.high;
    }
  }
  return s;
}

/** s = Q K for 16 keys, each a row of the tile; `keys` as from columns(). */
template <typename S>
__device__ __forceinline__ void score_keys(float (&s)[8], const uint32_t (&q)[S::kHeadDim / 16][4],
                                           uint32_t keys)
{
  using tile = row_tile<S::kHeadDim>;
  uint32_t y[2][4];
  load_matrices(y[0], keys);
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 16; i++) {
    if (i + 1 < S::kHeadDim / 16) {
      load_matrices(y[(i + 1) % 2], tile::ahead(keys, i + 1));
    }
    multiply_small<typename S::T>(s, q[i], y[i % 2][0], y[i % 2][1], i > 0);
    multiply_small<typename S::T>(s + 4, q[i], y[i % 2][2], y[i % 2][3], i > 0);
  }
}

/** True if one of 16 rows of values holds a NaN or an infinity. By a warp. */
template <typename S> __device__ __forceinline__ bool any_not_finite_row(uint32_t rows)
{
  uint32_t zero = 0;
#pragma unroll 1
  for (int e = threadIdx.x % kWarp; e < 16 * (S::kHeadDim / 8); e += kWarp) {
    uint32_t w[4];
    load_shared(w, rows + (uint32_t)e * 16);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      zero = add_zero_times<typename S::T>(zero, w[i]);
    }
  }
  return __any_sync(kAllLanes, (zero & 0x7fff7fff) != 0);
}

/** o += P V for 16 keys, one by one: 0 times a value that a row does not see would be NaN. Rows see
 * keys low .. high - 1 of them. */
template <typename S>
__device__ __forceinline__ void add_seen_values(float (&o)[S::kHeadDim / 2], const uint32_t (&p)[4],
                                                uint32_t rows, const int (&low)[2],
                                                const int (&high)[2])
{
  using tile = row_tile<S::kHeadDim>;
  using T = typename S::T;
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int key = 0; key < 16; key++) {
    float weight[2];
    bool seen[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t pair =
          __shfl_sync(kAllLanes, key < 8 ? p[r] : p[2 + r], lane / 4 * 4 + key % 8 / 2);
      weight[r] = half_of<T>(pair, key % 2);
      seen[r] = key >= low[r] && key < high[r];
    }
#pragma unroll
    for (int i = 0; i < S::kHeadDim / 8; i++) {
      const uint32_t pair = load_shared(rows + tile::at(key, i) + lane % 4 * 4);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (seen[j / 2]) {
          o[4 * i + j] = fmaf(weight[j / 2], half_of<T>(pair, j % 2), o[4 * i + j]);
        }
      }
    }
  }
}

/** Adds 16 keys and their values, from `key0` on, to a warp's sums. */
template <typename S>
__device__ __forceinline__ void attend_few(const few_job &job, const few_sight &sight,
                                           float (&s)[8], int key0, uint32_t values,
                                           row_state &state, float (&o)[1][S::kHeadDim / 2])
{
  using T = typename S::T;
  if (job.cap_by > 0) {
    cap_scores(s, job.from.softcap, job.cap_by);
  }
  const bool hides = key0 < sight.all_from || key0 + 16 > sight.all_to;
  if (hides) {
    const int from = key0 + (int)threadIdx.x % 4 * 2;
    const int low[2] = {sight.low[0] - from, sight.low[1] - from};
    const int high[2] = {sight.high[0] - from, sight.high[1] - from};
    hide_keys<true>(s, low, high);
  }
  softmax_block(s, state, job.exponent);
  uint32_t p[1][4];
  round_pairs<T>(p[0], s);
  if (__any_sync(kAllLanes, state.factor[0] != 1 || state.factor[1] != 1)) {
    rescale(o[0], state.factor);
  }
  /* The rows of a single query see the same keys, and all others are zeros. */
  if (hides && job.l.nq > 1 && any_not_finite_row<S>(values)) {
    const int low[2] = {sight.low[0] - key0, sight.low[1] - key0};
    const int high[2] = {sight.high[0] - key0, sight.high[1] - key0};
    add_seen_values<S>(o[0], p[0], values, low, high);
    return;
  }
  add_rows_small<T, 1, S::kHeadDim, 16>(o, p, row_tile<S::kHeadDim>::square(values));
}

template <int kValues>
__device__ __forceinline__ void clear_sums(row_state &state, float (&o)[kValues])
{
  state = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}, {1, 1}};
#pragma unroll
  for (int i = 0; i < kValues; i++) {
    o[i] = 0;
  }
}

/** Writes a warp's rows, `rows` of them, to the lines of the exchange from `first` on. */
template <typename S>
__device__ __forceinline__ void put_sums(float *to, few_ends &ends, int first, int rows,
                                         const row_state &state, const float (&o)[S::kHeadDim / 2])
{
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = lane / 4 + 8 * r;
    float sum = state.sum[r];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (row < rows) {
      float *const line = to + (first + row) * exchange_pitch(S::kHeadDim) + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < S::kHeadDim / 8; i++) {
        *reinterpret_cast<float2 *>(line + 8 * i) =
            make_float2(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]);
      }
      if (lane % 4 == 0) {
        ends.top[first + row] = state.top[r];
        ends.sum[first + row] = sum;
      }
    }
  }
}

template <typename T, typename Config>
__global__ void __launch_bounds__(kFewWarps *kWarp, few_residents(Config::kHeadDim))
    attention_few_kernel(const __grid_constant__ few_job job)
{
  using S = few_tile<T, Config>;
  using tile = row_tile<S::kHeadDim>;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ few_place x;
  __shared__ few_ends ends;
  if (threadIdx.x == 0) {
    put_few_place(job, x);
  }
  __syncthreads();
  if (x.part >= x.parts) {
    return;
  }
  const int warp = threadIdx.x / kWarp, sharing = job.row_warps, stages = job.stages;
  const int set = sharing == 1 ? warp : sharing == 2 ? warp / 2 : 0; /* of warps that share keys */
  const int row0 = (warp - set * sharing) * 16;
  const uint32_t ring = shared_address(memory);
  const uint32_t queries = ring + (uint32_t)(stages * S::kStageBytes + row0 * tile::kPitch);
  few_sight sight = {};
  int lost = INT_MAX; /* the lowest entry of the block table that is out of range */
  if (job.l.has_table && x.part == 0) {
    check_other_blocks(job, x, lost);
  }
  uint32_t q[S::kHoldsQueries ? S::kHeadDim / 16 : 1][4];
  float o[1][S::kHeadDim / 2];
  row_state state;
  clear_sums(state, o[0]);
  /* Behind the ring or, with a single split, in place of the ring. */
  float *const exchange = reinterpret_cast<float *>(
      memory + (job.run > 1 ? stages * S::kStageBytes + sharing * 16 * tile::kPitch : 0));
  const int split = job.keys.divisor / kStageKeys;
  auto wait_for_set = [&]() {
    if (sharing == 1) {
      __syncwarp();
    } else {
      sync_some(1 + set, sharing * kWarp);
    }
  };

  const int from = x.low / kStageKeys;
  const int to = x.high > x.low ? (x.high + kStageKeys - 1) / kStageKeys : from;
  int part = x.part, left = min(split, max(to - from, 1)); /* stages left in this split */
  const few_lane mine = few_copy<S::kHeadDim>::lane_of(job, x);
  const bool whole =
      !job.l.has_table && job.from.head_dim == S::kHeadDim && job.from.v_dim == S::kHeadDim;
  int entries[kMostStages]; /* of the block table, for the next stages to be loaded */
#pragma unroll
  for (int i = 0; i < kMostStages; i++) {
    entries[i] = job.l.has_table ? read_entry(job, x, from + i) : 0;
  }
  uint32_t place = ring;
#pragma unroll 1
  for (int stage = from - stages; stage < max(to, from + 1); stage++) {
    if (stage == from) {
      sight = sight_of(job, x, row0);
      wait_for_copies_but(stages - 1);
      __syncthreads(); /* all threads' copies of queries have arrived */
      if constexpr (S::kHoldsQueries) {
#pragma unroll
        for (int i = 0; i < S::kHeadDim / 16; i++) {
          load_matrices(q[i], tile::ahead(tile::square(queries), i));
        }
      }
    }
    if (stage >= from) {
      wait_for_copies_but(stages - 1);
      wait_for_set();
#pragma unroll 1
      for (int i = 0; i < sharing; i++) {
        const int row = (set * sharing + i) * kWarpKeys, key0 = stage * kStageKeys + row;
        if (key0 < sight.above && key0 + kWarpKeys > sight.below) {
          const uint32_t keys = place + (uint32_t)(row * tile::kPitch);
          float s[1][8];
          if constexpr (S::kHoldsQueries) {
            score_keys<S>(s[0], q, tile::columns(keys));
          } else {
            multiply_rows_small<T, 1, kWarpKeys, S::kHeadDim>(s, tile::square(queries),
                                                              tile::columns(keys));
          }
          attend_few<S>(job, sight, s[0], key0, keys + S::kStageBytes / 2, state, o);
        }
      }
      wait_for_set(); /* all have read the stage that is overwritten next */
    }
    const int next = stage + stages;
    if (next < to) {
      const int row = next * kStageKeys + warp * kWarpKeys;
      if (whole && row >= x.low && row + kWarpKeys <= x.high) {
        few_copy<S::kHeadDim>::whole_rows(place, S::kStageBytes / 2, job, mine, row);
      } else {
        few_copy<S::kHeadDim>::rows(place, S::kStageBytes / 2, job, mine,
                                    find_row(job, x, next, entries[0], lost));
      }
    }
    if (stage == from - stages) {
      copy_queries<S::kHeadDim>(ring + (uint32_t)(stages * S::kStageBytes), job, x);
    }
    commit_copies();
    if (job.l.has_table) {
#pragma unroll
      for (int i = 0; i + 1 < kMostStages; i++) {
        entries[i] = entries[i + 1];
      }
      entries[kMostStages - 1] = read_entry(job, x, next + kMostStages);
    }
    if (stage >= from && --left == 0) { /* after the copies are issued, which then overlap this */
      /* The exchange, or the ring in its place, is no longer read. */
      const bool bad = __syncthreads_or(lost < INT_MAX) || x.all.state == kOutOfRange;
      put_sums<S>(exchange, ends, warp * job.lines, x.rows - row0, state, o[0]);
      __syncthreads();
      leave_split<T, S::kHeadDim>(job, x, part, exchange, ends, bad);
      clear_sums(state, o[0]);
      part++;
      left = min(split, to - stage - 1);
    }
    place = place + S::kStageBytes == ring + (uint32_t)(stages * S::kStageBytes)
                ? ring
                : place + S::kStageBytes;
  }
  if (lost < INT_MAX && x.reports) {
    const int64_t entry = x.b * job.l.max_blocks + lost;
    record_fault(job.sites.block_table, entry, job.l.block_table[entry], 0, job.l.num_blocks - 1);
  }
  if (x.parts > 1 && is_last_block(job, x)) {
    add_splits<T, S::kHeadDim>(job, x);
  }
}

/* ---- host ---- */

/** One launch for as many sequences as there are counters, then the next. */
template <typename T, typename Config>
tg_status run_few_tiles_of(const tg_context *ctx, const tg_attention_fwd_args *a,
                           const attention_few_plan &p)
{
  few_job job = few_job_of(ctx, a, p);
  tg_status status = TG_OK;
  for (int64_t first = 0; first < p.l.batch && status == TG_OK; first += p.sequences) {
    const int64_t left = p.l.batch - first, n = left < p.sequences ? left : p.sequences;
    job.first = (int)first;
    const dim3 grid((unsigned)(p.l.kv_heads * p.tiles), (unsigned)divide_up(p.splits, p.run),
                    (unsigned)n);
    status = launch(ctx, attention_few_kernel<T, Config>, grid, kFewWarps * kWarp, p.shared, job);
  }
  return status;
}

template <typename Config>
tg_status run_few_tiles(const tg_context *ctx, const tg_attention_fwd_args *a,
                        const attention_few_plan &p)
{
  return a->q.dtype == TG_F16 ? run_few_tiles_of<f16, Config>(ctx, a, p)
                              : run_few_tiles_of<bf16, Config>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
