/**
 * Writes safetensors files: the same tensors give the same bytes, in any order of the list.
 *
 * Tensors are sorted by the size of their elements, largest first, then by name; the header is
 * padded with spaces to a multiple of 8 bytes, so that every tensor is aligned to its elements in a
 * mapped file. `__metadata__` is
 * {"format": "pt"}, which transformers asks for, and what the caller adds.
 */
#ifndef TGI_FILES_SAFETENSORS_WRITER_H
#define TGI_FILES_SAFETENSORS_WRITER_H

#include "safetensors_dtype.h"
#include <stddef.h>

/** Makes bytes [begin, begin + size) of a tensor, both multiples of its `piece` but at the end. */
typedef tg_status tgi_tensor_piece(void *arg, uint64_t begin, size_t size, void *to,
                                   tg_error *error);

/**
 * A tensor to write: contiguous elements in the byte order of the file, little-endian. They lie at
 * `data`, or are made piece by piece while the file is written.
 */
typedef struct tgi_tensor_source {
  const char *name; /* UTF-8, not "__metadata__" */
  tgi_file_dtype dtype;
  int32_t ndim;
  const int64_t *shape; /* NULL where ndim is 0 */
  const void *data;     /* NULL where the tensor has no elements, or `make` */
  tgi_tensor_piece *make;
  void *arg;
  size_t piece; /* bytes, above 0 with `make` */
} tgi_tensor_source;

typedef struct tgi_metadata_source {
  const char *key, *value; /* UTF-8; a key other than "format" */
} tgi_metadata_source;

/**
 * Writes `path` through a temporary file (durable_file.h). Errors: BAD_ARGUMENT (a name twice, a
 * negative extent, a header above the format's limit, ...), IO (a full disk, at the byte where it
 * was full), NO_MEMORY, those of `make`.
 */
tg_status tgi_safetensors_write(const char *path, const tgi_tensor_source *tensors, size_t count,
                                const tgi_metadata_source *metadata, size_t metadata_count,
                                tg_error *error);

#endif
