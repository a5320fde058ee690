/** Rows of experts times a matrix of their expert on CUDA: what such a product is, and how a tile
 * of f32 sums is stored. */
#ifndef TGI_OPS_EXPERT_ROWS_CUH
#define TGI_OPS_EXPERT_ROWS_CUH

#include "ops/grouped_linear/expert_product.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** c[r, n] = sum_k a[g(r), k] * b[e(r)][k, n] + bias[e(r), n]; 0 in rows of no expert. */
struct rows_product {
  expert_tiles tiles;
  row_sources sources;
  expert_matrix a, b, bias; /* bias: its rows are the experts' */
  bool b_along_k;           /* b is stored as [n, k] */
  void *c;
  tg_dtype c_dtype;
  int64_t c_step, cols, steps, column_tiles;
};

namespace
{

__device__ __forceinline__ void store_rows(const rows_product &p, const product_tiles &t,
                                           const tile_sums &sums, int64_t e, int64_t row0,
                                           int64_t col0)
{
  const bool none = e == p.tiles.experts, bad = *p.tiles.bad != 0;
  const int64_t end = p.tiles.bound[e + 1];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int line = threadIdx.x / 16 * 4 + i;
    const int64_t r = row0 + line;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int64_t n = col0 + threadIdx.x % 16 * 4 + j;
      if (r < end && n < p.cols) {
        float v = none ? 0.0f : sums.total[i][j];
        if (!none && p.bias.data) {
          v += load_any(p.bias.data, p.bias.dtype, e * p.bias.row_step + n);
        }
        store_any(p.c, p.c_dtype, r * p.c_step + n, bad || t.source[line] < 0 ? CUDART_NAN_F : v);
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
