/** Models known by name: sizes to train from scratch. */
#ifndef TGI_MODEL_PRESET_H
#define TGI_MODEL_PRESET_H

#include "model/config/config.h"

/**
 * Fills *config. `vocab_size` 0 means the family's own (GPT-2: 50257 ids, Qwen: 151936, Llama 3:
 * 128256), with its begin and end of text. With another size both are the last id, where the
 * byte-level tokenizer (257 ids) keeps `<|endoftext|>`. minGPT's and cutileGPT's other spellings
 * ("nano", "gpt2_xl", "tile-small") are taken too. BAD_ARGUMENT: no such name (the message lists
 * them), vocab_size out of range.
 */
tg_status tgi_preset(const char *name, int32_t vocab_size, tgi_config *config, tg_error *error);

/** The names in order of the table; NULL at and after the end. */
const char *tgi_preset_name(size_t index);

#endif
