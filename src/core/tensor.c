#include "tegula/tensor.h"

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
