/**
 * The architecture of a model: what config.json says, in the terms of one transformer.
 *
 * Every family is a setting of the same fields (GPT-2: layer_norm, learned positions, gelu, biases;
 * Llama: rms_norm, rope, swiglu, fewer heads for keys than for queries; Qwen2: biases of q, k and v
 * too; Qwen3: qk_norm instead; Mixtral and Qwen3-MoE: experts in the place of the MLP; GPT-OSS:
 * such with a clamped swiglu, and sinks), so that the transformer never asks for the family's name.
 */
#ifndef TGI_MODEL_CONFIG_H
#define TGI_MODEL_CONFIG_H

#include "tegula/rope.h"
#include "tegula/topk_router.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** X(code, `model_type` in config.json) */
#define TGI_MODEL_TYPE_MAP(X)                                                                      \
  X(GPT2, "gpt2")                                                                                  \
  X(LLAMA, "llama")                                                                                \
  X(QWEN2, "qwen2")                                                                                \
  X(QWEN3, "qwen3")                                                                                \
  X(QWEN3_MOE, "qwen3_moe")                                                                        \
  X(MIXTRAL, "mixtral")                                                                            \
  X(GPT_OSS, "gpt_oss")

typedef enum tgi_model_type {
#define TGI_MODEL_TYPE_ENUM(code, name) TGI_MODEL_##code,
  TGI_MODEL_TYPE_MAP(TGI_MODEL_TYPE_ENUM)
#undef TGI_MODEL_TYPE_ENUM
      TGI_MODEL_TYPES
} tgi_model_type;

typedef enum tgi_norm { TGI_LAYER_NORM, TGI_RMS_NORM } tgi_norm;
typedef enum tgi_position { TGI_LEARNED_POSITIONS, TGI_ROPE } tgi_position;
typedef enum tgi_activation {
  TGI_GELU_TANH,
  TGI_GELU_ERF,
  TGI_SWIGLU,
  TGI_SWIGLU_CLAMPED, /* of experts alone */
} tgi_activation;

#define TGI_MAX_EOS_IDS 8
#define TGI_MAX_LAYERS 4096

typedef struct tgi_config {
  tgi_model_type model_type;
  tg_dtype dtype; /* of the weights, as the file declares; F32, F16 or BF16 */

  int32_t vocab_size;
  int32_t num_hidden_layers;
  int32_t hidden_size;
  int32_t num_attention_heads;
  int32_t num_key_value_heads;
  int32_t head_dim;
  int32_t intermediate_size; /* with experts: of each */
  int32_t max_position_embeddings;

  tgi_norm norm;
  double norm_eps;
  bool norm_rounds_once; /* rms_norm by TG_RMS_NORM_GPT_OSS, else by TG_RMS_NORM_LLAMA */
  tgi_position position;
  tg_rope_parameters rope; /* zeroed without rope; rotary_dim, max_position_embeddings and seq_len
                              stay 0, as head_dim and the model's positions stand for them */
  tgi_activation activation;
  double swiglu_alpha, swiglu_limit; /* of the clamped SwiGLU, else 0 */

  /* Experts in the place of every MLP; 0: none, and then the rest is 0 too. */
  int32_t num_experts;
  int32_t experts_per_token;
  tg_router_scoring router;
  bool router_bias;
  bool interleaved_experts; /* their matrices are [in, out], gate in even columns and up in odd
                               ones; else [out, in], gate before up */
  bool mxfp4_experts;       /* the files hold their matrices in MXFP4: said by the writer, and not
                               read, as the files themselves tell */
  double router_aux_loss_coef;
  bool output_router_logits; /* training adds the auxiliary loss of the routers */

  /* The scale of q k^T: 1/sqrt(head_dim) if scale_attn_weights, else 1; then divided by the layer's
   * number (from 1) if scale_attn_by_inverse_layer_idx. */
  bool scale_attn_weights;
  bool scale_attn_by_inverse_layer_idx;
  bool attention_bias; /* of the projections to q, k and v */
  bool output_bias;    /* of attention's output projection */
  bool mlp_bias;       /* of experts too */
  bool sinks;          /* a logit of each query head that takes part in its softmax alone */
  bool qk_norm;
  bool tie_word_embeddings;
  int32_t sliding_window; /* keys that a query sees in a layer that slides; 0: no layer does */
  uint64_t sliding_layers[TGI_MAX_LAYERS / 64]; /* bit i % 64 of word i / 64: layer i slides */

  double initializer_range;
  int32_t bos_token_id; /* -1: none; may lie outside the vocabulary (then it never occurs) */
  int32_t eos_token_ids[TGI_MAX_EOS_IDS];
  int32_t num_eos_token_ids;
} tgi_config;

/** "gpt2", ... */
const char *tgi_model_type_name(tgi_model_type type);

static inline bool tgi_config_slides(const tgi_config *config, int layer)
{
  return config->sliding_layers[layer / 64] >> (layer % 64) & 1;
}

static inline void tgi_config_set_sliding(tgi_config *config, int layer)
{
  config->sliding_layers[layer / 64] |= UINT64_C(1) << (layer % 64);
}

/** Columns of q and of attention's output, and of k and of v. */
static inline int64_t tgi_config_query_width(const tgi_config *config)
{
  return (int64_t)config->num_attention_heads * config->head_dim;
}

static inline int64_t tgi_config_key_width(const tgi_config *config)
{
  return (int64_t)config->num_key_value_heads * config->head_dim;
}

/**
 * Reads `<path>` (a config.json). Errors: IO, NO_MEMORY, BAD_FILE (a key is missing, has another
 * type or is out of range: the message names it), UNSUPPORTED (a model_type or a feature that is
 * not served).
 */
tg_status tgi_config_read(const char *path, tgi_config *config, tg_error *error);

/** The same for `size` bytes of text; messages call it `path`. */
tg_status tgi_config_parse(const char *path, const char *text, size_t size, tgi_config *config,
                           tg_error *error);

/** Whether the fields fit each other and the limits of the readers: OK or BAD_ARGUMENT naming the
 * field. */
tg_status tgi_config_check(const tgi_config *config, tg_error *error);

/**
 * Writes a config.json that transformers loads. Errors: BAD_ARGUMENT (tgi_config_check),
 * UNSUPPORTED (the family cannot say it), IO, NO_MEMORY.
 */
tg_status tgi_config_write(const tgi_config *config, const char *path, tg_error *error);

/** The same as text, for tgi_config_free_text. Errors: those of write but IO; *text is NULL. */
tg_status tgi_config_text(const tgi_config *config, char **text, tg_error *error);

void tgi_config_free_text(char *text);

#endif
