#define _GNU_SOURCE /* O_DIRECTORY, O_NOFOLLOW */
#include "leftover_directory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int tgi_visit_entries(int directory,
                      tgi_step (*visit)(int directory, const char *name, void *state), void *state)
{
  const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = fd < 0 ? NULL : fdopendir(fd);
  if (!stream) {
    const int reason = errno;
    if (fd >= 0) {
      close(fd);
    }
    return reason;
  }
  const struct dirent *entry;
  for (errno = 0; (entry = readdir(stream)); errno = 0) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
      continue;
    }
    if (visit(directory, entry->d_name, state) == TGI_STOP) {
      break;
    }
  }
  const int reason = entry ? 0 : errno;
  closedir(stream);
  return reason;
}

bool tgi_is_directory(int directory, const char *name)
{
  struct stat info;
  return fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

bool tgi_entry_exists(int directory, const char *name)
{
  struct stat info;
  return fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static tgi_step remove_entry(int directory, const char *name, void *target)
{
  const int *to = target;
  if (!tgi_is_directory(directory, name)) {
    unlinkat(directory, name, 0);
  } else if (*to >= 0) { /* ours have no subdirectories, so it is the user's: it goes back */
    renameat(directory, name, *to, name); /* would replace an empty directory, nothing else */
  }
  return TGI_GO_ON;
}

void tgi_remove_leftover(int parent, const char *name, const char *target_name)
{
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  int target = openat(parent, target_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  tgi_visit_entries(fd, remove_entry, &target);
  if (target >= 0) {
    close(target);
  }
  close(fd);
  unlinkat(parent, name, AT_REMOVEDIR);
}
