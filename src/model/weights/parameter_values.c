/* Parameters of a model from tensors in memory. */
#include "core/error_record.h"
#include "tegula/device.h"
#include "weights.h"

#include <stdio.h>
#include <string.h>

static int find(const tgi_parameters *parameters, const char *name)
{
  for (int i = 0; i < parameters->count; i++) {
    if (strcmp(parameters->list[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

/* "[768, 2304]" */
static void print_shape(char *text, size_t bytes, int32_t ndim, const int64_t *shape)
{
  size_t used = (size_t)snprintf(text, bytes, "[");
  for (int32_t i = 0; i < ndim && used < bytes; i++) {
    used +=
        (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
  }
  if (used < bytes) {
    snprintf(text + used, bytes - used, "]");
  }
}

static tg_status check(const tgi_parameter *q, const tg_tensor *t, tg_error *error)
{
  if (tgi_parameter_is_mxfp4(q)) {
    return tgi_error_set(
        error, TG_BAD_ARGUMENT,
        "model_set_parameter: %s: expected a parameter with elements, got one that "
        "stays in MXFP4 (tg_model_dequantize)",
        q->name);
  }
  if (t->dtype != TG_F32 && t->dtype != TG_F16 && t->dtype != TG_BF16) {
    return tgi_error_set(error, TG_BAD_DTYPE,
                         "model_set_parameter: %s: expected f32|f16|bf16, got %s", q->name,
                         tg_dtype_name(t->dtype));
  }
  bool same = t->ndim == q->ndim;
  for (int32_t i = 0; i < q->ndim; i++) {
    same = same && t->shape[i] == q->shape[i];
  }
  if (!same) {
    char expected[96], got[160];
    print_shape(expected, sizeof expected, q->ndim, q->shape);
    print_shape(got, sizeof got, t->ndim, t->shape);
    return tgi_error_set(error, TG_BAD_SHAPE, "model_set_parameter: %s: expected %s, got %s",
                         q->name, expected, got);
  }
  if (!t->data || t->device >= TG_DEVICE_CUDA(0)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_set_parameter: %s: expected memory of the host, got %s", q->name,
                         t->data ? "a GPU's" : "NULL");
  }
  return TG_OK;
}

/* Matrix `index` of a tensor of up to three axes; a vector is one row. */
static tg_tensor matrix(const tg_tensor *t, int64_t index)
{
  const bool dense = t->stride[0] == 0 && t->stride[1] == 0 && t->stride[2] == 0;
  const int32_t cols = t->ndim - 1, rows = t->ndim - 2;
  tg_tensor m = tg_tensor_2d(t->data, t->dtype, rows >= 0 ? t->shape[rows] : 1, t->shape[cols]);
  const int64_t step = dense ? m.shape[0] * m.shape[1] : t->stride[0];
  m.stride[1] = dense ? 1 : t->stride[cols];
  m.stride[0] = dense || rows < 0 ? m.shape[1] * m.stride[1] : t->stride[rows];
  if (t->ndim == 3) {
    m.data = (char *)t->data + index * step * (int64_t)tg_dtype_bytes(t->dtype);
  }
  return m;
}

static tg_status convert(tg_context *ctx, const tg_tensor *to, const tg_tensor *from,
                         tg_error *error)
{
  const int64_t matrices = to->ndim == 3 ? to->shape[0] : 1;
  tg_status status = TG_OK;
  for (int64_t i = 0; i < matrices && status == TG_OK; i++) {
    status = tg_memory_convert(ctx, matrix(to, i), matrix(from, i));
  }
  return status ? tgi_error_set(error, status, "model_set_parameter: %s", tg_context_message(ctx))
                : TG_OK;
}

tg_status tg_model_set_parameter(tg_model *model, const char *name, tg_tensor tensor,
                                 tg_error *error)
{
  if (!model || !name) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_set_parameter: %s: expected a pointer, got NULL",
                         model ? "name" : "model");
  }
  const int index = find(&model->parameters, name);
  if (index < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "model_set_parameter: name: expected a parameter of the model, such as "
                         "%s, got %.100s",
                         model->parameters.list[0].name, name);
  }
  tg_status status = check(&model->parameters.list[index], &tensor, error);
  tg_context *ctx = NULL;
  const tg_context_options options = {.backend = TG_BACKEND_CPU};
  status = status ? status : tg_context_create(&options, &ctx, error);
  if (status == TG_OK) {
    const tg_tensor to = tgi_parameter_view(&model->parameters, index, model->block, model->dtype);
    status = convert(ctx, &to, &tensor, error);
  }
  tg_context_destroy(ctx);
  return status;
}
