/** The products of grouped linear layers as calls of gemm_sm80.cuh, for 16-bit operands of any size
 * and alignment: what they are made of, and the functions that start them, each in a file of its
 * own with its kernels. */
#ifndef TGI_OPS_EXPERT_PRODUCTS_SM80_CUH
#define TGI_OPS_EXPERT_PRODUCTS_SM80_CUH

#include "cuda/gemm/sm80/gemm_sm80.cuh"
#include "ops/grouped_linear/expert_product.cuh"

extern "C" {
#include "ops/shared/gated/gated_choice.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** z[r, n] = sum_k a[g(r), k] * weight[e(r)][n, k] + bias[e(r), n], and y = act(z). */
struct expert_rows_call {
  expert_tiles tiles; /* of expert_tile_rows rows */
  row_sources sources;
  const tg_tensor *a, *weight, *bias; /* bias NULL: none */
  const tg_tensor *z, *y;             /* NULL: not wanted */
  tgi_gated_choice act;               /* with y */
  bool across;                        /* weight is [experts, k, n] */
};

tg_status multiply_expert_rows(const tg_context *ctx, const expert_rows_call &call);

/** c[e][m, n] (+)= sum of a[r, m] * b[r, n] over the rows of e, where one of the two is x, whose
 * row is g(r). */
struct expert_steps_call {
  expert_tiles tiles;
  row_sources sources;
  const tg_tensor *a, *b, *c;
  bool a_is_x, overwrite;
};

tg_status multiply_expert_steps(const tg_context *ctx, const expert_steps_call &call);

/** Whether rows of a matrix may be operands: there are some, and their bytes fit 32 bits. */
inline bool mma_takes_rows(const tg_tensor *t)
{
  return t->dtype != TG_F32 && t->shape[0] > 0 && t->shape[t->ndim - 1] < INT32_MAX / 2 &&
         tgi_stride(t, t->ndim - 2) < INT32_MAX;
}

/** Whether rows of `a` and a matrix, or its gradient, are multiplied so. */
inline bool multiplies_experts(const tg_tensor *a, const tg_tensor *other)
{
  return a->dtype == other->dtype && mma_takes_rows(a) && mma_takes_rows(other);
}

/** Rows of a tile for so many rows of experts; the results are the same whichever. */
inline int expert_tile_rows(const tg_context *ctx, int64_t rows, int64_t experts)
{
  const int64_t each = rows / experts;
  return each <= 8                                 ? mma_few::kM
         : each <= 48 || !mma_fits<mma_large>(ctx) ? mma_middle::kM
                                                   : mma_large::kM;
}

/** Whether tiles of a gradient of [rows, cols] are large. */
inline bool expert_steps_are_large(const tg_context *ctx, int64_t rows, int64_t cols)
{
  return rows > mma_middle::kM && cols > mma_middle::kN && mma_fits<mma_large>(ctx);
}

inline void tell_expert_rows(const tg_context *ctx, int64_t rows, int64_t experts, char *text,
                             size_t bytes)
{
  const int tile = expert_tile_rows(ctx, rows, experts);
  snprintf(text, bytes, "mma.sync, tiles of %d x %d", tile,
           tile == mma_few::kM ? mma_few::kN : tile);
}

inline void tell_expert_steps(const tg_context *ctx, int64_t rows, int64_t cols, char *text,
                              size_t bytes)
{
  const int tile = expert_steps_are_large(ctx, rows, cols) ? mma_large::kM : mma_middle::kM;
  snprintf(text, bytes, "mma.sync, tiles of %d x %d over each expert's rows", tile, tile);
}

} // namespace TGI_CUDA_ENTRY

#endif
