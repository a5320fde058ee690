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
  int64_t in;         /* columns of the weight; a byte holds two, so its shape is ambiguous */
  int64_t group_size; /* 32, 64 or 128 */
} tg_linear_int4_pack_source;

/**
 * Bytes of a weight packed by tg_linear_int4_pack. The function uses the rows of weight, the dtype
 * of scale, the presence of zero_point, in and group_size, and returns 0 if one of these breaks the
 * rules below; tg_linear_int4_pack checks everything. It reads no tensor memory.
 */
TG_API int64_t tg_linear_int4_packed_bytes(const tg_linear_int4_pack_source *args);

/**
 * Packs a weight into the layout that tg_linear_int4_fwd reads. Call it once, when a model is
 * loaded. The packed bytes are a pure function of the arguments, are equal on every machine, and
 * serve every chain entry.
 *
 *   weight      in   [out, ceil(in / 2)]              u8       last axis contiguous; column k is in
 *                                                              byte k / 2, low half for even k
 *   scale       in   [out, ceil(in / group_size)]     f32|f16  contiguous
 *   zero_point  in   shape of scale                   u8       optional; absent: 8; in [0, 15]
 *   packed      out  [tg_linear_int4_packed_bytes()]  u8       contiguous, at any address
 *
 * The outputs of tg_quantize_int4_fwd are valid inputs.
 *
 * Layout     A header of 64 bytes (kind of packing, version and extents), then panels of 32 rows of
 *            W. A panel holds its groups one after another: 32 scales in their dtype, 32 zero
 *            points if there are any, then a line of 128 bytes for every eight consecutive k. In a
 *            line each row has four bytes: the low halves are its first four values, the high
 *            halves the other four. Rows and k beyond the weight's have values of 8 with scale 0.
 *            With f16 scales a value uses 4.5 bits in groups of 32 and 4.125 in groups of 128.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (in, group_size; zero_point out of range; an
 *            overlap); `error` may be NULL.
 * Source     that of tg_linear_int4_fwd.
 */
TG_API tg_status tg_linear_int4_pack(const tg_linear_int4_pack_source *args, tg_error *error);

typedef struct tg_linear_int4_fwd_args {
  tg_tensor x, weight, bias, y;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_int4_fwd_args;

/**
 * Linear layer, forward, with int4 weights W in groups g of columns, with their scales s and zero
 * points z.
 *
 *   y[i,o] = sum_g sum_(k in g) x[i,k] * (W[o,k] - z[o,g]) * s[o,g] + bias[o]
 *
 *   x       in   [rows, in]   f32|f16|bf16           last axis contiguous
 *   weight  in   [bytes]      u8                     packed by tg_linear_int4_pack
 *   bias    in   [out]        f32, or dtype of x     optional
 *   y       out  [rows, out]  dtype of x, or f32     last axis contiguous
 *
 * Any extent may be 0; with in = 0 the sum is 0. A row of x with NaN or infinity gives NaN; through
 * cublasLt (see below) infinity may stay infinity. Where x is not converted, y is also NaN where a
 * sum of products with W - z leaves the range of f32.
 *
 * Math       x is converted to fixed point of 24 bits, or of 16 bits if y has 16 bits: X = round(x
 *            * 2^e) with the largest e that keeps max_k |x[i,k]| * 2^e <= 127 * 2^16 or 127 * 2^8.
 *            The error of x is below 2^-22 or 2^-14 of the row's largest magnitude.
 *            The sum over a group of X * (W - 8) is an exact integer. These are f32 operations: its
 *            rounding to f32, the zero points' part, the product with the scale, the sums over
 *            eight groups at a time, and the sum of these in order. Then follow the factor 2^-e,
 *            bias, and one rounding to y's dtype (ref: f64).
 *            CUDA: blocks of 128 columns are distributed over 16 sums. Each sum adds its groups in
 *            order; then the sums are added in order. 16-bit x from compute capability 8.0 on, if
 *            its rows and the weight begin at multiples of 16 bytes and `in` is a multiple of 8, is
 *            not converted: tensor cores add up a group's products of x and W - z, which are exact,
 *            and the sum is scaled in f32. Blocks of 128 columns are cut into eight runs of
 *            one length but for the last ones; a run is a chain of its groups in order, the
 *            first four runs are added in order, so are the others, then the two.
 *            From 193 rows of bf16 on, with y in bf16, a context that tg_context_prepare gave
 *            cublasLt multiplies with (W - z) * s, rounded to bf16.
 * Workspace  tg_linear_int4_fwd_workspace: about 3.5 bytes per value of x. CUDA: 2 to 4 bytes, with
 *            columns padded to whole 128 and rows to strips of 1, 4 or 8; in addition 16 bytes per
 *            row and 4 for every 32 values; or W in bf16 where it goes to cublasLt, if that is
 *            more. Compute capability 9.0, 16-bit x of more than 16 rows: 2 bytes per value, with
 *            columns padded to whole 128 and rows to whole 64, if that is more.  Asynchronous;
 *            capturable; deterministic; batch-invariant (not through cublasLt).
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (weight not packed for this op (CUDA: y is NaN, and
 *            tg_context_check returns the error); an overlap; workspace missing or too small),
 *            UNSUPPORTED.
 * Source     Shen et al. 2020, arXiv:1909.05840, section 3.3 (one scale for each group); Frantar et
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
