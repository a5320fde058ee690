#include "hub_name.h"

#include "core/error_record.h"
#include "core/machine/environment.h"
#include "file_error.h"
#include "file_map.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { kMostName = 96 }; /* bytes of a hub name, as on the hub */

static const char kCharacters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

/* One or two words with a slash between; no word is "." or ".." or begins or ends with one of "-."
 * (which the hub allows nowhere). */
static bool is_hub_name(const char *text)
{
  const size_t size = strlen(text);
  const char *slash = strchr(text, '/');
  const size_t first = slash ? (size_t)(slash - text) : size;
  if (size == 0 || size > kMostName || strstr(text, "--") || strstr(text, "..")) {
    return false;
  }
  const char *words[2] = {text, slash ? slash + 1 : text};
  const size_t sizes[2] = {first, slash ? size - first - 1 : first};
  for (int i = 0; i < 2; i++) {
    if (sizes[i] == 0 || strspn(words[i], kCharacters) < sizes[i] || strchr("-.", words[i][0]) ||
        strchr("-.", words[i][sizes[i] - 1])) {
      return false;
    }
  }
  return true;
}

static tg_status refuse_length(const char *given, tg_error *error)
{
  return tgi_error_set(error, TG_BAD_ARGUMENT,
                       "model: expected a path of less than %d bytes, got %zu",
                       TGI_MODEL_PATH_BYTES, strlen(given));
}

/* "<cache>/models--ORG--NAME" */
static bool place_in_cache(const char *cache, const char *name, tgi_model_path *out)
{
  const char *slash = strchr(name, '/');
  const int first = slash ? (int)(slash - name) : (int)strlen(name);
  const int size = snprintf(out->text, sizeof out->text, "%s/models--%.*s%s%s", cache, first, name,
                            slash ? "--" : "", slash ? slash + 1 : "");
  return size > 0 && size < (int)sizeof out->text;
}

/* Adds "/snapshots/<name>", with the name in the file `refs`. */
static tg_status add_snapshot(const char *refs, tgi_model_path *out, tg_error *error)
{
  tgi_file_map map;
  const tg_status status = tgi_file_map_open(refs, kMostName, &map, error);
  if (status != TG_OK) {
    return status;
  }
  char name[kMostName + 1];
  size_t size = map.size;
  memcpy(name, map.data, size);
  tgi_file_map_close(&map);
  while (size > 0 && strchr("\r\n ", name[size - 1])) {
    size--;
  }
  name[size] = '\0';
  if (size == 0 || strspn(name, kCharacters) != size || name[0] == '.') {
    return tgi_file_error(error, TG_BAD_FILE, refs, TGI_NO_BYTE,
                          "the name of a snapshot, got \"%s\"", tgi_quote(name, size).text);
  }
  const size_t used = strlen(out->text);
  const int more = snprintf(out->text + used, sizeof out->text - used, "/snapshots/%s", name);
  return more < (int)(sizeof out->text - used) ? TG_OK : refuse_length(out->text, error);
}

static tg_status find_in_cache(const char *name, tgi_model_path *out, tg_error *error)
{
  char cache[TGI_MODEL_PATH_BYTES], refs[TGI_MODEL_PATH_BYTES + 16];
  struct stat info;
  if (!tgi_environment_hub_cache(cache, sizeof cache)) {
    return tgi_error_set(error, TG_IO,
                         "%s: expected this directory, or a cache of Hugging Face's hub to find it "
                         "in, got neither (HF_HUB_CACHE, HF_HOME and HOME are not set)",
                         name);
  }
  if (!place_in_cache(cache, name, out)) {
    return refuse_length(cache, error);
  }
  snprintf(refs, sizeof refs, "%s/refs/main", out->text);
  if (stat(refs, &info) != 0) {
    const char *models = strrchr(out->text, '/') + 1;
    return tgi_error_set(error, TG_IO,
                         "%s: expected to find this directory, or %s/refs/main in %.200s (nothing "
                         "is downloaded), got %s",
                         name, models, cache, strerror(errno));
  }
  const tg_status status = add_snapshot(refs, out, error);
  if (status == TG_OK && stat(out->text, &info) != 0) {
    return tgi_file_error_system(error, out->text, TGI_NO_BYTE,
                                 "find this snapshot, which refs/main names", errno);
  }
  return status;
}

tg_status tgi_model_path_find(const char *given, tgi_model_path *out, tg_error *error)
{
  struct stat info;
  if (stat(given, &info) != 0 && is_hub_name(given)) {
    return find_in_cache(given, out, error);
  }
  if (strlen(given) >= sizeof out->text) {
    return refuse_length(given, error);
  }
  strcpy(out->text, given);
  return TG_OK;
}
