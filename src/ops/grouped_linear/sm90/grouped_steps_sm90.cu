/* Gradients of experts' weights on Hopper: products of two matrices over the rows of each expert.
 *
 * Method     gemm_sm90.cuh with both operands across k. The last step of an expert loads rows
 *            of the next one too, which are set to 0 in shared memory. What is rounded to 16
 *            bits and overwritten is stored from rounded tiles, all else from f32 sums.
 * Work       A tile of 128 x 192 of an expert's matrix for a block at a time.
 * Bound      Tensor cores; few rows an expert, or f32 sums that are added: memory.
 */
#include "cuda/gemm/gemm_epilogue.cuh"
#include "ops/grouped_linear/sm90/grouped_products_sm90.cuh"

namespace
{

constexpr int kColumns = 192; /* of a tile, as plans have it */

template <typename T> tg_status run(const tg_context *ctx, const steps_call &call)
{
  using form = gemm_form<true, true, kColumns>;
  const gemm_matrices m = {pages_of(call.a), pages_of(call.b), pages_of(call.c)};
  const gemm_steps_tiles tiles = {gemm_groups_of(call.tiles), (int)call.problem.m,
                                  (int)call.plan.row_tiles, (int)call.plan.column_tiles,
                                  call.problem.adds};
  gemm_sums_epilogue<T> e = {};
  e.c = call.c->data;
  e.group_step = tgi_stride(call.c, 0);
  e.row_step = tgi_stride(call.c, 1);
  e.n = (int)call.problem.n;
  e.run = kColumns / 2;
  e.is_f32 = call.problem.c.dtype == TG_F32;
  e.adds = call.problem.adds;
  return gemm_launch_sm90<T, form>(ctx, call.plan, m, tiles, e);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status multiply_steps_sm90(const tg_context *ctx, const steps_call &call)
{
  return call.problem.a.dtype == TG_F16 ? run<f16>(ctx, call) : run<bf16>(ctx, call);
}

} // namespace TGI_CUDA_ENTRY
