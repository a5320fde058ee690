/** Linear layers with 8-bit integer weights: y = x W^T + bias, forward. */
#ifndef TEGULA_LINEAR_INT8_H
#define TEGULA_LINEAR_INT8_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a weight [out, in] packed by tg_linear_int8_pack; 0 for invalid extents. */
TG_API int64_t tg_linear_int8_packed_bytes(int64_t out, int64_t in);

typedef struct tg_linear_int8_pack_source {
  tg_tensor weight, scale, zero_point, packed;
} tg_linear_int8_pack_source;

/**
 * Packs a weight into the layout that tg_linear_int8_fwd reads. Call it once, when a model is
 * loaded. The packed bytes are a pure function of the arguments, are equal on every machine, and
 * serve every chain entry.
 *
 *   weight      in   [out, in]     i8       last axis contiguous
 *   scale       in   [out] | [1]   f32      contiguous; per output channel, or per tensor
 *   zero_point  in   shape of scale  i8|i32   optional; absent: 0; in [-128, 127]
 *   packed      out  [tg_linear_int8_packed_bytes(out, in)]  u8   contiguous, at any address
 *
 * The outputs of tg_quantize_int8_fwd per row or per tensor are valid inputs.
 *
 * Layout     A header of 64 bytes (kind of packing, version and extents), then panels of 32 rows of
 *            W. A panel begins with 32 scales and 32 values 128 + zero_point, all f32. Then follows
 *            a line of 128 bytes for every four consecutive k: row after row, four values weight +
 *            128. Rows and k beyond the weight's are weights of 0 with scale 0.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (zero_point out of range; an overlap); `error` may
 *            be NULL.
 * Source     that of tg_linear_int8_fwd.
 */
TG_API tg_status tg_linear_int8_pack(const tg_linear_int8_pack_source *args, tg_error *error);

/** How x is converted before it is multiplied with the integer weights. */
typedef enum tg_int8_mode {
  TG_INT8_WEIGHT_ONLY = 1, /* to fixed point of 24 or 16 bits */
  TG_INT8_DYNAMIC = 2,     /* to 8 bits, with one scale for each row (token) */
} tg_int8_mode;

typedef struct tg_linear_int8_fwd_args {
  tg_tensor x, weight, bias, y;
  tg_int8_mode mode;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_int8_fwd_args;

/**
 * Linear layer, forward, with int8 weights W, their scale s and zero point z.
 *
 *   y[i,o] = sum_k x[i,k] * (W[o,k] - z[o]) * s[o] + bias[o]
 *
 * computed as
 *
 *   n[i,o] = sum_k X[i,k] * (W[o,k] - z[o])         integers, exact
 *   y[i,o] = f32(n[i,o] * t[i]) * s[o] + bias[o]
 *
 *   x       in   [rows, in]   f32|f16|bf16           last axis contiguous
 *   weight  in   [bytes]      u8                     packed by tg_linear_int8_pack
 *   bias    in   [out]        f32, or dtype of x     optional
 *   y       out  [rows, out]  dtype of x, or f32     last axis contiguous
 *   mode    required
 *
 *   weight-only  X = round(x * 2^e), t = 2^-e, with the largest e that keeps max_k |x[i,k]| * 2^e
 *                <= 127 * 2^16, or 127 * 2^8 if y has 16 bits: fixed point of 24 or 16 bits. The
 *                error of x is below 2^-22 or 2^-14 of the row's largest magnitude.
 *   dynamic      X and t are q and scale of tg_quantize_int8_fwd, symmetric and per row.
 *
 * Any extent may be 0; with in = 0 the sum is 0. A row of x with NaN or infinity gives NaN; through
 * cublasLt (see below) infinity may stay infinity. Where x is not converted, y is also NaN where a
 * sum of products with W - z leaves the range of f32.
 *
 * Math       Sums are integers, exact in any order, so every chain entry gives the same bits. n * t
 *            is computed in f64 and rounded to f32. Its product with s and the sum with bias are
 *            each rounded to f32, and the result to y's dtype. n is exact below 2^53, that is for
 *            in < 2^22. Rounding is to nearest, ties to even.
 *            CUDA, weight-only, 16-bit x, from compute capability 8.0 on, if rows of x and the
 *            weight begin at multiples of 16 bytes and `in` is a multiple of 8: x is not
 *            converted. Tensor cores add up its products with W - z, which are exact, in f32:
 *            columns are cut into blocks of 128 and these into eight runs of one length but
 *            for the last ones; a run is a chain in the order of k, the first four runs are
 *            added in order, so are the others, then the two.
 *            From 193 rows of bf16 on, with y in bf16, a context that tg_context_prepare gave
 *            cublasLt multiplies with (W - z) * s, rounded to bf16.
 * Workspace  tg_linear_int8_fwd_workspace: 1 to 3 bytes per value of x. CUDA: 1 to 4 bytes (dynamic
 *            from compute capability 8.0 on: 1 byte, rows padded to strips of 8), with
 *            columns padded to whole 128 and rows to strips of 1, 4 or 8; in addition 16 bytes per
 *            row and 4 for every 32 values; or W in bf16 where it goes to cublasLt, if that is
 *            more. Compute capability 9.0, dynamic, from 129 rows on and up to 65536 columns: x and
 *            W in 1 byte a value, columns padded to whole 16, 8 bytes for each row of x and 5 of
 *            W, if that is more; weight only, 16-bit x of more than 16 rows: 2 bytes per value of
 *            x, with columns padded to whole 128 and rows to whole 64, if that is more.
 *            Asynchronous; capturable; deterministic; batch-invariant (not through cublasLt).
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (mode; weight not packed for this op (CUDA: y is
 *            NaN, and tg_context_check returns the error); an overlap; workspace missing or too
 *            small), UNSUPPORTED.
 * Source     Jacob et al. 2018, arXiv:1712.05877, section 2.2 (zero points outside of the sum);
 *            Dettmers et al. 2022, arXiv:2208.07339, section 2.1 (one scale for each row of x).
 */
TG_API tg_status tg_linear_int8_fwd(tg_context *ctx, const tg_linear_int8_fwd_args *args);

/** Workspace bytes of tg_linear_int8_fwd, from shapes, dtypes, mode and the context alone. */
TG_API tg_status tg_linear_int8_fwd_workspace(const tg_context *ctx,
                                              const tg_linear_int8_fwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
