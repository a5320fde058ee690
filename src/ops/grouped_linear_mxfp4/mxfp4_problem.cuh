/** What calls of grouped_linear_mxfp4 are on CUDA: a product of experts' rows with a packed weight,
 * and, after the forward's, perhaps an activation. */
#ifndef TGI_OPS_MXFP4_PROBLEM_CUH
#define TGI_OPS_MXFP4_PROBLEM_CUH

#include "ops/grouped_linear/expert_rows.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_tiles.cuh"

extern "C" {
#include "ops/shared/gated/gated_choice.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** The product's b and column_tiles are missing. */
struct mxfp4_problem {
  rows_product p;
  mxfp4_weight w;
  const tg_tensor *offsets;
  fault_site bad_offset;
};

inline size_t mxfp4_fwd_bytes(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const size_t tiles = expert_tiles_bytes(a->offsets.shape[0] - 1);
  if (a->activation == TG_GATED_NONE || tgi_present(&a->preactivation)) {
    return tiles;
  }
  return tiles + 2 * (size_t)tgi_numel(&a->y) * tg_dtype_bytes(a->y.dtype);
}

inline size_t mxfp4_bwd_bytes(const tg_grouped_linear_mxfp4_bwd_args *a)
{
  return expert_tiles_bytes(a->offsets.shape[0] - 1);
}

/** Where the product of a forward goes: y, or what an activation reads, which follows the tiles in
 * the workspace unless it is a result. */
inline tg_tensor mxfp4_z_of(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  if (a->activation == TG_GATED_NONE) {
    return a->y;
  }
  if (tgi_present(&a->preactivation)) {
    return a->preactivation;
  }
  char *behind = static_cast<char *>(a->workspace) + expert_tiles_bytes(a->offsets.shape[0] - 1);
  return tg_tensor_2d(behind, a->y.dtype, a->y.shape[0], 2 * a->y.shape[1]);
}

inline mxfp4_problem mxfp4_fwd_problem(const tg_context *ctx,
                                       const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const tg_tensor z = mxfp4_z_of(a);
  const int64_t experts = a->offsets.shape[0] - 1;
  mxfp4_problem q = {};
  q.p.tiles = expert_tiles_in(a->workspace, experts, z.shape[0]);
  q.p.sources.slot = static_cast<const int32_t *>(a->slot.data);
  q.p.sources.slots = a->x.shape[0] * a->slots_per_row;
  q.p.sources.slots_per_row = (int)a->slots_per_row;
  q.p.sources.bad_slot = FAULT_SITE(ctx, grouped_linear_mxfp4_fwd, slot);
  q.p.a = matrix_of_rank(&a->x);
  q.p.bias = matrix_of_rank(&a->bias);
  q.p.c = z.data;
  q.p.c_dtype = z.dtype;
  q.p.c_step = tgi_stride(&z, 0);
  q.p.cols = z.shape[1];
  q.p.steps = a->x.shape[1];
  q.w = mxfp4_weight_of(&a->weight, experts, q.p.cols, q.p.steps,
                        FAULT_SITE(ctx, grouped_linear_mxfp4_fwd, weight));
  q.offsets = &a->offsets;
  q.bad_offset = FAULT_SITE(ctx, grouped_linear_mxfp4_fwd, offsets);
  return q;
}

inline mxfp4_problem mxfp4_bwd_problem(const tg_context *ctx,
                                       const tg_grouped_linear_mxfp4_bwd_args *a)
{
  const int64_t experts = a->offsets.shape[0] - 1;
  mxfp4_problem q = {};
  q.p.tiles = expert_tiles_in(a->workspace, experts, a->dy.shape[0]);
  q.p.a = matrix_of_rank(&a->dy);
  q.p.c = a->dx.data;
  q.p.c_dtype = a->dx.dtype;
  q.p.c_step = tgi_stride(&a->dx, 0);
  q.p.cols = a->dx.shape[1];
  q.p.steps = a->dy.shape[1];
  q.w = mxfp4_weight_of(&a->weight, experts, q.p.steps, q.p.cols,
                        FAULT_SITE(ctx, grouped_linear_mxfp4_bwd, weight));
  q.offsets = &a->offsets;
  q.bad_offset = FAULT_SITE(ctx, grouped_linear_mxfp4_bwd, offsets);
  return q;
}

/** The products without tensor cores, which serve every call (grouped_linear_mxfp4.cu). */
tg_status multiply_mxfp4_rows(const tg_context *ctx, const mxfp4_problem &q);
tg_status multiply_mxfp4_turned(const tg_context *ctx, const mxfp4_problem &q);
void tell_plain_mxfp4(char *text, size_t bytes);

/** After the product of a backward, whose tiles it reads: dbias, if it is asked for. */
tg_status add_mxfp4_dbias(const tg_context *ctx, const mxfp4_problem &q,
                          const tg_grouped_linear_mxfp4_bwd_args *a);

/** What follows the product of a forward. */
inline tg_status activate_mxfp4(const tg_context *ctx, const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const tg_tensor z = mxfp4_z_of(a);
  return a->activation == TG_GATED_NONE ? TG_OK : tgi_activate(ctx, TGI_GATED_CHOICE(a), &z, &a->y);
}

} // namespace TGI_CUDA_ENTRY

#endif
