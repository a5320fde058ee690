/** One entry of a safetensors header: read, checked by itself, and refused by name. */
#ifndef TGI_FILES_SAFETENSORS_ENTRY_H
#define TGI_FILES_SAFETENSORS_ENTRY_H

#include "files/json_file.h"
#include "safetensors.h"

/** One tensor as the header describes it; its data is not placed yet. */
typedef struct tgi_file_entry {
  tgi_file_tensor tensor;
  uint64_t begin, end;
  const json_t *offsets; /* for messages */
} tgi_file_entry;

typedef struct tgi_file_entry_reader {
  const tgi_json *json;
  int64_t *next_extent; /* where the next shape goes; the caller has room for all of the header */
  tg_error *error;
} tgi_file_entry_reader;

/**
 * Reads the entry of tensor `name`, which *out borrows: dtype, shape, and offsets as many bytes
 * apart as these say. Errors: BAD_FILE.
 */
tg_status tgi_file_entry_read(tgi_file_entry_reader *r, const char *name, const json_t *value,
                              tgi_file_entry *out);

/** BAD_FILE at a value of a tensor; the format says "<key>: expected <rule>". */
tg_status tgi_file_entry_refuse(const tgi_file_entry_reader *r, const char *name,
                                const json_t *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
