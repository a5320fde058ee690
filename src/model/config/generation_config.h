/**
 * generation_config.json: how a model's makers want it sampled, and what ends its text. Keys are
 * those of transformers' GenerationConfig. Read are the ones of tg_generation_config; others, which
 * belong to ways of generating that are not served (beams, assistants), are passed over.
 */
#ifndef TGI_MODEL_GENERATION_CONFIG_H
#define TGI_MODEL_GENERATION_CONFIG_H

#include "config.h"
#include "tegula/model.h"

#define TGI_MAX_STOP_IDS (2 * TGI_MAX_EOS_IDS)

typedef struct tgi_generation_config {
  tg_generation_config says;
  int32_t stop_ids[TGI_MAX_STOP_IDS];
  int32_t num_stop_ids;
  char *text; /* the file, for saving it unchanged; NULL: there is none */
  size_t size;
} tgi_generation_config;

/**
 * What config.json alone says: its ids, and sampling that changes nothing. `config` is checked. No
 * memory is taken.
 */
void tgi_generation_config_start(const tgi_config *config, tgi_generation_config *out);

/**
 * Reads `size` bytes of text, which messages call `path`, over what `start` made: stop ids are
 * added, the rest is replaced. Errors: BAD_FILE (a key has another type or is out of range: the
 * message names it), NO_MEMORY.
 */
tg_status tgi_generation_config_parse(const char *path, const char *text, size_t size,
                                      tgi_generation_config *out, tg_error *error);

/** The same for a file, whose text is kept; none is no error. Errors: those, and IO. */
tg_status tgi_generation_config_read(const char *path, tgi_generation_config *out, tg_error *error);

void tgi_generation_config_free(tgi_generation_config *config);

#endif
