#define _GNU_SOURCE /* O_NOFOLLOW */
#include "process_lock.h"
#include "files/file_error.h"
#include "target_directory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kAttempts = 100 };

struct tgi_directory_lock {
  char target[PATH_MAX];
  char name[TGI_TARGET_NAME_LIMIT + 64]; /* of the lock's file */
  int parent, file;                      /* descriptors, or -1 */
};

static tg_status refuse(const char *path, const char *what, pid_t holder, tg_error *error)
{
  char process[48] = "another process"; /* one that this system cannot see: NFS, a container */
  if (holder > 0) {
    snprintf(process, sizeof process, "process %ld", (long)holder);
  }
  tgi_file_error_fill(error, TG_IO, path, TGI_NO_BYTE, "%s that no other process writes, got %s",
                      what, process);
  return TG_IO;
}

tg_status tgi_process_lock_file(int file, const char *path, const char *what, tg_error *error)
{
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file, F_SETLK, &lock) == 0) {
      return TG_OK;
    }
    if (errno != EACCES && errno != EAGAIN) {
      return TG_OK; /* no locks here */
    }
    if (fcntl(file, F_GETLK, &lock) != 0) {
      return refuse(path, what, 0, error);
    }
    if (lock.l_type != F_UNLCK) { /* else its holder has just gone */
      return refuse(path, what, lock.l_pid, error);
    }
  }
  return refuse(path, what, 0, error);
}

/* Whether the name still stands for the open file: its last holder removes it. */
static bool is_named(const tgi_directory_lock *lock)
{
  struct stat ours, named;
  return fstat(lock->file, &ours) == 0 &&
         fstatat(lock->parent, lock->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

static tg_status take(tgi_directory_lock *lock, tg_error *error)
{
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    lock->file = openat(lock->parent, lock->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (lock->file < 0) {
      return tgi_file_error_system(error, lock->target, TGI_NO_BYTE,
                                   "create the file of a lock beside it", errno);
    }
    const tg_status status = tgi_process_lock_file(lock->file, lock->target, "a directory", error);
    if (status == TG_OK && is_named(lock)) {
      return TG_OK;
    }
    close(lock->file);
    lock->file = -1;
    if (status != TG_OK) {
      return status;
    }
  }
  return refuse(lock->target, "a directory", 0, error);
}

tg_status tgi_directory_lock_take(const char *path, tgi_directory_lock **out, tg_error *error)
{
  *out = NULL;
  tgi_directory_lock *lock = calloc(1, sizeof *lock);
  if (!lock) {
    return tgi_file_error_memory(error, path, sizeof *lock);
  }
  char *name = NULL;
  lock->parent = lock->file = -1;
  tg_status status = tgi_find_target(path, lock->target, &name, error);
  if (status == TG_OK) {
    snprintf(lock->name, sizeof lock->name, ".%s" TGI_TARGET_MARK "lock", name);
    status = tgi_open_target_parent(lock->target, name, &lock->parent, error);
  }
  status = status ? status : take(lock, error);
  if (status != TG_OK) {
    tgi_directory_lock_drop(lock);
    return status;
  }
  *out = lock;
  return TG_OK;
}

void tgi_directory_lock_drop(tgi_directory_lock *lock)
{
  if (!lock) {
    return;
  }
  if (lock->file >= 0) {
    unlinkat(lock->parent, lock->name, 0); /* while it is ours */
    close(lock->file);
  }
  if (lock->parent >= 0) {
    close(lock->parent);
  }
  free(lock);
}
