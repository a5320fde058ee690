/**
 * Which tile of which group a block multiplies: tiles are numbered through all groups, and every
 * block finds its own from the groups' ends, which lie in shared memory. Nothing waits for the host
 * to learn how many rows a group has.
 */
#ifndef TGI_CUDA_GEMM_GROUPED_CUH
#define TGI_CUDA_GEMM_GROUPED_CUH

#include "cuda/shared_memory.cuh"

extern "C" {
#include "cuda/gemm/gemm_problem.h"
}

inline namespace TGI_CUDA_ENTRY
{

constexpr int kGemmTileM = 128, kGemmTileK = 64;

/** Ends of groups in device memory; NULL: one group. Group `groups` stands for the rows of none. */
struct gemm_groups {
  const int64_t *first_tile; /* [groups + 2], in tiles of kGemmTileM rows; GROUPS_OF_ROWS */
  const int32_t *bound;      /* [groups + 2]: first row; never falling */
  const int32_t *bad;        /* [1]: the groups are not what they should be: results are NaN */
  int groups;
};

/** The same in shared memory. */
struct gemm_ends {
  int32_t *first_tile, *bound;
  int groups;
  bool bad;

  /** By all threads of the block, before a barrier. Returns where the ends end. */
  __device__ __forceinline__ char *read(const gemm_groups &g, char *shared)
  {
    groups = g.groups;
    first_tile = reinterpret_cast<int32_t *>(shared);
    if (!g.bad) {
      bad = false;
      return shared;
    }
    bound = first_tile + g.groups + 2;
    for (int i = (int)threadIdx.x; i < g.groups + 2; i += (int)blockDim.x) {
      first_tile[i] = (int32_t)g.first_tile[i];
      bound[i] = g.bound[i];
    }
    bad = *g.bad != 0;
    return reinterpret_cast<char *>(bound + g.groups + 2);
  }

  /** The group of a tile of rows: the last whose first tile is not above it. */
  __device__ __forceinline__ int group_of(int tile) const
  {
    int low = 0, high = groups + 1; /* first_tile[low] <= tile < first_tile[high] */
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_tile[middle] <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

/** A tile of C and the sums that make it. */
struct gemm_place {
  int group;
  int row, rows; /* its first row in C, and how many rows exist from there on */
  int column_tile;
  int first_step, steps; /* steps of kGemmTileK along k, from element first_step on */
  int tail;              /* elements of the last step that belong to the group; 0: all */
};

/** Numbers tiles in bands of 16 rows of tiles, columns after one another: blocks at work at the
 * same time share rows of A and columns of B in the second-level cache. */
__device__ __forceinline__ void gemm_tile_in_band(int tile, int row_tiles, int column_tiles,
                                                  int *row_tile, int *column_tile)
{
  constexpr int kBand = 16;
  const int band = tile / (kBand * column_tiles), first = band * kBand;
  const int height = row_tiles - first < kBand ? row_tiles - first : kBand;
  const int rest = tile - band * kBand * column_tiles;
  *column_tile = rest / height;
  *row_tile = first + rest - *column_tile * height;
}

/** One product without groups. */
struct gemm_dense_tiles {
  static constexpr bool kGroupsOfSteps = false;
  gemm_groups groups; /* none */
  int m, k;           /* k: 16-bit elements, or pairs of bytes */
  int row_tiles, column_tiles;

  __device__ __forceinline__ int count(const gemm_ends &) const
  {
    return row_tiles * column_tiles;
  }

  __device__ __forceinline__ bool find(const gemm_ends &, int tile, gemm_place *p) const
  {
    int row_tile;
    gemm_tile_in_band(tile, row_tiles, column_tiles, &row_tile, &p->column_tile);
    p->group = 0;
    p->row = row_tile * kGemmTileM;
    p->rows = m - p->row;
    p->first_step = 0;
    p->steps = (k + kGemmTileK - 1) / kGemmTileK;
    p->tail = 0;
    return true;
  }
};

/** Groups of rows: C has the rows of all groups. */
struct gemm_rows_tiles {
  static constexpr bool kGroupsOfSteps = false;
  gemm_groups groups;
  int k, column_tiles;

  __device__ __forceinline__ int count(const gemm_ends &ends) const
  {
    return ends.first_tile[ends.groups + 1] * column_tiles;
  }

  /** False: the tile needs nothing. Tiles of no group have no steps. */
  __device__ __forceinline__ bool find(const gemm_ends &ends, int tile, gemm_place *p) const
  {
    int row_tile;
    gemm_tile_in_band(tile, ends.first_tile[ends.groups + 1], column_tiles, &row_tile,
                      &p->column_tile);
    p->group = ends.group_of(row_tile);
    p->row = ends.bound[p->group] + (row_tile - ends.first_tile[p->group]) * kGemmTileM;
    p->rows = ends.bound[p->group + 1] - p->row;
    p->first_step = 0;
    p->steps = p->group == ends.groups ? 0 : (k + kGemmTileK - 1) / kGemmTileK;
    p->tail = 0;
    return true;
  }
};

/** Groups of steps: C is a matrix for each group. */
struct gemm_steps_tiles {
  static constexpr bool kGroupsOfSteps = true;
  gemm_groups groups;
  int m, row_tiles, column_tiles;
  bool adds; /* a group without steps leaves its matrix as it is */

  __device__ __forceinline__ int count(const gemm_ends &ends) const
  {
    return ends.groups * row_tiles * column_tiles;
  }

  __device__ __forceinline__ bool find(const gemm_ends &ends, int tile, gemm_place *p) const
  {
    const int each = row_tiles * column_tiles;
    p->group = tile / each;
    int row_tile;
    gemm_tile_in_band(tile - p->group * each, row_tiles, column_tiles, &row_tile, &p->column_tile);
    p->row = row_tile * kGemmTileM;
    p->rows = m - p->row;
    p->first_step = ends.bound[p->group];
    const int length = ends.bound[p->group + 1] - p->first_step;
    p->steps = (length + kGemmTileK - 1) / kGemmTileK;
    p->tail = length % kGemmTileK;
    return length > 0 || !adds || ends.bad;
  }
};

} // namespace TGI_CUDA_ENTRY

#endif
