/** Token ids from Python: any exporter of DLPack, or lists of ints, as rows in host memory. */
#ifndef TGI_PYTHON_ID_ROWS_H
#define TGI_PYTHON_ID_ROWS_H

#include "tensor_argument.h"

typedef struct tgi_id_rows {
  int32_t *ids; /* [rows * length], to be freed */
  int64_t rows, length;
  bool is_one;    /* one axis was given: one row */
  tg_dtype dtype; /* TG_I32 or TG_I64, that of lists */
} tgi_id_rows;

/** What ids are read for: names in messages, and their range. */
typedef struct tgi_id_use {
  tgi_type_table *types;
  const char *op, *name; /* "model", "ids" */
  int64_t least, most;
  int32_t device; /* TG_DEVICE_*: where they may lie besides the CPU's memory */
} tgi_id_use;

/** -1 with an exception set on failure; nothing is to be freed then. */
int tgi_read_ids(const tgi_id_use *use, PyObject *object, tgi_id_rows *out);

/** A list of ints. */
PyObject *tgi_ids_object(const int32_t *ids, int64_t count);

#endif
