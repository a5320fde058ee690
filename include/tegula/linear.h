/** Linear layers: y = act(x W^T + bias) + residual, forward and backward. */
#ifndef TEGULA_LINEAR_H
#define TEGULA_LINEAR_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tg_activation {
  TG_ACTIVATION_NONE = 0,
  TG_ACTIVATION_GELU_TANH = 1, /* z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2: GPT-2 */
  TG_ACTIVATION_GELU_ERF = 2,  /* z (1 + erf(z / sqrt(2))) / 2 */
} tg_activation;

typedef struct tg_linear_fwd_args {
  tg_tensor x, weight, bias, residual, y, preactivation;
  tg_activation activation;
  bool allow_tf32;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_fwd_args;

/**
 * Linear layer, forward.
 *
 *   z[i,o] = sum_k x[i,k] * weight[o,k] + bias[o]
 *   y[i,o] = act(z[i,o]) + residual[i,o]
 *
 *   x              in   [rows, in]   f32|f16|bf16         last axis contiguous
 *   weight         in   [out, in]    f32, or dtype of x   last axis contiguous; with f32 x: any
 *   bias           in   [out]        dtype of weight, or f32; optional
 *   residual       in   [rows, out]  dtype of y           optional; last axis contiguous
 *   y              out  [rows, out]  dtype of x, or f32   last axis contiguous; may alias residual
 *   preactivation  out  [rows, out]  dtype of y           optional; last axis contiguous; z, for
 *                                                         tg_linear_bwd with an activation
 *   activation     0 is none
 *   allow_tf32     false: f32 products are computed in f32. true: if x and weight are both f32,
 *                  their elements may be rounded to TF32 (10 bits of mantissa), with f32 sums. CUDA
 *                  does so from compute capability 8.0 on; the CPU and earlier GPUs ignore it.
 *
 * Any extent may be 0; with in = 0 the sum is 0.
 *
 * Math       f32 throughout (ref: f64), one rounding per result. The sum over k is split by `in`
 *            alone into blocks of at most 384 products (768 for bf16 on AVX512-BF16). A block is
 *            one chain of fused multiply-adds in the order of k; blocks are added in order. If both
 *            operands are bf16 and the processor has AVX512-BF16, VDPBF16PS adds pairs of products
 *            and treats bf16 denormals as zero.
 *            CUDA: blocks of at most 128 products. If tg_context_prepare opened cublasLt, products
 *            of one dtype run there where it has an algorithm. cublasLt adds f32 sums in its own
 *            order, and z is rounded to y's dtype before an activation. Compute capability 8.0 and
 *            later: 16-bit x and weight of one dtype that cublasLt does not multiply run on tensor
 *            cores, with one sum over all of `in`. Compute capability 9.0, rows of x and weight
 *            that begin at multiples of 16 bytes: so do those for which a table of measurements
 *            (tune.h) says that it is faster, and those whose rows of y begin elsewhere; and, where
 *            rows are multiples of 16 bytes, too, 1 to 64 rows, prepared or not, with the sum over
 *            k split by `in` and `out` alone into at most eight parts.
 *            allow_tf32: operands are rounded to nearest, ties away from zero (cvt.rna.tf32), and
 *            an element is one sum over all of `in`; cublasLt rounds them its own way.
 * Workspace  tg_linear_fwd_workspace: packed blocks, a few MB per thread; CUDA: none.
 *            Asynchronous; capturable; deterministic; batch-invariant: a row has the same bits
 *            alone and among others (not through cublasLt). Compute capability 9.0, on the kernel
 *            named above: alone and among up to 63 others.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (activation; an overlap that is not listed above;
 *            workspace missing or too small), UNSUPPORTED.
 * Source     Goto & van de Geijn 2008, doi:10.1145/1356052.1356053 (blocking); Hendrycks & Gimpel
 *            2016, arXiv:1606.08415 (GELU).
 */
TG_API tg_status tg_linear_fwd(tg_context *ctx, const tg_linear_fwd_args *args);

/** Workspace bytes of tg_linear_fwd, from shapes, dtypes, scalars and the context alone. */
TG_API tg_status tg_linear_fwd_workspace(const tg_context *ctx, const tg_linear_fwd_args *args,
                                         size_t *bytes);

typedef struct tg_linear_bwd_args {
  tg_tensor dy, x, weight, preactivation, dx, dweight, dbias;
  tg_activation activation;
  bool overwrite;
  bool allow_tf32;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_bwd_args;

/**
 * Linear layer, backward. The gradient of residual is dy itself.
 *
 *   dz[i,o]       = dy[i,o] * act'(z[i,o])
 *   dx[i,k]       = sum_o dz[i,o] * weight[o,k]
 *   dweight[o,k] += sum_i dz[i,o] * x[i,k]
 *   dbias[o]     += sum_i dz[i,o]
 *
 *   dy             in   [rows, out]  dtype of x, or f32     last axis contiguous
 *   x              in   [rows, in]   f32|f16|bf16           last axis contiguous; read for dweight
 *   weight         in   [out, in]    f32, or dtype of x (f32 x: any)
 *                                                           last axis contiguous; read for dx
 *   preactivation  in   [rows, out]  dtype of dy            z of the forward; required with an
 *                                                           activation; last axis contiguous
 *   dx             out  [rows, in]   dtype of x             optional; last axis contiguous
 *   dweight        acc  [out, in]    dtype of weight, or f32   optional; last axis contiguous
 *   dbias          acc  [out]        dtype of weight, or f32   optional
 *   activation     that of the forward
 *   overwrite      true: dweight and dbias are overwritten and their old content is not read
 *   allow_tf32     as in the forward, for products of two f32 tensors: dz and weight, dz and x
 *
 * Math       f32 throughout, one rounding per result; dz is rounded to dy's dtype, and act' is the
 *            factor of tg_gelu_bwd. Sums are split into blocks as in the forward, by `out` for dx
 *            and by `rows` for dweight; on tensor cores each is one sum, as in the forward, but on
 *            Hopper's tiles a small dweight of many rows: the rows are split by the shapes alone
 *            into at most eight parts, whose sums are added in order. An f32 dweight is updated
 *            block by block (CUDA: any dweight is updated once, with the whole sum). dbias
 *            sums groups of 64 rows, then the groups in order.
 * Workspace  tg_linear_bwd_workspace: packed blocks, a few MB per thread, and dz with an activation
 *            (CUDA: no blocks; with dbias 4 * out bytes for every 64 rows).  Asynchronous;
 *            capturable; deterministic; dx is batch-invariant as the forward is.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (activation; preactivation missing; an overlap;
 *            workspace missing or too small), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_linear_bwd(tg_context *ctx, const tg_linear_bwd_args *args);

/** Workspace bytes of tg_linear_bwd, from shapes, dtypes, scalars and the context alone. */
TG_API tg_status tg_linear_bwd_workspace(const tg_context *ctx, const tg_linear_bwd_args *args,
                                         size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
