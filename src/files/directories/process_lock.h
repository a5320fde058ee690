/**
 * Locks between processes. The kernel keeps them (fcntl) and drops them with the process, however
 * it ends, so a file that a killed process left behind blocks nobody. They do not exclude threads
 * or users within one process. Where the file system has no locks, every lock is granted.
 */
#ifndef TGI_FILES_PROCESS_LOCK_H
#define TGI_FILES_PROCESS_LOCK_H

#include "tegula/status.h"

/**
 * Locks a file that is open for writing, until it is closed (by any descriptor of this process).
 * Errors: IO: `<path>: expected <what> that no other process writes, got process 1234`.
 */
tg_status tgi_process_lock_file(int file, const char *path, const char *what, tg_error *error);

typedef struct tgi_directory_lock tgi_directory_lock;

/**
 * Locks the directory `path`, absent or not (target_directory.h), by the empty file
 * `<parent>/.<name>.tegula-lock`: the directory itself may be exchanged meanwhile. Errors: IO (also
 * that another process has it, as above), BAD_ARGUMENT, NO_MEMORY; then *out is NULL.
 */
tg_status tgi_directory_lock_take(const char *path, tgi_directory_lock **out, tg_error *error);

/** Removes the file, unlocks and frees; NULL is allowed. */
void tgi_directory_lock_drop(tgi_directory_lock *lock);

#endif
