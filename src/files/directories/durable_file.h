/**
 * Writes a file so that its name never stands for half of it: the bytes go to a temporary name
 * beside it, reach the disk, and only then take the name (rename). A failure at any point leaves an
 * older file of that name untouched; a process killed before the end leaves the temporary file,
 * `<path>.tegula-<16 hex digits>`.
 */
#ifndef TGI_FILES_DURABLE_FILE_H
#define TGI_FILES_DURABLE_FILE_H

#include "tegula/status.h"
#include <stddef.h>
#include <stdint.h>

/** Zeroed: nothing to commit or drop. */
typedef struct tgi_durable_file {
  char *path;
  char *temporary;
  int fd;
  uint64_t written;
} tgi_durable_file;

/**
 * Begins to write what will be `path`: nothing yet, a regular file, or a link to one, which stays.
 * Errors: BAD_ARGUMENT (it is a device, a pipe, a directory), IO, NO_MEMORY; then *file is zeroed.
 */
tg_status tgi_durable_file_begin(const char *path, tgi_durable_file *file, tg_error *error);

/** Writes all bytes or reports IO at the byte where writing stopped (a full disk). */
tg_status tgi_durable_file_write(tgi_durable_file *file, const void *bytes, size_t size,
                                 tg_error *error);

/** Takes back what was written from byte `size` on, such as half a line. Errors: IO. */
tg_status tgi_durable_file_cut(tgi_durable_file *file, uint64_t size, tg_error *error);

/** Flushes, renames, and flushes the directory; drops the file if any of it fails. Zeroes *file. */
tg_status tgi_durable_file_commit(tgi_durable_file *file, tg_error *error);

/** Removes the temporary file; a zeroed *file is allowed. Zeroes it. */
void tgi_durable_file_drop(tgi_durable_file *file);

/** All of the above for bytes in memory. */
tg_status tgi_durable_file_save(const char *path, const void *bytes, size_t size, tg_error *error);

/** 16 hex digits and a terminator, different at every call in every process. Errors: IO. */
tg_status tgi_random_suffix(const char *path, char suffix[17], tg_error *error);

/** Flushes a directory's entries to the disk. File systems that cannot are taken at their word. */
tg_status tgi_flush_directory(const char *path, tg_error *error);

#endif
