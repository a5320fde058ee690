/** The decoder (tegula/decoder.h) of a model whose keys and values are in a pool of rows. */
#ifndef TGI_MODEL_MODEL_DECODER_H
#define TGI_MODEL_MODEL_DECODER_H

#include "tegula/decoder.h"
#include "transformer.h"

/**
 * cache: of every layer, [.., tokens.., kv_heads, head_dim]; rope: of all positions. Errors:
 * UNSUPPORTED (the graph of kernels serves the model; the message says why), and those of
 * tg_decoder_create.
 */
tg_status tgi_model_open_decoder(tg_context *ctx, const tg_model *model,
                                 const tgi_layer_cache *cache, const tgi_rope_tables *rope,
                                 int32_t block_tokens, tg_decoder **out, tg_error *error);

#endif
