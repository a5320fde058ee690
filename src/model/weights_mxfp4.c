/* Experts' matrices in MXFP4 to elements of a block. */
#include "weights_held.h"

#include "core/error_record.h"
#include "tegula/device.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kGroup = 32, kGroupBytes = kGroup / 2, kNameBytes = 96, kWindowBytes = 8 << 20 };

/* FP4 e2m1: sign, two bits of exponent, one of mantissa. */
static const float kValues[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

static const tgi_file_tensor *find_part(const tgi_parameter *q, const tgi_weight_files *files,
                                        const char *part, char name[kNameBytes])
{
  snprintf(name, kNameBytes, "%s_%s", q->name, part);
  return tgi_held_find(files, name);
}

bool tgi_mxfp4_is_held(const tgi_parameter *q, const tgi_weight_files *files)
{
  char name[kNameBytes];
  return q->ndim == 3 && q->stacking == TGI_ONE_TENSOR && !tgi_held_find(files, q->name) &&
         find_part(q, files, "blocks", name);
}

static tg_status check_part(const tgi_parameter *q, const tgi_weight_files *files, const char *part,
                            int ndim, const int64_t *shape, tg_error *error)
{
  char name[kNameBytes];
  const tgi_file_tensor *t = find_part(q, files, part, name);
  if (!t) {
    return tgi_held_refuse_missing(files, name, error);
  }
  bool same = t->ndim == ndim && t->dtype == TGI_FILE_U8;
  for (int i = 0; i < ndim && same; i++) {
    same = t->shape[i] == shape[i];
  }
  return same ? TG_OK
              : tgi_held_refuse(tgi_safetensors_path(tgi_weight_files_home(files, t)), name, "U8",
                                ndim, shape, t, error);
}

tg_status tgi_mxfp4_check(const tgi_parameter *q, const tgi_weight_files *files, tg_error *error)
{
  const int64_t in = q->shape[1];
  const int64_t shape[] = {q->shape[0], q->shape[2], in / kGroup, kGroupBytes};
  if (in % kGroup != 0) {
    return tgi_error_set(error, TG_BAD_FILE,
                         "%s: expected a multiple of 32 inputs for blocks of MXFP4, got %lld",
                         q->name, (long long)in);
  }
  const tg_status status = check_part(q, files, "blocks", 4, shape, error);
  return status ? status : check_part(q, files, "scales", 3, shape, error);
}

/* Values of `groups` groups. A product with a power of two rounds below the normal numbers alone,
 * and no value of 4 bits has bits to lose there. */
static void expand(const uint8_t *blocks, const uint8_t *scales, int64_t groups, float *to)
{
  for (int64_t g = 0; g < groups; g++) {
    float scaled[16];
    for (int i = 0; i < 16; i++) {
      scaled[i] = ldexpf(kValues[i], scales[g] - 127);
    }
    for (int i = 0; i < kGroupBytes; i++) {
      const uint8_t two = blocks[g * kGroupBytes + i];
      to[g * kGroup + 2 * i] = scaled[two & 15];
      to[g * kGroup + 2 * i + 1] = scaled[two >> 4];
    }
  }
}

/* Outputs [first, first + n) of an expert, whose values are at `values`, to columns of its matrix
 * [in, out]. */
static tg_status turn(tg_context *ctx, const tgi_parameter *q, int64_t first, int64_t n,
                      float *values, char *matrix, tg_dtype dtype)
{
  const int64_t in = q->shape[1], out = q->shape[2];
  tg_tensor from = tg_tensor_2d(values, TG_F32, in, n);
  from.stride[0] = 1;
  from.stride[1] = in;
  tg_tensor to = tg_tensor_2d(matrix + first * (int64_t)tg_dtype_bytes(dtype), dtype, in, n);
  to.stride[0] = out;
  to.stride[1] = 1;
  return tg_memory_convert(ctx, to, from);
}

tg_status tgi_mxfp4_read(tg_context *ctx, const tgi_parameter *q, const tgi_weight_files *files,
                         void *block, tg_dtype dtype, tg_error *error)
{
  char name[kNameBytes];
  const tgi_file_tensor *scales = find_part(q, files, "scales", name);
  const tgi_file_tensor *blocks = find_part(q, files, "blocks", name);
  const tgi_safetensors *home = tgi_weight_files_home(files, blocks);
  const int64_t in = q->shape[1], out = q->shape[2], groups = in / kGroup;
  const int64_t most = 1 + kWindowBytes / (in * (int64_t)sizeof(float));
  const int64_t step = most < out ? most : out;
  float *values = malloc((size_t)(step * in) * sizeof *values);
  if (!values) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: expected %lld bytes, got none", name,
                         (long long)(step * in) * (long long)sizeof *values);
  }
  tg_status status = TG_OK;
  char *matrix = (char *)block + q->offset * (int64_t)tg_dtype_bytes(dtype);
  for (int64_t e = 0; e < q->shape[0]; e++, matrix += in * out * (int64_t)tg_dtype_bytes(dtype)) {
    for (int64_t i = 0; i < out && status == TG_OK; i += step) {
      const int64_t n = step < out - i ? step : out - i, at = (e * out + i) * groups;
      const uint8_t *from = (const uint8_t *)blocks->data + at * kGroupBytes;
      expand(from, (const uint8_t *)scales->data + at, n * groups, values);
      status = turn(ctx, q, i, n, values, matrix, dtype);
      tgi_safetensors_drop(home, from, (size_t)(n * groups) * kGroupBytes);
    }
  }
  free(values);
  return status ? tgi_error_set(error, status, "%s: %s: %s", tgi_safetensors_path(home), name,
                                tg_context_message(ctx))
                : TG_OK;
}
