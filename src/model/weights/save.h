/** A model as the files of a Hugging Face directory. */
#ifndef TGI_MODEL_SAVE_H
#define TGI_MODEL_SAVE_H

#include "tegula/model.h"

/**
 * Writes config.json, generation_config.json if the model came with one, the weights and, with a
 * tokenizer, its files into a directory that exists. Errors: those of tg_model_save.
 */
tg_status tgi_model_write(const tg_model *model, const tg_save_options *options,
                          const char *directory, tg_error *error);

#endif
