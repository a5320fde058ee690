#define _GNU_SOURCE /* O_DIRECTORY, O_NOFOLLOW */
#include "kept_directories.h"
#include "atomic_directory.h"
#include "durable_file.h"
#include "files/file_error.h"
#include "leftover_directory.h"
#include "target_directory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT_MARK "-step-"

enum { kDigits = 18 }; /* of a step: they fit int64_t */

/* ---- keeping ---- */

typedef struct linking {
  const char *path; /* for messages */
  int to;
  tg_error *error;
  tg_status status;
} linking;

static tgi_step link_entry(int from, const char *name, void *state)
{
  linking *l = state;
  struct stat info;
  if (fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode) ||
      linkat(from, name, l->to, name, 0) == 0) {
    return TGI_GO_ON;
  }
  const int reason = errno;
  const tgi_quoted quoted = tgi_quote(name, strlen(name));
  char action[sizeof quoted + 48];
  snprintf(action, sizeof action, "keep a hard link to its file %s", quoted.text);
  l->status = tgi_file_error_system(l->error, l->path, TGI_NO_BYTE, action, reason);
  return TGI_STOP;
}

/* Links the files of `path` into the open directory `to`. */
static tg_status link_files(const char *path, int to, tg_error *error)
{
  linking l = {path, to, error, TG_OK};
  const int from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int reason = from < 0 ? errno : tgi_visit_entries(from, link_entry, &l);
  if (from >= 0) {
    close(from);
  }
  if (reason != 0) {
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "read this directory", reason);
  }
  return l.status;
}

static bool holds(int parent, const char *name, const char *mark)
{
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  const bool held = tgi_entry_exists(fd, mark);
  close(fd);
  return held;
}

/* What has the name already is an older state, or the user's. */
static tg_status check_kept(const char *kept, const char *mark, tg_error *error)
{
  if (!tgi_entry_exists(AT_FDCWD, kept) || holds(AT_FDCWD, kept, mark)) {
    return TG_OK;
  }
  return tgi_file_error(error, TG_IO, kept, TGI_NO_BYTE,
                        "a new name or a directory with %s, got another file or directory", mark);
}

/* Of an older state under the same name nothing is kept. */
static bool every_file(const char *name)
{
  (void)name;
  return true;
}

static tg_status keep(const char *path, const char *kept, tg_error *error)
{
  tgi_atomic_directory *fresh = NULL;
  tg_status status = tgi_atomic_directory_begin(kept, &fresh, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_atomic_directory_leave(fresh, every_file);
  const char *temporary = tgi_atomic_directory_path(fresh);
  const int to = open(temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  status = to < 0
               ? tgi_file_error_system(error, temporary, TGI_NO_BYTE, "open this directory", errno)
               : link_files(path, to, error);
  if (to >= 0) {
    close(to);
  }
  if (status != TG_OK) {
    tgi_atomic_directory_drop(fresh);
    return status;
  }
  return tgi_atomic_directory_commit(fresh, error);
}

/* ---- removing ---- */

typedef struct pruning {
  const char *target; /* the newest, and its name in it */
  const char *name;
  const char *mark;
  int64_t below; /* look at lower steps only */
  int64_t found; /* the highest of them; -1: none */
} pruning;

/* The step in the name of a kept directory; -1: it is none. */
static int64_t kept_step(const pruning *p, const char *name)
{
  const size_t size = strlen(p->name);
  if (strncmp(name, p->name, size) != 0 ||
      strncmp(name + size, KEPT_MARK, sizeof KEPT_MARK - 1) != 0) {
    return -1;
  }
  const char *digits = name + size + sizeof KEPT_MARK - 1;
  const size_t count = strspn(digits, "0123456789");
  if (count == 0 || count > kDigits || digits[count] || (digits[0] == '0' && count > 1)) {
    return -1;
  }
  return strtoll(digits, NULL, 10);
}

static tgi_step find_highest(int parent, const char *name, void *state)
{
  pruning *p = state;
  const int64_t step = kept_step(p, name);
  if (step > p->found && step < p->below && holds(parent, name, p->mark)) {
    p->found = step;
  }
  return TGI_GO_ON;
}

/* The highest kept step below `below`; -1: none. */
static int64_t next_below(pruning *p, int parent, int64_t below)
{
  p->below = below;
  p->found = -1;
  return tgi_visit_entries(parent, find_highest, p) == 0 ? p->found : -1;
}

/* Takes the name of a leftover first, so that a process that dies half-way leaves no part of a
 * directory under a name that means a whole one; the next save removes it. */
static void remove_kept(const char *target, int parent, const char *name, int64_t step)
{
  char kept[TGI_TARGET_NAME_LIMIT + 64], aside[TGI_TARGET_NAME_LIMIT + 64], suffix[17];
  snprintf(kept, sizeof kept, "%s" KEPT_MARK "%lld", name, (long long)step);
  if (tgi_random_suffix(target, suffix, NULL) != TG_OK) {
    return;
  }
  snprintf(aside, sizeof aside, ".%s" TGI_TARGET_MARK "%s", name, suffix);
  if (renameat(parent, kept, parent, aside) == 0) {
    tgi_remove_leftover(parent, aside, name);
  }
}

/* What a process left that died while it kept a directory is removed when one of that name is
 * begun; the first that is found, which is enough as there is a next time. */
static tgi_step sweep(int parent, const char *name, void *state)
{
  (void)parent;
  const pruning *p = state;
  const char *mark = name[0] == '.' ? strstr(name, TGI_TARGET_MARK) : NULL;
  char kept[TGI_TARGET_NAME_LIMIT + 64], path[PATH_MAX + 64];
  const char *digits = mark ? mark + sizeof TGI_TARGET_MARK - 1 : "";
  if (strlen(digits) != 16 || strspn(digits, "0123456789abcdef") != 16 ||
      (size_t)(mark - name) > sizeof kept) {
    return TGI_GO_ON;
  }
  snprintf(kept, sizeof kept, "%.*s", (int)(mark - name - 1), name + 1);
  if (kept_step(p, kept) < 0) {
    return TGI_GO_ON;
  }
  snprintf(path, sizeof path, "%.*s%s", (int)(p->name - p->target), p->target, kept);
  tgi_atomic_directory *dead = NULL;
  if (tgi_atomic_directory_begin(path, &dead, NULL) == TG_OK) {
    tgi_atomic_directory_drop(dead);
  }
  return TGI_STOP;
}

static tg_status prune(char *target, char *name, int64_t step, int32_t most, const char *mark,
                       tg_error *error)
{
  int parent = -1;
  const tg_status status = tgi_open_target_parent(target, name, &parent, error);
  if (status != TG_OK) {
    return status;
  }
  pruning p = {.target = target, .name = name, .mark = mark};
  int64_t at = step + 1;
  for (int32_t kept = 0; kept < most && at >= 0; kept++) {
    at = next_below(&p, parent, at);
  }
  while (at >= 0 && (at = next_below(&p, parent, at)) >= 0) {
    remove_kept(target, parent, name, at);
  }
  tgi_visit_entries(parent, sweep, &p);
  close(parent);
  return TG_OK;
}

static tgi_step find_any(int parent, const char *name, void *state)
{
  (void)parent;
  pruning *p = state;
  p->found = kept_step(p, name);
  return p->found < 0 ? TGI_GO_ON : TGI_STOP;
}

tg_status tgi_expect_none_kept(const char *path, tg_error *error)
{
  char target[PATH_MAX], *name;
  int parent = -1;
  tg_status status = tgi_find_target(path, target, &name, error);
  status = status ? status : tgi_open_target_parent(target, name, &parent, error);
  if (status != TG_OK) {
    return status;
  }
  pruning p = {.target = target, .name = name, .found = -1};
  tgi_visit_entries(parent, find_any, &p);
  close(parent);
  return p.found < 0 ? TG_OK
                     : tgi_file_error(error, TG_IO, path, TGI_NO_BYTE,
                                      "no checkpoints of another run beside it, got %s" KEPT_MARK
                                      "%lld (move or remove it)",
                                      name, (long long)p.found);
}

tg_status tgi_keep_directory(const char *path, int64_t step, int32_t most, const char *mark,
                             tg_error *error)
{
  char target[PATH_MAX], kept[PATH_MAX + 64], *name;
  tg_status status = tgi_find_target(path, target, &name, error);
  if (status != TG_OK) {
    return status;
  }
  snprintf(kept, sizeof kept, "%s" KEPT_MARK "%lld", target, (long long)step);
  status = check_kept(kept, mark, error);
  status = status ? status : keep(target, kept, error);
  return status ? status : prune(target, name, step, most, mark, error);
}
