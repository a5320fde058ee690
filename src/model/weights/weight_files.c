#include "weight_files.h"
#include "files/file_error.h"
#include "files/json_file.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX_LIMIT ((size_t)1 << 28)

typedef struct located {
  const tgi_file_tensor *tensor;
  const tgi_safetensors *shard;
  bool claimed;
} located;

struct tgi_weight_files {
  tgi_safetensors **shards;
  size_t shard_count;
  located *tensors; /* sorted by name */
  size_t count;
};

/** "<directory>/<name>", to be freed; NULL without memory. */
static char *join(const char *directory, const char *name)
{
  const size_t size = strlen(directory) + 1 + strlen(name) + 1;
  char *path = malloc(size);
  if (path) {
    snprintf(path, size, "%s/%s", directory, name);
  }
  return path;
}

static int compare_located(const void *left, const void *right)
{
  const located *a = left;
  const located *b = right;
  return strcmp(a->tensor->name, b->tensor->name);
}

static int compare_name_with(const void *name, const void *element)
{
  const located *a = element;
  return strcmp(name, a->tensor->name);
}

static bool allocate(tgi_weight_files *files, size_t shards, size_t tensors)
{
  files->shards = calloc(shards + 1, sizeof(tgi_safetensors *));
  files->tensors = calloc(tensors + 1, sizeof *files->tensors);
  return files->shards && files->tensors;
}

static tg_status open_single(tgi_weight_files *files, const char *path, tg_error *error)
{
  tgi_safetensors *file;
  const tg_status status = tgi_safetensors_open(path, &file, error);
  if (status != TG_OK) {
    return status;
  }
  const size_t count = tgi_safetensors_count(file);
  if (!allocate(files, 1, count)) {
    tgi_safetensors_close(file);
    return tgi_file_error_memory(error, path, (count + 1) * sizeof *files->tensors);
  }
  files->shards[files->shard_count++] = file;
  for (; files->count < count; files->count++) {
    files->tensors[files->count] =
        (located){.tensor = tgi_safetensors_at(file, files->count), .shard = file};
  }
  qsort(files->tensors, count, sizeof *files->tensors, compare_located);
  return TG_OK;
}

/** A name that stays inside the directory, whatever the index says. */
static bool is_shard_name(const char *name)
{
  static const char ending[] = ".safetensors";
  const size_t size = strlen(name);
  return size >= sizeof ending && name[0] != '.' && !strpbrk(name, "/\\") && !strstr(name, "..") &&
         strcmp(name + size - (sizeof ending - 1), ending) == 0;
}

/** The shard of that name; opened on its first use. */
static tg_status get_shard(tgi_weight_files *files, const char *directory, const char *name,
                           const tgi_safetensors **shard, tg_error *error)
{
  const size_t prefix = strlen(directory) + 1;
  /* Indices list tensors shard by shard, mostly: the last one is the best guess. */
  for (size_t i = files->shard_count; i-- > 0;) {
    if (strcmp(tgi_safetensors_path(files->shards[i]) + prefix, name) == 0) {
      *shard = files->shards[i];
      return TG_OK;
    }
  }
  char *path = join(directory, name);
  if (!path) {
    return tgi_file_error_memory(error, name, prefix + strlen(name) + 1);
  }
  const tg_status status = tgi_safetensors_open(path, &files->shards[files->shard_count], error);
  free(path);
  if (status == TG_OK) {
    *shard = files->shards[files->shard_count++];
  }
  return status;
}

static tg_status add_mapped(tgi_weight_files *files, const char *directory, const tgi_json *json,
                            const char *key, const json_t *value, tg_error *error)
{
  const tgi_quoted place = tgi_quote(key, strlen(key));
  const char *name = json_string_value(value);
  if (!name || !is_shard_name(name)) {
    return tgi_json_refuse(json, TG_BAD_FILE, value, error,
                           "weight_map: \"%s\": expected the name of a .safetensors file in the "
                           "directory itself",
                           place.text);
  }
  const tgi_safetensors *shard = NULL;
  const tg_status status = get_shard(files, directory, name, &shard, error);
  if (status != TG_OK) {
    return status;
  }
  const tgi_file_tensor *tensor = tgi_safetensors_find(shard, key);
  if (!tensor) {
    return tgi_json_refuse(json, TG_BAD_FILE, value, error,
                           "weight_map: \"%s\": expected a shard that holds this tensor",
                           place.text);
  }
  files->tensors[files->count++] = (located){.tensor = tensor, .shard = shard};
  return TG_OK;
}

static tg_status open_mapped(tgi_weight_files *files, const char *directory, const tgi_json *json,
                             tg_error *error)
{
  json_t *map = json_object_get(json->root, "weight_map");
  if (!json_is_object(map)) {
    return tgi_json_refuse(json, TG_BAD_FILE, map, error, "weight_map: expected an object");
  }
  const size_t count = json_object_size(map);
  if (!allocate(files, count, count)) {
    return tgi_file_error_memory(error, json->path, (count + 1) * sizeof *files->tensors);
  }
  const char *key;
  json_t *value;
  json_object_foreach(map, key, value)
  {
    const tg_status status = add_mapped(files, directory, json, key, value, error);
    if (status != TG_OK) {
      return status;
    }
  }
  qsort(files->tensors, files->count, sizeof *files->tensors, compare_located);
  return TG_OK;
}

static tg_status open_index(tgi_weight_files *files, const char *directory, const char *path,
                            tg_error *error)
{
  tgi_json json;
  tg_status status = tgi_json_load(path, INDEX_LIMIT, 0, &json, error);
  if (status == TG_OK) {
    status = open_mapped(files, directory, &json, error);
    json_decref(json.root);
  }
  return status;
}

static bool exists(const char *path)
{
  struct stat info;
  return stat(path, &info) == 0;
}

/** A directory without safetensors: pickled weights are named, for they need a conversion. */
static tg_status refuse_others(const char *directory, const char *single, tg_error *error)
{
  static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
  for (size_t i = 0; i < sizeof pickled / sizeof pickled[0]; i++) {
    char *path = join(directory, pickled[i]);
    if (path && exists(path)) {
      const tg_status status =
          tgi_file_error(error, TG_UNSUPPORTED, path, TGI_NO_BYTE,
                         "model.safetensors beside it (python -m tegula.convert writes it), got "
                         "pickled weights alone");
      free(path);
      return status;
    }
    free(path);
  }
  return tgi_file_error_system(error, single, TGI_NO_BYTE, "open it for reading", ENOENT);
}

tg_status tgi_weight_files_open(const char *directory, tgi_weight_files **out, tg_error *error)
{
  *out = NULL;
  tgi_weight_files *files = calloc(1, sizeof *files);
  char *single = join(directory, "model.safetensors");
  char *index = join(directory, "model.safetensors.index.json");
  tg_status status;
  if (!files || !single || !index) {
    status = tgi_file_error_memory(error, directory, sizeof *files);
  } else if (exists(single)) {
    status = open_single(files, single, error);
  } else if (exists(index)) {
    status = open_index(files, directory, index, error);
  } else {
    status = refuse_others(directory, single, error);
  }
  free(single);
  free(index);
  if (status == TG_OK) {
    *out = files;
  } else {
    tgi_weight_files_close(files);
  }
  return status;
}

void tgi_weight_files_close(tgi_weight_files *files)
{
  if (!files) {
    return;
  }
  for (size_t i = 0; i < files->shard_count; i++) {
    tgi_safetensors_close(files->shards[i]);
  }
  free(files->shards);
  free(files->tensors);
  free(files);
}

size_t tgi_weight_files_count(const tgi_weight_files *files)
{
  return files->count;
}

const tgi_file_tensor *tgi_weight_files_at(const tgi_weight_files *files, size_t index)
{
  return files->tensors[index].tensor;
}

static located *find(const tgi_weight_files *files, const char *name)
{
  return bsearch(name, files->tensors, files->count, sizeof *files->tensors, compare_name_with);
}

const tgi_file_tensor *tgi_weight_files_find(const tgi_weight_files *files, const char *name)
{
  const located *found = find(files, name);
  return found ? found->tensor : NULL;
}

const tgi_safetensors *tgi_weight_files_home(const tgi_weight_files *files,
                                             const tgi_file_tensor *tensor)
{
  return find(files, tensor->name)->shard;
}

void tgi_weight_files_claim(tgi_weight_files *files, const tgi_file_tensor *tensor)
{
  find(files, tensor->name)->claimed = true;
}

bool tgi_weight_files_is_claimed(const tgi_weight_files *files, size_t index)
{
  return files->tensors[index].claimed;
}
