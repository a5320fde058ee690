#define _GNU_SOURCE /* nftw */
#include "scratch_directory.h"
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(bool condition, const char *what)
{
  if (condition) {
    return;
  }
  perror(what);
  abort();
}

scratch scratch_make(void)
{
  scratch made;
  const char *base = getenv("TMPDIR");
  snprintf(made.path, sizeof made.path, "%s/tegula-test-XXXXXX", base && *base ? base : "/tmp");
  require(mkdtemp(made.path) != NULL, made.path);
  return made;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
  (void)info;
  (void)kind;
  (void)where;
  return remove(path);
}

void scratch_remove(const scratch *directory)
{
  require(nftw(directory->path, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0, directory->path);
}

const char *scratch_file(const scratch *directory, const char *name)
{
  static char paths[64][SCRATCH_PATH + 256];
  static int turn;
  char *path = paths[turn++ % 64];
  snprintf(path, sizeof paths[0], "%s/%s", directory->path, name);
  return path;
}

void write_file(const char *path, const void *bytes, size_t size)
{
  FILE *file = fopen(path, "wb");
  require(file != NULL, path);
  require(fwrite(bytes, 1, size, file) == size, path);
  require(fclose(file) == 0, path);
}

void write_text(const char *path, const char *text)
{
  write_file(path, text, strlen(text));
}

char *read_file(const char *path, size_t *size)
{
  FILE *file = fopen(path, "rb");
  require(file != NULL, path);
  require(fseek(file, 0, SEEK_END) == 0, path);
  const long length = ftell(file);
  require(length >= 0 && fseek(file, 0, SEEK_SET) == 0, path);
  char *bytes = malloc((size_t)length + 1);
  require(bytes != NULL, path);
  require(fread(bytes, 1, (size_t)length, file) == (size_t)length, path);
  bytes[length] = '\0';
  fclose(file);
  if (size) {
    *size = (size_t)length;
  }
  return bytes;
}

bool file_exists(const char *path)
{
  struct stat info;
  return lstat(path, &info) == 0;
}

size_t count_entries(const char *path)
{
  DIR *stream = opendir(path);
  require(stream != NULL, path);
  size_t count = 0;
  for (const struct dirent *entry; (entry = readdir(stream));) {
    count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
  }
  closedir(stream);
  return count;
}
