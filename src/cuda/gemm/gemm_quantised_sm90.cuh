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
constexpr int kMostStages = 12; /* of a ring */
constexpr int kBehind = 2; /* stages that are filled again only when the slowest warp is done */

/** How a launch divides its work. */
struct quantised_tiling {
  int parts, strips, stages; /* of k, of rows of x, of the ring */
  int stage_bytes;
  bool packs_of_y; /* four elements of y may be stored at once */
};

/** What a block is: kTokens rows of x by 64 rows of W for each warpgroup. */
template <int Tokens, int Warpgroups> struct wide_block {
  static constexpr int kTokens = Tokens, kWarpgroups = Warpgroups;
  static constexpr int kThreads = kWarpgroup * Warpgroups;
  static constexpr int kOutputs = 64 * Warpgroups;
  static constexpr int kPanels = kOutputs / TGI_PANEL_ROWS;
  static constexpr int kPageBytes = Tokens * kPageRow, kRowsBytes = 2 * kPageBytes;
  static constexpr int kPitch = kOutputs + 4; /* of sums in shared memory */
  static constexpr int kSumBytes = Tokens * kPitch * 4;
  static_assert(kChunk == 2 * kPageCols, "two pages have a chunk of x");

  static int stage_bytes(const quantised_product &p)
  {
    return (kRowsBytes + kPanels * p.stage_bytes + 1023) / 1024 * 1024;
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
      init_barrier(r.full + i, B::kPanels + 2);
      init_barrier(r.empty + i, 4 * B::kWarpgroups);
    }
    publish_barriers();
  }
  __syncthreads();
  return r;
}

/** Warpgroups 2 v and 2 v + 1 have panels 4 v to 4 v + 3, a warp half of one. */
__device__ __forceinline__ int panel_of_warp(int warp)
{
  return warp / 8 * 4 + warp % 4;
}

__device__ __forceinline__ int half_of_warp(int warp)
{
  return warp / 4 % 2;
}

/** What a warp brings of each chunk, by its first lane: a panel, one of the two pages of x, or
 * nothing. */
template <typename B> struct chunk_loader {
  ring_place place;
  int next, end; /* chunks */
  int row0;
  const uint8_t *from;        /* the panel's next chunk; NULL: there is no such panel */
  unsigned bytes, last_bytes; /* of a panel's chunk */

  template <typename Operand>
  __device__ __forceinline__ chunk_loader(const quantised_product &p, const Operand &operand,
                                          int64_t panel0, int64_t row, int first, int last)
      : next(first), end(last), row0((int)row), bytes((unsigned)operand.chunk_bytes())
  {
    const int warp = (int)threadIdx.x / kWarp;
    const int64_t panel = panel0 + panel_of_warp(warp), all = operand.panel_bytes();
    const int64_t chunks = divide_up(p.w.in, kChunk);
    last_bytes = (unsigned)(all - (chunks - 1) * (int64_t)bytes);
    from = panel < divide_up(p.w.out, TGI_PANEL_ROWS)
               ? p.w.data + TGI_PACKED_HEADER_BYTES + panel * all + first * (int64_t)bytes
               : nullptr;
    if (threadIdx.x % kWarp != 0 || (half_of_warp(warp) == 1 && warp > 5)) {
      end = next; /* nothing */
    }
  }

  __device__ __forceinline__ void load(const wide_ring &r, const quantised_tiling &t,
                                       const quantised_product &p, const CUtensorMap *x)
  {
    if (next >= end) {
      return;
    }
    const int warp = (int)threadIdx.x / kWarp;
    uint8_t *to = r.stages + place.stage * t.stage_bytes;
    mbarrier *full = r.full + place.stage;
    wait_for(r.empty + place.stage, place.parity ^ 1);
    if (half_of_warp(warp) == 1) { /* warps 4 and 5 */
      const int page = warp - 4;
      arrive_expecting(full, B::kPageBytes);
      load_page(shared_address(to) + page * B::kPageBytes, x, next * kChunk + page * kPageCols,
                row0, 0, 0, full);
    } else if (from) {
      const bool last = (int64_t)(next + 1) * kChunk >= p.w.in;
      arrive_expecting(full, last ? last_bytes : bytes);
      bulk_load(to + B::kRowsBytes + panel_of_warp(warp) * p.stage_bytes, from,
                last ? last_bytes : bytes, full);
      from += bytes;
    } else {
      arrive(full);
    }
    next++;
    place.advance(t.stages);
  }
};

/** total += scale * the products of a group of a panel at `panel` with the rows at `x`. */
template <typename B, typename T, typename Form>
__device__ __forceinline__ void multiply_group(const Form &form, float (&total)[B::kTokens / 2],
                                               uint32_t panel, uint64_t x, int group, int half)
{
  constexpr int kSteps = Form::kStepsOfGroup;
  constexpr int kAhead = B::kTokens == 64 && kSteps == 4 ? 3 : kSteps; /* as registers allow */
  uint32_t a[kAhead][2][4], less[2];
  float part[B::kTokens / 2], scale[2];
  form.template zero_points_of_two<T>(less, panel, group, half);
  const uint64_t b = kSteps == 4   ? x
                     : kSteps == 2 ? operand_at(x, group * B::kPageBytes)
                                   : operand_at(x, group / 2 * B::kPageBytes + group % 2 * 64);
#pragma unroll
  for (int step = 0; step < kSteps; step++) {
    if constexpr (kAhead < kSteps) {
      if (step >= kAhead) {
        wgmma_wait<kAhead - 1>(); /* a[step % kAhead] is free again */
      }
    }
    form.template widen_two<T>(a[step % kAhead], panel, group * kSteps + step, half, less);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 2; j++) {
      multiply_by_registers<T, B::kTokens>(
          part, a[step % kAhead][j],
          operand_at(b, step / 2 * B::kPageBytes + step % 2 * 64 + 32 * j), step + j > 0);
    }
    if (kAhead < kSteps || step + 1 == kSteps) {
      wgmma_commit();
    }
  }
  form.scales_of_two(scale, panel, group, half);
  wgmma_wait<0>();
  settle(part);
#pragma unroll
  for (int i = 0; i < B::kTokens / 2; i++) {
    constexpr int kFactor = Form::template kFactor<T>;
    const float v = kFactor == 1 ? part[i] : part[i] * (float)kFactor;
    total[i] = fmaf(scale[i / 2 % 2], v, total[i]);
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
  constexpr int kUnits = B::kOutputs / 4;
  const int begin = kUnits * part / t.parts, share = kUnits * (part + 1) / t.parts - begin;
  const int rows = p.rows - row0 < B::kTokens ? (int)(p.rows - row0) : B::kTokens;
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < rows * share; i += B::kThreads) {
    const int row = i / share, within = 4 * (begin + i - row * share);
    const float *from = sums + row * B::kPitch + within;
    pack<float, 4> of_part[kMostParts];
#pragma unroll
    for (int j = 0; j < kMostParts; j++) {
      if (j < t.parts) {
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
      y[e] = operand.finish(p, row0 + row, o, sum);
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
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int half = half_of_warp(warp), panel = panel_of_warp(warp);
  chunk_loader<B> loader(p, operand, tile * B::kPanels, row0, first, end);
  for (int i = 0; i < t.stages - kBehind; i++) {
    loader.load(ring, t, p, &x);
  }
  __syncwarp();
  if (!header_first) { /* while the first chunks are under way */
    fits = operand.read_header(p, recorder);
  }
  float total[B::kTokens / 2] = {};
  operand.visit_plain([&](auto form) {
    constexpr int kGroups = kChunkSteps / decltype(form)::kStepsOfGroup;
    ring_place place;
#pragma unroll 1
    for (int chunk = first; chunk < end; chunk++) {
      const uint32_t at = shared_address(ring.stages) + place.stage * t.stage_bytes;
      const int groups = (int)divide_up(p.w.in - (int64_t)chunk * kChunk, kChunk / kGroups);
      loader.load(ring, t, p, &x);
      __syncwarp();
      wait_for(ring.full + place.stage, place.parity);
#pragma unroll 1
      for (int group = 0; group < kGroups && (kGroups == 1 || group < groups); group++) {
        multiply_group<B, T>(form, total, at + B::kRowsBytes + panel * p.stage_bytes,
                             page_operand(at), group, half);
      }
      __syncwarp();
      if (lane == 0) {
        arrive(ring.empty + place.stage);
      }
      place.advance(t.stages);
    }
  });
  __syncthreads(); /* all stages have been read */
  float *to = sums + 2 * (lane % 4) * B::kPitch + panel * TGI_PANEL_ROWS + lane / 4 * 4 + 2 * half;
#pragma unroll
  for (int j = 0; j < B::kTokens / 8; j++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const pack<float, 2> two = {{total[4 * j + e], total[4 * j + 2 + e]}};
      *reinterpret_cast<pack<float, 2> *>(to + (8 * j + e) * B::kPitch) = two;
    }
  }
  cluster_barrier((unsigned)t.parts);
  finish_share<B>(sums, t, p, operand, tile * B::kOutputs, row0, part, fits);
  if (t.parts > 1) {
    cluster_barrier((unsigned)t.parts); /* others still read this block's sums */
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
