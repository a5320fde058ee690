/**
 * Replaces a directory of files (a checkpoint) as a whole, or not at all.
 *
 *   begin     makes `<parent>/.<name>.tegula-<16 hex digits>` beside the target `<parent>/<name>`
 *   (caller)  writes files into it
 *   commit    flushes them, exchanges both directories in one system call, removes the old one
 *
 * Whatever ends the process in between (kill -9, a full disk, a lost machine), the target is the
 * old directory or the new one, complete. Where the file system cannot exchange (NFS, say), the old
 * directory steps aside to
 * `.<name>.tegula-old` first; a process that dies in that moment leaves no target, and
 * tgi_atomic_directory_recover or the next begin moves the old one back.
 *
 * Entries of the old directory that the new one lacks (a log, notes) are kept, but for those named
 * by tgi_atomic_directory_leave: files by a hard link, directories by a rename after the exchange.
 * Only names of the two forms above are ever removed, never what is inside a directory of the
 * user's; a leftover is removed by the next begin once the process that made it is gone (each holds
 * a lock).
 */
#ifndef TGI_FILES_ATOMIC_DIRECTORY_H
#define TGI_FILES_ATOMIC_DIRECTORY_H

#include "tegula/status.h"
#include <stdbool.h>

typedef struct tgi_atomic_directory tgi_atomic_directory;

/**
 * Prepares to replace `path`, which may be absent (its parent must exist), a directory or a link to
 * one. Errors: IO, BAD_ARGUMENT (the path ends in no name, or names something else), NO_MEMORY;
 * then *out is NULL.
 */
tg_status tgi_atomic_directory_begin(const char *path, tgi_atomic_directory **out, tg_error *error);

/** The temporary directory to write files into (no subdirectories). */
const char *tgi_atomic_directory_path(const tgi_atomic_directory *directory);

/**
 * Entries of the old directory for whose names `leaves` is true are not kept, whether or not the
 * new one has them: files of the same kind under other names.
 */
void tgi_atomic_directory_leave(tgi_atomic_directory *directory, bool (*leaves)(const char *name));

/**
 * Makes the new directory the target and frees `directory`, also on failure. IO: the old directory
 * stands as it was, unless the message says that the new one stands and could not be flushed.
 */
tg_status tgi_atomic_directory_commit(tgi_atomic_directory *directory, tg_error *error);

/** Removes the temporary directory and frees; NULL is allowed. */
void tgi_atomic_directory_drop(tgi_atomic_directory *directory);

/** Restores `path` if a commit without exchange died half-way; OK where nothing is to be done. */
tg_status tgi_atomic_directory_recover(const char *path, tg_error *error);

#endif
