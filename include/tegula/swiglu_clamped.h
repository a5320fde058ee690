/** Clamped SwiGLU, forward and backward. */
#ifndef TEGULA_SWIGLU_CLAMPED_H
#define TEGULA_SWIGLU_CLAMPED_H

#include "context.h"
#include "gate_up.h"
#include "rounding.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_swiglu_clamped_fwd_args {
  tg_tensor gate, up, gate_up, y;
  float alpha, limit;
  tg_gate_up_packing packing;
  tg_rounding rounding;
} tg_swiglu_clamped_fwd_args;

/**
 * Clamped SwiGLU, forward.
 *
 *   g = min(gate, limit),  u = max(-limit, min(up, limit)),  s = 1 / (1 + exp(-alpha * g))
 *   y = (u + 1) * (g * s)
 *
 *   gate     in   [rows, cols]      f32|f16|bf16     optional; last axis contiguous
 *   up       in   [rows, cols]      dtype of gate    with gate; last axis contiguous
 *   gate_up  in   [rows, 2 * cols]  f32|f16|bf16     instead of gate and up; last axis contiguous
 *   y        out  [rows, cols]      dtype of gate    last axis contiguous; may alias gate or up
 *   alpha    required; finite, > 0     GPT-OSS: 1.702
 *   limit    required; finite, > 0     GPT-OSS: 7
 *   packing  required with gate_up, else 0
 *   rounding required
 *
 *   HF    y = round(round(u + 1) * round(g * round(s)))  with s of round(alpha * g)    GPT-OSS
 *   ONCE  one rounding of the result
 *
 * Math       f32; rounding as `rounding` says (ref: f64). With f32 tensors both roundings give the
 *            same bits. limit is first rounded to the dtype. g * s is 0 at -infinity; NaN gives
 *            NaN.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (alpha, limit, packing, rounding; both or neither
 *            of the two input forms gate with up and gate_up; an overlap that is not listed above),
 *            UNSUPPORTED.
 * Source     OpenAI 2025, gpt-oss model card, arXiv:2508.10925, section 2.2.
 */
TG_API tg_status tg_swiglu_clamped_fwd(tg_context *ctx, const tg_swiglu_clamped_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_swiglu_clamped_fwd_workspace(const tg_context *ctx,
                                                 const tg_swiglu_clamped_fwd_args *args,
                                                 size_t *bytes);

typedef struct tg_swiglu_clamped_bwd_args {
  tg_tensor dy, gate, up, gate_up, dgate, dup, dgate_up;
  float alpha, limit;
  tg_gate_up_packing packing;
} tg_swiglu_clamped_bwd_args;

/**
 * Clamped SwiGLU, backward.
 *
 *   dup   = dy * g * s                                        where -limit <= up <= limit, else 0
 *   dgate = dy * (u + 1) * (s + alpha * g * s * (1 - s))      where gate <= limit, else 0
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
 *   alpha, limit, packing  those of the forward
 *
 * Math       f32, one rounding per result (ref: f64). Exactly at its limit a clamp passes the
 *            gradient on. NaN fails the comparisons: its own gradient is 0 and that of the other
 *            input is NaN, as in PyTorch. Where s is 0 in f32 (alpha * g below -88.7, down to
 *            -infinity), the factors of dy are exactly 0.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (alpha, limit, packing; both or neither of the two
 *            input forms; a gradient of the other form, or none; an overlap that is not listed
 *            above), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_swiglu_clamped_bwd(tg_context *ctx, const tg_swiglu_clamped_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_swiglu_clamped_bwd_workspace(const tg_context *ctx,
                                                 const tg_swiglu_clamped_bwd_args *args,
                                                 size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
