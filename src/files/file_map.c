#define _DEFAULT_SOURCE /* madvise */
#include "file_map.h"
#include "file_error.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
  if (S_ISDIR(mode)) {
    return "a directory";
  }
  if (S_ISREG(mode)) {
    return "a file";
  }
  if (S_ISFIFO(mode)) {
    return "a pipe";
  }
  if (S_ISSOCK(mode)) {
    return "a socket";
  }
  return "a device";
}

static tg_status map_descriptor(int fd, const char *path, size_t limit, tgi_file_map *map,
                                tg_error *error)
{
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "ask for its size", errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return tgi_file_error(error, TG_BAD_FILE, path, TGI_NO_BYTE, "a regular file, got %s",
                          kind_of(info.st_mode));
  }
  if ((uintmax_t)info.st_size > limit) {
    return tgi_file_error(error, TG_BAD_FILE, path, limit, "at most %zu bytes, got %jd", limit,
                          (intmax_t)info.st_size);
  }
  if (info.st_size == 0) { /* mmap refuses to map nothing */
    *map = (tgi_file_map){.data = ""};
    return TG_OK;
  }
  void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) {
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "map it into memory", errno);
  }
  *map = (tgi_file_map){.data = data, .size = (size_t)info.st_size, .mapping = data};
  return TG_OK;
}

tg_status tgi_file_map_open(const char *path, size_t limit, tgi_file_map *map, tg_error *error)
{
  *map = (tgi_file_map){0};
  /* Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever. */
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "open it for reading", errno);
  }
  const tg_status status = map_descriptor(fd, path, limit, map, error);
  close(fd);
  return status;
}

void tgi_file_map_drop(const tgi_file_map *map, const void *bytes, size_t size)
{
  if (map->mapping && size > 0) {
    /* The page that the bytes begin in is dropped, the one that others go on in is kept. */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t begin = (size_t)((const char *)bytes - map->data) / page * page;
    const size_t end = (size_t)((const char *)bytes + size - map->data);
    const size_t whole = end == map->size ? end - begin : end / page * page - begin;
    if (whole > 0) {
      madvise((char *)map->mapping + begin, whole, MADV_DONTNEED); /* advice: it may fail */
    }
  }
}

tg_status tgi_find_directory(const char *path, tg_error *error)
{
  struct stat info;
  if (stat(path, &info) != 0) {
    return tgi_file_error_system(error, path, TGI_NO_BYTE, "find this directory", errno);
  }
  return S_ISDIR(info.st_mode) ? TG_OK
                               : tgi_file_error(error, TG_BAD_FILE, path, TGI_NO_BYTE,
                                                "a directory, got %s", kind_of(info.st_mode));
}

void tgi_file_map_close(tgi_file_map *map)
{
  if (map->mapping) {
    munmap(map->mapping, map->size);
  }
  *map = (tgi_file_map){0};
}
