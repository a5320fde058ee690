/**
 * What a pass computes and where it lies. Training keeps every layer's activations for the
 * backward; a session uses one set for all layers.
 *
 * rows = batch * seq; row b * seq + t is token t of sequence b.
 */
#ifndef TGI_MODEL_ACTIVATIONS_H
#define TGI_MODEL_ACTIVATIONS_H

#include "memory_plan.h"
#include "model/weights/weights.h"

/** What the experts of a layer leave behind; slots are rows * experts_per_token. */
typedef struct tgi_expert_activations {
  tg_tensor logits;           /* [rows, experts]: of the router */
  tg_tensor indices, weights; /* [rows, experts_per_token], i32 and f32 */
  tg_tensor offsets, slot;    /* i32 [experts + 1], [slots] */
  tg_tensor row;              /* i32 [rows, experts_per_token] */
  tg_tensor output;           /* [slots, hidden]: by expert, before their sum */
} tgi_expert_activations;

void tgi_experts_lay_out(tgi_expert_activations *e, tgi_memory_plan *plan, const tg_model *model,
                         int64_t rows);

/** What a layer leaves behind. */
typedef struct tgi_layer_activations {
  tg_tensor input;               /* [rows, hidden] */
  tg_tensor norm1, mean1, rstd1; /* [rows, hidden], [rows], [rows]; rms_norm has no mean */
  tg_tensor qkv;                 /* [rows, (q_heads + 2 kv_heads) * head_dim] */
  tg_tensor qk;                  /* its first columns as attention sees them: qkv itself, or with
                                    qk_norm, whose backward needs qkv as it was, a buffer */
  tg_tensor q_rstd, k_rstd;      /* with qk_norm: [batch, seq, q_heads], [batch, seq, kv_heads] */
  tg_tensor attention, lse;      /* [rows, q_heads * head_dim], [batch, q_heads, seq] f32 */
  tg_tensor middle;              /* [rows, hidden]: input + attention's output */
  tg_tensor norm2, mean2, rstd2; /* as norm1 */
  tg_tensor preactivation;       /* [rows, intermediate]; SwiGLU: gate|up, twice as wide */
  tg_tensor inner;               /* [rows, intermediate]; with experts both have a row a slot */
  tgi_expert_activations experts;
  tg_tensor output; /* [rows, hidden]: middle + the MLP's output */
} tgi_layer_activations;

typedef struct tgi_activations {
  tgi_layer_activations *layer; /* num_hidden_layers entries */
  tg_tensor final_norm, final_mean, final_rstd;
  tg_tensor logits; /* [logit rows, vocab] f32; absent in training, whose loss makes its own */
} tgi_activations;

/**
 * Lays out activations. keep: one set of buffers per layer (training); otherwise all layers share
 * one. logit_rows: rows of logits, the last ones of the pass; 0: none, the pass ends with the final
 * norm of all rows.
 */
void tgi_activations_lay_out(tgi_activations *a, tgi_memory_plan *plan, const tg_model *model,
                             int64_t batch, int64_t seq, int64_t logit_rows, bool keep);

#endif
