/** Linear layers with 4-bit integer weights: y = x W^T + bias, forward. */
#ifndef TEGULA_LINEAR_INT4_H
#define TEGULA_LINEAR_INT4_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_linear_int4_pack_source {
  tg_tensor weight, scale, zero_point, packed;
  int64_t in;         /* columns of the weight: two are in a byte, so its shape does not tell */
  int64_t group_size; /* 32, 64 or 128 */
} tg_linear_int4_pack_source;

/**
 * Bytes of a weight packed by tg_linear_int4_pack. Read are the shape and dtype of weight and of
 * scale, the presence of zero_point, in and group_size; no memory. 0 if they break the rules below.
 */
TG_API int64_t tg_linear_int4_packed_bytes(const tg_linear_int4_pack_source *args);

/**
 * Brings a weight into the form that tg_linear_int4_fwd reads: once, when a model is loaded. A pure
 * function of its arguments; the bytes are the same on every machine and serve every chain entry.
 *
 *   weight      in   [out, ceil(in / 2)]              u8       last axis contiguous; column k is in
 *                                                              byte k / 2, low half for even k
 *   scale       in   [out, ceil(in / group_size)]     f32|f16  contiguous
 *   zero_point  in   shape of scale                   u8       optional; absent: 8; in [0, 15]
 *   packed      out  [tg_linear_int4_packed_bytes()]  u8       contiguous, at any address
 *
 * What quantize_int4 gives is taken as it is.
 *
 * Layout     A header of 64 bytes (what is packed, with its extents), then panels of 32 rows of W.
 *            A panel holds its groups one after the other: 32 scales in their dtype, 32 zero points
 *            if there are any, then for every eight neighbours in k a line of 128 bytes. There each
 *            row has four bytes; the low halves are its first four values, the high halves the
 *            others. Rows and k beyond the weight's have values of 8 with scale 0. So a value takes
 *            4.5 bits with f16 scales in groups of 32, and 4.125 in groups of 128.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (in, group_size, zero_point out of range, overlap);
 *            `error` may be NULL.
 */
TG_API tg_status tg_linear_int4_pack(const tg_linear_int4_pack_source *args, tg_error *error);

typedef struct tg_linear_int4_fwd_args {
  tg_tensor x, weight, bias, y;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_int4_fwd_args;

/**
 * Linear layer with int4 weights W in groups g of columns, their scales s and zero points z,
 * forward.
 *
 *   y[i,o] = sum_g sum_(k in g) x[i,k] * (W[o,k] - z[o,g]) * s[o,g] + bias[o]
 *
 *   x       in   [rows, in]   f32|f16|bf16           last axis contiguous
 *   weight  in   [bytes]      u8                     packed by tg_linear_int4_pack
 *   bias    in   [out]        f32, or dtype of x     optional
 *   y       out  [rows, out]  dtype of x, or f32     last axis contiguous
 *
 * Any extent may be 0; with in = 0 the sum is 0. A row of x with NaN or infinity gives NaN.
 *
 * Math       x is taken as a fixed-point number of 24 bits, or 16 if y has 16 bits:
 *            X = round(x * 2^e) with the largest e that keeps max_k |x[i,k]| * 2^e <= 127 * 2^16
 *            or 127 * 2^8. What x loses is below 2^-22 or 2^-14 of the row's largest magnitude.
 *            The sum over a group of X * (W - 8) is an exact integer; its rounding to f32, the zero
 *            points' part, the product with the scale, the sums over eight groups at a time and
 *            the sum of these, in order, are f32 operations. Then come the factor 2^-e, bias, and
 *            one rounding to y's dtype. CUDA: blocks of 128 columns are dealt to 16 sums, each of
 *            which adds its groups in order; then these, in order.
 * Workspace  tg_linear_int4_fwd_workspace: about 3.5 bytes a value of x. CUDA: 2 to 4 bytes, of
 *            whole 128 columns and strips of 1, 4 or 8 rows, and 16 bytes a row and 4 for every 32
 *            values beside.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (weight not packed for this op (CUDA: y is NaN, and
 *            tg_context_check tells), overlap, workspace missing or too small), UNSUPPORTED.
 * Source     Shen et al. 2020, arXiv:1909.05840, section 3.3 (a scale for each group); Frantar et
 *            al. 2023, arXiv:2210.17323 (weight-only 4-bit products).
 */
TG_API tg_status tg_linear_int4_fwd(tg_context *ctx, const tg_linear_int4_fwd_args *args);

/** Workspace bytes of tg_linear_int4_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_linear_int4_fwd_workspace(const tg_context *ctx,
                                              const tg_linear_int4_fwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
