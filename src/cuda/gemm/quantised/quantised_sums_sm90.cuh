/**
 * A block of Hopper's products with quantised weights, and what becomes of its sums.
 *
 * A block has four panels and two teams, with a warp for each panel. There are fewer teams than the
 * kTeams runs of k, so a team makes several runs, one after the other: four, half of all, or two
 * beside those of the cluster's other block. Of each half of the runs the first team adds up its
 * own, in places of shared memory that every thread has for itself; the others leave theirs apart.
 * In the end all sums lie in the blocks' shared memory, and each block of the cluster finishes its
 * share of y by adding them in the order of the runs.
 */
#ifndef TGI_CUDA_QUANTISED_SUMS_SM90_CUH
#define TGI_CUDA_QUANTISED_SUMS_SM90_CUH

#include "cuda/gemm/quantised/quantised_sm80.cuh"
#include "cuda/warpgroup.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kWidePanels = 4, kWideOutputs = kWidePanels * TGI_PANEL_ROWS; /* of a block */
constexpr int kWideTeams = 2, kWideThreads = (kWideTeams + 1) * kWarpgroup;

constexpr int kBarrierRoom = 128; /* more than the header's, for barriers */

/** What a block is: tiles of eight rows of x. */
template <int Tiles, int Stages> struct wide_block {
  static constexpr int kPanels = kWidePanels, kTiles = Tiles, kStages = Stages;
  static constexpr int kBlockTeams = kWideTeams, kTeamThreads = kWarp * kPanels;
  static constexpr int kThreads = kBlockTeams * kTeamThreads; /* of the teams */
  static constexpr int kRows = 8 * Tiles;                     /* of x */
  static constexpr int kTileBytes = kRows * kChunk * 2;
  static constexpr int kSumStep = TGI_PANEL_ROWS * kPanels + 4;
  static constexpr int kSumBytes = kRows * kSumStep * 4;      /* of one team */
  static constexpr int kHeldBytes = 8 * Tiles * kThreads * 4; /* every thread's own sums */

  __host__ __device__ static int stage_bytes(const quantised_product &p)
  {
    return kTileBytes + kPanels * p.stage_bytes;
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

  static size_t shared_bytes(const quantised_product &p, int blocks)
  {
    const int runs = runs_of_team(blocks);
    const int ring = kBlockTeams * Stages * stage_bytes(p);
    const int sums = kBlockTeams * sums_of_team(runs) * kSumBytes;
    return (size_t)(kHeaderRoom + kBarrierRoom + kHeldBytes + (ring > sums ? ring : sums));
  }
};

/* A thread's sums of a team's runs so far are held in a place of shared memory of its own. */

/** total = what is held, kAdds: + total, in the order of the runs. */
template <bool kAdds, typename B>
__device__ __forceinline__ void take_held(uint32_t held, float (&total)[2][B::kTiles][4])
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

template <typename B>
__device__ __forceinline__ void hold(uint32_t held, const float (&total)[2][B::kTiles][4])
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
template <typename B>
__device__ __forceinline__ void leave(uint32_t sums, const float (&total)[2][B::kTiles][4])
{
  const int g = threadIdx.x % kWarp / 4, q = threadIdx.x % 4;
  const int warp = threadIdx.x % B::kTeamThreads / kWarp;
  const uint32_t to = sums + (warp * TGI_PANEL_ROWS + 4 * g) * 4;
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

/** The block's share of y: four outputs at once where they are a vector of T. */
template <typename T, typename B, int kRuns, typename Operand>
__device__ __forceinline__ void finish_share(const Operand &operand, const quantised_product &p,
                                             int64_t row0, int64_t o0, uint32_t sums, bool fits)
{
  constexpr int kQuads = B::kPanels * TGI_PANEL_ROWS / 4;
  const int blocks = (int)cluster_blocks(), block = (int)cluster_rank();
  const bool vectors = p.y_dtype == (kIsBf16<T> ? TG_BF16 : TG_F16) && p.y_step % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(p.y) % 8 == 0;
  const int rows = p.rows - row0 < B::kRows ? (int)(p.rows - row0) : B::kRows;
  const int outputs = p.w.out - o0 < 4 * kQuads ? (int)(p.w.out - o0) : 4 * kQuads;
#pragma unroll 1
  for (int i = block * B::kThreads + (int)threadIdx.x; i < rows * kQuads;
       i += blocks * B::kThreads) {
    const int r = i / kQuads, c = i % kQuads * 4;
    const float4 four = add_runs<B, kRuns>(sums + (r * B::kSumStep + c) * 4);
    const float v[4] = {four.x, four.y, four.z, four.w};
    if (vectors && c + 4 <= outputs) {
      float y[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        y[k] = finish_sum(operand, p, row0 + r, o0 + c + k, v[k], fits);
      }
      *reinterpret_cast<uint2 *>(static_cast<T *>(p.y) + (row0 + r) * p.y_step + o0 + c) =
          make_uint2(round_pair<T>(y[0], y[1]), round_pair<T>(y[2], y[3]));
      continue;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if (c + k < outputs) {
        store_sum(operand, p, row0 + r, o0 + c + k, v[k], fits);
      }
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
