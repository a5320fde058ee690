/* Four steps: the length and the JSON, the entries one by one, their order in the file, the index
 * by name. */
#include "safetensors.h"
#include "files/file_error.h"
#include "files/file_map.h"
#include "safetensors_entry.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define HEADER_LIMIT 100000000u

struct tgi_safetensors {
  char *path;
  tgi_file_map map;
  json_t *header;                  /* holds the names and the metadata */
  tgi_file_tensor *tensors;        /* in the order of their data */
  const tgi_file_tensor **by_name; /* sorted */
  size_t count;
  int64_t *shapes; /* what tensors[].shape point into */
};

typedef struct parser {
  tgi_safetensors *file;
  tgi_file_entry_reader reader;
  const char *data; /* first byte after the header */
  uint64_t data_bytes;
  uint64_t data_at; /* its file offset */
  tgi_file_entry *entries;
} parser;

static tg_status check_metadata(parser *p, json_t *metadata)
{
  if (json_is_null(metadata)) {
    return TG_OK;
  }
  if (!json_is_object(metadata)) {
    return tgi_json_refuse(p->reader.json, TG_BAD_FILE, metadata, p->reader.error,
                           "__metadata__: expected an object of strings");
  }
  const char *key;
  json_t *value;
  json_object_foreach(metadata, key, value)
  {
    if (!json_is_string(value)) {
      return tgi_json_refuse(p->reader.json, TG_BAD_FILE, value, p->reader.error,
                             "__metadata__: \"%s\": expected a string",
                             tgi_quote(key, strlen(key)).text);
    }
  }
  return TG_OK;
}

/** Allocates what the header's tensors need; every extent was read, so nothing overflows. */
static tg_status allocate_tables(parser *p)
{
  tgi_safetensors *file = p->file;
  const size_t tensors = json_object_size(file->header) + 1; /* never nothing */
  size_t extents = 1;
  const char *name;
  json_t *value;
  json_object_foreach(file->header, name, value)
  {
    extents += json_array_size(json_object_get(value, "shape"));
  }
  file->shapes = malloc(extents * sizeof *file->shapes);
  file->tensors = malloc(tensors * sizeof *file->tensors);
  file->by_name = malloc(tensors * sizeof(const tgi_file_tensor *));
  p->entries = malloc(tensors * sizeof *p->entries);
  p->reader.next_extent = file->shapes;
  if (!file->shapes || !file->tensors || !file->by_name || !p->entries) {
    return tgi_file_error_memory(
        p->reader.error, file->path,
        extents * sizeof *file->shapes +
            tensors *
                (sizeof *file->tensors + sizeof(const tgi_file_tensor *) + sizeof *p->entries));
  }
  return TG_OK;
}

static int compare_places(const void *left, const void *right)
{
  const tgi_file_entry *a = left;
  const tgi_file_entry *b = right;
  if (a->begin != b->begin) {
    return a->begin < b->begin ? -1 : 1;
  }
  if (a->end != b->end) {
    return a->end < b->end ? -1 : 1;
  }
  return strcmp(a->tensor.name, b->tensor.name);
}

static int compare_names(const void *left, const void *right)
{
  const tgi_file_tensor *const *a = left;
  const tgi_file_tensor *const *b = right;
  return strcmp((*a)->name, (*b)->name);
}

static int compare_name_with(const void *name, const void *element)
{
  const tgi_file_tensor *const *tensor = element;
  return strcmp(name, (*tensor)->name);
}

/** The data must be covered from its first to its last byte, each once. */
static tg_status place_tensors(parser *p)
{
  tgi_safetensors *file = p->file;
  qsort(p->entries, file->count, sizeof *p->entries, compare_places);
  uint64_t covered = 0;
  for (size_t i = 0; i < file->count; i++) {
    tgi_file_entry *e = &p->entries[i];
    if (e->begin != covered) {
      return tgi_file_entry_refuse(&p->reader, e->tensor.name, e->offsets,
                                   "data_offsets: expected data from byte %" PRIu64 " on (no %s)",
                                   covered, e->begin > covered ? "hole" : "overlap");
    }
    if (e->end > p->data_bytes) {
      return tgi_file_entry_refuse(&p->reader, e->tensor.name, e->offsets,
                                   "data_offsets: expected offsets up to %" PRIu64
                                   ", the bytes of data in the file",
                                   p->data_bytes);
    }
    covered = e->end;
    e->tensor.data = p->data + e->begin;
    file->tensors[i] = e->tensor;
    file->by_name[i] = &file->tensors[i];
  }
  if (covered != p->data_bytes) {
    return tgi_file_error(p->reader.error, TG_BAD_FILE, file->path, p->data_at + covered,
                          "the end of the file, got %" PRIu64 " more bytes",
                          p->data_bytes - covered);
  }
  qsort(file->by_name, file->count, sizeof(const tgi_file_tensor *), compare_names);
  return TG_OK;
}

static tg_status read_tensors(parser *p)
{
  tg_status status = allocate_tables(p);
  const char *name;
  json_t *value;
  json_object_foreach(p->file->header, name, value)
  {
    if (status != TG_OK) {
      return status;
    }
    status = strcmp(name, "__metadata__") == 0
                 ? check_metadata(p, value)
                 : tgi_file_entry_read(&p->reader, name, value, &p->entries[p->file->count++]);
  }
  return status == TG_OK ? place_tensors(p) : status;
}

/** Bytes of white space, as JSON has it, at the start of a header. */
static size_t count_blanks(const char *text, size_t length)
{
  size_t blanks = 0;
  while (blanks < length && text[blanks] && strchr(" \t\n\r", text[blanks])) {
    blanks++;
  }
  return blanks;
}

static tg_status read_file(tgi_safetensors *file, const char *bytes, size_t size, tg_error *error)
{
  if (size < LENGTH_BYTES) {
    return tgi_file_error(error, TG_BAD_FILE, file->path, size,
                          "8 bytes of header length, got a file of %zu bytes", size);
  }
  uint64_t length = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
    length = length << 8 | (unsigned char)bytes[i];
  }
  if (length > HEADER_LIMIT) {
    return tgi_file_error(error, TG_BAD_FILE, file->path, 0,
                          "a header length of at most %u, got %" PRIu64, HEADER_LIMIT, length);
  }
  if (length > size - LENGTH_BYTES) {
    return tgi_file_error(error, TG_BAD_FILE, file->path, 0,
                          "a header length of at most %zu (the file has %zu bytes), got %" PRIu64,
                          size - LENGTH_BYTES, size, length);
  }
  const char *text = bytes + LENGTH_BYTES;
  const size_t blanks = count_blanks(text, (size_t)length);
  if (blanks == length || text[blanks] != '{') {
    const tgi_quoted found = tgi_quote(text + blanks, blanks < length);
    return tgi_file_error(error, TG_BAD_FILE, file->path, LENGTH_BYTES + blanks,
                          "a header that begins with '{', got %s",
                          blanks < length ? found.text : "an empty one");
  }

  tgi_json json;
  tg_status status =
      tgi_json_parse(file->path, text, (size_t)length, LENGTH_BYTES, JSON_ALLOW_NUL, &json, error);
  if (status != TG_OK) {
    return status;
  }
  file->header = json.root;
  parser p = {.file = file,
              .reader = {.json = &json, .error = error},
              .data = text + length,
              .data_bytes = size - LENGTH_BYTES - length,
              .data_at = LENGTH_BYTES + length};
  status = read_tensors(&p);
  free(p.entries);
  return status;
}

static tg_status read_into(tgi_safetensors *file, const char *bytes, size_t size,
                           tgi_safetensors **out, tg_error *error)
{
  const tg_status status = read_file(file, bytes, size, error);
  if (status != TG_OK) {
    tgi_safetensors_close(file);
    return status;
  }
  *out = file;
  return TG_OK;
}

static tgi_safetensors *allocate_file(const char *path)
{
  tgi_safetensors *file = calloc(1, sizeof *file);
  if (file && !(file->path = strdup(path))) {
    free(file);
    return NULL;
  }
  return file;
}

tg_status tgi_safetensors_parse(const char *path, const void *bytes, size_t size,
                                tgi_safetensors **out, tg_error *error)
{
  *out = NULL;
  tgi_safetensors *file = allocate_file(path);
  if (!file) {
    return tgi_file_error_memory(error, path, sizeof *file);
  }
  return read_into(file, bytes, size, out, error);
}

tg_status tgi_safetensors_open(const char *path, tgi_safetensors **out, tg_error *error)
{
  *out = NULL;
  tgi_safetensors *file = allocate_file(path);
  if (!file) {
    return tgi_file_error_memory(error, path, sizeof *file);
  }
  const tg_status status = tgi_file_map_open(path, SIZE_MAX, &file->map, error);
  if (status != TG_OK) {
    tgi_safetensors_close(file);
    return status;
  }
  return read_into(file, file->map.data, file->map.size, out, error);
}

void tgi_safetensors_close(tgi_safetensors *file)
{
  if (!file) {
    return;
  }
  tgi_file_map_close(&file->map);
  free(file->tensors);
  free(file->by_name);
  free(file->shapes);
  json_decref(file->header);
  free(file->path);
  free(file);
}

const char *tgi_safetensors_path(const tgi_safetensors *file)
{
  return file->path;
}

size_t tgi_safetensors_count(const tgi_safetensors *file)
{
  return file->count;
}

const tgi_file_tensor *tgi_safetensors_at(const tgi_safetensors *file, size_t index)
{
  return &file->tensors[index];
}

const tgi_file_tensor *tgi_safetensors_find(const tgi_safetensors *file, const char *name)
{
  const tgi_file_tensor **found =
      bsearch(name, file->by_name, file->count, sizeof(const tgi_file_tensor *), compare_name_with);
  return found ? *found : NULL;
}

const char *tgi_safetensors_metadata(const tgi_safetensors *file, const char *key)
{
  return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

void tgi_safetensors_drop(const tgi_safetensors *file, const void *bytes, size_t size)
{
  tgi_file_map_drop(&file->map, bytes, size);
}
