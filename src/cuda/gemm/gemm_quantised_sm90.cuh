/**
 * Products of 16-bit rows x with packed quantised weights on Hopper: y^T = W x^T by wgmma, with W
 * made 16-bit floats in registers, exactly, and x in shared memory.
 *
 * A cluster of blocks has a tile of rows of W and up to 128 rows of x; each block has a part of the
 * chunks of 128 columns. Chunks come into a ring of stages: the panels' bytes as they are
 * packed, and x in pages; a warp brings a panel or a page. A warpgroup has 64 rows of the tile:
 * lane 4 g + q of warp w has rows 4 g + 2 h and the next of panel w of its four panels, in all
 * columns that it has as a lane of A's fragments; h says which half of the panels' rows the
 * warpgroup has.
 *
 * Order of sums. A part is a chain of its groups in the order of k: a group's sum is a chain of
 * matrix products, scaled in f32. The parts are added in order. How many parts there are follows
 * from W's shape alone, so a row's bits depend neither on the other rows nor on the launch.
 *
 * An operand (ops/linear_int4/int4_operand.cuh) says how large chunks are and how 32 columns of a
 * panel become fragments.
 */
#ifndef TGI_CUDA_GEMM_QUANTISED_SM90_CUH
#define TGI_CUDA_GEMM_QUANTISED_SM90_CUH

#include "cuda/gemm/gemm_quantised_sm80.cuh"
#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kMostParts = 8;   /* blocks of a cluster */
constexpr int kMostStages = 16; /* of a ring */

/** How a launch divides its work. */
struct quantised_tiling {
  int parts, strips, stages; /* of k, of rows of x, of the ring */
  int stage_bytes;
  bool packs_of_y; /* four elements of y may be stored at once */
};

constexpr int kTileOutputs = 128, kTilePanels = kTileOutputs / TGI_PANEL_ROWS;

/** What a block is: kTokens rows of x by 128 rows of W. Teams of warpgroups take turns along k; a
 * team is a warpgroup with two products of 64 rows, or two with one (kTiles) each. */
template <int Tokens, int Teams, int Tiles> struct wide_block {
  static constexpr int kTokens = Tokens, kTeams = Teams, kTiles = Tiles;
  static constexpr int kTeamWarps = 8 / Tiles, kWarps = Teams * kTeamWarps;
  static constexpr int kThreads = kWarp * kWarps;
  static constexpr int kBehind = 2 * Teams; /* stages that are filled again with some delay */
  /* Where registers allow it, a group is widened while the one before is multiplied. */
  static constexpr bool kAhead = Tokens != 64;
  static constexpr int kPageBytes = Tokens * kPageRow, kRowsBytes = 2 * kPageBytes;
  static constexpr int kPitch = kTileOutputs + 4; /* of sums in shared memory */
  static constexpr int kSumBytes = Tokens * kPitch * 4;
  static_assert(kChunk == 2 * kPageCols, "two pages have a chunk of x");

  static int stage_bytes(const quantised_product &p)
  {
    return (kRowsBytes + kTilePanels * p.stage_bytes + 1023) / 1024 * 1024;
  }
};

/** Stages in shared memory, and where a walk through them stands. */
struct wide_ring {
  uint8_t *stages;
  mbarrier *full, *empty;
};

struct ring_place {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance(int stages)
  {
    stage = stage + 1 == stages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

template <typename B>
__device__ __forceinline__ wide_ring open_wide_ring(uint8_t *raw, const quantised_tiling &t)
{
  wide_ring r;
  r.stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int ring = t.stages * t.stage_bytes;
  r.full = reinterpret_cast<mbarrier *>(r.stages + (ring > B::kSumBytes ? ring : B::kSumBytes));
  r.empty = r.full + t.stages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < t.stages; i++) {
      init_barrier(r.full + i, kTilePanels + 2);
      init_barrier(r.empty + i, B::kTeamWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  return r;
}

/** What a warp brings of each chunk, by its first lane: warp i panel i, and the last two warps a
 * page of x each. */
template <typename B> struct chunk_loader {
  ring_place place;
  int next, end; /* chunks */
  int row0;
  const uint8_t *from; /* the panel's next chunk; NULL: there is no such panel */

  template <typename Operand>
  __device__ __forceinline__ chunk_loader(const quantised_product &p, const Operand &operand,
                                          int64_t panel0, int64_t row, int first, int last)
      : next(first), end(threadIdx.x % kWarp == 0 ? last : first), row0((int)row)
  {
    const int64_t panel = panel0 + threadIdx.x / kWarp;
    from = panel < divide_up(p.w.out, TGI_PANEL_ROWS)
               ? p.w.data + TGI_PACKED_HEADER_BYTES + panel * operand.panel_bytes() +
                     operand.panel_head() + first * (int64_t)operand.chunk_bytes()
               : nullptr;
  }

  template <typename Operand>
  __device__ __forceinline__ void load(const wide_ring &r, const quantised_tiling &t,
                                       const quantised_product &p, const Operand &operand,
                                       const CUtensorMap *x)
  {
    const int warp = (int)threadIdx.x / kWarp, page = warp - (B::kWarps - 2);
    if (next >= end || (warp >= kTilePanels && page < 0)) {
      return;
    }
    uint8_t *to = r.stages + place.stage * t.stage_bytes;
    mbarrier *full = r.full + place.stage;
    wait_for(r.empty + place.stage, place.parity ^ 1);
    if (page >= 0) {
      arrive_expecting(full, B::kPageBytes);
      load_page(shared_address(to) + page * B::kPageBytes, x, next * kChunk + page * kPageCols,
                row0, 0, 0, full);
    }
    if (warp < kTilePanels && from) {
      const unsigned chunk_bytes = (unsigned)operand.chunk_bytes();
      const bool last = (int64_t)(next + 1) * kChunk >= p.w.in;
      const unsigned bytes = last ? (unsigned)(operand.panel_bytes() - operand.panel_head() -
                                               next * (int64_t)chunk_bytes)
                                  : chunk_bytes;
      arrive_expecting(full, bytes);
      bulk_load(to + B::kRowsBytes + warp * p.stage_bytes, from, bytes, full);
      from += chunk_bytes;
    } else if (warp < kTilePanels) {
      arrive(full);
    }
    next++;
    place.advance(t.stages);
  }
};

/** A group of a warp's panel, in the ring. */
struct group_place {
  uint32_t panel, x; /* x: the chunk's first page */
  int group;
};

/** Registers of A for so many steps: of each tile two products, 16 deep. */
template <typename B, int kSteps> struct wide_fragments {
  uint32_t a[kSteps][B::kTiles][2][4];
};

/** Where the group's x begins, as operand. */
template <typename B, typename Form>
__device__ __forceinline__ uint64_t rows_of_group(const group_place &at)
{
  constexpr int kSteps = Form::kStepsOfGroup;
  const uint64_t x = page_operand(at.x);
  return kSteps == 4   ? x
         : kSteps == 2 ? operand_at(x, at.group * B::kPageBytes)
                       : operand_at(x, at.group / 2 * B::kPageBytes + at.group % 2 * 64);
}

template <typename B, typename T, typename Form>
__device__ __forceinline__ void widen_group(wide_fragments<B, Form::kStepsOfGroup> &f,
                                            const Form &form, const group_place &at, int half)
{
  uint32_t less[2 * B::kTiles];
  form.template zero_points_of<T>(less, at.panel, at.group, half);
#pragma unroll
  for (int step = 0; step < Form::kStepsOfGroup; step++) {
    form.template widen_rows<T>(f.a[step], at.panel, at.group * Form::kStepsOfGroup + step, half,
                                less);
  }
}

/** Starts products of 32 columns. */
template <typename B, typename T>
__device__ __forceinline__ void multiply_step(float (&part)[B::kTiles][B::kTokens / 2],
                                              const uint32_t (&a)[B::kTiles][2][4], uint64_t x,
                                              int step)
{
#pragma unroll
  for (int j = 0; j < 2; j++) {
#pragma unroll
    for (int m = 0; m < B::kTiles; m++) {
      multiply_by_registers<T, B::kTokens>(
          part[m], a[m][j], operand_at(x, step / 2 * B::kPageBytes + step % 2 * 64 + 32 * j),
          step + j > 0);
    }
  }
}

/** total += scale of its row * part, when the products are done. */
template <int kFactor, typename B>
__device__ __forceinline__ void add_part(float (&total)[B::kTiles][B::kTokens / 2],
                                         float (&part)[B::kTiles][B::kTokens / 2],
                                         const float (&scale)[2 * B::kTiles])
{
  wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < B::kTiles; m++) {
    settle(part[m]);
#pragma unroll
    for (int i = 0; i < B::kTokens / 2; i++) {
      const float v = kFactor == 1 ? part[m][i] : part[m][i] * (float)kFactor;
      total[m][i] = fmaf(scale[2 * m + i / 2 % 2], v, total[m][i]);
    }
  }
}

/** total += a group's products: widened and multiplied step by step. */
template <typename B, typename T, typename Form>
__device__ __forceinline__ void multiply_group(float (&total)[B::kTiles][B::kTokens / 2],
                                               const Form &form, const group_place &at, int half)
{
  constexpr int kSteps = Form::kStepsOfGroup, kBuffers = kSteps < 2 ? kSteps : 2;
  uint32_t less[2 * B::kTiles];
  float part[B::kTiles][B::kTokens / 2], scale[2 * B::kTiles];
  wide_fragments<B, kBuffers> f;
  const uint64_t x = rows_of_group<B, Form>(at);
  form.template zero_points_of<T>(less, at.panel, at.group, half);
#pragma unroll
  for (int step = 0; step < kSteps; step++) {
    if (step >= kBuffers) {
      wgmma_wait<kBuffers - 1>(); /* the buffer is free again */
    }
    form.template widen_rows<T>(f.a[step % kBuffers], at.panel, at.group * kSteps + step, half,
                                less);
    wgmma_fence();
    multiply_step<B, T>(part, f.a[step % kBuffers], x, step);
    wgmma_commit();
  }
  form.scales_of(scale, at.panel, at.group, half);
  add_part<Form::template kFactor<T>, B>(total, part, scale);
}

/** Writes a lane's sums, plus what is there if `add`. */
template <typename B>
__device__ __forceinline__ void
leave_sums(float *to, const float (&total)[B::kTiles][B::kTokens / 2], bool add)
{
#pragma unroll
  for (int m = 0; m < B::kTiles; m++) {
#pragma unroll
    for (int j = 0; j < B::kTokens / 8; j++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float2 *at = reinterpret_cast<float2 *>(to + (8 * j + e) * B::kPitch + 2 * m);
        float2 two = {total[m][4 * j + e], total[m][4 * j + 2 + e]};
        if (add) {
          two.x = two.x + at->x;
          two.y = two.y + at->y;
        }
        *at = two;
      }
    }
  }
}

/** Four floats at what is at `mine` in a block of the cluster. */
__device__ __forceinline__ pack<float, 4> load_four_in_cluster(const float *mine, unsigned block)
{
  pack<float, 4> v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.e[0]), "=f"(v.e[1]), "=f"(v.e[2]), "=f"(v.e[3])
               : "r"(address_in(mine, block)));
  return v;
}

/** A block's share of the tile, from the sums of all parts. */
template <typename B, typename Operand>
__device__ __forceinline__ void finish_share(const float *sums, const quantised_tiling &t,
                                             const quantised_product &p, const Operand &operand,
                                             int64_t output0, int64_t row0, int part, bool fits)
{
  constexpr int kUnits = kTileOutputs / 4;
  const int begin = kUnits * part / t.parts, share = kUnits * (part + 1) / t.parts - begin;
  const int rows = p.rows - row0 < B::kTokens ? (int)(p.rows - row0) : B::kTokens;
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < rows * share; i += B::kThreads) {
    const int row = i / share, within = 4 * (begin + i - row * share);
    const float *from = sums + row * B::kPitch + within;
    pack<float, 4> of_part[kMostParts];
#pragma unroll
    for (int j = 0; j < kMostParts; j++) {
      if (j == part) {
        of_part[j] = *reinterpret_cast<const pack<float, 4> *>(from);
      } else if (j < t.parts) {
        of_part[j] = load_four_in_cluster(from, (unsigned)j);
      }
    }
    float y[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int64_t o = output0 + within + e;
      float sum = of_part[0].e[e];
#pragma unroll
      for (int j = 1; j < kMostParts; j++) {
        sum = j < t.parts ? sum + of_part[j].e[e] : sum;
      }
      if constexpr (Operand::kOnlyFinite) {
        sum = fmaf(0.0f, sum, sum); /* infinity becomes NaN, as on every entry */
      }
      y[e] = o < p.w.out ? operand.finish(p, row0 + row, o, sum) : 0.0f;
      if (p.bias && o < p.w.out) {
        y[e] = y[e] + load_any(p.bias, p.bias_dtype, o);
      }
      y[e] = fits ? y[e] : CUDART_NAN_F;
    }
    const int64_t o = output0 + within, at = (row0 + row) * p.y_step + o;
    if (t.packs_of_y && o + 4 <= p.w.out) {
      SWITCH_FLOAT(p.y_dtype, T, store(static_cast<T *>(p.y) + at, y));
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        if (o + e < p.w.out) {
          store_any(p.y, p.y_dtype, at + e, y[e]);
        }
      }
    }
  }
}

namespace
{

template <typename Operand, typename T, typename B>
__global__ void __launch_bounds__(B::kThreads, 1)
    quantised_wide_kernel(const __grid_constant__ CUtensorMap x,
                          const __grid_constant__ quantised_product p,
                          const __grid_constant__ quantised_tiling t)
{
  extern __shared__ uint8_t wide_memory[];
  const wide_ring ring = open_wide_ring<B>(wide_memory, t);
  const int part = (int)blockIdx.x % t.parts, cluster = (int)blockIdx.x / t.parts;
  const int64_t tile = cluster / t.strips, row0 = (int64_t)(cluster % t.strips) * B::kTokens;
  const int chunks = (int)divide_up(p.w.in, kChunk);
  const int first = chunks * part / t.parts;
  int end = chunks * (part + 1) / t.parts;
  const bool recorder = blockIdx.x == 0 && threadIdx.x == 0;
  Operand operand(p);
  const bool header_first = operand.needs_header();
  bool fits = true;
  if (header_first) {
    fits = operand.read_header(p, recorder);
    end = fits ? end : first;
  }
  float *sums = reinterpret_cast<float *>(ring.stages);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % B::kTeamWarps;
  const int team = threadIdx.x / (kWarp * B::kTeamWarps), half = warp / 4, panel = warp % 4;
  chunk_loader<B> loader(p, operand, tile * kTilePanels, row0, first, end);
  for (int i = 0; i < t.stages - B::kBehind; i++) {
    loader.load(ring, t, p, operand, &x);
  }
  __syncwarp();
  if (!header_first) { /* while the first chunks are under way */
    fits = operand.read_header(p, recorder);
  }
  float total[B::kTiles][B::kTokens / 2] = {};
  operand.visit_plain([&](auto form) {
    using form_type = decltype(form);
    constexpr int kSteps = form_type::kStepsOfGroup, kGroups = kChunkSteps / kSteps;
    ring_place place;
    int chunk = first + team;
    group_place at = {};
    if (team == 1) {
      place.advance(t.stages);
    }
    /* A chunk that has come. */
    const auto enter = [&] {
#pragma unroll
      for (int i = 0; i < B::kTeams; i++) {
        loader.load(ring, t, p, operand, &x);
      }
      __syncwarp();
      wait_for(ring.full + place.stage, place.parity);
      at.x = shared_address(ring.stages) + place.stage * t.stage_bytes;
      at.panel = at.x + B::kRowsBytes + panel * p.stage_bytes;
      at.group = 0;
    };
    const auto leave = [&](int stage) {
      __syncwarp();
      if (lane == 0) {
        arrive(ring.empty + stage);
      }
    };
    /* On to the next group; false: there is none. */
    const auto advance = [&] {
      const bool more = kGroups > 1 && at.group + 1 < kGroups &&
                        (int64_t)chunk * kChunk + (at.group + 1) * (kChunk / kGroups) < p.w.in;
      if (more) {
        at.group++;
        return true;
      }
      chunk += B::kTeams;
#pragma unroll
      for (int i = 0; i < B::kTeams; i++) {
        place.advance(t.stages);
      }
      if (chunk < end) {
        enter();
      }
      return chunk < end;
    };
    if (chunk < end) {
      form.begin(p, tile * kTilePanels + panel);
      enter();
      bool more = true;
      if constexpr (B::kAhead) {
        wide_fragments<B, kSteps> now, next;
        widen_group<B, T>(now, form, at, half);
#pragma unroll 1
        while (more) {
          float part[B::kTiles][B::kTokens / 2], scale[2 * B::kTiles];
          const uint64_t rows = rows_of_group<B, form_type>(at);
          wgmma_fence();
#pragma unroll
          for (int step = 0; step < kSteps; step++) {
            multiply_step<B, T>(part, now.a[step], rows, step);
          }
          wgmma_commit();
          form.scales_of(scale, at.panel, at.group, half);
          const int stage = place.stage, of = chunk;
          more = advance();
          if (more) {
            widen_group<B, T>(next, form, at, half);
          }
          add_part<form_type::template kFactor<T>, B>(total, part, scale);
          if (chunk != of) {
            leave(stage);
          }
          now = next;
        }
      } else {
#pragma unroll 1
        while (more) {
          multiply_group<B, T>(total, form, at, half);
          const int stage = place.stage, of = chunk;
          more = advance();
          if (chunk != of) {
            leave(stage);
          }
        }
      }
    }
  });
  __syncthreads(); /* all stages have been read */
  float *to = sums + 2 * (lane % 4) * B::kPitch + panel * TGI_PANEL_ROWS + lane / 4 * 4 + 2 * half;
#pragma unroll
  for (int of_team = B::kTeams - 1; of_team >= 0; of_team--) { /* the first one adds the other */
    if (team == of_team) {
      leave_sums<B>(to, total, of_team + 1 < B::kTeams);
    }
    if (of_team > 0) {
      __syncthreads();
    }
  }
  cluster_barrier((unsigned)t.parts);
  finish_share<B>(sums, t, p, operand, tile * kTileOutputs, row0, part, fits);
  if (t.parts > 1) {
    cluster_barrier((unsigned)t.parts); /* others still read this block's sums */
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
