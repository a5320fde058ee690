/**
 * Decoders: a token of one sequence through a whole transformer in one launch.
 *
 * Decoding one sequence reads every weight once for a token. A graph of kernels waits at the end of
 * each: a decoder is one kernel that loads weights without a stop, while its blocks exchange
 * activations through memory. It serves models of certain widths (tg_decoder_create), bf16, on
 * GPUs of compute capability 9.0.
 *
 * Math       Products of bf16 are summed in f32. The residual stream, queries' and keys'
 * projections and the scores' sums stay in f32; norms' and activations' outputs, queries, keys and
 *            values are rounded to bf16. Deterministic: a token's logits are a function of the
 *            model, the cache's keys and values and the token, whatever the block table says. They
 *            differ from those of the ops by roundings.
 */
#ifndef TEGULA_DECODER_H
#define TEGULA_DECODER_H

#include "context.h"
#include "tensor.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_decoder tg_decoder;

/**
 * A transformer: for each layer
 *
 *   x += out attention(qkv norm1(x));  x += down activation(up norm2(x))
 *
 * and at the end head final_norm(x). With norm1_bias norms are LayerNorm, positions are learned,
 * the activation is GELU (tanh) and all products but the head have biases (GPT-2); else RMSNorm,
 * RoPE by halves, and SwiGLU without biases (Llama; with q_norm and k_norm: Qwen3).
 *
 * Tensors are bf16 and contiguous but for the first axis of those of layers, which all have one
 * stride. keys[i], values[i] of layer i are a pool of rows, row t the token in place t.
 */
typedef struct tg_decoder_model {
  int32_t layers, heads, kv_heads, head_dim;
  float norm_eps, scale;                 /* scale: of scores */
  tg_tensor tokens, head;                /* [vocab, hidden] */
  tg_tensor positions;                   /* [positions, hidden] of GPT-2; absent otherwise */
  tg_tensor final_norm, final_norm_bias; /* [hidden] */
  tg_tensor norm1, norm1_bias, norm2, norm2_bias, out_bias, down_bias; /* [layers, hidden] */
  tg_tensor qkv, out, up, down;   /* [layers, outputs, inputs]; up: gate before up */
  tg_tensor qkv_bias, up_bias;    /* [layers, outputs] */
  tg_tensor q_norm, k_norm;       /* [layers, head_dim] */
  tg_tensor cos, sin;             /* f32 [positions, head_dim / 2] */
  const tg_tensor *keys, *values; /* [layers] of [rows, kv_heads * head_dim] */
  int32_t block_tokens;           /* rows of a block of the pool */
} tg_decoder_model;

/**
 * Makes a decoder for the context's device; the model's tensors must outlive it. It must not be
 * called while a graph is recorded. Errors: UNSUPPORTED (another device, dtype or model, or not
 * room for its blocks at once: the message says which), NO_MEMORY, DEVICE.
 */
TG_API tg_status tg_decoder_create(tg_context *ctx, const tg_decoder_model *model,
                                   tg_decoder **out);

/** Frees the decoder after waiting for the context's work; NULL is allowed. */
TG_API void tg_decoder_destroy(tg_context *ctx, tg_decoder *decoder);

typedef struct tg_decoder_step {
  tg_tensor id;          /* in   i32 [1]: the token; one outside the vocabulary counts as 0 */
  int64_t position;      /* of the token: so many tokens have keys and values */
  tg_tensor block_table; /* in   i32 [blocks]: the blocks of the tokens; absent: 0, 1, ...
                            Entries are not checked: blocks of the pool, each of them once */
  tg_tensor logits;      /* out  f32 [1, vocab] */
  tg_tensor greedy;      /* out  i32 [1]: what tg_sample_fwd with temperature 0 picks from them, -1
                            where it refuses; may be id */
} tg_decoder_step;

/**
 * Runs one token: stores its keys and values in their place, and computes its logits. Launched
 * cooperatively: it begins when all its blocks can run, and other streams cannot hold it up half
 * way. Asynchronous; not capturable. Tensors are contiguous. Errors: BAD_SHAPE (id, greedy, logits;
 * block_table with less than position / block_tokens + 1 blocks), BAD_DTYPE, BAD_ARGUMENT
 * (position beyond the model's or the cache's rows, strides, NULL, a context of another device),
 * UNSUPPORTED (a graph is being recorded), DEVICE.
 */
TG_API tg_status tg_decoder_run(tg_context *ctx, tg_decoder *decoder, const tg_decoder_step *step);

/** Which kernel it is, for reports: "qwen3-0.6b, 128 blocks". */
TG_API const char *tg_decoder_name(const tg_decoder *decoder);

#ifdef __cplusplus
}
#endif
#endif
