/** Quantisation to 8-bit integers with f32 scales, and back. */
#ifndef TEGULA_QUANTIZE_INT8_H
#define TEGULA_QUANTIZE_INT8_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which elements form a group; a group shares one scale. */
typedef enum tg_quant_granularity {
  TG_QUANT_PER_TENSOR = 1, /* all elements; scale [1] */
  TG_QUANT_PER_ROW = 2,    /* a token of x, a channel of a weight [out, in]; scale [rows] */
  TG_QUANT_PER_COLUMN = 3, /* a channel of a weight [in, out]; scale [cols] */
} tg_quant_granularity;

typedef struct tg_quantize_int8_fwd_args {
  tg_tensor x, q, scale, zero_point;
  tg_quant_granularity granularity;
  void *workspace;
  size_t workspace_bytes;
} tg_quantize_int8_fwd_args;

/**
 * Quantises to 8 bits.
 *
 *   symmetric   scale = up(max |x| / 127),                     zero_point = 0 (without the slot)
 *   asymmetric  low = min(0, min x), high = max(0, max x)      (with the slot)
 *               scale = up(high / 255 - low / 255),
 *               zero_point = -128 - round(low / scale)
 *   q[i,j] = clamp(round(x[i,j] / scale) + zero_point)         symmetric: to [-127, 127],
 *                                                              asymmetric: to [-128, 127]
 *
 *   x           in   [rows, cols]                f32|f16|bf16   last axis contiguous
 *   q           out  [rows, cols]                i8             last axis contiguous
 *   scale       out  [1] | [rows] | [cols]       f32            one per group; > 0
 *   zero_point  out  shape of scale              i8|i32         optional; in [-128, 127]
 *   granularity  required
 *
 * Math       Defined bit for bit. The steps are f32 operations rounded once each; round is to
 *            nearest, ties to even. up(v) adds 4 units in the last place to v, then rounds up to 15
 *            significant bits (a multiple of 2^9 units in the last place); the result is at most
 *            2^-14 larger. x / scale is then never rounded onto a tie, and a product of scale and 9
 *            bits is exact in f32. Therefore
 *              |x - (q - zero_point) * scale| <= scale / 2
 *            holds for every finite x, without an additional rounding error, and 0 dequantises to
 *            0. The asymmetric range includes 0, so zero_point fits 8 bits and no value saturates.
 *            A group of zeros, or of no elements, has scale 1 (and zero_point -128). A group with
 *            NaN or infinity has scale NaN, zero_point 0 and q 0: it dequantises to NaN.
 * Workspace  tg_quantize_int8_fwd_workspace; 0 with TG_QUANT_PER_ROW.  Asynchronous; capturable;
 *            deterministic; batch-invariant with TG_QUANT_PER_ROW.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (granularity; an overlap; workspace missing or too
 *            small), UNSUPPORTED.
 * Source     Jacob et al. 2018, arXiv:1712.05877, section 2.1; Dettmers et al. 2022,
 *            arXiv:2208.07339, section 2.1.
 */
TG_API tg_status tg_quantize_int8_fwd(tg_context *ctx, const tg_quantize_int8_fwd_args *args);

/** Workspace bytes of tg_quantize_int8_fwd, from shapes, granularity and the context alone. */
TG_API tg_status tg_quantize_int8_fwd_workspace(const tg_context *ctx,
                                                const tg_quantize_int8_fwd_args *args,
                                                size_t *bytes);

typedef struct tg_dequantize_int8_fwd_args {
  tg_tensor q, scale, zero_point, x;
  tg_quant_granularity granularity;
} tg_dequantize_int8_fwd_args;

/**
 * Dequantises 8-bit integers.
 *
 *   x[i,j] = (q[i,j] - zero_point) * scale        scale and zero_point of the element's group
 *
 *   q           in   [rows, cols]                i8             last axis contiguous
 *   scale       in   [1] | [rows] | [cols]       f32            as `granularity` says
 *   zero_point  in   shape of scale              i8|i32         optional; absent: 0
 *   x           out  [rows, cols]                f32|f16|bf16   last axis contiguous
 *   granularity  required
 *
 * Math       Defined bit for bit: q - zero_point in f32 (exact below 2^24), the product rounded to
 *            f32, then to the dtype. A value beyond the dtype's range becomes its largest finite
 *            value of that sign, so quantised finite values dequantise to finite values. NaN stays
 *            NaN.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (granularity; an overlap), UNSUPPORTED.
 * Source     that of tg_quantize_int8_fwd.
 */
TG_API tg_status tg_dequantize_int8_fwd(tg_context *ctx, const tg_dequantize_int8_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_dequantize_int8_fwd_workspace(const tg_context *ctx,
                                                  const tg_dequantize_int8_fwd_args *args,
                                                  size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
