/* Weights from files: every tensor is checked before memory is taken, then copied or converted from
 * the map by all threads, window by window. The pages of a window are dropped behind it, so that
 * memory holds the weights and a window, not the files too. */
#include "weights_held.h"

#include "core/error_record.h"
#include "files/file_error.h"
#include "tegula/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a file that are read at once; a row of a matrix is read whole. */
enum { kWindowBytes = 8 << 20 };

/* ---- checks ---- */

static void format_shape(int ndim, const int64_t *shape, char *text, size_t bytes)
{
  size_t used = (size_t)snprintf(text, bytes, "[");
  for (int i = 0; i < ndim && used < bytes; i++) {
    used +=
        (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
  }
  if (used < bytes) {
    snprintf(text + used, bytes - used, "]");
  }
}

tg_status tgi_held_refuse(const char *path, const char *name, const char *dtypes, int ndim,
                          const int64_t *shape, const tgi_file_tensor *t, tg_error *error)
{
  char expected[128], got[128];
  format_shape(ndim, shape, expected, sizeof expected);
  format_shape(t->ndim, t->shape, got, sizeof got);
  return tgi_error_set(error, TG_BAD_FILE, "%s: %s: expected %s %s, got %s %s", path, name, dtypes,
                       expected, tgi_file_dtype_name(t->dtype), got);
}

static bool is_readable(tg_dtype dtype)
{
  return dtype == TG_F32 || dtype == TG_F16 || dtype == TG_BF16;
}

static tg_status check_tensor(const tgi_parameter *q, const tgi_file_tensor *t, const char *path,
                              tg_error *error)
{
  const int64_t turned[2] = {q->shape[1], q->shape[0]};
  const int64_t *shape = q->transposed ? turned : q->shape;
  const int ndim = q->transposed ? 2 : q->ndim;
  bool same = t->ndim == ndim;
  for (int i = 0; i < ndim && same; i++) {
    same = t->shape[i] == shape[i];
  }
  if (same && is_readable(tgi_file_dtype_to_op(t->dtype))) {
    return TG_OK;
  }
  return tgi_held_refuse(path, q->name, "F32|F16|BF16", ndim, shape, t, error);
}

static const char *const prefixes[] = {"transformer.", "model."};

const tgi_file_tensor *tgi_held_find(const tgi_weight_files *files, const char *name)
{
  const tgi_file_tensor *t = tgi_weight_files_find(files, name);
  for (int i = 0; i < 2 && !t; i++) {
    const size_t size = strlen(prefixes[i]);
    if (strncmp(name, prefixes[i], size) == 0) {
      t = tgi_weight_files_find(files, name + size);
    }
  }
  return t;
}

tg_status tgi_held_refuse_missing(const tgi_weight_files *files, const char *name, tg_error *error)
{
  const size_t count = tgi_weight_files_count(files);
  const tgi_file_tensor *any = count ? tgi_weight_files_at(files, 0) : NULL;
  const char *path =
      any ? tgi_safetensors_path(tgi_weight_files_home(files, any)) : "model.safetensors";
  return tgi_error_set(error, TG_BAD_FILE, "%s: %s: expected this tensor, got %zu others", path,
                       name, count);
}

enum { kDtypes = 3 };

static const tg_dtype dtypes[kDtypes] = {TG_F32, TG_F16, TG_BF16};

/* One tensor of the files; `bytes` counts those of each of `dtypes`. */
static tg_status check_piece(const tgi_parameter *q, tgi_weight_files *files, size_t bytes[kDtypes],
                             tg_error *error)
{
  const tgi_file_tensor *t = tgi_held_find(files, q->name);
  if (!t) {
    return tgi_held_refuse_missing(files, q->name, error);
  }
  tgi_weight_files_claim(files, t);
  const char *path = tgi_safetensors_path(tgi_weight_files_home(files, t));
  for (int i = 0; i < kDtypes; i++) {
    bytes[i] += tgi_file_dtype_to_op(t->dtype) == dtypes[i] ? t->bytes : 0;
  }
  return check_tensor(q, t, path, error);
}

/* The parameter as these files hold it: in one tensor, if there is one of its name. */
static tgi_parameter as_held(const tgi_parameter *q, const tgi_weight_files *files)
{
  tgi_parameter held = *q;
  if (q->stacking != TGI_ONE_TENSOR && tgi_held_find(files, q->name)) {
    held.stacking = TGI_ONE_TENSOR;
  }
  return held;
}

bool tgi_weights_in_mxfp4(const tgi_parameters *parameters, const tgi_weight_files *files)
{
  bool all = true, any = false;
  for (int p = 0; p < parameters->count; p++) {
    if (tgi_parameter_is_experts(&parameters->list[p])) {
      any = true;
      all = all && tgi_mxfp4_is_held(&parameters->list[p], files);
    }
  }
  return any && all;
}

tg_status tgi_weights_check(const tgi_parameters *parameters, tgi_weight_files *files,
                            tg_dtype *dtype, tg_error *error)
{
  size_t bytes[kDtypes] = {0, 0, 0};
  tg_status status = TG_OK;
  for (int p = 0; p < parameters->count; p++) {
    const tgi_parameter q = as_held(&parameters->list[p], files);
    if (tgi_mxfp4_is_held(&q, files)) {
      status = status ? status : tgi_mxfp4_check(&q, files, error);
      continue;
    }
    for (size_t i = 0; i < tgi_parameter_pieces(&q) && status == TG_OK; i++) {
      const tgi_parameter piece = tgi_parameter_piece(&q, i);
      status = check_piece(&piece, files, bytes, error);
    }
  }
  const int most = bytes[1] > bytes[0] ? 1 : 0;
  *dtype = dtypes[bytes[2] > bytes[most] ? 2 : most];
  return status;
}

/* Bytes of two tensors, and no page of the files stays in memory. */
static bool equal_bytes(const tgi_weight_files *files, const tgi_file_tensor *a,
                        const tgi_file_tensor *b)
{
  const tgi_safetensors *home_a = tgi_weight_files_home(files, a);
  const tgi_safetensors *home_b = tgi_weight_files_home(files, b);
  bool equal = a->dtype == b->dtype && a->bytes == b->bytes;
  for (size_t at = 0; at < a->bytes && equal; at += kWindowBytes) {
    const size_t n = a->bytes - at < kWindowBytes ? a->bytes - at : kWindowBytes;
    const char *x = (const char *)a->data + at, *y = (const char *)b->data + at;
    equal = memcmp(x, y, n) == 0;
    tgi_safetensors_drop(home_a, x, n);
    tgi_safetensors_drop(home_b, y, n);
  }
  return equal;
}

bool tgi_weights_have_head(const char *tokens, const tgi_weight_files *files)
{
  const tgi_file_tensor *table = tgi_held_find(files, tokens);
  const tgi_file_tensor *head = tgi_held_find(files, "lm_head.weight");
  return table && head && !equal_bytes(files, head, table);
}

/* What follows "h.<layer>." or "layers.<layer>." in a name, prefixed or not; NULL: it has neither.
 */
static const char *in_layer(const char *name, long *layer)
{
  static const char *const lists[] = {"h.", "layers."};
  for (int i = 0; i < 2; i++) {
    const size_t size = strlen(prefixes[i]);
    name += strncmp(name, prefixes[i], size) == 0 ? size : 0;
  }
  for (int i = 0; i < 2; i++) {
    const size_t size = strlen(lists[i]);
    char *end;
    if (strncmp(name, lists[i], size) == 0 && name[size] >= '0' && name[size] <= '9') {
      *layer = strtol(name + size, &end, 10);
      return *end == '.' ? end + 1 : NULL;
    }
  }
  return NULL;
}

/* GPT-2's masks, and the tables of rotary positions: computed from the configuration. */
static bool is_buffer(const char *name)
{
  return strcmp(name, "attn.bias") == 0 || strcmp(name, "attn.masked_bias") == 0 ||
         strstr(name, "rotary_emb.");
}

tg_status tgi_weights_check_rest(const tgi_weight_files *files, int layers, tg_error *error)
{
  for (size_t i = 0; i < tgi_weight_files_count(files); i++) {
    const tgi_file_tensor *t = tgi_weight_files_at(files, i);
    long layer;
    const char *name = in_layer(t->name, &layer);
    if (!name || tgi_weight_files_is_claimed(files, i)) {
      continue;
    }
    const char *path = tgi_safetensors_path(tgi_weight_files_home(files, t));
    const tgi_quoted quoted = tgi_quote(t->name, strlen(t->name));
    if (layer >= layers) {
      return tgi_error_set(error, TG_BAD_FILE,
                           "%s: %s: expected tensors of the %d layers that config.json has, got "
                           "those of another",
                           path, quoted.text, layers);
    }
    if (!is_buffer(name)) {
      return tgi_error_set(error, TG_BAD_FILE,
                           "%s: %s: expected only tensors that config.json calls for, got another",
                           path, quoted.text);
    }
  }
  return TG_OK;
}

/* ---- reading ---- */

/* Rows of a tensor of a file, and where they go; a vector is one row, and matrices of experts are
 * rows of one matrix. */
typedef struct window {
  const tgi_parameter *q;
  int64_t rows, cols; /* of the file */
  tg_dtype from_dtype, to_dtype;
  char *to; /* the parameter in the block */
} window;

/* Rows [i, i + n), whose elements are at `data`. */
static tg_status convert_window(tg_context *ctx, const window *w, int64_t i, int64_t n,
                                const void *data)
{
  void *elements = (void *)(uintptr_t)data; /* only read */
  tg_tensor from = tg_tensor_2d(elements, w->from_dtype, n, w->cols);
  tg_tensor to = tg_tensor_2d(w->to, w->to_dtype, n, w->cols);
  const int64_t element = (int64_t)tg_dtype_bytes(w->to_dtype);
  if (w->q->transposed) { /* columns [i, i + n) of a matrix [cols, rows] */
    from = tg_tensor_2d(elements, w->from_dtype, w->cols, n);
    from.stride[0] = 1;
    from.stride[1] = w->cols;
    to = tg_tensor_2d(w->to + i * element, w->to_dtype, w->cols, n);
    to.stride[0] = w->rows;
    to.stride[1] = 1;
  } else {
    to.data = w->to + i * w->cols * element;
  }
  return tg_memory_convert(ctx, to, from);
}

tg_status tgi_parameter_read(tg_context *ctx, const tgi_parameter *q, const tgi_file_tensor *t,
                             const tgi_safetensors *file, void *block, tg_dtype dtype,
                             tg_error *error)
{
  tg_status status = check_tensor(q, t, tgi_safetensors_path(file), error);
  if (status != TG_OK) {
    return status;
  }
  const window w = {.q = q,
                    .rows = tgi_parameter_elements(q) / t->shape[q->ndim - 1],
                    .cols = t->shape[q->ndim - 1],
                    .from_dtype = tgi_file_dtype_to_op(t->dtype),
                    .to_dtype = dtype,
                    .to = (char *)block + q->offset * (int64_t)tg_dtype_bytes(dtype)};
  const size_t row_bytes = (size_t)w.cols * tg_dtype_bytes(w.from_dtype);
  const int64_t step = 1 + kWindowBytes / (int64_t)row_bytes;
  const bool aligned = (uintptr_t)t->data % tg_dtype_bytes(w.from_dtype) == 0;
  const size_t most = (size_t)(step < w.rows ? step : w.rows) * row_bytes;
  void *copy = aligned ? NULL : malloc(most); /* a file aligns nothing */
  if (!aligned && !copy) {
    return tgi_error_set(error, TG_NO_MEMORY, "%s: %s: expected %zu bytes, got none",
                         tgi_safetensors_path(file), q->name, most);
  }
  for (int64_t i = 0; i < w.rows && status == TG_OK; i += step) {
    const int64_t n = step < w.rows - i ? step : w.rows - i;
    const char *data = (const char *)t->data + (size_t)i * row_bytes;
    const void *elements = data;
    if (copy) {
      elements = memcpy(copy, data, (size_t)n * row_bytes);
    }
    status = convert_window(ctx, &w, i, n, elements);
    tgi_safetensors_drop(file, data, (size_t)n * row_bytes);
  }
  free(copy);
  return status ? tgi_error_set(error, status, "%s: %s: %s", tgi_safetensors_path(file), q->name,
                                tg_context_message(ctx))
                : TG_OK;
}

tg_status tgi_weights_read(tg_model *model, const tgi_weight_files *files, tg_error *error)
{
  tg_context *ctx;
  tg_status status =
      tg_context_create(&(tg_context_options){.backend = TG_BACKEND_CPU}, &ctx, error);
  for (int p = 0; p < model->parameters.count && status == TG_OK; p++) {
    const tgi_parameter q = as_held(&model->parameters.list[p], files);
    if (tgi_parameter_is_mxfp4(&q)) {
      status = tgi_mxfp4_pack(&q, files, tgi_mxfp4_weight(model, p).data, error);
      continue;
    }
    if (tgi_mxfp4_is_held(&q, files)) {
      status = tgi_mxfp4_read(ctx, &q, files, model->block, model->dtype, error);
      continue;
    }
    for (size_t i = 0; i < tgi_parameter_pieces(&q) && status == TG_OK; i++) {
      const tgi_parameter piece = tgi_parameter_piece(&q, i);
      const tgi_file_tensor *t = tgi_held_find(files, piece.name);
      status = tgi_parameter_read(ctx, &piece, t, tgi_weight_files_home(files, t), model->block,
                                  model->dtype, error);
    }
  }
  tg_context_destroy(ctx);
  return status;
}
