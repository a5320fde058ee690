/* Linear layers with int4 weights on tensor cores.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x (cuda/gemm/gemm_quantised_sm80.cuh). Many rows of bf16: the weight is
 *            widened to memory once, for cublasLt. x in f32: linear_int4.cu.
 * Work       Panels of 32 rows of W by up to 64 rows of x for a block.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "cuda/gemm/gemm_operand_int4.cuh"
#include "cuda/gemm/quantised_product.cuh"
#include "ops/linear_int4/linear_int4_plain.cuh"

namespace
{

/* Bytes of a chunk of a panel, which are the same for every way of packing that has the weight's
 * bytes, or 0. */
int64_t chunk_bytes_of(const tg_linear_int4_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  int64_t found = 0;
  for (int64_t group_size = 32; group_size <= 128; group_size *= 2) {
    for (int form = 0; form < 4; form++) {
      const tgi_int4_layout l = {in, group_size, form & 1 ? TG_F32 : TG_F16, (form & 2) != 0};
      const int64_t bytes = kChunk / group_size * tgi_int4_group_bytes(&l);
      if (tgi_packed_size(out, tgi_int4_panel_bytes(&l)) == a->weight.shape[0]) {
        if (found && found != bytes) {
          return 0;
        }
        found = bytes;
      }
    }
  }
  return found;
}

quantised_product product_of(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1], chunk_bytes = chunk_bytes_of(a);
  const int64_t panel_bytes = (a->weight.shape[0] - TGI_PACKED_HEADER_BYTES) / tgi_panel_count(out);
  const int64_t stage =
      chunk_bytes ? divide_up(chunk_bytes, 128) * 128 : int4_operand::kMostStageBytes;
  const packed_weight w = packed_weight_of(&a->weight, TGI_INT4_MAGIC, TGI_INT4_VERSION, out, in,
                                           FAULT_SITE(ctx, linear_int4_fwd, weight));
  return quantised_product_of(a, w, panel_bytes, chunk_bytes, (int)stage);
}

bool takes(const tg_linear_int4_fwd_args *a)
{
  return takes_quantised(a);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  const size_t plain = linear_int4_plain_bytes(a), widened = widened_bytes(ctx, a);
  return plain > widened ? plain : widened;
}

extern "C" tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  return takes(a) ? multiply_quantised<int4_operand>(ctx, a, product_of(ctx, a))
                  : linear_int4_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a,
                                          char *text, size_t bytes)
{
  if (takes(a)) {
    tell_quantised(ctx, a, text, bytes);
  } else {
    tell_linear_int4_plain(a, text, bytes);
  }
}
