/** SwiGLU, forward and backward. */
#ifndef TEGULA_SWIGLU_H
#define TEGULA_SWIGLU_H

#include "context.h"
#include "gate_up.h"
#include "rounding.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_swiglu_fwd_args {
  tg_tensor gate, up, gate_up, y;
  tg_gate_up_packing packing;
  tg_rounding rounding;
} tg_swiglu_fwd_args;

/**
 * SwiGLU, forward.
 *
 *   y = silu(gate) * up = gate * s * up,   s = 1 / (1 + exp(-gate))
 *
 *   gate     in   [rows, cols]      f32|f16|bf16     optional; last axis contiguous
 *   up       in   [rows, cols]      dtype of gate    with gate; last axis contiguous
 *   gate_up  in   [rows, 2 * cols]  f32|f16|bf16     instead of gate and up; last axis contiguous
 *   y        out  [rows, cols]      dtype of gate    last axis contiguous; may alias gate or up
 *   packing  required with gate_up, else 0
 *   rounding required
 *
 *   HF    y = round(round(silu(gate)) * up)     Qwen3, Llama, Mistral
 *   ONCE  y = round(silu(gate) * up)
 *
 * Math       f32; rounding as `rounding` says (ref: f64). With f32 tensors both roundings give the
 *            same bits. silu is that of tg_silu_fwd: 0 at -infinity, NaN for NaN.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (packing, rounding; both or neither of the two
 *            input forms gate with up and gate_up; an overlap that is not listed above),
 *            UNSUPPORTED.
 * Source     Shazeer 2020, arXiv:2002.05202, eq. 6.
 */
TG_API tg_status tg_swiglu_fwd(tg_context *ctx, const tg_swiglu_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_swiglu_fwd_workspace(const tg_context *ctx, const tg_swiglu_fwd_args *args,
                                         size_t *bytes);

typedef struct tg_swiglu_bwd_args {
  tg_tensor dy, gate, up, gate_up, dgate, dup, dgate_up;
  tg_gate_up_packing packing;
} tg_swiglu_bwd_args;

/**
 * SwiGLU, backward.
 *
 *   dup   = dy * gate * s
 *   dgate = dy * up * (s + gate * s * (1 - s))
 *
 *   dy        in   [rows, cols]      dtype of gate    last axis contiguous
 *   gate      in   [rows, cols]      f32|f16|bf16     optional; last axis contiguous
 *   up        in   [rows, cols]      dtype of gate    with gate; last axis contiguous
 *   gate_up   in   [rows, 2 * cols]  f32|f16|bf16     instead of gate and up; last axis contiguous
 *   dgate     out  [rows, cols]      dtype of gate    optional; without gate_up; last axis
 *                                                     contiguous; may alias gate or dy
 *   dup       out  [rows, cols]      dtype of gate    optional; without gate_up; last axis
 *                                                     contiguous; may alias up
 *   dgate_up  out  [rows, 2 * cols]  dtype of gate    with gate_up, packed like it; last axis
 *                                                     contiguous; may alias gate_up
 *   packing   that of the forward
 *
 * Math       f32, one rounding per result (ref: f64). An infinite gate gives the limits of the
 *            factors: 0 and infinity for silu, 0 and 1 for its derivative. Where silu(gate) is 0 in
 *            f32 (gate below -88.7), both factors are exactly 0.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (packing; both or neither of the two input forms; a
 *            gradient of the other form, or none; an overlap that is not listed above),
 *            UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_swiglu_bwd(tg_context *ctx, const tg_swiglu_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_swiglu_bwd_workspace(const tg_context *ctx, const tg_swiglu_bwd_args *args,
                                         size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
