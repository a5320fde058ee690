/**
 * The tensors of a Hugging Face directory: `model.safetensors`, else the shards that
 * `model.safetensors.index.json` names ({"weight_map": {"<tensor>": "<file>"}}).
 *
 * The index decides what is in the model: each of its tensors must be in the shard it names, and
 * tensors of a shard that it does not name stay unseen. Shards are plain file names ending in
 * ".safetensors" inside the directory.
 */
#ifndef TGI_MODEL_WEIGHT_FILES_H
#define TGI_MODEL_WEIGHT_FILES_H

#include "files/safetensors/safetensors.h"
#include <stdbool.h>

typedef struct tgi_weight_files tgi_weight_files;

/**
 * Opens all files (safetensors.h). Errors: IO, BAD_FILE, UNSUPPORTED (the directory has pickled
 * weights alone), NO_MEMORY; then *out is NULL.
 */
tg_status tgi_weight_files_open(const char *directory, tgi_weight_files **out, tg_error *error);

/** Frees and unmaps; NULL is allowed. */
void tgi_weight_files_close(tgi_weight_files *files);

/** Tensors, sorted by name; `index` below the count. */
size_t tgi_weight_files_count(const tgi_weight_files *files);
const tgi_file_tensor *tgi_weight_files_at(const tgi_weight_files *files, size_t index);

/** The tensor of that name, or NULL. */
const tgi_file_tensor *tgi_weight_files_find(const tgi_weight_files *files, const char *name);

/** The file that holds a tensor of these files. */
const tgi_safetensors *tgi_weight_files_home(const tgi_weight_files *files,
                                             const tgi_file_tensor *tensor);

/** Notes that a parameter is this tensor; whether one is. At first none is. */
void tgi_weight_files_claim(tgi_weight_files *files, const tgi_file_tensor *tensor);
bool tgi_weight_files_is_claimed(const tgi_weight_files *files, size_t index);

#endif
