/**
 * Products of 16-bit rows x with packed quantised weights on Hopper: the products, sums and
 * operands of gemm_quantised_sm80.cuh, whose bits these are, in blocks that have more of the
 * weight's rows, so that x is read less often.
 *
 * A block has four panels and two teams, with a warp for each panel. There are fewer teams than the
 * kTeams runs of k, so a team makes several runs, one after the other: four, half of all, or two
 * beside those of the cluster's other block. Of each half of the runs the first team adds up its
 * own, in places of shared memory that every thread has for itself; the others leave theirs apart.
 * In the end all sums lie in the blocks' shared memory, and each block of the cluster finishes its
 * share of y by adding them in the order of the runs.
 */
#ifndef TGI_CUDA_GEMM_QUANTISED_SM90_CUH
#define TGI_CUDA_GEMM_QUANTISED_SM90_CUH

#include "cuda/cluster.cuh"
#include "cuda/gemm/gemm_quantised_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kWidePanels = 4, kWideOutputs = kWidePanels * TGI_PANEL_ROWS; /* of a block */
constexpr int kWideTeams = 2, kWideThreads = kWideTeams * kWidePanels * kWarp;

/** What a block is: tiles of eight rows of x. */
template <int Tiles, int Stages> struct wide_block {
  static constexpr int kPanels = kWidePanels, kTiles = Tiles, kStages = Stages;
  static constexpr int kBlockTeams = kWideTeams, kTeamThreads = kWarp * kPanels;
  static constexpr int kThreads = kWideThreads;
  static constexpr int kRows = 8 * Tiles; /* of x */
  static constexpr int kSumStep = TGI_PANEL_ROWS * kPanels + 4;
  static constexpr int kSumBytes = kRows * kSumStep * 4;      /* of one team */
  static constexpr int kHeldBytes = 8 * Tiles * kThreads * 4; /* every thread's own sums */

  __host__ __device__ static int stage_bytes(const quantised_product &p, int tile_bytes)
  {
    return Tiles * tile_bytes + kPanels * p.stage_bytes;
  }

  /** Runs that a team makes, where a cluster has so many blocks. */
  __host__ __device__ static int runs_of_team(int blocks)
  {
    return kTeams / (kBlockTeams * blocks);
  }

  /** Sums that a team leaves at most: those of its runs, or one if it makes a whole half. */
  __host__ __device__ static int sums_of_team(int runs)
  {
    return runs == kTeams / 2 ? 1 : runs;
  }

  static size_t shared_bytes(const quantised_product &p, int tile_bytes, int blocks)
  {
    const int runs = runs_of_team(blocks);
    const int ring = kBlockTeams * Stages * stage_bytes(p, tile_bytes);
    const int sums = kBlockTeams * sums_of_team(runs) * kSumBytes;
    return (size_t)(kHeaderRoom + kHeldBytes + (ring > sums ? ring : sums));
  }
};

/** A thread's sums of a team's runs so far, and where they are left for the block. */
template <typename B> struct run_sums {
  uint32_t held, left; /* in shared memory */

  /** total = what is held, kAdds: + total, in the order of the runs. */
  template <bool kAdds>
  __device__ __forceinline__ void take_held(float (&total)[2][B::kTiles][4]) const
  {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int n = 0; n < B::kTiles; n++) {
        uint32_t was[4];
        load_shared(was, held + (m * B::kTiles + n) * B::kThreads * 16);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float v = __uint_as_float(was[i]);
          total[m][n][i] = kAdds ? v + total[m][n][i] : v;
        }
      }
    }
  }

  __device__ __forceinline__ void hold(const float (&total)[2][B::kTiles][4]) const
  {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int n = 0; n < B::kTiles; n++) {
        const float *t = total[m][n];
        store_shared(held + (m * B::kTiles + n) * B::kThreads * 16, __float_as_uint(t[0]),
                     __float_as_uint(t[1]), __float_as_uint(t[2]), __float_as_uint(t[3]));
      }
    }
  }

  /** Leaves the warp's sums for all: row r of x, output o of the block at r * kSumStep + o. */
  __device__ __forceinline__ void leave(const float (&total)[2][B::kTiles][4], int number) const
  {
    const int g = threadIdx.x % kWarp / 4, q = threadIdx.x % 4;
    const int warp = threadIdx.x % B::kTeamThreads / kWarp;
    const uint32_t to = left + number * B::kSumBytes + (warp * TGI_PANEL_ROWS + 4 * g) * 4;
#pragma unroll
    for (int n = 0; n < B::kTiles; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        store_shared(to + (8 * n + 2 * q + j) * B::kSumStep * 4, __float_as_uint(total[0][n][j]),
                     __float_as_uint(total[0][n][2 + j]), __float_as_uint(total[1][n][j]),
                     __float_as_uint(total[1][n][2 + j]));
      }
    }
  }
};

/** Four sums of all runs, from `at` in the sums that were left first: those of each half in their
 * order, then the two. */
template <typename B, int kRuns> __device__ __forceinline__ float4 add_runs(uint32_t at)
{
  constexpr int kHalf = kTeams / 2, kHalfTeams = kHalf / kRuns;
  float4 half[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll
    for (int i = 0; i < kHalf; i++) {
      const int team = h * kHalfTeams + i / kRuns, number = i % kRuns;
      if (i >= kRuns || number == 0) { /* the first team's are one sum */
        const uint32_t from =
            at + (team % B::kBlockTeams * B::sums_of_team(kRuns) + number) * B::kSumBytes;
        const float4 v = load_in_cluster(address_in(from, (unsigned)(team / B::kBlockTeams)));
        half[h].x = i == 0 ? v.x : half[h].x + v.x;
        half[h].y = i == 0 ? v.y : half[h].y + v.y;
        half[h].z = i == 0 ? v.z : half[h].z + v.z;
        half[h].w = i == 0 ? v.w : half[h].w + v.w;
      }
    }
  }
  return make_float4(half[0].x + half[1].x, half[0].y + half[1].y, half[0].z + half[1].z,
                     half[0].w + half[1].w);
}

/** The block's share of y. */
template <typename B, int kRuns, typename Operand>
__device__ __forceinline__ void finish_share(const Operand &operand, const quantised_product &p,
                                             int64_t row0, int64_t o0, uint32_t sums, bool fits)
{
  constexpr int kQuads = B::kPanels * TGI_PANEL_ROWS / 4;
  const int blocks = (int)cluster_blocks(), block = (int)cluster_rank();
#pragma unroll 1
  for (int i = block * B::kThreads + (int)threadIdx.x; i < B::kRows * kQuads;
       i += blocks * B::kThreads) {
    const int r = i / kQuads, c = i % kQuads * 4;
    if (row0 + r < p.rows && o0 + c < p.w.out) {
      const float4 four = add_runs<B, kRuns>(sums + (r * B::kSumStep + c) * 4);
      const float v[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int k = 0; k < 4; k++) {
        if (o0 + c + k < p.w.out) {
          store_sum(operand, p, row0 + r, o0 + c + k, v[k], fits);
        }
      }
    }
  }
}

namespace
{

template <typename Operand, typename T, typename B>
__global__ void __launch_bounds__(B::kThreads, 1)
    quantised_wide_kernel(const quantised_product p, const int groups)
{
  constexpr int kTiles = B::kTiles, kStages = B::kStages;
  extern __shared__ __align__(128) uint8_t shared[];
  const int blocks = (int)cluster_blocks(), block = (int)cluster_rank();
  const int cluster = (int)blockIdx.x / blocks;
  const int team = threadIdx.x / B::kTeamThreads, warp = threadIdx.x % B::kTeamThreads / kWarp;
  using rows_type = typename Operand::template rows<kTiles>;
  const int stage_bytes = B::stage_bytes(p, rows_type::kTileBytes);
  const int64_t panel0 = (int64_t)(cluster % groups) * B::kPanels;
  const int64_t row0 = (int64_t)(cluster / groups) * B::kRows;
  const int own = panel0 + warp < divide_up(p.w.out, TGI_PANEL_ROWS); /* panels */
  const bool recorder = blockIdx.x == 0 && threadIdx.x == 0;

  Operand operand(p);
  bool fits = true;
  if (operand.needs_header()) {
    fits = operand.read_header(p, p.w.data, recorder);
  }
  const bool later = !operand.needs_header();
  if (threadIdx.x < kWarp) {
    copy_header(p, shared);
  }
  const int in = (int)p.w.in, chunks = fits ? (in + kChunk - 1) / kChunk : 0;
  const int run = (chunks + kTeams - 1) / kTeams, runs = B::runs_of_team(blocks);
  const int first_run = (block * B::kBlockTeams + team) * runs;
  const bool leads = first_run % (kTeams / 2) == 0; /* the first team of a half */
  const int end = (first_run + runs) * run < chunks ? (first_run + runs) * run : chunks;
  const int sums = B::sums_of_team(runs);
  const uint32_t held_sums = shared_address(shared) + kHeaderRoom;
  const uint32_t ring_of_block = held_sums + B::kHeldBytes;
  const uint32_t ring = ring_of_block + team * kStages * stage_bytes;
  const uint32_t own_at = warp * p.stage_bytes, x_at = B::kPanels * p.stage_bytes;
  const run_sums<B> s = {held_sums + threadIdx.x * 16, ring_of_block + team * sums * B::kSumBytes};
  float total[1][2][kTiles][4] = {};
  operand.visit([&](auto form) {
    int chunk = first_run * run;
    rows_type rows(p, row0, chunk);
    form.template begin<1>(p, panel0 + warp, chunk);
    const auto copy_weight = [&](int next, int stage) {
      const uint32_t to = ring + stage * stage_bytes + own_at;
      const int columns = in - next * kChunk;
      if (next < end && columns >= kChunk) {
        form.template copy<1, true>(own, kChunk, to, p.stage_bytes);
      } else if (next < end) {
        form.template copy<1, false>(own, columns, to, p.stage_bytes);
      }
    };
    const auto copy_rows = [&](int next, int stage) {
      const uint32_t to = ring + stage * stage_bytes + x_at;
      const int columns = in - next * kChunk;
      if (next < end && columns >= kChunk) {
        rows.template copy<B::kPanels, true>(to, kChunk, warp);
      } else if (next < end) {
        rows.template copy<B::kPanels, false>(to, columns, warp);
      }
      commit_copies();
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
      copy_weight(chunk + i, i);
    }
    await_kernel_before(); /* which may have made x */
    let_next_begin();
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
      copy_rows(chunk + i, i);
    }
    int stage = 0, next_stage = kStages - 1;
#pragma unroll 1
    for (int run_end = first_run * run + run;; run_end += run) {
#pragma unroll 1
      for (; chunk < run_end && chunk < end; chunk++) {
        wait_for_copies<kStages - 2>();
        sync_some(1 + team, B::kTeamThreads);
        copy_weight(chunk + kStages - 1, next_stage);
        copy_rows(chunk + kStages - 1, next_stage);
        const uint32_t at = ring + stage * stage_bytes;
        const int columns = in - chunk * kChunk;
        if (columns >= kChunk) {
          form.template multiply<T, true>(total, at + own_at, p.stage_bytes, at + x_at,
                                          kChunkSteps);
        } else {
          form.template multiply<T, false>(total, at + own_at, p.stage_bytes, at + x_at,
                                           (columns + kStep - 1) / kStep);
        }
        stage = stage + 1 == kStages ? 0 : stage + 1;
        next_stage = stage == 0 ? kStages - 1 : stage - 1;
      }
      if (leads && run_end > (first_run + 1) * run) {
        s.template take_held<true>(total[0]);
      }
      if (run_end >= (first_run + runs) * run) {
        break;
      }
      s.hold(total[0]);
#pragma unroll
      for (int i = 0; i < 2 * kTiles * 4; i++) {
        total[0][i / (4 * kTiles)][i / 4 % kTiles][i % 4] = 0;
      }
    }
  });
  wait_for_copies<0>();
  __syncthreads();
  if (later) {
    fits = operand.read_header(p, shared, recorder);
  }
  s.leave(total[0], leads ? 0 : runs - 1);
  if (!leads) { /* two */
    s.template take_held<false>(total[0]);
    s.leave(total[0], 0);
  }
  cluster_barrier((unsigned)blocks);

  const int64_t o0 = panel0 * TGI_PANEL_ROWS;
  if (runs == 2) {
    finish_share<B, 2>(operand, p, row0, o0, ring_of_block, fits);
  } else {
    finish_share<B, 4>(operand, p, row0, o0, ring_of_block, fits);
  }
  cluster_barrier((unsigned)blocks); /* others still read this block's sums */
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
