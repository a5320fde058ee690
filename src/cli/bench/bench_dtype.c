#include "bench_dtype.h"

#include "core/error_record.h"
#include "model/weights.h"
#include "tegula/device.h"
#include <stdlib.h>

tg_status tgi_bench_convert(tg_model *model, tg_dtype dtype, int32_t threads, tg_error *error)
{
  tg_model other = *model;
  tg_context *ctx = NULL;
  const tg_context_options options = {.backend = TG_BACKEND_CPU, .num_threads = threads};
  const int64_t elements = model->parameters.elements;
  if (dtype == TG_DTYPE_NONE || dtype == model->dtype) {
    return TG_OK;
  }
  other.dtype = dtype;
  other.parameters.mxfp4_bytes = 0; /* what stays in MXFP4 stays where it is */
  tg_status status = tgi_weights_allocate(&other, error);
  if (status != TG_OK) {
    return status;
  }
  status = tg_context_create(&options, &ctx, error);
  if (status == TG_OK) {
    status = tg_memory_convert(ctx, tg_tensor_2d(other.block, dtype, 1, elements),
                               tg_tensor_2d(model->block, model->dtype, 1, elements));
    status = status ? tgi_error_set(error, status, "%s", tg_context_message(ctx)) : TG_OK;
  }
  tg_context_destroy(ctx);
  free(status == TG_OK ? model->block : other.block);
  if (status == TG_OK) {
    model->block = other.block;
    model->dtype = dtype;
  }
  return status;
}
