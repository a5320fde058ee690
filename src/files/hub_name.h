/**
 * Models by their name on Hugging Face's hub, "Qwen/Qwen3-0.6B": found where programs of Hugging
 * Face have downloaded them. Nothing is downloaded here.
 *
 *   <cache>/models--Qwen--Qwen3-0.6B/refs/main          holds the name of the newest snapshot
 *   <cache>/models--Qwen--Qwen3-0.6B/snapshots/<name>/  is the model's directory
 */
#ifndef TGI_FILES_HUB_NAME_H
#define TGI_FILES_HUB_NAME_H

#include "tegula/status.h"

enum { TGI_MODEL_PATH_BYTES = 4096 };

typedef struct tgi_model_path {
  char text[TGI_MODEL_PATH_BYTES];
} tgi_model_path;

/**
 * The directory of a model that a user named. What exists is a path; so is what cannot be a hub
 * name ("a/b/c", "../a"), whether it exists or not. Everything else is looked for in the hub's
 * cache (environment.h says where that is). Errors: IO (not there; the message names the places),
 * BAD_FILE (refs/main holds no name), BAD_ARGUMENT (longer than a path may be).
 */
tg_status tgi_model_path_find(const char *given, tgi_model_path *out, tg_error *error);

#endif
