/** Models known by name: sizes to train from scratch. */
#ifndef TGI_MODEL_PRESET_H
#define TGI_MODEL_PRESET_H

#include "config.h"

/**
 * Fills *config. `vocab_size` 0 means the family's own: GPT-2's 50257 ids, Qwen3's 151936. Begin
 * and end of text are the last id, which is where both the byte-level tokenizer (257 ids) and
 * GPT-2's keep `<|endoftext|>`; Qwen3's own vocabulary has 151643 and 151645. BAD_ARGUMENT: no such
 * name (the message lists them), vocab_size out of range.
 */
tg_status tgi_preset(const char *name, int32_t vocab_size, tgi_config *config, tg_error *error);

/** The names in order of the table; NULL at and after the end. */
const char *tgi_preset_name(size_t index);

#endif
