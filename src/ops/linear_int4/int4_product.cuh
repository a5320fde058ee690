/** Calls of linear_int4 as the kernels of cuda/gemm see them. */
#ifndef TGI_OPS_INT4_PRODUCT_CUH
#define TGI_OPS_INT4_PRODUCT_CUH

#include "cuda/gemm/quantised/quantised_product.cuh"
#include "ops/kernels.cuh"
#include "ops/linear_int4/int4_operand.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** The kernels' description of a call. How the weight is packed follows if its bytes leave no
 * doubt; else the kernel reads the header first. */
inline quantised_product int4_product_of(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
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

} // namespace TGI_CUDA_ENTRY

#endif
