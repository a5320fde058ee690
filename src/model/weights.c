#include "weights.h"

#include "core/error_record.h"
#include "core/half.h"
#include "core/philox.h"
#include "files/file_error.h"
#include "files/safetensors_writer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- start values ---- */

void tgi_weights_initialise(tg_model *model, uint64_t seed)
{
  const tgi_config *c = &model->config;
  for (int p = 0; p < model->parameters.count; p++) {
    const tgi_parameter *q = &model->parameters.list[p];
    const tg_tensor t = tgi_parameter_view(&model->parameters, p, model->block, model->dtype);
    const int64_t n = q->shape[0] * (q->ndim == 2 ? q->shape[1] : 1);
    double scale = c->initializer_range;
    if (q->start == TGI_START_NORMAL_RESIDUAL) {
      scale /= sqrt(2.0 * c->num_hidden_layers);
    }
    for (int64_t i = 0; i < n; i++) {
      const double v = q->start == TGI_START_ZERO ? 0
                       : q->start == TGI_START_ONE
                           ? 1
                           : scale * tgi_normal(seed, (uint64_t)p, (uint64_t)i);
      tgi_store(t.data, t.dtype, i, v);
    }
  }
}

/* ---- reading ---- */

static void format_shape(int ndim, const int64_t *shape, char *text, size_t bytes)
{
  size_t used = (size_t)snprintf(text, bytes, "[");
  for (int i = 0; i < ndim && used < bytes; i++) {
    used +=
        (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
  }
  if (used < bytes) {
    snprintf(text + used, bytes - used, "]");
  }
}

static tg_status check_tensor(const tgi_parameter *q, const tgi_file_tensor *t, const char *path,
                              tg_error *error)
{
  const int64_t turned[2] = {q->shape[1], q->shape[0]};
  const int64_t *shape = q->transposed ? turned : q->shape;
  const tg_dtype dtype = tgi_file_dtype_to_op(t->dtype);
  const bool readable = dtype == TG_F32 || dtype == TG_F16 || dtype == TG_BF16;
  bool same = t->ndim == q->ndim;
  for (int i = 0; i < 2 && i < q->ndim && same; i++) {
    same = t->shape[i] == shape[i];
  }
  if (same && readable) {
    return TG_OK;
  }
  char expected[64], got[128];
  format_shape(q->ndim, shape, expected, sizeof expected);
  format_shape(t->ndim, t->shape, got, sizeof got);
  return tgi_error_set(error, TG_BAD_FILE, "%s: %s: expected F32|F16|BF16 %s, got %s %s", path,
                       q->name, expected, tgi_file_dtype_name(t->dtype), got);
}

/* Rows of the file are copied first: a file aligns nothing. Turned matrices go sixteen rows at a
 * time, so that the writes are runs too. */
enum { kRowsAtOnce = 16 };

tg_status tgi_parameter_read(const tgi_parameter *q, const tgi_file_tensor *t, const char *path,
                             void *block, tg_dtype dtype, tg_error *error)
{
  const tg_status status = check_tensor(q, t, path, error);
  if (status != TG_OK) {
    return status;
  }
  const tg_dtype from = tgi_file_dtype_to_op(t->dtype);
  const int64_t rows = q->ndim == 2 ? t->shape[0] : 1, cols = t->shape[q->ndim - 1];
  const size_t row_bytes = (size_t)cols * tg_dtype_bytes(from);
  char *to = (char *)block + q->offset * (int64_t)tg_dtype_bytes(dtype);
  if (!q->transposed && from == dtype) {
    memcpy(to, t->data, (size_t)rows * row_bytes);
    return TG_OK;
  }
  char *copy = malloc(kRowsAtOnce * row_bytes);
  if (!copy) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: %s: expected %zu bytes, got none", path, q->name,
                         kRowsAtOnce * row_bytes);
  }
  for (int64_t i = 0; i < rows; i += kRowsAtOnce) {
    const int64_t n = rows - i < kRowsAtOnce ? rows - i : kRowsAtOnce;
    memcpy(copy, (const char *)t->data + (size_t)i * row_bytes, (size_t)n * row_bytes);
    for (int64_t j = 0; j < cols; j++) {
      for (int64_t k = 0; k < n; k++) {
        const int64_t at = q->transposed ? j * rows + i + k : (i + k) * cols + j;
        tgi_store(to, dtype, at, tgi_load(copy, from, k * cols + j));
      }
    }
  }
  free(copy);
  return TG_OK;
}

static const tgi_file_tensor *find(const tgi_weight_files *files, const char *name)
{
  static const char *const prefixes[] = {"transformer.", "model."};
  const tgi_file_tensor *t = tgi_weight_files_find(files, name);
  for (int i = 0; i < 2 && !t; i++) {
    const size_t size = strlen(prefixes[i]);
    if (strncmp(name, prefixes[i], size) == 0) {
      t = tgi_weight_files_find(files, name + size);
    }
  }
  return t;
}

tg_status tgi_weights_read(tg_model *model, const tgi_weight_files *files, tg_error *error)
{
  tg_status status = TG_OK;
  for (int p = 0; p < model->parameters.count && status == TG_OK; p++) {
    const tgi_parameter *q = &model->parameters.list[p];
    const tgi_file_tensor *t = find(files, q->name);
    if (!t) {
      const tgi_file_tensor *any =
          tgi_weight_files_count(files) ? tgi_weight_files_at(files, 0) : NULL;
      return tgi_error_set(error, TG_BAD_FILE, "%s: %s: expected this tensor, got %zu others",
                           any ? tgi_weight_files_path(files, any) : "model.safetensors", q->name,
                           tgi_weight_files_count(files));
    }
    status = tgi_parameter_read(q, t, tgi_weight_files_path(files, t), model->block, model->dtype,
                                error);
  }
  return status;
}

/* ---- writing ---- */

static void turn(const tgi_parameter *q, const char *from, char *to, size_t bytes)
{
  for (int64_t i = 0; i < q->shape[0]; i++) {
    for (int64_t j = 0; j < q->shape[1]; j++) {
      memcpy(to + (size_t)(j * q->shape[0] + i) * bytes,
             from + (size_t)(i * q->shape[1] + j) * bytes, bytes);
    }
  }
}

typedef struct outgoing {
  tgi_tensor_source *sources;
  int64_t (*shapes)[2];
  char (*names)[96];
  char *turned; /* the matrices that the file holds the other way round */
} outgoing;

static void free_outgoing(outgoing *o)
{
  free(o->sources);
  free(o->shapes);
  free(o->names);
  free(o->turned);
}

tg_status tgi_block_write(const tgi_parameters *parameters, const void *block, tg_dtype dtype,
                          const char *prefix, const char *path, tg_error *error)
{
  const size_t count = (size_t)parameters->count, bytes = tg_dtype_bytes(dtype);
  outgoing o = {.sources = calloc(count, sizeof *o.sources),
                .shapes = calloc(count, sizeof *o.shapes),
                .names = calloc(count, sizeof *o.names),
                .turned = malloc((size_t)parameters->elements * bytes)};
  if (!o.sources || !o.shapes || !o.names || !o.turned) {
    free_outgoing(&o);
    return tgi_error_set(error, TG_NO_MEMORY, "%s: expected %zu bytes, got none", path,
                         (size_t)parameters->elements * bytes);
  }
  for (size_t p = 0; p < count; p++) {
    const tgi_parameter *q = &parameters->list[p];
    const char *data = (const char *)block + (size_t)q->offset * bytes;
    o.shapes[p][0] = q->transposed ? q->shape[1] : q->shape[0];
    o.shapes[p][1] = q->transposed ? q->shape[0] : q->shape[1];
    if (q->transposed) {
      turn(q, data, o.turned + (size_t)q->offset * bytes, bytes);
      data = o.turned + (size_t)q->offset * bytes;
    }
    snprintf(o.names[p], sizeof o.names[p], "%s%s", prefix, q->name);
    o.sources[p] = (tgi_tensor_source){.name = o.names[p],
                                       .dtype = tgi_file_dtype_of_op(dtype),
                                       .ndim = q->ndim,
                                       .shape = o.shapes[p],
                                       .data = data};
  }
  const tg_status status = tgi_safetensors_write(path, o.sources, count, NULL, 0, error);
  free_outgoing(&o);
  return status;
}
