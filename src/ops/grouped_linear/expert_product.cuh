/**
 * Products of tiles of 64 x 64 on CUDA for grouped linear layers, whose operands' rows are picked.
 *
 * Method  A block of 256 threads; a thread has 4 x 4 elements. Tiles of 16 steps along k pass
 *         through shared memory as f32.
 * Sums    Blocks of kSumBlock products along k, each one chain of fused multiply-adds in the order
 *         of k; blocks are added in order. So an element's bits depend on its row and its column
 *         alone.
 */
#ifndef TGI_OPS_EXPERT_PRODUCT_CUH
#define TGI_OPS_EXPERT_PRODUCT_CUH

#include "ops/grouped_linear/expert_tiles.cuh"

#include <math_constants.h>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kTileCols = 64, kTileK = 16, kProductThreads = 256;
constexpr int kTileStride = kTileRows + 4; /* of k in a tile: stores along k spread over banks */
static_assert(kSumBlock % kTileK == 0, "a block of products ends with a tile");

/** What a block keeps of a product. */
struct product_tiles {
  float a[kTileK][kTileStride], b[kTileK][kTileStride];
  int64_t source[kTileRows];
};

/** A thread's elements (4 * (thread / 16) + i, 4 * (thread % 16) + j) of a tile. */
struct tile_sums {
  float total[4][4], sum[4][4];

  __device__ __forceinline__ void begin()
  {
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        total[i][j] = sum[i][j] = 0;
      }
    }
  }

  /** Adds the products of what the tiles hold. */
  __device__ __forceinline__ void multiply(const product_tiles &t)
  {
    const int ty = threadIdx.x / 16 * 4, tx = threadIdx.x % 16 * 4;
#pragma unroll
    for (int k = 0; k < kTileK; k++) {
      const float4 u = *reinterpret_cast<const float4 *>(&t.a[k][ty]);
      const float4 v = *reinterpret_cast<const float4 *>(&t.b[k][tx]);
      const float a[4] = {u.x, u.y, u.z, u.w}, b[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
      }
    }
  }

  __device__ __forceinline__ void end_block()
  {
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        total[i][j] += sum[i][j];
        sum[i][j] = 0;
      }
    }
  }
};

/** Sums over k = 0 .. steps - 1. load_a and load_b are called as (line, k) for lines 0 .. 63 of a
 * tile and k below steps, and return the element, 0 for a line that does not exist. `a_along_k`:
 * neighbouring threads read neighbours in k. By all threads of the block. */
template <typename LoadA, typename LoadB>
__device__ __forceinline__ void multiply_tiles(tile_sums &sums, product_tiles &t, int64_t steps,
                                               bool a_along_k, bool b_along_k, const LoadA &load_a,
                                               const LoadB &load_b)
{
  sums.begin();
  for (int64_t k0 = 0; k0 < steps; k0 += kTileK) {
    __syncthreads(); /* the tiles before have been multiplied */
#pragma unroll
    for (int i = threadIdx.x; i < kTileRows * kTileK; i += kProductThreads) {
      const int la = a_along_k ? i / kTileK : i % kTileRows;
      const int ka = a_along_k ? i % kTileK : i / kTileRows;
      const int lb = b_along_k ? i / kTileK : i % kTileCols;
      const int kb = b_along_k ? i % kTileK : i / kTileCols;
      t.a[ka][la] = k0 + ka < steps ? load_a(la, k0 + ka) : 0.0f;
      t.b[kb][lb] = k0 + kb < steps ? load_b(lb, k0 + kb) : 0.0f;
    }
    __syncthreads();
    sums.multiply(t);
    if ((k0 + kTileK) % kSumBlock == 0 || k0 + kTileK >= steps) {
      sums.end_block();
    }
  }
  __syncthreads(); /* the tiles may be written again */
}

/** A matrix for each expert, or one for all. */
struct expert_matrix {
  const void *data; /* NULL: absent */
  tg_dtype dtype;
  int64_t expert_step, row_step;
};

inline expert_matrix matrix_of_rank(const tg_tensor *t)
{
  expert_matrix m = {};
  if (tgi_present(t)) {
    m.data = t->data;
    m.dtype = t->dtype;
    m.expert_step = t->ndim == 3 ? tgi_stride(t, 0) : 0;
    m.row_step = tgi_stride(t, t->ndim - 2);
  }
  return m;
}

} // namespace TGI_CUDA_ENTRY

#endif
