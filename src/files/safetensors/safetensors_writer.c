#include "safetensors_writer.h"
#include "files/directories/durable_file.h"
#include "files/file_error.h"
#include "files/json_file.h"
#include "files/utf8.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_LIMIT 100000000u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

static int compare_sources(const void *left, const void *right)
{
  const tgi_tensor_source *a = *(const tgi_tensor_source *const *)left;
  const tgi_tensor_source *b = *(const tgi_tensor_source *const *)right;
  const unsigned a_bits = tgi_file_dtype_bits(a->dtype);
  const unsigned b_bits = tgi_file_dtype_bits(b->dtype);
  if (a_bits != b_bits) {
    return a_bits > b_bits ? -1 : 1;
  }
  return strcmp(a->name, b->name);
}

static bool is_text(const char *text)
{
  return text && tgi_utf8_valid_bytes(text, strlen(text)) == strlen(text);
}

static tg_status check_source(const char *path, const tgi_tensor_source *source, size_t index,
                              tg_error *error)
{
  if (!is_text(source->name) || strcmp(source->name, "__metadata__") == 0) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "a tensor name in UTF-8, got none for tensor %zu", index);
  }
  const tgi_quoted name = tgi_quote(source->name, strlen(source->name));
  if ((unsigned)source->dtype >= TGI_FILE_DTYPES) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "a dtype for tensor %s, got %d", name.text, (int)source->dtype);
  }
  uint64_t bytes;
  if (source->ndim < 0 ||
      !tgi_file_dtype_bytes(source->dtype, source->ndim, source->shape, &bytes) ||
      bytes > SIZE_MAX / 2) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "extents that are not negative and bytes that fit memory for tensor %s, "
                          "got another shape",
                          name.text);
  }
  if (!source->data && bytes > 0 && (!source->make || source->piece == 0)) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "%" PRIu64 " bytes of data for tensor %s, got NULL", bytes, name.text);
  }
  return TG_OK;
}

static tg_status check_metadata(const char *path, const tgi_metadata_source *metadata, size_t count,
                                tg_error *error)
{
  for (size_t i = 0; i < count; i++) {
    bool good = is_text(metadata[i].key) && is_text(metadata[i].value) &&
                strcmp(metadata[i].key, "format") != 0;
    for (size_t j = 0; j < i && good; j++) {
      good = strcmp(metadata[i].key, metadata[j].key) != 0;
    }
    if (!good) {
      return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                            "metadata of distinct keys in UTF-8 other than \"format\", got a bad "
                            "entry %zu",
                            i);
    }
  }
  return TG_OK;
}

static json_t *describe(const tgi_tensor_source *source, uint64_t begin, uint64_t end)
{
  json_t *shape = json_array();
  for (int32_t i = 0; i < source->ndim; i++) {
    json_array_append_new(shape, json_integer(source->shape[i]));
  }
  json_t *tensor = json_object();
  json_object_set_new(tensor, "dtype", json_string(tgi_file_dtype_name(source->dtype)));
  json_object_set_new(tensor, "shape", shape);
  json_object_set_new(tensor, "data_offsets",
                      json_pack("[I, I]", (json_int_t)begin, (json_int_t)end));
  return tensor;
}

/** *header gets the text, without padding. `sorted` has passed the checks. */
static tg_status make_header(const char *path, const tgi_tensor_source *const *sorted, size_t count,
                             const tgi_metadata_source *metadata, size_t metadata_count,
                             char **header, tg_error *error)
{
  json_t *root = tgi_json_new();
  json_t *notes = json_pack("{s:s}", "format", "pt");
  for (size_t i = 0; i < metadata_count; i++) {
    json_object_set_new(notes, metadata[i].key, json_string(metadata[i].value));
  }
  json_object_set_new(root, "__metadata__", notes);
  uint64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes, end;
    if (!tgi_file_dtype_bytes(sorted[i]->dtype, sorted[i]->ndim, sorted[i]->shape, &bytes) ||
        __builtin_add_overflow(at, bytes, &end) || end > INT64_MAX) {
      json_decref(root);
      return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                            "tensors of less than 2^63 bytes in all, got more");
    }
    json_object_set_new(root, sorted[i]->name, describe(sorted[i], at, end));
    at = end;
  }
  const tg_status status = tgi_json_text(path, root, JSON_COMPACT, header, error);
  if (status == TG_OK && strlen(*header) > HEADER_LIMIT - 7) {
    return tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                          "a header of at most %u bytes, got %zu", HEADER_LIMIT, strlen(*header));
  }
  return status;
}

static tg_status write_pieces(tgi_durable_file *file, const tgi_tensor_source *source,
                              uint64_t bytes, tg_error *error)
{
  const size_t most = bytes < source->piece ? (size_t)bytes : source->piece;
  void *piece = malloc(most);
  if (!piece) {
    return tgi_file_error_memory(error, file->path, most);
  }
  tg_status status = TG_OK;
  for (uint64_t at = 0; at < bytes && status == TG_OK; at += most) {
    const size_t size = bytes - at < most ? (size_t)(bytes - at) : most;
    status = source->make(source->arg, at, size, piece, error);
    status = status ? status : tgi_durable_file_write(file, piece, size, error);
  }
  free(piece);
  return status;
}

static tg_status write_all(const char *path, const char *header,
                           const tgi_tensor_source *const *sorted, size_t count, tg_error *error)
{
  tgi_durable_file file;
  tg_status status = tgi_durable_file_begin(path, &file, error);
  if (status != TG_OK) {
    return status;
  }
  const size_t used = strlen(header);
  const uint64_t length = (used + 7) / 8 * 8;
  status = tgi_durable_file_write(&file, &length, sizeof length, error);
  if (status == TG_OK) {
    status = tgi_durable_file_write(&file, header, used, error);
  }
  if (status == TG_OK) {
    status = tgi_durable_file_write(&file, "        ", (size_t)length - used, error);
  }
  for (size_t i = 0; i < count && status == TG_OK; i++) {
    uint64_t bytes = 0;
    tgi_file_dtype_bytes(sorted[i]->dtype, sorted[i]->ndim, sorted[i]->shape, &bytes);
    status = sorted[i]->data || bytes == 0
                 ? tgi_durable_file_write(&file, sorted[i]->data, (size_t)bytes, error)
                 : write_pieces(&file, sorted[i], bytes, error);
  }
  if (status == TG_OK) {
    return tgi_durable_file_commit(&file, error);
  }
  tgi_durable_file_drop(&file);
  return status;
}

static tg_status sort_sources(const char *path, const tgi_tensor_source *tensors, size_t count,
                              const tgi_tensor_source **sorted, tg_error *error)
{
  for (size_t i = 0; i < count; i++) {
    const tg_status status = check_source(path, &tensors[i], i, error);
    if (status != TG_OK) {
      return status;
    }
    sorted[i] = &tensors[i];
  }
  qsort(sorted, count, sizeof(const tgi_tensor_source *), compare_sources);
  return TG_OK;
}

static int compare_names(const void *left, const void *right)
{
  return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static tg_status check_names(const char *path, const tgi_tensor_source *tensors, size_t count,
                             tg_error *error)
{
  const char **names = malloc((count + 1) * sizeof *names);
  if (!names) {
    return tgi_file_error_memory(error, path, (count + 1) * sizeof *names);
  }
  for (size_t i = 0; i < count; i++) {
    names[i] = tensors[i].name;
  }
  qsort(names, count, sizeof *names, compare_names);
  tg_status status = TG_OK;
  for (size_t i = 1; i < count && status == TG_OK; i++) {
    const tgi_quoted name = tgi_quote(names[i], strlen(names[i]));
    if (strcmp(names[i - 1], names[i]) == 0) {
      status = tgi_file_error(error, TG_BAD_ARGUMENT, path, TGI_NO_BYTE,
                              "each tensor once, got %s twice", name.text);
    }
  }
  free(names);
  return status;
}

tg_status tgi_safetensors_write(const char *path, const tgi_tensor_source *tensors, size_t count,
                                const tgi_metadata_source *metadata, size_t metadata_count,
                                tg_error *error)
{
  tg_status status = check_metadata(path, metadata, metadata_count, error);
  if (status != TG_OK) {
    return status;
  }
  const tgi_tensor_source **sorted = malloc((count + 1) * sizeof(const tgi_tensor_source *));
  if (!sorted) {
    return tgi_file_error_memory(error, path, (count + 1) * sizeof(const tgi_tensor_source *));
  }
  char *header = NULL;
  status = sort_sources(path, tensors, count, sorted, error);
  if (status == TG_OK) {
    status = check_names(path, tensors, count, error);
  }
  if (status == TG_OK) {
    status = make_header(path, sorted, count, metadata, metadata_count, &header, error);
  }
  if (status == TG_OK) {
    status = write_all(path, header, sorted, count, error);
  }
  tgi_json_free_text(header);
  free(sorted);
  return status;
}
