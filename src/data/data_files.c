#define _DEFAULT_SOURCE /* glob */
#include "data_files.h"

#include "files/file_error.h"
#include "json_lines.h"
#include "token_file.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

const char *tgi_data_kind_name(tgi_data_kind kind)
{
  static const char *const names[] = {"text", "documents (JSONL)", "conversations (JSONL)",
                                      "tokens"};
  return names[kind];
}

/* ---- what a file holds ---- */

static bool ends_with(const char *path, const char *ending)
{
  const size_t size = strlen(path), tail = strlen(ending);
  return size > tail && strcasecmp(path + size - tail, ending) == 0;
}

static bool begins_an_object(const tgi_file_map *map)
{
  size_t at = 0;
  while (at < map->size && map->data[at] != '\0' && strchr(" \t\r\n", map->data[at])) {
    at++;
  }
  return at < map->size && map->data[at] == '{';
}

/* Of a file named as lines of JSON, or one whose first line is an object of that kind. */
static tg_status find_json_kind(const tgi_data_file *file, bool named, tgi_data_kind *kind,
                                tg_error *error)
{
  tgi_json_lines lines = {.path = file->path, .text = file->map.data, .size = file->map.size};
  bool found = false, has_messages = false;
  tg_error inner = {TG_OK, ""};
  tg_status status = tgi_json_lines_next(&lines, &found, &inner);
  if (status == TG_OK && found) {
    status = tgi_json_line_kind(&lines, &has_messages, &inner);
  }
  tgi_json_lines_end(&lines);
  *kind = has_messages ? TGI_DATA_MESSAGES : TGI_DATA_DOCUMENTS;
  if (status == TG_OK && !found && named) {
    return tgi_file_error(error, TG_BAD_FILE, file->path, TGI_NO_BYTE,
                          "lines of JSON, got white space alone");
  }
  if (status == TG_NO_MEMORY || (status != TG_OK && named)) {
    if (error) {
      *error = inner;
    }
    return status;
  }
  *kind = status == TG_OK && found ? *kind : TGI_DATA_TEXT;
  return TG_OK;
}

static tg_status find_kind(const tgi_data_file *file, tgi_data_kind *kind, tg_error *error)
{
  const char *path = file->path;
  if (file->map.size == 0) {
    return tgi_file_error(error, TG_BAD_FILE, path, TGI_NO_BYTE, "text, got an empty file");
  }
  if (tgi_token_file_begins(file->map.data, file->map.size) || ends_with(path, ".bin")) {
    tgi_token_file tokens;
    const tg_status status = tgi_token_file_open(path, &tokens, error);
    tgi_token_file_close(&tokens);
    *kind = TGI_DATA_TOKENS;
    return status;
  }
  const bool named =
      ends_with(path, ".jsonl") || ends_with(path, ".ndjson") || ends_with(path, ".json");
  *kind = TGI_DATA_TEXT;
  return named || (!ends_with(path, ".txt") && begins_an_object(&file->map))
             ? find_json_kind(file, named, kind, error)
             : TG_OK;
}

/* ---- which files ---- */

bool tgi_same_file(const char *a, const char *b)
{
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static tg_status open_file(const char *path, tgi_data_files *files, tg_error *error)
{
  tgi_data_file *file = &files->list[files->count];
  tgi_data_kind kind = TGI_DATA_TEXT;
  *file = (tgi_data_file){.path = strdup(path)};
  if (!file->path) {
    return tgi_file_error_memory(error, path, strlen(path) + 1);
  }
  files->count++;
  tg_status status = tgi_file_map_open(path, SIZE_MAX / 8, &file->map, error);
  status = status ? status : find_kind(file, &kind, error);
  if (status == TG_OK && files->count > 1 && kind != files->kind) {
    status = tgi_file_error(error, TG_BAD_FILE, path, TGI_NO_BYTE, "%s as in %.80s, got %s",
                            tgi_data_kind_name(files->kind), files->list[0].path,
                            tgi_data_kind_name(kind));
  }
  files->kind = files->count == 1 ? kind : files->kind;
  return status;
}

static tg_status open_all(char *const *paths, size_t count, tgi_data_files *files, tg_error *error)
{
  tg_status status = TG_OK;
  files->list = calloc(count, sizeof *files->list);
  if (!files->list) {
    return tgi_file_error_memory(error, paths[0], count * sizeof *files->list);
  }
  for (size_t i = 0; i < count && status == TG_OK; i++) {
    status = open_file(paths[i], files, error);
  }
  return status;
}

tg_status tgi_data_files_open(const char *pattern, tgi_data_files *files, tg_error *error)
{
  glob_t found = {0};
  char *one = (char *)(uintptr_t)pattern;
  *files = (tgi_data_files){0};
  tg_status status;
  if (access(pattern, F_OK) == 0 || glob(pattern, 0, NULL, &found) != 0) {
    status = open_all(&one, 1, files, error); /* where there is none, this says so */
  } else {
    status = open_all(found.gl_pathv, found.gl_pathc, files, error);
  }
  globfree(&found);
  if (status != TG_OK) {
    tgi_data_files_close(files);
  }
  return status;
}

void tgi_data_files_close(tgi_data_files *files)
{
  for (size_t i = 0; i < files->count; i++) {
    tgi_file_map_close(&files->list[i].map);
    free(files->list[i].path);
  }
  free(files->list);
  *files = (tgi_data_files){0};
}
