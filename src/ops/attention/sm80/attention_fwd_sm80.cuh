/**
 * Attention forward by mma.sync (attention_sm80.cu): the kernel (arXiv:2307.08691).
 *
 * A thread block has a tile of queries of one head, a warp 16 or 32 of them, with their scores and
 * results in registers. Keys and, where they fit, values are double-buffered in shared memory:
 * cp.async loads a block while the block before is computed. Bound by tensor cores.
 */
#ifndef TGI_OPS_ATTENTION_FWD_SM80_CUH
#define TGI_OPS_ATTENTION_FWD_SM80_CUH

#include "ops/attention/cuda/attention_fwd_job.cuh"
#include "ops/attention/sm80/attention_configs_sm80.cuh"
#include "ops/attention/sm80/attention_plan_sm80.cuh"
#include "ops/attention/sm80/attention_tiles_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A forward configuration with its dtype (f16, bf16 or tf32), and what follows from them. */
template <typename T_, typename Config> struct fwd_tile : Config {
  using T = T_;
  static constexpr int kM = Config::kWarpRows / 16; /* products' 16 rows that a warp has */
  static constexpr int kRows = Config::kQueries, kThreads = kWarp * Config::kWarps;
  static_assert(kRows == Config::kWarpRows * Config::kWarps, "each warp has its queries");
  /* Whether sums are rescaled only where some factor is not 1: not at 64 elements, where the test
   * costs more than it saves, and not where no register is left for it. */
  static constexpr bool kLazyRescale =
      Config::kValueStages == 2 && Config::kValueDim > 64 && !kIsTf32<T>;
  /* Whether a block's flags are read before the barrier, whose wait then hides the latency: not
   * where no register is left for them. */
  static constexpr bool kReadsEarly = Config::kValueDim != 128 || kIsTf32<T>;
  using qk_tile = tile_of<T, Config::kHeadDim>;
  using value_tile = tile_of<T, Config::kValueDim>;
};

/** Bytes of shared memory: queries, then two blocks of keys, then those of values. */
template <typename S> struct fwd_shared {
  static constexpr uint32_t kQueries = S::kRows * S::qk_tile::kPitch;
  static constexpr uint32_t kBlock = S::kKeys * S::qk_tile::kPitch;
  static constexpr uint32_t kValues = S::kKeys * S::value_tile::kPitch;

  static __device__ __forceinline__ uint32_t k(uint32_t memory, int block)
  {
    return memory + kQueries + (uint32_t)(block & 1) * kBlock;
  }

  static __device__ __forceinline__ uint32_t v(uint32_t memory, int block)
  {
    return memory + kQueries + 2 * kBlock +
           (S::kValueStages == 2 ? (uint32_t)(block & 1) * kValues : 0);
  }

  static constexpr size_t kBytes = kQueries + 2 * kBlock + S::kValueStages * kValues;
};

/** Registers of probabilities, as operand. */
template <typename S> constexpr int kOfKeys = kHalves<typename S::T> *S::kKeys / 4;

/** Scores of a block of keys to probabilities, rounded as operand; the factor of earlier sums goes
 * to state. `hides`: some row does not see some key. */
template <typename S>
__device__ __forceinline__ void
make_probabilities(uint32_t (&p)[S::kM][kOfKeys<S>], float (&s)[S::kM][S::kKeys / 2],
                   const fwd_job &job, const query_place &x, int row0, int block, bool hides,
                   row_state (&state)[S::kM])
{
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
    if (job.cap_by > 0) {
      cap_scores(s[m], job.from.softcap, job.cap_by);
    }
    if (hides) {
      const int from = block * S::kKeys + threadIdx.x % 4 * 2;
      int low[2], high[2];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const key_span seen = span_of(job.work.rule, x, row0 + 16 * m + 8 * r);
        low[r] = seen.low - from;
        high[r] = seen.high - from;
      }
      hide_keys<true>(s[m], low, high);
    }
    softmax_block<S::kLazyRescale>(s[m], state[m], job.exponent);
    round_sums<typename S::T>(p[m], s[m]);
  }
}

/** Stores a warp's rows. `page`: its own shared memory. `hides`: some row does not see some of the
 * keys low .. high - 1, which went into the rows. */
template <typename S>
__device__ __forceinline__ void
finish_warp(const fwd_job &job, const query_place &x, int first, uint32_t page, bool hides, int low,
            int high, row_state (&state)[S::kM], float (&o)[S::kM][S::kValueDim / 2])
{
  using T = typename S::T;
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
    bool bad[2];
    finish_rows(job, x, first + 16 * m + lane / 4, state[m]);
    rescale(o[m], state[m].factor);
    put_rows<T, S::kValueDim>(page, 16 * m, 0, o[m], 1.0f, bad);
    if (hides && __any_sync(kAllLanes, bad[0] || bad[1])) {
      const float sink = job.sinks.data ? job.sinks.at(x.head) : -CUDART_INF_F;
      __syncwarp();
      attend_again<T>(job.from, job.work, x, first + 16 * m, low, high, sink, bad,
                      [&](int r, const float(&row)[kChunk]) {
                        put_row<T, S::kValueDim>(page, 16 * m + r, 0, row, 1.0f);
                      });
    }
  }
  __syncwarp();
  store_rows<T, S::kValueDim>(job.out, x.q_index, x.q_row + first, x.head,
                              min(x.rows - first, 16 * S::kM), job.from.v_dim, page);
}

/** What copies of a tile's blocks need: the tile, its keys and values, and shared memory. */
struct fwd_loader {
  const fwd_job &job;
  const query_place &x;
  const key_rows &keys;
  const uint32_t &memory;
};

template <typename S>
__device__ __forceinline__ void load_keys(const fwd_loader &l, int block, bool whole)
{
  copy_keys<typename S::T, S::kHeadDim, S::kKeys, S::kThreads>(
      fwd_shared<S>::k(l.memory, block), l.keys.k, l.job.from.k.step[1], l.job.from.head_dim, l.x,
      block, whole);
}

template <typename S>
__device__ __forceinline__ void load_values(const fwd_loader &l, int block, bool whole)
{
  copy_keys<typename S::T, S::kValueDim, S::kKeys, S::kThreads>(
      fwd_shared<S>::v(l.memory, block), l.keys.v, l.job.from.v.step[1], l.job.from.v_dim, l.x,
      block, S::kValueStages == 2 && whole);
}

/** Copies the tile's queries, and its first block of keys. */
template <typename S> __device__ __forceinline__ void begin_loads(const fwd_loader &l)
{
  using T = typename S::T;
  const fwd_operands &from = l.job.from;
  copy_rows<kHalves<T> * S::kHeadDim, S::kRows, S::kThreads>(
      l.memory, from.q.data + from.q.at(l.x.q_index, l.x.q_row, l.x.head), from.q.step[1], 0,
      l.x.rows, kHalves<T> * from.head_dim, from.q.data);
  const bool whole = l.keys.whole(l.x.high_block - 1);
  load_keys<S>(l, l.x.high_block - 1, whole);
  if (S::kValueStages == 2) {
    load_values<S>(l, l.x.high_block - 1, whole);
  }
  commit_copies();
  if (kIsTf32<T>) {
    wait_for_copies<0>();
    __syncthreads();
    round_tile<T, fwd_shared<S>::kQueries / 2, S::kThreads>(l.memory);
  }
}

/** Scores and probabilities of a block, and the rescaling of the sums so far. */
template <typename S>
__device__ __forceinline__ void score_block(const fwd_loader &l, uint32_t page, int row0, int block,
                                            bool hides, uint32_t (&p)[S::kM][kOfKeys<S>],
                                            row_state (&state)[S::kM],
                                            float (&o)[S::kM][S::kValueDim / 2])
{
  float s[S::kM][S::kKeys / 2];
  uint32_t rows = page;
  asm volatile("" : "+r"(rows)); /* derived addresses are computed where needed */
  multiply_rows_small<typename S::T, S::kM, S::kKeys, S::kHeadDim>(
      s, S::qk_tile::square(rows), S::qk_tile::columns(fwd_shared<S>::k(l.memory, block)));
  make_probabilities<S>(p, s, l.job, l.x, row0, block, hides, state);
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
    /* rarely needed: see softmax_block */
    if (!S::kLazyRescale ||
        __any_sync(kAllLanes, state[m].factor[0] != 1 || state[m].factor[1] != 1)) {
      rescale(o[m], state[m].factor);
    }
  }
}

template <typename T, typename Config>
__global__ void __launch_bounds__(fwd_tile<T, Config>::kThreads, Config::kOccupancy)
    attention_fwd_tiles_kernel(const __grid_constant__ fwd_job job)
{
  using S = fwd_tile<T, Config>;
  constexpr int kKeys = S::kKeys, kM = S::kM;
  extern __shared__ __align__(128) uint8_t memory[];
  uint32_t sh = shared_address(memory);
  asm volatile("" : "+r"(sh)); /* kept in a register: recomputing it takes longer */
  __shared__ query_place x;
  __shared__ warp_range ranges[S::kWarps];
  __shared__ key_rows keys;
  if (threadIdx.x == 0 && put_place(job.work, (int)blockIdx.x, &x)) {
    put_key_rows(job.from.k, job.from.v, x.head / job.work.group, x, kKeys,
                 job.from.head_dim == S::kHeadDim && job.from.v_dim == S::kValueDim, &keys);
  }
  __syncthreads();
  if (x.state == kNoMore) {
    return;
  }
  const int lane = threadIdx.x % kWarp, first = threadIdx.x / kWarp * 16 * kM;
  const fwd_loader loader = {job, x, keys, sh};
  warp_range &range = ranges[threadIdx.x / kWarp]; /* in shared memory: registers are for sums */
  if (lane == 0) {
    range = range_of(job.work.rule, x, first, 16 * kM, kKeys);
  }
  if (S::kReadsEarly) {
    __syncwarp(); /* the other lanes read it before the barrier */
  }
  const uint32_t page = sh + (uint32_t)(first * S::qk_tile::kPitch);
  float o[kM][S::kValueDim / 2];
  row_state state[kM];
#pragma unroll
  for (int m = 0; m < kM; m++) {
    state[m] = {{-CUDART_INF_F, -CUDART_INF_F}, {0, 0}, {1, 1}};
#pragma unroll
    for (int i = 0; i < S::kValueDim / 2; i++) {
      o[m][i] = 0;
    }
  }
  if (x.high_block > x.low_block) {
    begin_loads<S>(loader);
  }
#pragma unroll 1
  for (int block = x.high_block - 1; block >= x.low_block; block--) {
    uint32_t p[kM][kOfKeys<S>];
    bool more, whole, mine, hides;
    auto look = [&]() {
      more = block > x.low_block;
      whole = keys.whole(block - 1);
      mine = block >= range.below && block < range.above;
      hides = range.hides(block * kKeys, (block + 1) * kKeys);
    };
    if (S::kReadsEarly) {
      look();
    }
    wait_for_copies<0>();
    __syncthreads(); /* all threads' copies have arrived, and the block before is no longer read */
    if (!S::kReadsEarly) {
      look();
    }
    if (S::kValueStages == 1) {
      load_values<S>(loader, block, false);
      commit_copies();
    }
    if (more) {
      load_keys<S>(loader, block - 1, whole);
      if (S::kValueStages == 2) {
        load_values<S>(loader, block - 1, whole);
      }
    }
    commit_copies();
    if (mine) {
      score_block<S>(loader, page, first + lane / 4, block, hides, p, state, o);
    }
    if (S::kValueStages == 1) {
      wait_for_copies<1>();
      __syncthreads();
    } else {
      __syncwarp(); /* keeps the assembler from loading values before scores are consumed: spills */
    }
    if (mine) {
      add_rows_small<T, kM, S::kValueDim, kKeys>(
          o, p, S::value_tile::template depth<T>(fwd_shared<S>::v(sh, block)));
    }
  }
  __syncwarp();
  const int low = range.below * kKeys, high = range.above * kKeys;
  finish_warp<S>(job, x, first, page, high > low && range.hides(low, high), low, high, state, o);
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_tiles_of(const tg_context *ctx, const tg_attention_fwd_args *a,
                       const attention_fwd_plan &p)
{
  using S = fwd_tile<T, Config>;
  return launch(ctx, attention_fwd_tiles_kernel<T, Config>, grid_of(p.places * p.l.q_heads),
                S::kThreads, fwd_shared<S>::kBytes, job_of(a, p));
}

/** Of 16-bit elements. */
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
