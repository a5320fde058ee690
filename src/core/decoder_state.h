/** Decoders of an entry, which a build need not have: the addresses are then NULL. */
#ifndef TGI_CORE_DECODER_STATE_H
#define TGI_CORE_DECODER_STATE_H

#include "tegula/decoder.h"

struct tg_decoder {
  void *of_entry;
  int32_t device; /* CUDA ordinal */
  int32_t block_tokens;
  int64_t vocab, positions;
  int64_t rows; /* of every layer's keys and values, at least */
};

#define TGI_MAYBE_DECODER __attribute__((weak))

/** A device is entered already, and the model's tensors fit each other. On failure *out is NULL. */
tg_status tgi_decoder_open_sm90(tg_context *ctx, const tg_decoder_model *model,
                                void **out) TGI_MAYBE_DECODER;
void tgi_decoder_close_sm90(tg_context *ctx, void *decoder) TGI_MAYBE_DECODER;
tg_status tgi_decoder_run_sm90(const tg_context *ctx, void *decoder,
                               const tg_decoder_step *step) TGI_MAYBE_DECODER;
const char *tgi_decoder_name_sm90(const void *decoder) TGI_MAYBE_DECODER;

#endif
