/** The files that make up a tokenizer, as they came, so that saving gives them back unchanged. */
#ifndef TGI_TEXT_KEPT_FILES_H
#define TGI_TEXT_KEPT_FILES_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>

enum { TGI_MAX_KEPT_FILES = 8 };

typedef struct tgi_kept_file {
  const char *name; /* a constant; NULL: there is no such file */
  char *text;       /* owned, not terminated */
  size_t size;
} tgi_kept_file;

/** Starts zeroed. */
typedef struct tgi_kept_files {
  tgi_kept_file list[TGI_MAX_KEPT_FILES];
} tgi_kept_files;

/** Reads the files of a tokenizer that a directory has. Errors: IO, BAD_FILE, NO_MEMORY. */
tg_status tgi_kept_files_read(const char *directory, tgi_kept_files *files, tg_error *error);

/** Keeps a copy of a text as the file `name`, one that the former would read, instead of what was
 * kept by that name. False without memory. */
bool tgi_kept_files_put(tgi_kept_files *files, const char *name, const char *text, size_t size);

/** The file of that name, or NULL. */
const tgi_kept_file *tgi_kept_files_find(const tgi_kept_files *files, const char *name);

/** Writes all of them (durable_file.h). Errors: IO, NO_MEMORY. */
tg_status tgi_kept_files_save(const tgi_kept_files *files, const char *directory, tg_error *error);

void tgi_kept_files_free(tgi_kept_files *files);

/** `<directory>/<name>`, to be freed; NULL without memory. */
char *tgi_path_in(const char *directory, const char *name);

#endif
