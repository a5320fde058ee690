/**
 * Earlier states of a directory that is replaced as a whole (atomic_directory.h), kept beside it:
 *
 *   <parent>/<name>              the newest, which is never touched here
 *   <parent>/<name>-step-250     hard links to the files that were in <name> when it was kept
 *
 * A file of <name> is never written to, but replaced, so that the links keep what they held; the
 * newest state takes no memory twice.
 */
#ifndef TGI_FILES_KEPT_DIRECTORIES_H
#define TGI_FILES_KEPT_DIRECTORIES_H

#include "tegula/status.h"
#include <stdint.h>

/** Errors: IO (beside `path` lies something with the name of a kept state), and those of
 * tgi_find_target. */
tg_status tgi_expect_none_kept(const char *path, tg_error *error);

/**
 * Keeps the directory `path` as `<path>-step-<step>`, durably, and only then removes all but the
 * `most` kept ones with the highest steps up to `step`. Those of later steps stay: another run may
 * have left them. A directory is removed only if it has such a name and holds a file `mark`; its
 * subdirectories are the user's and move to `path`. One that cannot be removed stays. Errors: those
 * of tgi_atomic_directory_begin and _commit, IO (a file cannot be linked; the name is that of
 * something without the mark).
 */
tg_status tgi_keep_directory(const char *path, int64_t step, int32_t most, const char *mark,
                             tg_error *error);

#endif
