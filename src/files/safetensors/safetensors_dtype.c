#include "safetensors_dtype.h"

typedef struct row {
  const char *name;
  unsigned bits;
  tg_dtype op;
} row;

static const row rows[TGI_FILE_DTYPES] = {
#define ROW(name, bits, dtype) {#name, bits, dtype},
    TGI_FILE_DTYPE_MAP(ROW)
#undef ROW
};

const char *tgi_file_dtype_name(tgi_file_dtype dtype)
{
  return rows[dtype].name;
}

unsigned tgi_file_dtype_bits(tgi_file_dtype dtype)
{
  return rows[dtype].bits;
}

tg_dtype tgi_file_dtype_to_op(tgi_file_dtype dtype)
{
  return rows[dtype].op;
}

tgi_file_dtype tgi_file_dtype_of_op(tg_dtype dtype)
{
  for (int i = 0; i < TGI_FILE_DTYPES; i++) {
    if (dtype != TG_DTYPE_NONE && rows[i].op == dtype) {
      return (tgi_file_dtype)i;
    }
  }
  return TGI_FILE_DTYPES;
}

bool tgi_file_dtype_bytes(tgi_file_dtype dtype, int32_t ndim, const int64_t *shape, uint64_t *bytes)
{
  uint64_t count = 1;
  for (int32_t i = 0; i < ndim; i++) {
    if (shape[i] < 0 || __builtin_mul_overflow(count, (uint64_t)shape[i], &count)) {
      return false;
    }
  }
  uint64_t bits;
  if (__builtin_mul_overflow(count, (uint64_t)rows[dtype].bits, &bits) || bits % 8 != 0) {
    return false;
  }
  *bytes = bits / 8;
  return true;
}
