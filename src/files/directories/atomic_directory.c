/*
 * All work inside the parent goes through a descriptor of it, so that renaming the parent meanwhile
 * changes nothing, and no call follows a link except the first, which resolves `path` itself.
 */
#define _GNU_SOURCE /* renameat2, flock, dirent types */
#include "atomic_directory.h"
#include "durable_file.h"
#include "files/file_error.h"
#include "leftover_directory.h"
#include "target_directory.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct tgi_atomic_directory {
  char target[PATH_MAX]; /* resolved */
  char *name;            /* its last part, inside target */
  char temporary[PATH_MAX + 64];
  char temporary_name[TGI_TARGET_NAME_LIMIT + 64];
  char old_name[TGI_TARGET_NAME_LIMIT +
                64];                /* where the old directory steps aside without exchange */
  int parent;                       /* descriptors, or -1 */
  int lock;                         /* the temporary directory, locked while we live */
  bool (*leaves)(const char *name); /* NULL: nothing is left behind */
};

static bool is_leftover_name(const tgi_atomic_directory *d, const char *name)
{
  const size_t size = strlen(d->name);
  if (name[0] != '.' || strncmp(name + 1, d->name, size) != 0 ||
      strncmp(name + 1 + size, TGI_TARGET_MARK, sizeof TGI_TARGET_MARK - 1) != 0) {
    return false;
  }
  const char *digits = name + 1 + size + sizeof TGI_TARGET_MARK - 1;
  return strlen(digits) == 16 && strspn(digits, "0123456789abcdef") == 16;
}

static tgi_step remove_dead(int parent, const char *name, void *state)
{
  const tgi_atomic_directory *d = state;
  if (!is_leftover_name(d, name)) {
    return TGI_GO_ON;
  }
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return TGI_GO_ON;
  }
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) { /* its process would hold the lock if it lived */
    tgi_remove_leftover(d->parent, name, d->name);
  }
  close(fd);
  return TGI_GO_ON;
}

/* ---- begin ---- */

static tg_status open_parent(const char *path, tgi_atomic_directory **out, tg_error *error)
{
  *out = NULL;
  tgi_atomic_directory *d = calloc(1, sizeof *d);
  if (!d) {
    return tgi_file_error_memory(error, path, sizeof *d);
  }
  d->parent = d->lock = -1;
  tg_status status = tgi_find_target(path, d->target, &d->name, error);
  if (status == TG_OK) {
    snprintf(d->old_name, sizeof d->old_name, ".%s" TGI_TARGET_MARK "old", d->name);
    status = tgi_open_target_parent(d->target, d->name, &d->parent, error);
  }
  if (status != TG_OK) {
    tgi_atomic_directory_drop(d);
    return status;
  }
  *out = d;
  return TG_OK;
}

static tg_status recover(const tgi_atomic_directory *d, tg_error *error)
{
  if (!tgi_is_directory(d->parent, d->old_name)) {
    return TG_OK;
  }
  if (tgi_entry_exists(d->parent, d->name)) { /* died after the new directory was in place */
    tgi_remove_leftover(d->parent, d->old_name, d->name);
    return TG_OK;
  }
  if (renameat(d->parent, d->old_name, d->parent, d->name) != 0) {
    return tgi_file_error_system(error, d->target, TGI_NO_BYTE, "move the old directory back",
                                 errno);
  }
  return TG_OK;
}

/** Makes and locks the temporary directory. */
static tg_status make_temporary(tgi_atomic_directory *d, tg_error *error)
{
  for (int attempt = 0; attempt < 16; attempt++) {
    char suffix[17];
    const tg_status status = tgi_random_suffix(d->target, suffix, error);
    if (status != TG_OK) {
      return status;
    }
    snprintf(d->temporary_name, sizeof d->temporary_name, ".%s" TGI_TARGET_MARK "%s", d->name,
             suffix);
    if (mkdirat(d->parent, d->temporary_name, 0777) != 0) {
      const int reason = errno;
      d->temporary_name[0] = '\0';
      if (reason == EEXIST) {
        continue;
      }
      return tgi_file_error_system(error, d->target, TGI_NO_BYTE,
                                   "make a temporary directory beside it", reason);
    }
    d->lock = openat(d->parent, d->temporary_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* Another process may take the new directory for a leftover before the lock is ours. */
    struct stat ours, named;
    if (d->lock >= 0 && (flock(d->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        fstat(d->lock, &ours) == 0 &&
        fstatat(d->parent, d->temporary_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
      return TG_OK;
    }
    if (d->lock >= 0) {
      close(d->lock);
    }
    d->lock = -1;
  }
  d->temporary_name[0] = '\0';
  return tgi_file_error_system(error, d->target, TGI_NO_BYTE,
                               "make a temporary directory beside it", EAGAIN);
}

tg_status tgi_atomic_directory_begin(const char *path, tgi_atomic_directory **out, tg_error *error)
{
  *out = NULL;
  tgi_atomic_directory *d;
  tg_status status = open_parent(path, &d, error);
  if (status != TG_OK) {
    return status;
  }
  status = recover(d, error);
  if (status == TG_OK) {
    tgi_visit_entries(d->parent, remove_dead, d);
    status = make_temporary(d, error);
  }
  if (status != TG_OK) {
    tgi_atomic_directory_drop(d);
    return status;
  }
  snprintf(d->temporary, sizeof d->temporary, "%.*s%s", (int)(d->name - d->target), d->target,
           d->temporary_name);
  *out = d;
  return TG_OK;
}

const char *tgi_atomic_directory_path(const tgi_atomic_directory *directory)
{
  return directory->temporary;
}

void tgi_atomic_directory_leave(tgi_atomic_directory *directory, bool (*leaves)(const char *name))
{
  directory->leaves = leaves;
}

tg_status tgi_atomic_directory_recover(const char *path, tg_error *error)
{
  tgi_atomic_directory *d;
  tg_status status = open_parent(path, &d, error);
  if (status != TG_OK) {
    return status;
  }
  status = recover(d, error);
  tgi_atomic_directory_drop(d);
  return status;
}

/* ---- commit ---- */

typedef struct progress {
  const tgi_atomic_directory *directory;
  tg_error *error;
  tg_status status;
} progress;

static tgi_step flush_entry(int directory, const char *name, void *state)
{
  progress *p = state;
  const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return TGI_GO_ON; /* not a regular file: nothing of ours */
  }
  if (fsync(fd) != 0 && errno != EINVAL) {
    p->status = tgi_file_error_system(p->error, p->directory->target, TGI_NO_BYTE,
                                      "flush its files", errno);
  }
  close(fd);
  return p->status == TG_OK ? TGI_GO_ON : TGI_STOP;
}

static tgi_step keep_entry(int old, const char *name, void *state)
{
  progress *p = state;
  const int fresh = p->directory->lock;
  bool (*leaves)(const char *) = p->directory->leaves;
  if ((leaves && leaves(name)) || tgi_is_directory(old, name) || tgi_entry_exists(fresh, name)) {
    return TGI_GO_ON;
  }
  if (linkat(old, name, fresh, name, 0) == 0) {
    return TGI_GO_ON;
  }
  const int reason = errno;
  const tgi_quoted quoted = tgi_quote(name, strlen(name));
  char action[sizeof quoted + 32];
  snprintf(action, sizeof action, "keep its file %s", quoted.text);
  p->status = tgi_file_error_system(p->error, p->directory->target, TGI_NO_BYTE, action, reason);
  return TGI_STOP;
}

/** Flushes the new directory, the files kept from the old one included. */
static tg_status complete(tgi_atomic_directory *d, tg_error *error)
{
  progress p = {.directory = d, .error = error};
  int reason = 0;
  const int old = openat(d->parent, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (old >= 0) {
    struct stat info;
    if (fstat(old, &info) == 0) {
      fchmod(d->lock, info.st_mode & 07777);
    }
    reason = tgi_visit_entries(old, keep_entry, &p);
    close(old);
  } else if (errno != ENOENT) {
    reason = errno;
  }
  if (reason == 0 && p.status == TG_OK) {
    reason = tgi_visit_entries(d->lock, flush_entry, &p);
  }
  if (p.status != TG_OK) {
    return p.status;
  }
  if (reason == 0 && fsync(d->lock) != 0 && errno != EINVAL) {
    reason = errno;
  }
  return reason ? tgi_file_error_system(error, d->target, TGI_NO_BYTE, "complete the new directory",
                                        reason)
                : TG_OK;
}

/** Swaps target and temporary directory; 0 or an errno value. *aside: the old one's name now. */
static int put_in_place(tgi_atomic_directory *d, const char **aside)
{
  *aside = NULL;
  if (!tgi_entry_exists(d->parent, d->name)) {
    return renameat(d->parent, d->temporary_name, d->parent, d->name) == 0 ? 0 : errno;
  }
  if (renameat2(d->parent, d->temporary_name, d->parent, d->name, RENAME_EXCHANGE) == 0) {
    *aside = d->temporary_name;
    return 0;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    return errno;
  }
  if (renameat(d->parent, d->name, d->parent, d->old_name) != 0) {
    return errno;
  }
  if (renameat(d->parent, d->temporary_name, d->parent, d->name) == 0) {
    *aside = d->old_name;
    return 0;
  }
  const int reason = errno;
  renameat(d->parent, d->old_name, d->parent, d->name); /* if it fails, recover will do it */
  return reason;
}

tg_status tgi_atomic_directory_commit(tgi_atomic_directory *d, tg_error *error)
{
  tg_status status = complete(d, error);
  if (status != TG_OK) {
    tgi_atomic_directory_drop(d);
    return status;
  }
  const char *aside;
  const int reason = put_in_place(d, &aside);
  if (reason != 0) {
    tgi_file_error_system(error, d->target, TGI_NO_BYTE, "put the new directory in its place",
                          reason);
    tgi_atomic_directory_drop(d);
    return TG_IO;
  }
  /* The old directory goes only when the disk knows the new one by its name. */
  if (fsync(d->parent) != 0 && errno != EINVAL) {
    status = tgi_file_error_system(error, d->target, TGI_NO_BYTE,
                                   "flush the exchange (the new directory stands)", errno);
  } else if (aside) {
    tgi_remove_leftover(d->parent, aside, d->name);
  }
  d->temporary_name[0] = '\0';
  tgi_atomic_directory_drop(d);
  return status;
}

void tgi_atomic_directory_drop(tgi_atomic_directory *d)
{
  if (!d) {
    return;
  }
  if (d->temporary_name[0]) {
    tgi_remove_leftover(d->parent, d->temporary_name, d->name);
  }
  if (d->lock >= 0) {
    close(d->lock);
  }
  if (d->parent >= 0) {
    close(d->parent);
  }
  free(d);
}
