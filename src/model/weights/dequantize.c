/* Experts in MXFP4 to elements, in a model that is loaded. */
#include "weights.h"

#include "core/error_record.h"
#include "tegula/dequantize_mxfp4.h"
#include "tegula/device.h"
#include "tegula/grouped_linear_mxfp4.h"
#include <stdlib.h>
#include <string.h>

enum { kGroup = 32 };

/* One expert at a time: its rows, [out, in], then turned. */
typedef struct scratch {
  uint8_t *blocks, *scales; /* of a parameter */
  char *rows;               /* of an expert */
} scratch;

static void drop(scratch *s)
{
  free(s->blocks);
  free(s->scales);
  free(s->rows);
}

static bool take(scratch *s, const tgi_parameter *q, size_t element)
{
  const size_t matrix = (size_t)(q->shape[1] * q->shape[2]), all = (size_t)q->shape[0] * matrix;
  *s = (scratch){malloc(all / 2), malloc(all / kGroup), malloc(matrix * element)};
  return s->blocks && s->scales && s->rows;
}

/* Rows, which are outputs, to the columns of a matrix [in, out]. */
static tg_status turn(tg_context *ctx, const scratch *s, int64_t in, int64_t out, tg_dtype dtype,
                      char *matrix)
{
  tg_tensor from = tg_tensor_2d(s->rows, dtype, in, out);
  from.stride[0] = 1;
  from.stride[1] = in;
  return tg_memory_convert(ctx, tg_tensor_2d(matrix, dtype, in, out), from);
}

static tg_status widen(tg_context *ctx, const scratch *s, const tgi_parameter *q, tg_dtype dtype,
                       char *to)
{
  const int64_t in = q->shape[1], out = q->shape[2], groups = in / kGroup;
  const size_t matrix = (size_t)(in * out) * tg_dtype_bytes(dtype);
  tg_status status = TG_OK;
  for (int64_t e = 0; e < q->shape[0] && status == TG_OK; e++) {
    uint8_t *blocks = s->blocks + e * out * groups * (kGroup / 2);
    const tg_dequantize_mxfp4_fwd_args args = {
        .blocks = tg_tensor_view(blocks, TG_U8, 3, (const int64_t[]){out, groups, kGroup / 2}),
        .scales = tg_tensor_2d(s->scales + e * out * groups, TG_U8, out, groups),
        .x = tg_tensor_2d(s->rows, dtype, out, in)};
    status = tg_dequantize_mxfp4_fwd(ctx, &args);
    status = status ? status : turn(ctx, s, in, out, dtype, to + (size_t)e * matrix);
  }
  return status;
}

/* Parameter `index`, which `model` has in MXFP4, to its place q in a block. */
static tg_status dequantize(tg_context *ctx, const tg_model *model, int index,
                            const tgi_parameter *q, void *block, tg_error *error)
{
  const size_t element = tg_dtype_bytes(model->dtype);
  const int64_t groups = q->shape[1] / kGroup;
  const int64_t shape[] = {q->shape[0], q->shape[2], groups, kGroup / 2};
  scratch s;
  if (!take(&s, q, element)) {
    drop(&s);
    return tgi_error_set(error, TG_NO_MEMORY, "%s: expected room for an expert, got none", q->name);
  }
  const tg_grouped_linear_mxfp4_pack_source source = {
      .blocks = tg_tensor_view(s.blocks, TG_U8, 4, shape),
      .scales = tg_tensor_view(s.scales, TG_U8, 3, shape),
      .packed = tgi_mxfp4_weight(model, index)};
  tg_status status = tg_grouped_linear_mxfp4_unpack(&source, error);
  if (status == TG_OK) {
    status = widen(ctx, &s, q, model->dtype, (char *)block + (size_t)q->offset * element);
    status =
        status ? tgi_error_set(error, status, "%s: %s", q->name, tg_context_message(ctx)) : TG_OK;
  }
  drop(&s);
  return status;
}

/* `wide` has the same parameters, all of them elements, and a block. */
static tg_status fill(const tg_model *model, tg_model *wide, tg_error *error)
{
  const size_t element = tg_dtype_bytes(model->dtype);
  tg_context *ctx;
  tg_status status =
      tg_context_create(&(tg_context_options){.backend = TG_BACKEND_CPU}, &ctx, error);
  memcpy(wide->block, model->block, (size_t)model->parameters.elements * element);
  for (int i = 0; i < model->parameters.count && status == TG_OK; i++) {
    if (tgi_parameter_is_mxfp4(&model->parameters.list[i])) {
      status = dequantize(ctx, model, i, &wide->parameters.list[i], wide->block, error);
    }
  }
  tg_context_destroy(ctx);
  return status;
}

tg_status tg_model_dequantize(tg_model *model, tg_error *error)
{
  if (!model) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_dequantize: model: expected a pointer, got NULL");
  }
  if (!tgi_model_keeps_mxfp4(model)) {
    return TG_OK;
  }
  tg_model wide = {.dtype = model->dtype};
  tg_status status = tgi_parameters_create(&model->config, &wide.parameters, error);
  status = status ? status : tgi_weights_allocate(&wide, error);
  status = status ? status : fill(model, &wide, error);
  if (status == TG_OK) {
    const tg_model old = *model;
    model->parameters = wide.parameters;
    model->block = wide.block;
    model->mxfp4 = NULL;
    wide = old;
  }
  tgi_parameters_free(&wide.parameters);
  free(wide.block);
  free(wide.mxfp4);
  return status;
}
