#include "kept_files.h"
#include "files/directories/durable_file.h"
#include "files/file_error.h"
#include "files/file_map.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT ((size_t)1 << 28)

/* What transformers writes for a tokenizer, of any version. */
static const char *const names[TGI_MAX_KEPT_FILES] = {
    "tokenizer.json",    "tokenizer_config.json", "vocab.json",         "merges.txt",
    "added_tokens.json", "chat_template.jinja",   "chat_template.json", "special_tokens_map.json",
};

char *tgi_path_in(const char *directory, const char *name)
{
  const size_t size = strlen(directory) + 1 + strlen(name) + 1;
  char *path = malloc(size);
  if (path) {
    snprintf(path, size, "%s/%s", directory, name);
  }
  return path;
}

bool tgi_kept_files_put(tgi_kept_files *files, const char *name, const char *text, size_t size)
{
  for (int i = 0; i < TGI_MAX_KEPT_FILES; i++) {
    if (strcmp(names[i], name) == 0) {
      char *copy = malloc(size + 1); /* never of 0 bytes */
      if (copy) {
        memcpy(copy, text, size);
        free(files->list[i].text);
        files->list[i] = (tgi_kept_file){names[i], copy, size};
      }
      return copy != NULL;
    }
  }
  return false;
}

/* A copy: a map would end the process if somebody shortened the file later. */
static tg_status keep_file(const char *path, const char *name, tgi_kept_files *files,
                           tg_error *error)
{
  tgi_file_map map;
  tg_status status = tgi_file_map_open(path, FILE_LIMIT, &map, error);
  if (status == TG_OK && !tgi_kept_files_put(files, name, map.data, map.size)) {
    status = tgi_file_error_memory(error, path, map.size + 1);
  }
  tgi_file_map_close(&map);
  return status;
}

tg_status tgi_kept_files_read(const char *directory, tgi_kept_files *files, tg_error *error)
{
  tg_status status = TG_OK;
  for (int i = 0; i < TGI_MAX_KEPT_FILES && status == TG_OK; i++) {
    char *path = tgi_path_in(directory, names[i]);
    if (!path) {
      return tgi_file_error_memory(error, directory, strlen(directory) + strlen(names[i]) + 2);
    }
    const bool absent = access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
    status = absent ? TG_OK : keep_file(path, names[i], files, error);
    free(path);
  }
  return status;
}

const tgi_kept_file *tgi_kept_files_find(const tgi_kept_files *files, const char *name)
{
  for (int i = 0; i < TGI_MAX_KEPT_FILES; i++) {
    if (files->list[i].name && strcmp(files->list[i].name, name) == 0) {
      return &files->list[i];
    }
  }
  return NULL;
}

tg_status tgi_kept_files_save(const tgi_kept_files *files, const char *directory, tg_error *error)
{
  tg_status status = TG_OK;
  for (int i = 0; i < TGI_MAX_KEPT_FILES && status == TG_OK; i++) {
    const tgi_kept_file *file = &files->list[i];
    if (file->name) {
      char *path = tgi_path_in(directory, file->name);
      status = path ? tgi_durable_file_save(path, file->text, file->size, error)
                    : tgi_file_error_memory(error, directory, strlen(directory) + 32);
      free(path);
    }
  }
  return status;
}

void tgi_kept_files_free(tgi_kept_files *files)
{
  for (int i = 0; i < TGI_MAX_KEPT_FILES; i++) {
    free(files->list[i].text);
  }
  *files = (tgi_kept_files){0};
}
