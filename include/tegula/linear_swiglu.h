/** Gate and up of a feed-forward block with their activation, forward. */
#ifndef TEGULA_LINEAR_SWIGLU_H
#define TEGULA_LINEAR_SWIGLU_H

#include "context.h"
#include "rounding.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_linear_swiglu_fwd_args {
  tg_tensor x, gate_weight, up_weight, y, gate, up;
  tg_rounding rounding;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_swiglu_fwd_args;

/**
 * Two linear layers and SwiGLU of their results, forward.
 *
 *   gate[i,o] = round(sum_k x[i,k] * gate_weight[o,k])
 *   up[i,o]   = round(sum_k x[i,k] * up_weight[o,k])
 *   y[i,o]    = silu(gate[i,o]) * up[i,o]
 *
 * Gate and up are rounded whether or not they are stored. The backward is tg_swiglu_bwd, then
 * tg_linear_bwd of both layers.
 *
 *   x            in   [rows, in]   f32|f16|bf16              last axis contiguous
 *   gate_weight  in   [out, in]    f32, or dtype of x        last axis contiguous; with f32 x: any
 *   up_weight    in   [out, in]    dtype of gate_weight      last axis contiguous
 *   y            out  [rows, out]  dtype of x                last axis contiguous
 *   gate         out  [rows, out]  dtype of x                optional; last axis contiguous
 *   up           out  [rows, out]  dtype of x                with gate; last axis contiguous
 *   rounding     required; that of tg_swiglu_fwd
 *
 *   HF    y = round(round(silu(gate)) * up)     Qwen3MLP, LlamaMLP
 *   ONCE  y = round(silu(gate) * up)
 *
 * Any extent may be 0; with in = 0 the sums are 0.
 *
 * Math       The sums are those of tg_linear_fwd, the activation is that of tg_swiglu_fwd.
 *            Compute capability 9.0: more than 64 rows of 16 bits, all rows and `in` and `out` in
 *            multiples of 16 bytes, in 128 tiles of 128 rows and 96 columns or more, are one
 *            product on tensor cores, with one sum over all of `in`.
 * Workspace  tg_linear_swiglu_fwd_workspace: that of tg_linear_fwd, and up if it is not stored.
 *            Asynchronous; capturable; deterministic; batch-invariant as tg_linear_fwd is.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (rounding; gate without up, or up without gate; an
 *            overlap; workspace missing or too small), UNSUPPORTED.
 * Source     Shazeer 2020, arXiv:2002.05202, eq. 6.
 */
TG_API tg_status tg_linear_swiglu_fwd(tg_context *ctx, const tg_linear_swiglu_fwd_args *args);

/** Workspace bytes of tg_linear_swiglu_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_linear_swiglu_fwd_workspace(const tg_context *ctx,
                                                const tg_linear_swiglu_fwd_args *args,
                                                size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
