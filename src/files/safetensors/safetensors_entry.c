#include "safetensors_entry.h"
#include "files/file_error.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

tg_status tgi_file_entry_refuse(const tgi_file_entry_reader *r, const char *name,
                                const json_t *value, const char *format, ...)
{
  char rule[160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(rule, sizeof rule, format, arguments);
  va_end(arguments);
  return tgi_json_refuse(r->json, TG_BAD_FILE, value, r->error, "tensor \"%s\": %s",
                         tgi_quote(name, strlen(name)).text, rule);
}

static bool read_natural(const json_t *value, int64_t *out)
{
  *out = json_integer_value(value);
  return json_is_integer(value) && *out >= 0;
}

static tg_status read_shape(tgi_file_entry_reader *r, const char *name, const json_t *shape,
                            tgi_file_tensor *out)
{
  if (!json_is_array(shape)) {
    return tgi_file_entry_refuse(r, name, shape, "shape: expected an array of extents");
  }
  out->ndim = (int32_t)json_array_size(shape);
  out->shape = r->next_extent;
  for (int32_t i = 0; i < out->ndim; i++) {
    const json_t *extent = json_array_get(shape, (size_t)i);
    if (!read_natural(extent, r->next_extent++)) {
      return tgi_file_entry_refuse(r, name, extent,
                                   "shape: expected an extent, an integer from 0 to 2^63 - 1");
    }
  }
  return TG_OK;
}

static tg_status read_offsets(const tgi_file_entry_reader *r, const char *name, tgi_file_entry *out)
{
  int64_t bounds[2];
  if (json_array_size(out->offsets) != 2) { /* what is no array has none */
    return tgi_file_entry_refuse(r, name, out->offsets,
                                 "data_offsets: expected an array [begin, end]");
  }
  for (size_t i = 0; i < 2; i++) {
    const json_t *bound = json_array_get(out->offsets, i);
    if (!read_natural(bound, &bounds[i])) {
      return tgi_file_entry_refuse(
          r, name, bound, "data_offsets: expected an offset, an integer from 0 to 2^63 - 1");
    }
  }
  out->begin = (uint64_t)bounds[0];
  out->end = (uint64_t)bounds[1];
  if (out->end < out->begin) {
    return tgi_file_entry_refuse(r, name, out->offsets, "data_offsets: expected begin <= end");
  }
  return TG_OK;
}

tg_status tgi_file_entry_read(tgi_file_entry_reader *r, const char *name, const json_t *value,
                              tgi_file_entry *out)
{
  if (!json_is_object(value)) {
    return tgi_file_entry_refuse(r, name, value,
                                 "expected an object with dtype, shape and data_offsets");
  }
  const json_t *dtype = json_object_get(value, "dtype");
  const json_t *shape = json_object_get(value, "shape");
  *out = (tgi_file_entry){.offsets = json_object_get(value, "data_offsets")};
  out->tensor.name = name;
  out->tensor.dtype = TGI_FILE_DTYPES;
  for (int i = 0; json_is_string(dtype) && i < TGI_FILE_DTYPES; i++) {
    const char *known = tgi_file_dtype_name((tgi_file_dtype)i);
    if (strlen(known) == json_string_length(dtype) && /* which may hold a NUL */
        strcmp(json_string_value(dtype), known) == 0) {
      out->tensor.dtype = (tgi_file_dtype)i;
    }
  }
  if (out->tensor.dtype == TGI_FILE_DTYPES) {
    return tgi_file_entry_refuse(r, name, dtype, "dtype: expected one such as \"F32\"");
  }
  tg_status status = read_shape(r, name, shape, &out->tensor);
  if (status == TG_OK) {
    status = read_offsets(r, name, out);
  }
  if (status != TG_OK) {
    return status;
  }
  uint64_t bytes;
  if (!tgi_file_dtype_bytes(out->tensor.dtype, out->tensor.ndim, out->tensor.shape, &bytes)) {
    return tgi_file_entry_refuse(r, name, shape,
                                 "shape: expected %s elements that fill whole bytes, below 2^61",
                                 tgi_file_dtype_name(out->tensor.dtype));
  }
  if (out->end - out->begin != bytes) {
    return tgi_file_entry_refuse(r, name, out->offsets,
                                 "data_offsets: expected %" PRIu64 " bytes, as dtype and shape say",
                                 bytes);
  }
  out->tensor.bytes = (size_t)bytes;
  return TG_OK;
}
