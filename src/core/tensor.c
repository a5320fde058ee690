#include "core/tensor_view.h"

#include <string.h>

const char *tg_dtype_name(tg_dtype dtype)
{
  switch (dtype) {
  case TG_DTYPE_NONE:
    return "none";
#define NAME(code, value, bytes, name)                                                             \
  case TG_##code:                                                                                  \
    return name;
    TG_DTYPE_MAP(NAME)
#undef NAME
  }
  return "unknown dtype";
}

size_t tg_dtype_bytes(tg_dtype dtype)
{
  switch (dtype) {
  case TG_DTYPE_NONE:
    return 0;
#define BYTES(code, value, bytes, name)                                                            \
  case TG_##code:                                                                                  \
    return bytes;
    TG_DTYPE_MAP(BYTES)
#undef BYTES
  }
  return 0;
}

tg_tensor tg_tensor_view(void *data, tg_dtype dtype, int ndim, const int64_t *shape)
{
  tg_tensor t;
  memset(&t, 0, sizeof t);
  if (ndim < 0 || ndim > TG_MAX_NDIM) {
    return t;
  }
  t.data = data;
  t.dtype = dtype;
  t.ndim = ndim;
  for (int i = 0; i < ndim; i++) {
    t.shape[i] = shape[i];
  }
  return t;
}

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
