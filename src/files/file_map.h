/** A regular file's bytes, mapped read-only. */
#ifndef TGI_FILES_FILE_MAP_H
#define TGI_FILES_FILE_MAP_H

#include "tegula/status.h"
#include <stddef.h>

/**
 * The bytes are the file's own: while the map is open nobody may shorten the file, else touching
 * the lost pages kills the process (SIGBUS). Replacing the file by rename is harmless.
 */
typedef struct tgi_file_map {
  const char *data; /* never NULL when open */
  size_t size;
  void *mapping; /* NULL for an empty file */
} tgi_file_map;

/** Errors: IO (cannot open or map), BAD_FILE (a directory, device, ... or above `limit` bytes). */
tg_status tgi_file_map_open(const char *path, size_t limit, tgi_file_map *map, tg_error *error);

/**
 * Takes the pages of these bytes, which lie in the map, out of the process's memory: what was read
 * once need not stay. Reading them again brings them back.
 */
void tgi_file_map_drop(const tgi_file_map *map, const void *bytes, size_t size);

/** Unmaps; a zeroed map is allowed. */
void tgi_file_map_close(tgi_file_map *map);

/**
 * OK if `path` is a directory. For readers of a directory's files, which else name a file in it
 * where the directory is missing. Errors: IO, BAD_FILE (something else has the name).
 */
tg_status tgi_find_directory(const char *path, tg_error *error);

#endif
