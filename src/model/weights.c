#define _DEFAULT_SOURCE /* madvise */
#include "weights.h"

#include "core/error_record.h"
#include "core/half.h"
#include "core/philox.h"
#include "files/file_error.h"
#include "files/safetensors_writer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory ---- */

/* From this size on the block is aligned to huge pages, and asks for them: they take fewer faults
 * to fill and fewer misses of the TLB to read. */
#define HUGE_BYTES ((size_t)2 << 20)

tg_status tgi_weights_allocate(tg_model *model, tg_error *error)
{
  const tgi_parameters *p = &model->parameters;
  const size_t element = tg_dtype_bytes(model->dtype), bytes = (size_t)p->elements * element;
  const size_t align = bytes >= 8 * HUGE_BYTES ? HUGE_BYTES : 64;
  model->block = aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!model->block) {
    return tgi_error_set(error, TG_NO_MEMORY, "model: weights: expected %zu bytes, got none",
                         bytes);
  }
  if (align == HUGE_BYTES) {
    madvise(model->block, bytes, MADV_HUGEPAGE); /* advice: it may fail */
  }
  for (int i = 0; i < p->count; i++) {
    const tgi_parameter *q = &p->list[i];
    const int64_t end = q->offset + q->shape[0] * (q->ndim == 2 ? q->shape[1] : 1);
    const int64_t next = i + 1 < p->count ? p->list[i + 1].offset : p->elements;
    memset((char *)model->block + (size_t)end * element, 0, (size_t)(next - end) * element);
  }
  return TG_OK;
}

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
