/* Experts' matrices in MXFP4 from files: packed as they are, or to elements of a block. */
#include "weights_held.h"

#include "core/error_record.h"
#include "tegula/dequantize_mxfp4.h"
#include "tegula/device.h"
#include "tegula/grouped_linear_mxfp4.h"
#include <stdio.h>
#include <stdlib.h>

/* Values that share a scale, and their bytes; bytes of a window of values. */
enum { kGroup = 32, kGroupBytes = kGroup / 2, kNameBytes = 96, kWindowBytes = 8 << 20 };

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

static tg_status check_part(const tgi_parameter *q, tgi_weight_files *files, const char *part,
                            int ndim, const int64_t *shape, tg_error *error)
{
  char name[kNameBytes];
  const tgi_file_tensor *t = find_part(q, files, part, name);
  if (!t) {
    return tgi_held_refuse_missing(files, name, error);
  }
  tgi_weight_files_claim(files, t);
  bool same = t->ndim == ndim && t->dtype == TGI_FILE_U8;
  for (int i = 0; i < ndim && same; i++) {
    same = t->shape[i] == shape[i];
  }
  return same ? TG_OK
              : tgi_held_refuse(tgi_safetensors_path(tgi_weight_files_home(files, t)), name, "U8",
                                ndim, shape, t, error);
}

tg_status tgi_mxfp4_check(const tgi_parameter *q, tgi_weight_files *files, tg_error *error)
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

/* A tensor of a file, which is only read. */
static tg_tensor bytes_of(const tgi_file_tensor *t)
{
  return tg_tensor_view((void *)(uintptr_t)t->data, TG_U8, t->ndim, t->shape);
}

tg_status tgi_mxfp4_pack(const tgi_parameter *q, const tgi_weight_files *files, void *packed,
                         tg_error *error)
{
  char name[kNameBytes];
  const tgi_file_tensor *scales = find_part(q, files, "scales", name);
  const tgi_file_tensor *blocks = find_part(q, files, "blocks", name);
  const tg_grouped_linear_mxfp4_pack_source args = {
      .blocks = bytes_of(blocks),
      .scales = bytes_of(scales),
      .packed = tg_tensor_1d(packed, TG_U8, tgi_mxfp4_bytes(q))};
  tg_error refused;
  const tg_status status = tg_grouped_linear_mxfp4_pack(&args, &refused);
  tgi_safetensors_drop(tgi_weight_files_home(files, blocks), blocks->data, blocks->bytes);
  tgi_safetensors_drop(tgi_weight_files_home(files, scales), scales->data, scales->bytes);
  return status ? tgi_error_set(error, TG_UNSUPPORTED, "%s: %s: %s",
                                tgi_safetensors_path(tgi_weight_files_home(files, scales)), q->name,
                                refused.text)
                : TG_OK;
}

/* Outputs of an expert, as rows. */
static tg_status expand(tg_context *ctx, const uint8_t *blocks, const uint8_t *scales,
                        const tg_tensor *rows)
{
  const int64_t n = rows->shape[0], groups = rows->shape[1] / kGroup;
  /* Only read. */
  void *const bytes = (void *)(uintptr_t)blocks, *const exponents = (void *)(uintptr_t)scales;
  const tg_dequantize_mxfp4_fwd_args args = {
      .blocks = tg_tensor_view(bytes, TG_U8, 3, (const int64_t[]){n, groups, kGroupBytes}),
      .scales = tg_tensor_2d(exponents, TG_U8, n, groups),
      .x = *rows};
  return tg_dequantize_mxfp4_fwd(ctx, &args);
}

/* Rows, which are outputs from `first` on, to columns of an expert's matrix [in, out]. */
static tg_status turn(tg_context *ctx, const tg_tensor *rows, int64_t first, char *matrix,
                      int64_t out)
{
  const int64_t n = rows->shape[0], in = rows->shape[1];
  tg_tensor from = tg_tensor_2d(rows->data, rows->dtype, in, n);
  from.stride[0] = 1;
  from.stride[1] = in;
  tg_tensor to =
      tg_tensor_2d(matrix + first * (int64_t)tg_dtype_bytes(rows->dtype), rows->dtype, in, n);
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
  const int64_t element = (int64_t)tg_dtype_bytes(dtype), most = 1 + kWindowBytes / (in * element);
  const int64_t step = most < out ? most : out;
  void *window = malloc((size_t)(step * in * element));
  if (!window) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: expected %lld bytes, got none", name,
                         (long long)(step * in * element));
  }
  tg_status status = TG_OK;
  char *matrix = (char *)block + q->offset * element;
  for (int64_t e = 0; e < q->shape[0]; e++, matrix += in * out * element) {
    for (int64_t i = 0; i < out && status == TG_OK; i += step) {
      const int64_t n = step < out - i ? step : out - i, at = (e * out + i) * groups;
      const uint8_t *from = (const uint8_t *)blocks->data + at * kGroupBytes;
      const tg_tensor rows = tg_tensor_2d(window, dtype, n, in);
      status = expand(ctx, from, (const uint8_t *)scales->data + at, &rows);
      status = status ? status : turn(ctx, &rows, i, matrix, out);
      tgi_safetensors_drop(home, from, (size_t)(n * groups) * kGroupBytes);
    }
  }
  free(window);
  return status ? tgi_error_set(error, status, "%s: %s: %s", tgi_safetensors_path(home), name,
                                tg_context_message(ctx))
                : TG_OK;
}
