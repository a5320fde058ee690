#include "bench_dtype.h"

#include "core/error_record.h"
#include "core/values/half.h"
#include "model/preset.h"
#include "model/weights/weights.h"
#include "tegula/device.h"
#include <stdlib.h>
#include <string.h>

/* Numbers that matrices repeat: no multiple of a row, so that rows differ. */
enum { kNumbers = 1000003 };

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

/* Numbers; ones and zeros where a model starts with them. */
static void fill(const tgi_parameter *q, char *to, size_t element, const char *numbers,
                 const char *one)
{
  const size_t count = (size_t)tgi_parameter_elements(q);
  for (size_t i = 0; i < count && q->start == TGI_START_ONE; i++) {
    memcpy(to + i * element, one, element);
  }
  if (q->start == TGI_START_ZERO) {
    memset(to, 0, count * element);
  }
  if (q->start == TGI_START_ZERO || q->start == TGI_START_ONE) {
    return;
  }
  for (size_t i = 0; i < count; i += kNumbers) {
    const size_t some = count - i < kNumbers ? count - i : kNumbers;
    memcpy(to + i * element, numbers, some * element);
  }
}

static tg_status fill_all(tg_model *model, tg_error *error)
{
  const size_t element = tg_dtype_bytes(model->dtype);
  char *numbers = malloc((kNumbers + 1) * element);
  if (!numbers) {
    return tgi_error_set(error, TG_NO_MEMORY, "bench: expected memory for numbers, got none");
  }
  uint32_t state = 1;
  for (int i = 0; i < kNumbers; i++) {
    state = state * 1664525u + 1013904223u;
    const double u = (double)(state >> 8) / (1 << 24) - 0.5;
    tgi_store(numbers, model->dtype, i, 3.46 * model->config.initializer_range * u);
  }
  tgi_store(numbers, model->dtype, kNumbers, 1);
  for (int i = 0; i < model->parameters.count; i++) {
    const tgi_parameter *q = &model->parameters.list[i];
    fill(q, (char *)model->block + (size_t)q->offset * element, element, numbers,
         numbers + kNumbers * element);
  }
  free(numbers);
  return TG_OK;
}

tg_status tgi_bench_create(const char *preset, int32_t vocab_size, tg_dtype dtype, tg_model **out,
                           tg_error *error)
{
  tg_model *model = calloc(1, sizeof *model);
  *out = NULL;
  if (!model) {
    return tgi_error_set(error, TG_NO_MEMORY, "bench: expected %zu bytes, got none", sizeof *model);
  }
  tg_status status = tgi_preset(preset, vocab_size, &model->config, error);
  model->dtype = model->config.dtype = dtype;
  status = status ? status : tgi_parameters_create(&model->config, &model->parameters, error);
  status = status ? status : tgi_weights_allocate(model, error);
  if (status == TG_OK) {
    status = fill_all(model, error);
  }
  if (status != TG_OK) {
    tg_model_destroy(model);
    return status;
  }
  *out = model;
  return TG_OK;
}
