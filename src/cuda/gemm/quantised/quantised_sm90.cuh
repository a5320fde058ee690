/**
 * Products of 16-bit rows x with packed quantised weights on Hopper: the operands and the order of
 * sums of quantised_sm80.cuh, in wgmma instead of mma.sync, with the same bits, and in blocks that
 * have more of the weight's rows, so that x is read less often.
 *
 * mma.sync and wgmma take W's fragments from the same registers. A block's teams
 * (quantised_sums_sm90.cuh) are warpgroups; a third one copies for them, the weight as it lies and
 * x in tiles (quantised_tiles_sm90.cuh), to a ring of stages for each team.
 */
#ifndef TGI_CUDA_QUANTISED_SM90_CUH
#define TGI_CUDA_QUANTISED_SM90_CUH

#include "cuda/gemm/quantised/quantised_sums_sm90.cuh"
#include "cuda/gemm/quantised/quantised_tiles_sm90.cuh"
#include "cuda/mbarrier.cuh"
#include "cuda/wgmma.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** total += the products of a chunk of the warp's panel, at w, with the tile of x. Of a chunk of
 * fewer `columns` the tile has zeros, and the panel what lay there before: codes, all of which are
 * finite, and scales, which are not used. */
template <typename T, typename B, typename Form>
__device__ __forceinline__ void multiply_tile(const Form &form, float (&total)[2][B::kTiles][4],
                                              uint32_t w, uint64_t x, int columns)
{
  constexpr int kRows = B::kRows, kSums = 4 * B::kTiles;
  float of_group[2][B::kTiles][4];
  float(&sum)[2][B::kTiles][4] = Form::kScaled ? of_group : total;
  uint32_t a[2][2][2][4], less[4]; /* the fragments of two steps, in turns */
  const auto flat = [&](int m) -> float(&)[kSums] {
    return reinterpret_cast<float(&)[kSums]>(sum[m]);
  };
  uint32_t words[Form::kWords]; /* of the step to be widened next */
  const auto widen = [&](int step) {
    if (form.begins_group(step)) {
      form.template zero_points<T>(less, w, step);
    }
    form.template widen<T>(a[step % 2], words, less);
  };
  form.load(words, w, 0);
  widen(0);
#pragma unroll
  for (int step = 0; step < kChunkSteps; step++) {
    if (step + 1 < kChunkSteps) {
      form.load(words, w, step + 1);
    }
    const bool add = !Form::kScaled || !form.begins_group(step);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
        multiply_by_registers<T, kRows>(flat(m), a[step % 2][j][m],
                                        operand_at(x, (step * 2 + j) * (32 * kRows)), add || j > 0);
      }
    }
    wgmma_commit();
    if (step + 1 < kChunkSteps) {
      wgmma_wait<1>(); /* the step before has read its fragments */
      widen(step + 1);
    }
    if constexpr (Form::kScaled) {
      if (form.ends_group(step)) {
        float scale[4];
        wgmma_wait<0>();
        settle(flat(0));
        settle(flat(1));
        if (Form::kSteps == kChunkSteps || kStep * (step + 1 - Form::kSteps) < columns) {
          form.scales(scale, w, step);
          add_scaled<Form::template kFactor<T>>(total, sum, scale);
        }
      }
    }
  }
  if constexpr (!Form::kScaled) {
    wgmma_wait<0>();
    settle(flat(0));
    settle(flat(1));
  }
}

/** A barrier of all teams of the cluster. The warps that copy do not come: a cluster's barrier
 * waits for threads that are not gone, a named one for as many as it says. */
template <typename B> __device__ __forceinline__ void sync_teams(int blocks)
{
  if (blocks > 1) {
    cluster_barrier((unsigned)blocks);
  } else {
    sync_some(1, B::kThreads);
  }
}

/** A team's share of a block's work: chunks from `first` to `end`, in runs of `run` of them. */
struct wide_share {
  int first, end, run, runs;

  /** Whether the thread's team is the first one of a half of the runs: the only one, or of two. */
  __device__ __forceinline__ bool leads() const
  {
    return runs == kTeams / 2 || threadIdx.x < kWarpgroup;
  }
};

template <typename B> __device__ __forceinline__ wide_share wide_share_of(int chunks, int team)
{
  wide_share s;
  s.run = (chunks + kTeams - 1) / kTeams;
  s.runs = B::runs_of_team((int)cluster_blocks());
  s.first = min(((int)cluster_rank() * B::kBlockTeams + team) * s.runs * s.run, chunks);
  s.end = min(s.first + s.runs * s.run, chunks);
  return s;
}

/** A team's ring: stages of a tile of x, then panels; full when both have come, empty, as the
 * barriers behind say, when the team's warps have read them. */
struct wide_ring {
  uint8_t *at;
  int stage_bytes;
  mbarrier *full;
};

/** Copies a team's chunks, by two warps: each has two of the panels, and the first one's first lane
 * x. `tile`: x of the first chunk. */
template <typename B, typename Form>
__device__ __forceinline__ void wide_copy(Form form, const quantised_product &p,
                                          const wide_share &share, const wide_ring &ring,
                                          int64_t panel0, const uint8_t *tile)
{
  constexpr int kPanels = B::kPanels / 2;
  const int half = (int)threadIdx.x / kWarp % 2;
  const bool fetcher = threadIdx.x % (2 * kWarp) == 0;
  const int64_t panel = panel0 + half * kPanels, left = divide_up(p.w.out, TGI_PANEL_ROWS) - panel;
  const int own = left < kPanels ? (int)left : kPanels;
  const int at = B::kTileBytes + half * kPanels * p.stage_bytes;
  form.template begin<kPanels>(p, panel, share.first);
  const auto copy_weight = [&](int chunk, int stage) {
    const uint32_t to = shared_address(ring.at + stage * ring.stage_bytes + at);
    const int columns = (int)p.w.in - chunk * kChunk;
    if (columns >= kChunk) {
      form.template copy<kPanels, true>(own, kChunk, to, p.stage_bytes);
    } else {
      form.template copy<kPanels, false>(own, columns, to, p.stage_bytes);
    }
    arrive_with_copies(&ring.full[stage]);
  };
  const auto copy_rows = [&](int stage) {
    if (fetcher) {
      arrive_expecting(&ring.full[stage], B::kTileBytes);
      bulk_load(ring.at + stage * ring.stage_bytes, tile, B::kTileBytes, &ring.full[stage]);
      tile += B::kTileBytes;
    }
  };
  const int ahead = share.end - share.first < B::kStages ? share.end - share.first : B::kStages;
#pragma unroll 1
  for (int i = 0; i < ahead; i++) {
    copy_weight(share.first + i, i);
  }
  await_kernel_before(); /* which made the tiles */
#pragma unroll 1
  for (int i = 0; i < ahead; i++) {
    copy_rows(i);
  }
  ring_turn<B::kStages> turn;
#pragma unroll 1
  for (int chunk = share.first + B::kStages; chunk < share.end; chunk++) {
    wait_for(&ring.full[B::kStages + turn.stage], turn.parity);
    copy_weight(chunk, turn.stage);
    copy_rows(turn.stage);
    turn.next();
  }
  commit_copies();
  wait_for_copies<0>(); /* before the thread is gone */
}

/** total = a team's sums of its runs, of the warp's panel; those of all but the last are held. */
template <typename T, typename B, typename Form>
__device__ __forceinline__ void wide_multiply(const Form &form, const quantised_product &p,
                                              const wide_share &share, const wide_ring &ring,
                                              uint32_t held, float (&total)[2][B::kTiles][4])
{
  const uint32_t own_at =
      B::kTileBytes + (int)threadIdx.x % B::kTeamThreads / kWarp * p.stage_bytes;
  ring_turn<B::kStages> turn;
  int columns = (int)p.w.in - share.first * kChunk, left = share.end - share.first;
#pragma unroll 1
  for (int run = share.runs;;) {
#pragma unroll 1
    for (int i = left < share.run ? left : share.run; i > 0; i--) {
      const uint32_t at = shared_address(ring.at) + turn.stage * ring.stage_bytes;
      wait_for(&ring.full[turn.stage], turn.parity);
      multiply_tile<T, B>(form, total, at + own_at, rows_operand(at, B::kRows), columns);
      __syncwarp();
      if (threadIdx.x % kWarp == 0) {
        arrive(&ring.full[B::kStages + turn.stage]);
      }
      turn.next();
      columns -= kChunk;
    }
    left -= share.run;
    if (run < share.runs && share.leads()) {
      take_held<true, B>(held, total);
    }
    if (--run == 0) {
      break;
    }
    hold<B>(held, total);
#pragma unroll
    for (int k = 0; k < 2 * B::kTiles * 4; k++) {
      total[k / (4 * B::kTiles)][k / 4 % B::kTiles][k % 4] = 0;
    }
  }
}

namespace
{

/** `tiles`: x, from rows_to_tiles of as many rows. */
template <typename Operand, typename T, typename B>
__global__ void __launch_bounds__(kWideThreads, 1)
    quantised_wide_kernel(const quantised_product p, const uint8_t *tiles, const int groups)
{
  constexpr int kStages = B::kStages;
  extern __shared__ __align__(128) uint8_t shared[];
  const int blocks = (int)cluster_blocks(), cluster = (int)blockIdx.x / blocks;
  const int64_t panel0 = (int64_t)(cluster % groups) * B::kPanels;
  const int64_t strip = cluster / groups;
  const bool recorder = blockIdx.x == 0 && threadIdx.x == 0;
  const bool copies = threadIdx.x >= B::kThreads;
  /* From the first lane, so that the compiler sees that a warp has one value. */
  const int team = __shfl_sync(kAllLanes,
                               copies ? ((int)threadIdx.x - B::kThreads) / (2 * kWarp)
                                      : (int)threadIdx.x / B::kTeamThreads,
                               0);
  static_assert(TGI_PACKED_HEADER_BYTES + 2 * B::kBlockTeams * kStages * sizeof(mbarrier) <=
                    kHeaderRoom + kBarrierRoom,
                "barriers lie behind the header");
  mbarrier *full =
      reinterpret_cast<mbarrier *>(shared + TGI_PACKED_HEADER_BYTES) + 2 * team * kStages;
  if (threadIdx.x % B::kTeamThreads == 0 && !copies) {
    for (int i = 0; i < kStages; i++) {
      init_barrier(&full[i], 2 * kWarp + 1);
      init_barrier(&full[kStages + i], B::kTeamThreads / kWarp);
    }
    publish_barriers();
  }

  /* Compared in the end, or first where it says how the weight is packed. */
  Operand operand(p);
  const bool first = operand.needs_header();
  const bool known = !first || operand.read_header(p, p.w.data, recorder);
  if (threadIdx.x < kWarp) {
    copy_header(p, shared);
    commit_copies();
  }
  const int all = (int)((p.w.in + kChunk - 1) / kChunk);
  const wide_share share = wide_share_of<B>(known ? all : 0, team);
  uint8_t *held_sums = shared + kHeaderRoom + kBarrierRoom, *rings = held_sums + B::kHeldBytes;
  const int stage_bytes = B::stage_bytes(p);
  const wide_ring ring = {rings + team * kStages * stage_bytes, stage_bytes, full};
  __syncthreads(); /* barriers are there */
  if (copies) {
    give_registers<72>();
    operand.visit([&](auto form) {
      wide_copy<B>(form, p, share, ring, panel0,
                   tiles + (strip * all + share.first) * B::kTileBytes);
    });
    return;
  }
  take_registers<216>();
  const uint32_t held = shared_address(held_sums) + threadIdx.x * 16;
  float total[2][B::kTiles][4] = {};
  await_kernel_before();
  let_next_begin();
  operand.visit([&](auto form) { wide_multiply<T, B>(form, p, share, ring, held, total); });
  wait_for_copies<0>();
  sync_some(1, B::kThreads); /* all stages have been read; the header is there */
  const bool fits = operand.read_header(p, shared, recorder && !first);
  const uint32_t left = shared_address(rings);
  const uint32_t mine = left + team * B::sums_of_team(share.runs) * B::kSumBytes;
  leave<B>(mine + (share.leads() ? 0 : share.runs - 1) * B::kSumBytes, total);
  if (!share.leads()) { /* two */
    take_held<false, B>(held, total);
    leave<B>(mine, total);
  }
  sync_teams<B>(blocks);

  const int64_t o0 = panel0 * TGI_PANEL_ROWS, row0 = strip * B::kRows;
  if (share.runs == 2) {
    finish_share<T, B, 2>(operand, p, row0, o0, left, fits);
  } else {
    finish_share<T, B, 4>(operand, p, row0, o0, left, fits);
  }
  sync_teams<B>(blocks); /* others still read this block's sums */
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
