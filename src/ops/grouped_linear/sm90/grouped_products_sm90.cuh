/** The products of grouped linear layers on Hopper as calls of gemm_sm90.cuh: what they are made
 * of, and the functions that start them, each in a file of its own with its kernels. */
#ifndef TGI_OPS_GROUPED_PRODUCTS_SM90_CUH
#define TGI_OPS_GROUPED_PRODUCTS_SM90_CUH

#include "cuda/gemm/gemm_grouped.cuh"
#include "cuda/gemm/tiles_product.h"
#include "cuda/tma.cuh"
#include "ops/grouped_linear/sm90/gathered_rows_sm90.cuh"

extern "C" {
#include "ops/grouped_linear/grouped_refusals.h"
#include "ops/shared/gated/gated_choice.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** z[r, n] = sum_k a[r, k] * weight[e(r)][n, k] + bias[e(r), n], and y = act(z). */
struct rows_call {
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  expert_tiles tiles; /* of kGemmTileM rows */
  const tg_tensor *a, *weight, *bias;
  const tg_tensor *z, *y; /* NULL: not wanted */
  tgi_gated_choice act;   /* with y */
};

tg_status multiply_rows_sm90(const tg_context *ctx, const rows_call &call);

/** c[e][m, n] (+)= sum of a[r, m] * b[r, n] over the rows of e. */
struct steps_call {
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  expert_tiles tiles;
  const tg_tensor *a, *b, *c;
};

tg_status multiply_steps_sm90(const tg_context *ctx, const steps_call &call);

inline gemm_groups gemm_groups_of(const expert_tiles &t)
{
  return {t.first_tile, t.bound, t.bad, (int)t.experts};
}

/** A rows problem: weight [experts, n, k], or [experts, k, n] if `across`. */
inline tgi_gemm_problem rows_problem(const tg_tensor *a, const tg_tensor *weight, bool across,
                                     int64_t rows, tg_dtype to)
{
  tgi_gemm_problem p = {};
  p.m = rows;
  p.n = weight->shape[across ? 2 : 1];
  p.k = weight->shape[across ? 1 : 2];
  p.grouped = TGI_GEMM_GROUPS_OF_ROWS;
  p.groups = weight->shape[0];
  p.a = {a->dtype, TGI_GEMM_ALONG_K, rows_aligned(a, 16)};
  p.b = {weight->dtype, across ? TGI_GEMM_ACROSS_K : TGI_GEMM_ALONG_K, rows_aligned(weight, 16)};
  p.c = {to, TGI_GEMM_ACROSS_K, true};
  p.epilogue = TGI_GEMM_STORE;
  return p;
}

} // namespace TGI_CUDA_ENTRY

#endif
