/**
 * Rows of experts on CUDA: a first kernel turns `offsets` into bounds that no fault can lead out of
 * memory, and into the numbers of each expert's tiles of rows; those that follow find the expert of
 * a tile by bisection. Nothing waits for the device.
 */
#ifndef TGI_OPS_EXPERT_TILES_CUH
#define TGI_OPS_EXPERT_TILES_CUH

#include "cuda/fault.cuh"
#include "cuda/gemm/gemm_tile.cuh"
#include "cuda/reduce.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kTileRows = 64; /* of the portable kernels' tiles */

/** In the workspace. Expert `experts` stands for the rows of none. */
struct expert_tiles {
  int64_t *first_tile; /* [experts + 2] */
  int32_t *bound;      /* [experts + 2]: first row; never falling, 0 .. rows */
  int32_t *bad;        /* [1]: an offset is out of range */
  int64_t experts, rows;
  int64_t tile_rows;
};

inline size_t expert_tiles_bytes(int64_t experts)
{
  return (size_t)(12 * (experts + 2) + 4 + 255) / 256 * 256;
}

inline expert_tiles expert_tiles_in(void *workspace, int64_t experts, int64_t rows,
                                    int64_t tile_rows = kTileRows)
{
  expert_tiles t = {};
  t.first_tile = static_cast<int64_t *>(workspace);
  t.bound = reinterpret_cast<int32_t *>(t.first_tile + experts + 2);
  t.bad = t.bound + experts + 2;
  t.experts = experts;
  t.rows = rows;
  t.tile_rows = tile_rows;
  return t;
}

/** As many tiles as `rows` can have at most, those of no expert included. */
inline int64_t most_tiles(int64_t experts, int64_t rows)
{
  return rows / kTileRows + (rows < experts + 1 ? rows : experts + 1);
}

/** The rows of x of an op's rows. By value to kernels. */
struct row_sources {
  const int32_t *slot; /* NULL: row r itself */
  int64_t slots;
  int slots_per_row;
  fault_site bad_slot;

  /** -1: slot[r] is out of range, which is recorded if `record`. */
  __device__ __forceinline__ int64_t of(int64_t r, bool record) const
  {
    if (!slot) {
      return r;
    }
    const int s = slot[r];
    if (s >= 0 && s < slots) {
      return s / slots_per_row;
    }
    if (record) {
      record_fault(bad_slot, r, s, 0, slots - 1);
    }
    return -1;
  }
};

/** Those of grouped_linear, forward or backward. */
template <typename Args> row_sources sources_of(const Args *a, fault_site bad_slot)
{
  row_sources s = {};
  s.slot = static_cast<const int32_t *>(a->slot.data);
  s.slots = a->x.shape[0] * a->slots_per_row;
  s.slots_per_row = (int)a->slots_per_row;
  s.bad_slot = bad_slot;
  return s;
}

/** The expert of a tile, the last whose first tile is not above it; `experts`: none. */
__device__ __forceinline__ int64_t expert_of_tile(const expert_tiles &t, int64_t tile)
{
  int64_t low = 0, high = t.experts + 1; /* first_tile[low] <= tile < first_tile[high] */
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (t.first_tile[middle] <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

namespace
{

/** Of the lanes up to this one. */
__device__ __forceinline__ int lanes_max(int v)
{
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, v, step);
    v = (int)(threadIdx.x % kWarp) >= step && other > v ? other : v;
  }
  return v;
}

__device__ __forceinline__ int64_t lanes_sum(int64_t v)
{
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, v, step);
    v += (int)(threadIdx.x % kWarp) >= step ? other : 0;
  }
  return v;
}

/** One warp; a lane for an expert, 32 at a time. */
__global__ void __launch_bounds__(kWarp)
    grouped_linear_tiles_kernel(const int32_t *offsets, const expert_tiles t,
                                const fault_site bad_offset)
{
  const int lane = threadIdx.x;
  int before = 0; /* the bound that the last 32 ended with */
  int64_t tiles = 0;
  bool bad = false;
  for (int64_t e0 = 0; e0 <= t.experts; e0 += kWarp) {
    const int64_t e = e0 + lane;
    const bool exists = e <= t.experts;
    const int given = exists ? offsets[e] : 0;
    const int64_t low = e > 0 && exists ? offsets[e - 1] : 0, high = e > 0 ? t.rows : 0;
    if (exists && (given < low || given > high)) {
      record_fault(bad_offset, e, given, low, high);
      bad = true;
    }
    const int inside = given < 0 || e == 0 ? 0 : given > t.rows ? (int)t.rows : given;
    const int most = lanes_max(inside), bound = most > before ? most : before;
    const int below = __shfl_up_sync(0xffffffffu, bound, 1), from = lane == 0 ? before : below;
    const int64_t sum = tiles + lanes_sum(divide_up(bound - from, t.tile_rows));
    if (exists) { /* the tiles of expert e - 1 end where those of e begin */
      t.bound[e] = bound;
      t.first_tile[e] = sum;
    }
    before = __shfl_sync(0xffffffffu, bound, kWarp - 1);
    tiles = __shfl_sync(0xffffffffu, sum, kWarp - 1);
  }
  bad = __any_sync(0xffffffffu, bad);
  if (lane == 0) {
    t.bound[t.experts + 1] = (int)t.rows;
    t.first_tile[t.experts + 1] = tiles + divide_up(t.rows - before, t.tile_rows);
    *t.bad = bad;
  }
}

} // namespace

inline tg_status find_tiles(const tg_context *ctx, const tg_tensor *offsets, const expert_tiles &t,
                            fault_site bad_offset)
{
  return launch(ctx, grouped_linear_tiles_kernel, dim3(1), kWarp, 0,
                static_cast<const int32_t *>(offsets->data), t, bad_offset);
}

} // namespace TGI_CUDA_ENTRY

#endif
