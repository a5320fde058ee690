#define _DEFAULT_SOURCE /* madvise */
/* The block of a model: its memory and its start values. */
#include "weights.h"

#include "core/error_record.h"
#include "core/values/half.h"
#include "core/values/philox.h"
#include "tegula/device.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* From this size on the block is aligned to huge pages, and asks for them: they take fewer faults
 * to fill and fewer misses of the TLB to read. */
#define HUGE_BYTES ((size_t)2 << 20)

static void *take(size_t bytes, tg_error *error)
{
  const size_t align = bytes >= 8 * HUGE_BYTES ? HUGE_BYTES : 64;
  void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!memory) {
    tgi_error_set(error, TG_NO_MEMORY, "model: weights: expected %zu bytes, got none", bytes);
  } else if (align == HUGE_BYTES) {
    madvise(memory, bytes, MADV_HUGEPAGE); /* advice: it may fail */
  }
  return memory;
}

tg_status tgi_weights_allocate(tg_model *model, tg_error *error)
{
  const tgi_parameters *p = &model->parameters;
  const size_t element = tg_dtype_bytes(model->dtype);
  model->block = take((size_t)p->elements * element, error);
  if (!model->block) {
    return TG_NO_MEMORY;
  }
  if (p->mxfp4_bytes > 0) {
    model->mxfp4 = take((size_t)p->mxfp4_bytes, error);
    if (!model->mxfp4) {
      return TG_NO_MEMORY;
    }
  }
  for (int i = 0; i < p->count; i++) {
    const tgi_parameter *q = &p->list[i];
    if (tgi_parameter_is_mxfp4(q)) {
      continue;
    }
    const int64_t end = q->offset + tgi_parameter_elements(q);
    const int64_t room = tgi_parameter_end(q); /* or the start of the next part of a packed one */
    const int64_t most = room < p->elements ? room : p->elements;
    memset((char *)model->block + (size_t)end * element, 0, (size_t)(most - end) * element);
  }
  return TG_OK;
}

static tg_status place(tg_context *ctx, size_t bytes, void **at, void **placed)
{
  tg_status status = tg_memory_allocate(ctx, bytes, placed);
  if (status == TG_OK) {
    status = tg_memory_copy(ctx, *placed, bytes, *at, bytes, bytes, 1);
  }
  *at = *placed;
  return status;
}

tg_status tgi_weights_place(tg_context *ctx, tg_model *model, tgi_placed_weights *placed)
{
  const tgi_parameters *p = &model->parameters;
  const size_t bytes = (size_t)p->elements * tg_dtype_bytes(model->dtype);
  const tg_status status = place(ctx, bytes, &model->block, &placed->block);
  return status || p->mxfp4_bytes == 0
             ? status
             : place(ctx, (size_t)p->mxfp4_bytes, &model->mxfp4, &placed->mxfp4);
}

void tgi_weights_remove(tg_context *ctx, tgi_placed_weights *placed)
{
  tg_memory_free(ctx, placed->block);
  tg_memory_free(ctx, placed->mxfp4);
  placed->block = placed->mxfp4 = NULL;
}

void tgi_weights_initialise(tg_model *model, uint64_t seed)
{
  const tgi_config *c = &model->config;
  for (int p = 0; p < model->parameters.count; p++) {
    const tgi_parameter *q = &model->parameters.list[p];
    const tg_tensor t = tgi_parameter_view(&model->parameters, p, model->block, model->dtype);
    const int64_t n = tgi_parameter_elements(q);
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
