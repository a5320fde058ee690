/** The element types of the safetensors format. */
#ifndef TGI_FILES_SAFETENSORS_DTYPE_H
#define TGI_FILES_SAFETENSORS_DTYPE_H

#include "tegula/tensor.h"
#include <stdbool.h>

/** X(name in the file, bits, tg_dtype that holds the same elements) */
#define TGI_FILE_DTYPE_MAP(X)                                                                      \
  X(BOOL, 8, TG_DTYPE_NONE)                                                                        \
  X(F4, 4, TG_DTYPE_NONE)                                                                          \
  X(F6_E2M3, 6, TG_DTYPE_NONE)                                                                     \
  X(F6_E3M2, 6, TG_DTYPE_NONE)                                                                     \
  X(U8, 8, TG_DTYPE_NONE)                                                                          \
  X(I8, 8, TG_DTYPE_NONE)                                                                          \
  X(F8_E5M2, 8, TG_DTYPE_NONE)                                                                     \
  X(F8_E4M3, 8, TG_DTYPE_NONE)                                                                     \
  X(F8_E8M0, 8, TG_DTYPE_NONE)                                                                     \
  X(F8_E4M3FNUZ, 8, TG_DTYPE_NONE)                                                                 \
  X(F8_E5M2FNUZ, 8, TG_DTYPE_NONE)                                                                 \
  X(I16, 16, TG_DTYPE_NONE)                                                                        \
  X(U16, 16, TG_DTYPE_NONE)                                                                        \
  X(F16, 16, TG_F16)                                                                               \
  X(BF16, 16, TG_BF16)                                                                             \
  X(I32, 32, TG_I32)                                                                               \
  X(U32, 32, TG_DTYPE_NONE)                                                                        \
  X(F32, 32, TG_F32)                                                                               \
  X(C64, 64, TG_DTYPE_NONE)                                                                        \
  X(F64, 64, TG_F64)                                                                               \
  X(I64, 64, TG_I64)                                                                               \
  X(U64, 64, TG_DTYPE_NONE)

typedef enum tgi_file_dtype {
#define TGI_FILE_DTYPE_ENUM(name, bits, dtype) TGI_FILE_##name,
  TGI_FILE_DTYPE_MAP(TGI_FILE_DTYPE_ENUM)
#undef TGI_FILE_DTYPE_ENUM
      TGI_FILE_DTYPES
} tgi_file_dtype;

/** "F32", ... as files spell it. */
const char *tgi_file_dtype_name(tgi_file_dtype dtype);

/** Bits of one element: 4, 6, 8, 16, 32 or 64. */
unsigned tgi_file_dtype_bits(tgi_file_dtype dtype);

/** The ops' name for the type; TG_DTYPE_NONE where they have none. */
tg_dtype tgi_file_dtype_to_op(tgi_file_dtype dtype);

/** The file's name for an op's type; TGI_FILE_DTYPES for a value that is no dtype. */
tgi_file_dtype tgi_file_dtype_of_op(tg_dtype dtype);

/**
 * Bytes of product(shape) elements, counted as the format's reference reader does: the extents are
 * multiplied in order, and the product and its bits must fit 64 bits, also where a later extent is
 * zero. False where they do not, where the bits do not end on a byte, or where an extent is
 * negative.
 */
bool tgi_file_dtype_bytes(tgi_file_dtype dtype, int32_t ndim, const int64_t *shape,
                          uint64_t *bytes);

#endif
