/* Gradients of experts' weights on tensor cores, from compute capability 8.0 on: products of two
 * matrices over the rows of each expert.
 *
 * Method     gemm_sm80.cuh with both operands across k, which ldmatrix turns. Where an expert's
 * rows end, zeros are loaded; rows of x are gathered as they are loaded, their places a stage
 *            ahead.
 * Work       A tile of 128 x 128 of an expert's matrix for a block; of 64 x 64 for small ones.
 * Bound      Tensor cores; few rows an expert: memory.
 */
#include "ops/grouped_linear/sm80/expert_products_sm80.cuh"
#include "ops/grouped_linear/sm80/expert_steps_sm80.cuh"

namespace
{

mma_operand operand_of(const tg_tensor *t)
{
  mma_operand o = {};
  o.data = static_cast<const char *>(t->data);
  o.row_bytes = (uint32_t)(2 * tgi_stride(t, 0));
  o.vectors = rows_aligned(t, 16);
  o.whole = t->shape[1] % kMmaChunk == 0;
  return o;
}

template <typename T, typename Shape, int kGathers>
tg_status run(const tg_context *ctx, const expert_steps_call &call)
{
  expert_steps_job<T, kGathers> j = {};
  j.group = call.tiles;
  j.sources = call.sources;
  j.a = operand_of(call.a);
  j.b = operand_of(call.b);
  j.c = mma_result_of(call.c);
  j.c_step = tgi_stride(call.c, 0);
  j.m = (int)call.c->shape[1];
  j.n = (int)call.c->shape[2];
  j.row_tiles = (int)divide_up(j.m, Shape::kM);
  j.column_tiles = (int)divide_up(j.n, Shape::kN);
  j.overwrite = call.overwrite;
  const int64_t tiles = j.group.experts * j.row_tiles * j.column_tiles;
  return gemm_mma_launch<T, Shape, true, true>(ctx, j, tiles);
}

template <typename T, typename Shape>
tg_status run_gathers(const tg_context *ctx, const expert_steps_call &call)
{
  return !call.sources.slot ? run<T, Shape, 0>(ctx, call)
         : call.a_is_x      ? run<T, Shape, 1>(ctx, call)
                            : run<T, Shape, 2>(ctx, call);
}

template <typename T> tg_status run_shape(const tg_context *ctx, const expert_steps_call &call)
{
  return expert_steps_are_large(ctx, call.c->shape[1], call.c->shape[2])
             ? run_gathers<T, mma_large>(ctx, call)
             : run_gathers<T, mma_middle>(ctx, call);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status multiply_expert_steps(const tg_context *ctx, const expert_steps_call &call)
{
  return call.a->dtype == TG_F16 ? run_shape<f16>(ctx, call) : run_shape<bf16>(ctx, call);
}

} // namespace TGI_CUDA_ENTRY
