/* Products of rows with their experts' weights on tensor cores, from compute capability 8.0 on: y
 * of the forward and dx of the backward.
 *
 * Method     gemm_sm80.cuh on tiles of one expert's rows, which are gathered as they are loaded.
 * Bias and activation follow in the same kernel; gate and up of an output are in one tile, in
 * either packing and layout. Work       A tile of 128 x 128 for a block; of 64 x 64 or 16 x 32
 * where experts have few rows. Bound      Tensor cores; few rows an expert: memory, which reads the
 * experts' weights once.
 */
#include "ops/grouped_linear/sm80/expert_products_sm80.cuh"
#include "ops/grouped_linear/sm80/expert_rows_sm80.cuh"

namespace
{

mma_operand operand_of(const tg_tensor *t)
{
  mma_operand o = {};
  o.data = static_cast<const char *>(t->data);
  o.row_bytes = (uint32_t)(2 * tgi_stride(t, t->ndim - 2));
  o.group_bytes = t->ndim == 3 ? 2 * tgi_stride(t, 0) : 0;
  o.vectors = rows_aligned(t, 16);
  o.whole = t->shape[t->ndim - 1] % kMmaChunk == 0;
  return o;
}

template <typename T> expert_rows_job<T> job_of(const expert_rows_call &call)
{
  expert_rows_job<T> j = {};
  j.group = call.tiles;
  j.sources = call.sources;
  j.a = operand_of(call.a);
  j.b = operand_of(call.weight);
  if (call.bias) {
    j.bias = matrix_of_rank(call.bias);
  }
  j.z = mma_result_of(call.z);
  j.y = mma_result_of(call.y);
  j.n = (int)call.weight->shape[call.across ? 2 : 1];
  j.steps = (int)call.weight->shape[call.across ? 1 : 2];
  if (call.y) {
    j.half = call.act.packing == TG_GATE_UP_HALVES ? j.n / 2 : 0;
    j.act = gated_act_of<T>(call.act, call.y->dtype);
  }
  if (j.half % kMmaChunk != 0) { /* up's columns begin between vectors */
    j.z.vectors = false;
    j.b.vectors = j.b.vectors && !call.across;
  }
  return j;
}

template <typename T, typename Shape, bool kAcross>
tg_status run(const tg_context *ctx, const expert_rows_call &call)
{
  expert_rows_job<T> j = job_of<T>(call);
  j.column_tiles = (int)(j.half ? divide_up(j.half, Shape::kN / 2) : divide_up(j.n, Shape::kN));
  const int64_t rows = call.tiles.rows, ends = call.tiles.experts + 1;
  const int64_t row_tiles = rows / Shape::kM + (rows < ends ? rows : ends);
  return gemm_mma_launch<T, Shape, false, kAcross>(ctx, j, row_tiles * j.column_tiles);
}

template <typename T, bool kAcross>
tg_status run_shape(const tg_context *ctx, const expert_rows_call &call)
{
  switch (call.tiles.tile_rows) {
  case mma_large::kM:
    return run<T, mma_large, kAcross>(ctx, call);
  case mma_middle::kM:
    return run<T, mma_middle, kAcross>(ctx, call);
  default:
    return run<T, mma_few, kAcross>(ctx, call);
  }
}

template <typename T> tg_status run_layout(const tg_context *ctx, const expert_rows_call &call)
{
  return call.across ? run_shape<T, true>(ctx, call) : run_shape<T, false>(ctx, call);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status multiply_expert_rows(const tg_context *ctx, const expert_rows_call &call)
{
  return call.a->dtype == TG_F16 ? run_layout<f16>(ctx, call) : run_layout<bf16>(ctx, call);
}

} // namespace TGI_CUDA_ENTRY
