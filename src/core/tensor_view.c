#include "core/tensor_view.h"

int64_t tgi_numel(const tg_tensor *t)
{
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) {
    n *= t->shape[i];
  }
  return n;
}

static bool strides_given(const tg_tensor *t)
{
  for (int i = 0; i < t->ndim; i++) {
    if (t->stride[i] != 0) {
      return true;
    }
  }
  return false;
}

int64_t tgi_stride(const tg_tensor *t, int axis)
{
  if (strides_given(t)) {
    return t->stride[axis];
  }
  int64_t stride = 1;
  for (int i = t->ndim - 1; i > axis; i--) {
    stride *= t->shape[i];
  }
  return stride;
}

bool tgi_is_dense(const tg_tensor *t)
{
  if (!strides_given(t)) {
    return true;
  }
  int64_t expected = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] != 1 && t->stride[i] != expected) {
      return false;
    }
    expected *= t->shape[i];
  }
  return true;
}

size_t tgi_span_bytes(const tg_tensor *t)
{
  int64_t last = 0;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] == 0) {
      return 0;
    }
    last += (t->shape[i] - 1) * tgi_stride(t, i);
  }
  return (size_t)(last + 1) * tg_dtype_bytes(t->dtype);
}
