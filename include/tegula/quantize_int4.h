/**
 * Quantisation to 4-bit integers, two in a byte, with a scale for each group of a row, and back.
 */
#ifndef TEGULA_QUANTIZE_INT4_H
#define TEGULA_QUANTIZE_INT4_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_quantize_int4_fwd_args {
  tg_tensor x, q, scale, zero_point;
  int64_t group_size;
} tg_quantize_int4_fwd_args;

/**
 * Quantises to 4 bits in groups of columns. Column j of a row belongs to group j / group_size; the
 * last group may be short. In both forms the values n are unsigned, 0 to 15.
 *
 *   symmetric   scale = up(max(max x / 7.5, -min x / 8.5)),    zero_point = 8 (without the slot)
 *   asymmetric  low = min(0, min x), high = max(0, max x)      (with the slot)
 *               scale = up(high / 15 - low / 15),              zero_point = -round(low / scale)
 *   n[i,j] = clamp(round(x[i,j] / scale) + zero_point)         to [0, 15]
 *   q[i,j/2] = n[i,j] | n[i,j+1] << 4                          for even j: column j is the low half
 *
 *   x           in   [rows, cols]                f32|f16|bf16   last axis contiguous
 *   q           out  [rows, ceil(cols / 2)]      u8             last axis contiguous; if cols is
 *                                                               odd, the last high half is 0
 *   scale       out  [rows, ceil(cols / group_size)]  f32|f16   contiguous; > 0
 *   zero_point  out  shape of scale              u8             optional; in [0, 15]
 *   group_size  32, 64 or 128
 *
 * Math       Defined bit for bit. The steps are f32 operations rounded once each; max x / 7.5 and
 *            so on are divisions. round is to nearest, ties to even. up(v) adds 4 units in the last
 *            place to v, then rounds up to 15 significant bits (a multiple of 2^9 units in the last
 *            place), then for an f16 scale further up to f16. n is computed with the scale as
 *            stored. Therefore |x - (n - zero_point) * scale| <= scale / 2 holds for every finite
 *            x, without an additional rounding error. The symmetric scale is the smallest for which
 *            it holds: the ends may be half a step off, which costs less than the wider steps of
 *            max |x| / 7.
 *            A group of zeros has scale 1. A group with NaN or infinity, or whose scale is beyond
 *            the range of f16, has scale NaN and n = zero_point = 8: it dequantises to NaN.
 *            With f16 scales a value uses 4 + 16 / group_size bits, so 16-bit weights shrink 3.56x,
 *            3.76x and 3.88x in groups of 32, 64 and 128. Zero points add 8 / group_size bits
 *            (3.37x, 3.66x, 3.82x).
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (group_size; an overlap), UNSUPPORTED.
 * Source     Jacob et al. 2018, arXiv:1712.05877, section 2.1; Shen et al. 2020, arXiv:1909.05840,
 *            section 3.3 (groups).
 */
TG_API tg_status tg_quantize_int4_fwd(tg_context *ctx, const tg_quantize_int4_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_quantize_int4_fwd_workspace(const tg_context *ctx,
                                                const tg_quantize_int4_fwd_args *args,
                                                size_t *bytes);

typedef struct tg_dequantize_int4_fwd_args {
  tg_tensor q, scale, zero_point, x;
  int64_t group_size;
} tg_dequantize_int4_fwd_args;

/**
 * Dequantises packed 4-bit integers.
 *
 *   n[i,j] = q[i,j/2] & 15 for even j, q[i,j/2] >> 4 for odd j
 *   x[i,j] = (n[i,j] - zero_point) * scale        scale and zero_point of group j / group_size
 *
 *   q           in   [rows, ceil(cols / 2)]      u8             last axis contiguous
 *   scale       in   [rows, ceil(cols / group_size)]  f32|f16   contiguous
 *   zero_point  in   shape of scale              u8             optional; absent: 8
 *   x           out  [rows, cols]                f32|f16|bf16   last axis contiguous
 *   group_size  32, 64 or 128
 *
 * Math       Defined bit for bit: n - zero_point is exact, the product is rounded to f32, then to
 *            the dtype. A value beyond the dtype's range becomes its largest finite value of that
 *            sign. NaN stays NaN.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (group_size; an overlap), UNSUPPORTED.
 * Source     that of tg_quantize_int4_fwd.
 */
TG_API tg_status tg_dequantize_int4_fwd(tg_context *ctx, const tg_dequantize_int4_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_dequantize_int4_fwd_workspace(const tg_context *ctx,
                                                  const tg_dequantize_int4_fwd_args *args,
                                                  size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
