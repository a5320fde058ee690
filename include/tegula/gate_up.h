/** Layouts of a gate and its multiplicand in one packed tensor [rows, 2 * cols]; activations of
 * both. */
#ifndef TEGULA_GATE_UP_H
#define TEGULA_GATE_UP_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The gated activations (swiglu.h, swiglu_clamped.h, geglu.h) accept gate and up as two separate
 * views or packed in one tensor. Separate views may also be the two halves of one tensor.
 */
typedef enum tg_gate_up_packing {
  TG_GATE_UP_HALVES = 1,      /* columns [0, cols) are gate, [cols, 2 * cols) up: Phi-3 */
  TG_GATE_UP_INTERLEAVED = 2, /* even columns are gate, odd ones up: GPT-OSS */
} tg_gate_up_packing;

/** The activation within an op that computes gate and up itself, with the formula of the op of that
 * name: grouped_linear.h, moe_mlp.h. */
typedef enum tg_gated_activation {
  TG_GATED_NONE = 0,
  TG_GATED_SWIGLU = 1,         /* Qwen3-MoE, Mixtral */
  TG_GATED_SWIGLU_CLAMPED = 2, /* GPT-OSS */
} tg_gated_activation;

#ifdef __cplusplus
}
#endif
#endif
