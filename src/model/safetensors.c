/* Four steps: the length and the JSON, the entries one by one, their order in the file, the index
 * by name. */
#include "safetensors.h"
#include "file_error.h"
#include "file_map.h"
#include "json_reader.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define HEADER_LIMIT 100000000u

/** One tensor as the header describes it. */
typedef struct entry {
  tgi_file_tensor tensor;
  uint64_t begin, end;
  uint32_t offsets; /* node of data_offsets, for messages */
} entry;

typedef struct text_pair {
  const char *key, *value;
} text_pair;

struct tgi_safetensors {
  char *path;
  tgi_file_map map;
  tgi_file_tensor *tensors;        /* in the order of their data */
  const tgi_file_tensor **by_name; /* sorted */
  size_t count;
  text_pair *metadata;
  size_t metadata_count;
  int64_t *shapes; /* what tensors[].shape point into */
  char *names;     /* what names and metadata point into */
};

typedef struct parser {
  tgi_safetensors *file;
  const tgi_json *json;
  tg_error *error;
  const char *data; /* first byte after the header */
  uint64_t data_bytes;
  uint64_t data_at; /* its file offset */
  entry *entries;
  int64_t *next_shape;
  char *next_name;
} parser;

static tg_status read_entry(parser *p, uint32_t key, entry *out)
{
  const tgi_json *json = p->json;
  const uint32_t value = key + 1;
  if (tgi_json_kind_of(json, value) != TGI_JSON_OBJECT) {
    return tgi_json_unexpected(json, value, p->error,
                               "an object with dtype, shape and data_offsets");
  }
  const uint32_t dtype = tgi_json_member(json, value, "dtype");
  const uint32_t shape = tgi_json_member(json, value, "shape");
  const uint32_t offsets = tgi_json_member(json, value, "data_offsets");
  if (!dtype || !shape || !offsets) {
    return tgi_json_unexpected(json, value, p->error, "the key \"%s\"",
                               !dtype   ? "dtype"
                               : !shape ? "shape"
                                        : "data_offsets");
  }

  *out = (entry){.offsets = offsets};
  out->tensor.dtype = TGI_FILE_DTYPES;
  for (int i = 0; i < TGI_FILE_DTYPES; i++) {
    if (tgi_json_equals(json, dtype, tgi_file_dtype_name((tgi_file_dtype)i))) {
      out->tensor.dtype = (tgi_file_dtype)i;
    }
  }
  if (out->tensor.dtype == TGI_FILE_DTYPES) {
    return tgi_json_unexpected(json, dtype, p->error, "a dtype such as \"F32\"");
  }

  if (tgi_json_kind_of(json, shape) != TGI_JSON_ARRAY) {
    return tgi_json_unexpected(json, shape, p->error, "an array of extents");
  }
  out->tensor.shape = p->next_shape;
  for (uint32_t i = tgi_json_first(json, shape); i; i = tgi_json_next(json, shape, i)) {
    if (json->text[json->nodes[i].begin] == '-' || !tgi_json_int64(json, i, p->next_shape)) {
      return tgi_json_unexpected(json, i, p->error, "an extent, an integer from 0 to 2^63 - 1");
    }
    p->next_shape++;
    out->tensor.ndim++;
  }

  if (tgi_json_kind_of(json, offsets) != TGI_JSON_ARRAY || tgi_json_size(json, offsets) != 2) {
    return tgi_json_unexpected(json, offsets, p->error, "an array [begin, end]");
  }
  int64_t bounds[2];
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t node = offsets + 1 + i;
    if (json->text[json->nodes[node].begin] == '-' || !tgi_json_int64(json, node, &bounds[i])) {
      return tgi_json_unexpected(json, node, p->error, "an offset, an integer from 0 to 2^63 - 1");
    }
  }
  out->begin = (uint64_t)bounds[0];
  out->end = (uint64_t)bounds[1];
  if (out->end < out->begin) {
    return tgi_json_unexpected(json, offsets, p->error, "begin <= end");
  }
  uint64_t bytes;
  if (!tgi_file_dtype_bytes(out->tensor.dtype, out->tensor.ndim, out->tensor.shape, &bytes)) {
    return tgi_json_unexpected(json, shape, p->error,
                               "a shape whose %s elements fill whole bytes, fewer than 2^61",
                               tgi_file_dtype_name(out->tensor.dtype));
  }
  if (out->end - out->begin != bytes) {
    return tgi_json_unexpected(json, offsets, p->error, "%" PRIu64 " bytes, as dtype and shape say",
                               bytes);
  }

  out->tensor.bytes = (size_t)bytes;
  out->tensor.name = p->next_name;
  p->next_name += tgi_json_string(json, key, p->next_name) + 1;
  return TG_OK;
}

static tg_status read_metadata(parser *p, uint32_t value)
{
  const tgi_json *json = p->json;
  tgi_safetensors *file = p->file;
  if (tgi_json_kind_of(json, value) != TGI_JSON_OBJECT) {
    return tgi_json_unexpected(json, value, p->error, "an object of strings");
  }
  const size_t count = tgi_json_size(json, value);
  file->metadata = calloc(count + 1, sizeof *file->metadata);
  if (!file->metadata) {
    return tgi_file_error_memory(p->error, file->path, (count + 1) * sizeof *file->metadata);
  }
  for (uint32_t key = tgi_json_first(json, value); key; key = tgi_json_next(json, value, key + 1)) {
    if (tgi_json_kind_of(json, key + 1) != TGI_JSON_STRING) {
      return tgi_json_unexpected(json, key + 1, p->error, "a string");
    }
    text_pair *pair = &file->metadata[file->metadata_count++];
    pair->key = p->next_name;
    p->next_name += tgi_json_string(json, key, p->next_name) + 1;
    pair->value = p->next_name;
    p->next_name += tgi_json_string(json, key + 1, p->next_name) + 1;
  }
  return TG_OK;
}

/** Allocates what the header's tensors need at most; every node is counted, so nothing overflows.
 */
static tg_status allocate_tables(parser *p)
{
  tgi_safetensors *file = p->file;
  const tgi_json *json = p->json;
  uint64_t name_bytes = 1, numbers = 1, tensors = 1;
  for (uint32_t i = 0; i < json->count; i++) {
    if (tgi_json_kind_of(json, i) == TGI_JSON_STRING) {
      name_bytes += tgi_json_string_bound(json, i) + 1;
    }
    if (tgi_json_kind_of(json, i) == TGI_JSON_NUMBER) {
      numbers++;
    }
  }
  tensors += tgi_json_size(json, TGI_JSON_ROOT);
  file->names = malloc(name_bytes);
  file->shapes = malloc(numbers * sizeof *file->shapes);
  file->tensors = malloc(tensors * sizeof *file->tensors);
  file->by_name = malloc(tensors * sizeof(const tgi_file_tensor *));
  p->entries = malloc(tensors * sizeof *p->entries);
  p->next_name = file->names;
  p->next_shape = file->shapes;
  if (!file->names || !file->shapes || !file->tensors || !file->by_name || !p->entries) {
    return tgi_file_error_memory(
        p->error, file->path,
        name_bytes + numbers * sizeof *file->shapes +
            tensors *
                (sizeof *file->tensors + sizeof(const tgi_file_tensor *) + sizeof *p->entries));
  }
  return TG_OK;
}

static int compare_places(const void *left, const void *right)
{
  const entry *a = left;
  const entry *b = right;
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
    entry *e = &p->entries[i];
    if (e->begin != covered) {
      return tgi_json_unexpected(p->json, e->offsets, p->error,
                                 "data from byte %" PRIu64 " on (no %s)", covered,
                                 e->begin > covered ? "hole" : "overlap");
    }
    if (e->end > p->data_bytes) {
      return tgi_json_unexpected(p->json, e->offsets, p->error,
                                 "offsets up to %" PRIu64 ", the bytes of data in the file",
                                 p->data_bytes);
    }
    covered = e->end;
    e->tensor.data = p->data + e->begin;
    file->tensors[i] = e->tensor;
    file->by_name[i] = &file->tensors[i];
  }
  if (covered != p->data_bytes) {
    return tgi_file_error(p->error, TG_BAD_FILE, file->path, p->data_at + covered,
                          "the end of the file, got %" PRIu64 " more bytes",
                          p->data_bytes - covered);
  }
  qsort(file->by_name, file->count, sizeof(const tgi_file_tensor *), compare_names);
  return TG_OK;
}

static tg_status read_tensors(parser *p)
{
  const tgi_json *json = p->json;
  tg_status status = allocate_tables(p);
  for (uint32_t key = tgi_json_first(json, TGI_JSON_ROOT); key && status == TG_OK;
       key = tgi_json_next(json, TGI_JSON_ROOT, key + 1)) {
    if (tgi_json_equals(json, key, "__metadata__")) {
      status = read_metadata(p, key + 1);
    } else {
      status = read_entry(p, key, &p->entries[p->file->count++]);
    }
  }
  return status == TG_OK ? place_tensors(p) : status;
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
  if (length == 0 || text[0] != '{') {
    const tgi_quoted found = tgi_quote(text, length > 0);
    return tgi_file_error(error, TG_BAD_FILE, file->path, LENGTH_BYTES,
                          "a header that begins with '{', got %s",
                          length > 0 ? found.text : "an empty one");
  }

  tgi_json json;
  tg_status status = tgi_json_read(file->path, text, length, LENGTH_BYTES, &json, error);
  if (status != TG_OK) {
    return status;
  }
  for (size_t i = json.nodes[TGI_JSON_ROOT].end; i < length && status == TG_OK; i++) {
    if (text[i] != ' ') {
      status = tgi_file_error(error, TG_BAD_FILE, file->path, LENGTH_BYTES + i,
                              "spaces after the header, got \\x%02x", (unsigned char)text[i]);
    }
  }
  parser p = {.file = file,
              .json = &json,
              .error = error,
              .data = text + length,
              .data_bytes = size - LENGTH_BYTES - length,
              .data_at = LENGTH_BYTES + length};
  if (status == TG_OK) {
    status = read_tensors(&p);
  }
  free(p.entries);
  tgi_json_free(&json);
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
  free(file->metadata);
  free(file->shapes);
  free(file->names);
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
  for (size_t i = 0; i < file->metadata_count; i++) {
    if (strcmp(file->metadata[i].key, key) == 0) {
      return file->metadata[i].value;
    }
  }
  return NULL;
}
