#define _GNU_SOURCE /* getrandom, realpath */
#include "durable_file.h"
#include "files/file_error.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

tg_status tgi_random_suffix(const char *path, char suffix[17], tg_error *error)
{
  uint64_t bits;
  ssize_t got;
  do {
    got = getrandom(&bits, sizeof bits, 0);
  } while (got < 0 && errno == EINTR);
  if (got != (ssize_t)sizeof bits) {
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "draw a random name", errno);
  }
  snprintf(suffix, 17, "%016" PRIx64, bits);
  return TG_OK;
}

tg_status tgi_flush_directory(const char *path, tg_error *error)
{
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "open the directory", errno);
  }
  const int failed = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? errno : 0;
  close(fd);
  return failed ? tgi_file_error_system(error, path, TGI_NO_BYTE, "flush the directory", failed)
                : TG_OK;
}

/**
 * *name: what the rename will replace, the caller's to free. Behind a link that is the link's file:
 * the link stays. A device, a pipe or a directory is refused, as a rename would take its place.
 */
static tg_status find_name(const char *path, char **name, tg_error *error)
{
  struct stat info;
  const bool found = stat(path, &info) == 0;
  if (found && !S_ISREG(info.st_mode)) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "a regular file or nothing of that name, got %s",
                          S_ISDIR(info.st_mode)    ? "a directory"
                          : S_ISFIFO(info.st_mode) ? "a pipe"
                          : S_ISSOCK(info.st_mode) ? "a socket"
                                                   : "a device");
  }
  if (found && info.st_nlink == 0) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "a file that has a name, got one that was removed");
  }
  const size_t size = found ? PATH_MAX : strlen(path) + 1;
  char *text = malloc(size);
  if (!text) {
    return tgi_file_error_memory(error, path, size);
  }
  if (!found) {
    memcpy(text, path, size);
  } else if (!realpath(path, text)) {
    const int reason = errno;
    free(text);
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "resolve it", reason);
  }
  *name = text;
  return TG_OK;
}

tg_status tgi_durable_file_begin(const char *path, tgi_durable_file *file, tg_error *error)
{
  *file = (tgi_durable_file){0};
  char suffix[17], *name = NULL;
  tg_status status = tgi_random_suffix(path, suffix, error);
  status = status ? status : find_name(path, &name, error);
  if (status != TG_OK) {
    return status;
  }
  const size_t size = strlen(name) + sizeof ".tegula-" + sizeof suffix;
  char *temporary = malloc(size);
  if (!temporary) {
    free(name);
    return tgi_file_error_memory(error, path, size);
  }
  snprintf(temporary, size, "%s.tegula-%s", name, suffix);
  const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    const int reason = errno;
    free(name);
    free(temporary);
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "create a temporary file beside it",
                                 reason);
  }
  *file = (tgi_durable_file){.path = name, .temporary = temporary, .fd = fd};
  return TG_OK;
}

tg_status tgi_durable_file_write(tgi_durable_file *file, const void *bytes, size_t size,
                                 tg_error *error)
{
  const char *at = bytes;
  while (size > 0) {
    const size_t piece = size < (size_t)1 << 30 ? size : (size_t)1 << 30; /* write's own limit */
    const ssize_t done = write(file->fd, at, piece);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      return tgi_file_error_system(error, file->path, file->written, "write more bytes",
                                   done < 0 ? errno : ENOSPC);
    }
    at += done;
    size -= (size_t)done;
    file->written += (uint64_t)done;
  }
  return TG_OK;
}

tg_status tgi_durable_file_cut(tgi_durable_file *file, uint64_t size, tg_error *error)
{
  if (ftruncate(file->fd, (off_t)size) != 0 || lseek(file->fd, (off_t)size, SEEK_SET) < 0) {
    return tgi_file_error_system(error, file->path, size, "cut it", errno);
  }
  file->written = size;
  return TG_OK;
}

/** Flushes the directory that holds `path`, which is cut off after its last slash meanwhile. */
static tg_status flush_parent(char *path, tg_error *error)
{
  char *slash = strrchr(path, '/');
  if (!slash) {
    return tgi_flush_directory(".", error);
  }
  const char first = slash[1];
  slash[1] = '\0';
  const tg_status status = tgi_flush_directory(path, error);
  slash[1] = first;
  return status;
}

tg_status tgi_durable_file_commit(tgi_durable_file *file, tg_error *error)
{
  if (fsync(file->fd) != 0 && errno != EINVAL) {
    const int reason = errno;
    tgi_file_error_system(error, file->path, TGI_NO_BYTE, "flush it to the disk", reason);
    tgi_durable_file_drop(file);
    return TG_IO;
  }
  const int closed = close(file->fd);
  file->fd = -1;
  if (closed != 0 || rename(file->temporary, file->path) != 0) {
    const int reason = errno;
    tgi_file_error_system(error, file->path, TGI_NO_BYTE,
                          closed != 0 ? "close it" : "rename the temporary file to it", reason);
    tgi_durable_file_drop(file);
    return TG_IO;
  }
  const tg_status status = flush_parent(file->path, error);
  free(file->path);
  free(file->temporary);
  *file = (tgi_durable_file){0};
  return status;
}

void tgi_durable_file_drop(tgi_durable_file *file)
{
  if (!file->temporary) {
    return;
  }
  if (file->fd >= 0) {
    close(file->fd);
  }
  unlink(file->temporary);
  free(file->path);
  free(file->temporary);
  *file = (tgi_durable_file){0};
}

tg_status tgi_durable_file_save(const char *path, const void *bytes, size_t size, tg_error *error)
{
  tgi_durable_file file;
  tg_status status = tgi_durable_file_begin(path, &file, error);
  if (status == TG_OK) {
    status = tgi_durable_file_write(&file, bytes, size, error);
  }
  if (status == TG_OK) {
    return tgi_durable_file_commit(&file, error);
  }
  tgi_durable_file_drop(&file);
  return status;
}
