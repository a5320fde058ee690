#define _GNU_SOURCE /* realpath, O_DIRECTORY */
#include "target_directory.h"
#include "files/file_error.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tg_status tgi_find_target(const char *path, char target[PATH_MAX], char **name, tg_error *error)
{
  struct stat info;
  if (stat(path, &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                            "a directory or nothing of that name, got a file");
    }
    if (!realpath(path, target)) {
      return tgi_file_error_system(error, path, TGI_NO_BYTE, "resolve the path", errno);
    }
  } else {
    if (errno != ENOENT || lstat(path, &info) == 0) {
      return tgi_file_error_system(error, path, TGI_NO_BYTE, "find the directory", errno);
    }
    size_t size = strlen(path);
    while (size > 0 && path[size - 1] == '/') {
      size--;
    }
    size_t start = size;
    while (start > 0 && path[start - 1] != '/') {
      start--;
    }
    char parent[PATH_MAX];
    if (size == start || size >= sizeof parent) {
      return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                            "a path that ends in a name, got none");
    }
    memcpy(parent, start > 0 ? path : ".", start > 0 ? start : 1);
    parent[start > 0 ? start : 1] = '\0';
    if (!realpath(parent, target)) {
      return tgi_file_error_system(error, path, TGI_NO_BYTE, "find the parent directory", errno);
    }
    const size_t used = strlen(target);
    if (used + 1 + (size - start) >= PATH_MAX) {
      return tgi_file_error_system(error, path, TGI_NO_BYTE, "resolve the path", ENAMETOOLONG);
    }
    snprintf(target + used, PATH_MAX - used, "%s%.*s", used > 1 ? "/" : "", (int)(size - start),
             path + start);
  }
  *name = strrchr(target, '/') + 1;
  if ((*name)[0] == '\0' || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0 ||
      strlen(*name) > TGI_TARGET_NAME_LIMIT) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "a path that ends in a name of at most %d bytes, got another",
                          TGI_TARGET_NAME_LIMIT);
  }
  return TG_OK;
}

tg_status tgi_open_target_parent(char *target, char *name, int *parent, tg_error *error)
{
  name[-1] = '\0';
  *parent = open(target[0] ? target : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int reason = errno;
  name[-1] = '/';
  return *parent < 0 ? tgi_file_error_system(error, target, TGI_NO_BYTE,
                                             "open the parent directory", reason)
                     : TG_OK;
}
