/** Where a directory is that will be written: its parent, which must exist, and its name there. */
#ifndef TGI_FILES_TARGET_DIRECTORY_H
#define TGI_FILES_TARGET_DIRECTORY_H

#include "tegula/status.h"
#include <limits.h>

/** Behind ".<name>" in the names of what lies beside a target. */
#define TGI_TARGET_MARK ".tegula-"

/** Bytes of a target's name, such that the names beside it fit NAME_MAX. */
#define TGI_TARGET_NAME_LIMIT 200

/**
 * Resolves `path`, which may be absent (its parent must exist), a directory or a link to one, to
 * "<parent>/<name>"; *name is the name in it. However it is spelled, one directory has one target.
 * Errors: IO, BAD_ARGUMENT (the path ends in no name, or names something else).
 */
tg_status tgi_find_target(const char *path, char target[PATH_MAX], char **name, tg_error *error);

/** Opens the parent of a target. Errors: IO. */
tg_status tgi_open_target_parent(char *target, char *name, int *parent, tg_error *error);

#endif
