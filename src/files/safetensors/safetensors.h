/**
 * Reader of safetensors files (the format's README and tensor.rs, huggingface/safetensors 24b0b28).
 *
 *   8 bytes     header length n, little-endian, at most 100,000,000
 *   n bytes     a JSON object, maybe with white space before and behind it:
 *               "name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}
 *               "__metadata__": {"key": "text"}                              optional, or null
 *   the rest    the tensors' elements, row-major, little-endian
 *
 * Accepted is exactly: tensors that lie one after the other from 0 to the end of the file without
 * hole or overlap, each as long as product(shape) elements of its dtype take (no overflow of 64
 * bits, sub-byte types ending on a byte). Unknown keys beside a tensor's three are passed over.
 * Where the README and the reference reader differ, the README holds for what would be ambiguous:
 * duplicate keys are refused. White space is what JSON has, as readers must tolerate it since
 * 2026. Refused are also, unlike by the reference, names and keys with an escaped NUL, and numbers
 * beyond 64 bits or a double under any key; -0 is 0 (json_file.h).
 *
 * Data is not aligned: the format lets a tensor begin at any byte. Copy it, or test the address
 * before it is used as anything but bytes.
 */
#ifndef TGI_FILES_SAFETENSORS_H
#define TGI_FILES_SAFETENSORS_H

#include "safetensors_dtype.h"
#include "tegula/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct tgi_safetensors tgi_safetensors;

/** Everything it points to belongs to the open file. */
typedef struct tgi_file_tensor {
  const char *name;
  tgi_file_dtype dtype;
  int32_t ndim; /* any rank, 0 included */
  const int64_t *shape;
  const void *data; /* of any alignment; never NULL */
  size_t bytes;
} tgi_file_tensor;

/**
 * Opens a file by mapping it (file_map.h says what that asks of others). Errors: IO, BAD_FILE,
 * NO_MEMORY; then *out is NULL. `error` may be NULL.
 */
tg_status tgi_safetensors_open(const char *path, tgi_safetensors **out, tg_error *error);

/** The same for `size` bytes in memory, which must outlive *out; messages call them `path`. */
tg_status tgi_safetensors_parse(const char *path, const void *bytes, size_t size,
                                tgi_safetensors **out, tg_error *error);

/** Frees and unmaps; NULL is allowed. */
void tgi_safetensors_close(tgi_safetensors *file);

const char *tgi_safetensors_path(const tgi_safetensors *file);

/** Tensors in the order of their data; `index` below the count. */
size_t tgi_safetensors_count(const tgi_safetensors *file);
const tgi_file_tensor *tgi_safetensors_at(const tgi_safetensors *file, size_t index);

/** The tensor of that name, or NULL. */
const tgi_file_tensor *tgi_safetensors_find(const tgi_safetensors *file, const char *name);

/** Takes bytes of the data out of memory (file_map.h); nothing is done where the file was parsed.
 */
void tgi_safetensors_drop(const tgi_safetensors *file, const void *bytes, size_t size);

/** The `__metadata__` text of that key, up to an escaped NUL in it; or NULL. */
const char *tgi_safetensors_metadata(const tgi_safetensors *file, const char *key);

#endif
