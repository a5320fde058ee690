/* Linear layers with int8 weights on tensor cores.
 *
 * Method     Weight-only: weights become 16-bit floats in registers, exactly, and are the left
 *            operand of products with x (cuda/gemm/quantised/quantised_sm80.cuh). Many rows of
 *            bf16: the weight is widened to memory once, for cublasLt. x in f32: linear_int8.cu.
 *            Dynamic: rows of x become digits in the workspace (cuda/digits.cuh), and tensor cores
 *            multiply bytes; sums are exact, so the bits are the CPU's.
 * Work       Panels of 32 rows of W by up to 32 rows of x for a block.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "cuda/digits.cuh"
#include "ops/linear_int8/int8_int8_operand.cuh"
#include "ops/linear_int8/int8_product.cuh"
#include "ops/linear_int8/linear_int8_plain.cuh"

namespace
{

bool is_dynamic(const tg_linear_int8_fwd_args *a)
{
  return a->mode == TG_INT8_DYNAMIC;
}

/* Of x as digits only what one grid takes: more rows have the same bits elsewhere. */
bool takes(const tg_linear_int8_fwd_args *a)
{
  return is_dynamic(a)
             ? a->x.shape[0] <= kSliceRows && a->x.shape[1] <= kMostInt8Columns && takes_packed(a)
             : takes_quantised(a);
}

constexpr int kDigitRows = 8; /* of a strip, as the kernel takes them */

tg_status multiply_dynamic(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  digit_strips d;
  quantised_product p = int8_product_of(ctx, a);
  digits_lay_out(&d, &a->x, 1, a->workspace, kDigitRows);
  p.x = d.words;
  p.digit_units = d.units;
  p.digit_scale = d.scale;
  p.digit_sums = d.sums;
  const tg_status status = make_digits<1>(ctx, d, a->x.dtype);
  return status ? status : multiply_strips<int8_int8_operand, bf16>(ctx, p);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_int8_fwd)(const tg_context *ctx,
                                                 const tg_linear_int8_fwd_args *a)
{
  digit_strips d;
  const size_t plain = linear_int8_plain_bytes(a);
  const size_t other =
      is_dynamic(a) ? digits_lay_out(&d, &a->x, 1, nullptr, kDigitRows) : widened_bytes(ctx, a);
  return plain > other ? plain : other;
}

extern "C" tg_status TGI_KERNEL(linear_int8_fwd)(const tg_context *ctx,
                                                 const tg_linear_int8_fwd_args *a)
{
  return !takes(a)       ? linear_int8_plain(ctx, a)
         : is_dynamic(a) ? multiply_dynamic(ctx, a)
                         : multiply_quantised<int8_operand>(ctx, a, int8_product_of(ctx, a));
}

extern "C" void TGI_PLAN(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a,
                                          char *text, size_t bytes)
{
  if (!takes(a)) {
    tell_linear_int8_plain(a, text, bytes);
  } else if (is_dynamic(a)) {
    snprintf(text, bytes, "8-bit integers on tensor cores, strips of %d rows",
             strip_of(a->x.shape[0]));
  } else {
    tell_quantised(ctx, a, text, bytes);
  }
}
