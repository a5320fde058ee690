/* Linear layers with int4 weights on tensor cores.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x (cuda/gemm/gemm_quantised_sm80.cuh). Many rows of bf16: the weight is
 *            widened to memory once, for cublasLt. x in f32: linear_int4.cu.
 * Work       Panels of 32 rows of W by up to 32 rows of x for a block.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "cuda/gemm/quantised_product.cuh"
#include "ops/linear_int4/int4_operand.cuh"
#include "ops/linear_int4/linear_int4_plain.cuh"

namespace
{

/* How the weight is packed, if its bytes leave no doubt; else the kernel reads the header first. */
quantised_product product_of(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  const int64_t panel_bytes = (a->weight.shape[0] - TGI_PACKED_HEADER_BYTES) / tgi_panel_count(out);
  const packed_weight w = packed_weight_of(&a->weight, TGI_INT4_MAGIC, TGI_INT4_VERSION, out, in,
                                           FAULT_SITE(ctx, linear_int4_fwd, weight));
  quantised_product p = quantised_product_of(a, w, panel_bytes, int4_operand::kMostStageBytes);
  int forms = 0;
  for (int shift = 0; shift < 3; shift++) {
    for (int form = 0; form < 4; form++) {
      const tgi_int4_layout l = {in, kStep << shift, form & 1 ? TG_F32 : TG_F16, (form & 2) != 0};
      if (tgi_int4_panel_bytes(&l) == panel_bytes) {
        forms++;
        p.group_shift = shift;
        p.head_bytes = (int)tgi_int4_head_bytes(&l);
      }
    }
  }
  if (forms == 1) {
    p.stage_bytes = kChunk / 2 * TGI_PANEL_ROWS + (kChunkSteps >> p.group_shift) * p.head_bytes;
  } else {
    p.head_bytes = 0;
  }
  return p;
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
  return takes_quantised(a) ? multiply_quantised<int4_operand>(ctx, a, product_of(ctx, a))
                            : linear_int4_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a,
                                          char *text, size_t bytes)
{
  if (takes_quantised(a)) {
    tell_quantised(ctx, a, text, bytes);
  } else {
    tell_linear_int4_plain(a, text, bytes);
  }
}
