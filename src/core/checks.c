#include "core/checks.h"

#include "core/device_state.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void format_dtypes(uint32_t dtypes, char *text, size_t bytes)
{
  size_t used = 0;
  text[0] = 0;
  for (uint32_t d = 1; d < 32 && used < bytes; d++) {
    if (dtypes & TG_DTYPE_BIT(d)) {
      used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "|" : "",
                               tg_dtype_name((tg_dtype)d));
    }
  }
}

static void format_extents(int ndim, const int64_t *extent, char *text, size_t bytes)
{
  size_t used = (size_t)snprintf(text, bytes, "[");
  for (int i = 0; i < ndim && used < bytes; i++) {
    used +=
        (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)extent[i]);
  }
  if (used < bytes) {
    snprintf(text + used, bytes - used, "]");
  }
}

static const char *format_view(const tg_tensor *t, char *text, size_t bytes)
{
  const size_t used = (size_t)snprintf(text, bytes, "%s ", tg_dtype_name(t->dtype));
  const int ndim = t->ndim < 0 || t->ndim > TG_MAX_NDIM ? 0 : t->ndim;
  if (used < bytes) {
    format_extents(ndim, t->shape, text + used, bytes - used);
  }
  return text;
}

void tgi_fail(tgi_call *call, tg_status status, const char *argument, const char *format, ...)
{
  if (call->status != TG_OK) {
    return;
  }
  char text[384];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  call->status = status;
  if (call->ctx) {
    tgi_report(call->ctx, status, "%s: %s: %s", call->info->name, argument, text);
  }
}

static uint32_t allowed_dtypes(const tgi_call *call, uint32_t dtypes)
{
  const bool floats = (dtypes & TGI_BITS_FLOATS) != 0;
  return call->ctx->backend == TG_BACKEND_REF && floats ? dtypes | TGI_BIT_F64 : dtypes;
}

void tgi_want_dtype(tgi_call *call, const char *argument, const tg_tensor *t, uint32_t dtypes)
{
  if (call->status != TG_OK || !tgi_present(t) ||
      ((uint32_t)t->dtype < 32 && (allowed_dtypes(call, dtypes) & TG_DTYPE_BIT(t->dtype)))) {
    return;
  }
  char expected[64], got[160];
  format_dtypes(dtypes, expected, sizeof expected);
  format_view(t, got, sizeof got);
  tgi_fail(call, TG_BAD_DTYPE, argument, "expected %s, got %s", expected, got);
}

void tgi_want_shape(tgi_call *call, const char *argument, const tg_tensor *t, int ndim,
                    const int64_t *shape)
{
  if (call->status != TG_OK || !tgi_present(t)) {
    return;
  }
  if (t->ndim == ndim && memcmp(t->shape, shape, (size_t)ndim * sizeof *shape) == 0) {
    return;
  }
  char expected[128], got[160];
  format_extents(ndim, shape, expected, sizeof expected);
  format_view(t, got, sizeof got);
  tgi_fail(call, TG_BAD_SHAPE, argument, "expected %s %s, got %s", tg_dtype_name(t->dtype),
           expected, got);
}

void tgi_want_finite(tgi_call *call, const char *argument, double value)
{
  if (!isfinite(value)) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected a finite number, got %g", value);
  }
}

void tgi_want_positive(tgi_call *call, const char *argument, double value)
{
  if (!isfinite(value) || value <= 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected a finite number > 0, got %g", value);
  }
}

void tgi_want_range(tgi_call *call, const char *argument, int64_t value, int64_t low, int64_t high)
{
  if (value < low || value > high) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected %lld to %lld, got %lld", (long long)low,
             (long long)high, (long long)value);
  }
}

void tgi_want_workspace(tgi_call *call, const void *workspace, size_t given, size_t bytes)
{
  if (call->sizing || call->empty || bytes == 0) {
    return;
  }
  if (!workspace || given < bytes) {
    tgi_fail(call, TG_BAD_ARGUMENT, "workspace", "expected %zu bytes, got %zu%s", bytes, given,
             workspace ? "" : " at NULL");
  } else if ((uintptr_t)workspace % 64 != 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "workspace", "expected 64-byte alignment, got %p", workspace);
  }
}

/* Checks rank, extents and strides, so that no later arithmetic on them can overflow. */
static void check_geometry(tgi_call *call, const tg_slot_info *slot, const tg_tensor *t)
{
  char got[160]; /* written on failure only, since most calls are valid and some are short */
  if (t->ndim < 0 || t->ndim > TG_MAX_NDIM || (slot->ndim && t->ndim != slot->ndim)) {
    if (slot->ndim) {
      tgi_fail(call, TG_BAD_SHAPE, slot->name, "expected rank %d, got rank %d (%s)", slot->ndim,
               t->ndim, format_view(t, got, sizeof got));
    } else {
      tgi_fail(call, TG_BAD_SHAPE, slot->name, "expected rank 0 to %d, got rank %d", TG_MAX_NDIM,
               t->ndim);
    }
    return;
  }
  int64_t numel = (int64_t)tg_dtype_bytes(t->dtype), reach = numel;
  bool strided = false;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] < 0) {
      tgi_fail(call, TG_BAD_SHAPE, slot->name, "expected extents >= 0, got %s",
               format_view(t, got, sizeof got));
      return;
    }
    if (t->stride[i] < 0) {
      tgi_fail(call, TG_BAD_SHAPE, slot->name, "expected strides >= 0, got stride %lld on axis %d",
               (long long)t->stride[i], i);
      return;
    }
    strided = strided || t->stride[i] != 0;
  }
  for (int i = 0; i < t->ndim; i++) {
    int64_t step;
    const int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
    if (__builtin_mul_overflow(numel, t->shape[i] > 0 ? t->shape[i] : 1, &numel) ||
        __builtin_mul_overflow(t->stride[i], t->shape[i], &step) ||
        __builtin_mul_overflow(step, bytes, &step) || __builtin_add_overflow(reach, step, &reach)) {
      tgi_fail(call, TG_BAD_SHAPE, slot->name, "expected fewer than 2^63 bytes, got %s",
               format_view(t, got, sizeof got));
      return;
    }
    if (strided && t->stride[i] == 0 && t->shape[i] > 1) {
      tgi_fail(call, TG_BAD_SHAPE, slot->name,
               "expected no broadcast axis, got stride 0 on axis %d", i);
      return;
    }
  }
}

static void check_layout(tgi_call *call, const tg_slot_info *slot, const tg_tensor *t)
{
  char stride[160];
  if (slot->layout == TG_LAYOUT_DENSE && !tgi_is_dense(t)) {
    format_extents(t->ndim, t->stride, stride, sizeof stride);
    tgi_fail(call, TG_BAD_SHAPE, slot->name, "expected a contiguous view, got strides %s", stride);
  }
  const int last = t->ndim - 1;
  if (slot->layout == TG_LAYOUT_ROWS && last >= 0 && t->shape[last] > 1 &&
      tgi_stride(t, last) != 1) {
    format_extents(t->ndim, t->stride, stride, sizeof stride);
    tgi_fail(call, TG_BAD_SHAPE, slot->name, "expected a contiguous last axis, got strides %s",
             stride);
  }
}

static void check_memory(tgi_call *call, const tg_slot_info *slot, const tg_tensor *t)
{
  const tgi_device *device = call->ctx->device;
  const int32_t home = device ? TG_DEVICE_CUDA(device->index) : TG_DEVICE_CPU;
  if (t->device != TG_DEVICE_CONTEXT && t->device != home) {
    tgi_fail(call, TG_BAD_ARGUMENT, slot->name, "expected memory on device 0 or %d (%s), got %d",
             (int)home, device ? "cuda" : "cpu", (int)t->device);
  }
  if (call->sizing || tgi_numel(t) == 0) {
    return;
  }
  if (!t->data) {
    tgi_fail(call, TG_BAD_ARGUMENT, slot->name, "expected memory, got NULL");
  } else if ((uintptr_t)t->data % tg_dtype_bytes(t->dtype) != 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, slot->name, "expected %zu-byte alignment, got %p",
             tg_dtype_bytes(t->dtype), t->data);
  }
}

static const tg_tensor *tensor_at(const tgi_call *call, const tg_slot_info *slot)
{
  return (const tg_tensor *)(const void *)((const char *)call->args + slot->offset);
}

static void check_tensor(tgi_call *call, const tg_slot_info *slot, const tg_tensor *t)
{
  if (!tgi_present(t)) {
    if (!slot->optional) {
      char expected[64];
      format_dtypes(slot->dtypes, expected, sizeof expected);
      tgi_fail(call, TG_BAD_ARGUMENT, slot->name, "expected a %s tensor, got none", expected);
    }
    return;
  }
  tgi_want_dtype(call, slot->name, t, slot->dtypes);
  if (call->status == TG_OK) {
    check_geometry(call, slot, t);
  }
  if (call->status == TG_OK) {
    check_layout(call, slot, t);
  }
  if (call->status == TG_OK) {
    check_memory(call, slot, t);
  }
}

/* Every element of a tensor list is checked like a tensor; messages name it "params[3]". */
static void check_list(tgi_call *call, const tg_slot_info *slot, int64_t num_tensors)
{
  const char *field = (const char *)call->args + slot->offset;
  const tg_tensor *list = *(const tg_tensor *const *)(const void *)field;
  if (!list) {
    if (!slot->optional && num_tensors > 0) {
      tgi_fail(call, TG_BAD_ARGUMENT, slot->name, "expected %lld tensors, got NULL",
               (long long)num_tensors);
    }
    return;
  }
  for (int64_t i = 0; i < num_tensors && call->status == TG_OK; i++) {
    char name[64];
    tg_slot_info element = *slot;
    snprintf(name, sizeof name, "%s[%lld]", slot->name, (long long)i);
    element.name = name;
    element.optional = false;
    check_tensor(call, &element, &list[i]);
  }
}

static int64_t list_length(tgi_call *call)
{
  for (size_t i = 0; i < call->info->num_slots; i++) {
    const tg_slot_info *slot = &call->info->slots[i];
    if (strcmp(slot->name, "num_tensors") == 0) {
      const char *field = (const char *)call->args + slot->offset;
      const int64_t n = *(const int64_t *)(const void *)field;
      tgi_want_range(call, slot->name, n, 0, INT32_MAX);
      return n;
    }
  }
  return 0;
}

static bool ranges_meet(const tg_tensor *a, const tg_tensor *b)
{
  const char *a0 = a->data, *b0 = b->data;
  return a0 < b0 + tgi_span_bytes(b) && b0 < a0 + tgi_span_bytes(a);
}

static bool same_view(const tg_tensor *a, const tg_tensor *b)
{
  if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) {
    return false;
  }
  for (int i = 0; i < a->ndim; i++) {
    if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && tgi_stride(a, i) != tgi_stride(b, i))) {
      return false;
    }
  }
  return true;
}

/* Views may interleave, as parts of one packed tensor do. That is legal and costly to distinguish
 * from true overlap, so only certain overlaps are errors: equal starts, or two contiguous views. */
static bool certainly_overlap(const tg_tensor *a, const tg_tensor *b)
{
  return ranges_meet(a, b) && (a->data == b->data || (tgi_is_dense(a) && tgi_is_dense(b)));
}

/* `alias` is one name, or several separated by '|'. */
static bool allows(const char *alias, const char *name)
{
  const size_t length = strlen(name);
  for (const char *p = alias; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
    if (strncmp(p, name, length) == 0 && (p[length] == 0 || p[length] == '|')) {
      return true;
    }
  }
  return false;
}

static void check_overlap(tgi_call *call, const tg_slot_info *out)
{
  const tg_tensor *t = tensor_at(call, out);
  if (!tgi_present(t) || tgi_numel(t) == 0) {
    return;
  }
  for (size_t i = 0; i < call->info->num_slots; i++) {
    const tg_slot_info *other = &call->info->slots[i];
    const tg_tensor *u = tensor_at(call, other);
    if (other->kind != TG_KIND_TENSOR || other == out || !tgi_present(u) || tgi_numel(u) == 0 ||
        !certainly_overlap(t, u)) {
      continue;
    }
    const bool theirs = allows(other->alias, out->name);
    const bool ours = allows(out->alias, other->name);
    if ((ours || theirs) && same_view(t, u)) {
      continue;
    }
    tgi_fail(call, TG_BAD_ARGUMENT, out->name, "expected memory apart from %s%s, got an overlap",
             other->name, ours ? " or exactly its view" : "");
    return;
  }
}

tgi_call tgi_call_begin(const tg_context *ctx, const tg_op_info *info, const void *args,
                        bool sizing)
{
  tgi_call call = {.ctx = ctx, .info = info, .args = args, .sizing = sizing};
  if (!ctx) {
    call.status = TG_BAD_ARGUMENT;
    return call;
  }
  if (!args) {
    tgi_fail(&call, TG_BAD_ARGUMENT, "args", "expected a pointer, got NULL");
    return call;
  }
  const int64_t num_tensors = list_length(&call);
  for (size_t i = 0; i < info->num_slots && call.status == TG_OK; i++) {
    const tg_slot_info *slot = &info->slots[i];
    if (slot->kind == TG_KIND_TENSOR) {
      check_tensor(&call, slot, tensor_at(&call, slot));
    } else if (slot->kind == TG_KIND_TENSOR_LIST) {
      check_list(&call, slot, num_tensors);
    }
  }
  for (size_t i = 0; i < info->num_slots && call.status == TG_OK && !sizing; i++) {
    const tg_slot_info *slot = &info->slots[i];
    if (slot->kind == TG_KIND_TENSOR && slot->role != TG_ROLE_IN) {
      check_overlap(&call, slot);
    }
  }
  return call;
}
