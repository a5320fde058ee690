/* Products of rows with their experts' weights on Hopper: y of the forward and dx of the backward.
 *
 * Method     gemm_sm90.cuh on tiles of 128 rows of one expert. A tile of the last rows of an expert
 *            loads rows of the next one too and does not store them. The bias is added to the sums;
 *            the activation is computed beside the next tile's products.
 * Work       A tile of 128 x 192 for a block at a time.
 * Bound      Tensor cores; few rows an expert: memory, which reads the experts' weights once.
 */
#include "cuda/gemm/gemm_epilogue.cuh"
#include "ops/grouped_linear/sm90/grouped_products_sm90.cuh"
#include "ops/shared/gated/gated_act.cuh"

namespace
{

constexpr int kColumns = 192; /* of a tile, as plans have it */

template <typename T> gemm_rows_epilogue<T, gated_act<T>> epilogue_of(const rows_call &call)
{
  gemm_rows_epilogue<T, gated_act<T>> e = {};
  e.n = (int)call.problem.n;
  e.run = kColumns / 2;
  if (call.bias && tgi_present(call.bias)) {
    e.bias = call.bias->data;
    e.bias_dtype = call.bias->dtype;
    e.bias_step = tgi_stride(call.bias, 0);
  }
  if (call.z) {
    e.z = static_cast<T *>(call.z->data);
    e.z_step = tgi_stride(call.z, 0);
  }
  if (call.y) {
    e.y = static_cast<T *>(call.y->data);
    e.y_step = tgi_stride(call.y, 0);
    e.half = call.act.packing == TG_GATE_UP_HALVES ? e.n / 2 : 0;
    e.act = gated_act_of<T>(call.act, call.problem.c.dtype);
  }
  return e;
}

template <typename T, bool kAcross> tg_status run(const tg_context *ctx, const rows_call &call)
{
  using form = gemm_form<false, kAcross, kColumns>;
  const tg_tensor *c = call.z ? call.z : call.y; /* y is not copied: any map will do */
  const gemm_matrices m = {pages_of(call.a), pages_of(call.weight), pages_of(c)};
  const gemm_rows_tiles tiles = {gemm_groups_of(call.tiles), (int)call.problem.k,
                                 (int)call.plan.column_tiles};
  return gemm_launch_sm90<T, form>(ctx, call.plan, m, tiles, epilogue_of<T>(call));
}

template <typename T> tg_status run_as(const tg_context *ctx, const rows_call &call)
{
  return call.problem.b.major == TGI_GEMM_ACROSS_K ? run<T, true>(ctx, call)
                                                   : run<T, false>(ctx, call);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status multiply_rows_sm90(const tg_context *ctx, const rows_call &call)
{
  return call.problem.a.dtype == TG_F16 ? run_as<f16>(ctx, call) : run_as<bf16>(ctx, call);
}

} // namespace TGI_CUDA_ENTRY
