#include "ops/shape.h"

#include "core/context_state.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define OP(op, dir, ws)                                                                            \
  _Static_assert(sizeof(tg_##op##_##dir##_args) <= TGI_ARGS_MAX_BYTES, "raise "                    \
                                                                       "TGI_ARGS_MAX_BYTES");
#include "ops/ops.def"

/* The first byte that no shape string has, as a space or a control byte: it must not get into a
 * message. */
static unsigned strange_byte(const char *text)
{
  const unsigned char *p = (const unsigned char *)text;
  while (*p > ' ' && *p < 0x7f) {
    p++;
  }
  return *p;
}

static bool split(tgi_shape *s, const char *text)
{
  if (strlen(text) >= sizeof s->text || !text[0]) {
    return false;
  }
  strcpy(s->text, text);
  s->word[s->num_words++] = s->text;
  for (char *p = s->text; *p; p++) {
    if (*p == '_') {
      *p = 0;
      if (s->num_words == TGI_SHAPE_MAX_WORDS) {
        return false;
      }
      s->word[s->num_words++] = p + 1;
    }
  }
  return true;
}

/* Reads digits; returns what follows them, NULL if there are none or too many. */
static const char *read_number(const char *p, int64_t *value)
{
  const char *start = p;
  *value = 0;
  while (isdigit((unsigned char)*p) && p - start < 18) {
    *value = *value * 10 + (*p++ - '0');
  }
  return p == start || isdigit((unsigned char)*p) ? NULL : p;
}

static void fail(tgi_shape *s, const char *what, const char *got)
{
  if (s->error.status == TG_OK) {
    tgi_error_set(&s->error, TG_BAD_ARGUMENT, "expected %s, got \"%s\"", what, got);
  }
}

int64_t tgi_shape_extent(tgi_shape *s, int axis)
{
  for (int w = 0; w < s->num_words; w++) {
    const char *p = s->word[w];
    if (!isdigit((unsigned char)*p)) {
      continue;
    }
    s->used[w] = true;
    int64_t value = 0;
    for (int i = 0; i <= axis; i++) {
      const char *end = read_number(p, &value);
      if (!end || (*end && *end != 'x')) {
        fail(s, "extents like 16384x4096", s->word[w]);
        return 1;
      }
      if (i < axis && *end != 'x') {
        fail(s, "one more extent", s->word[w]);
        return 1;
      }
      p = end + 1;
    }
    return value;
  }
  fail(s, "extents like 16384x4096", s->word[0]);
  return 1;
}

int64_t tgi_shape_number(tgi_shape *s, const char *key, int64_t fallback)
{
  const size_t length = strlen(key);
  for (int w = 0; w < s->num_words; w++) {
    int64_t value;
    if (strncmp(s->word[w], key, length) == 0) {
      const char *end = read_number(s->word[w] + length, &value);
      if (end && !*end) {
        s->used[w] = true;
        return value;
      }
    }
  }
  return fallback;
}

int32_t tgi_shape_i32(tgi_shape *s, const char *key, int32_t fallback)
{
  const int64_t value = tgi_shape_number(s, key, fallback);
  if (value > INT32_MAX) {
    char text[32];
    snprintf(text, sizeof text, "%s%lld", key, (long long)value);
    fail(s, "a number below 2^31", text);
    return fallback;
  }
  return (int32_t)value;
}

bool tgi_shape_flag(tgi_shape *s, const char *word)
{
  for (int w = 0; w < s->num_words; w++) {
    if (strcmp(s->word[w], word) == 0) {
      s->used[w] = true;
      return true;
    }
  }
  return false;
}

tg_tensor *tgi_shape_list(tgi_shape *s, int64_t n)
{
  if (n < 0 || n > TGI_SHAPE_MAX_LISTED - s->num_listed) {
    fail(s, "fewer tensors", s->word[0]);
    return NULL;
  }
  tg_tensor *list = s->listed + s->num_listed;
  s->num_listed += (int)n;
  return list;
}

/* In the order of the public op table. */
typedef struct row {
  const char *syntax;
  void (*shape)(tgi_shape *s, void *args);
  void (*cost)(const void *args, tgi_cost *cost);
} row;

#define OP(op, dir, ws)                                                                            \
  static void op##_##dir##_shape(tgi_shape *s, void *args)                                         \
  {                                                                                                \
    tgi_##op##_##dir##_shape(s, args);                                                             \
  }                                                                                                \
  static void op##_##dir##_cost(const void *args, tgi_cost *cost)                                  \
  {                                                                                                \
    tgi_##op##_##dir##_cost(args, cost);                                                           \
  }
#include "ops/ops.def"

static const row rows[] = {
#define OP(op, dir, ws) {tgi_##op##_##dir##_syntax, op##_##dir##_shape, op##_##dir##_cost},
#include "ops/ops.def"
};

static const row *find(const char *op_dir)
{
  for (size_t i = 0; op_dir && i < sizeof rows / sizeof rows[0]; i++) {
    if (strcmp(tg_op_at(i)->name, op_dir) == 0) {
      return &rows[i];
    }
  }
  return NULL;
}

const char *tgi_shape_syntax(const char *op_dir)
{
  const row *r = find(op_dir);
  return r ? r->syntax : NULL;
}

static int64_t list_length(const tgi_shaped *shaped)
{
  for (size_t i = 0; i < shaped->info->num_slots; i++) {
    const tg_slot_info *slot = &shaped->info->slots[i];
    if (strcmp(slot->name, "num_tensors") == 0) {
      return *(const int64_t *)(const void *)(shaped->args.bytes + slot->offset);
    }
  }
  return 0;
}

int tgi_shaped_views(tgi_shaped *shaped, tgi_shaped_view *views, int capacity)
{
  int n = 0;
  for (size_t i = 0; i < shaped->info->num_slots; i++) {
    const tg_slot_info *slot = &shaped->info->slots[i];
    void *field = shaped->args.bytes + slot->offset;
    if (slot->kind == TG_KIND_TENSOR && tgi_present(field) && n < capacity) {
      views[n++] = (tgi_shaped_view){slot, -1, field};
    } else if (slot->kind == TG_KIND_TENSOR_LIST && *(tg_tensor **)field) {
      for (int64_t k = 0; k < list_length(shaped) && n < capacity; k++) {
        views[n++] = (tgi_shaped_view){slot, k, *(tg_tensor **)field + k};
      }
    }
  }
  return n;
}

void tgi_shaped_copy(tgi_shaped *to, const tgi_shaped *from)
{
  *to = *from;
  for (size_t i = 0; i < to->info->num_slots; i++) {
    const tg_slot_info *slot = &to->info->slots[i];
    tg_tensor **list = (void *)(to->args.bytes + slot->offset);
    if (slot->kind == TG_KIND_TENSOR_LIST && *list) {
      *list = to->listed + (*list - from->listed);
    }
  }
}

/* Whether every tensor has less than 2^47 bytes, as an address space has: kernels compute the sizes
 * of what they need from extents, which must not overflow. */
static bool tensors_fit(tgi_shaped *shaped)
{
  tgi_shaped_view views[TGI_SHAPE_MAX_LISTED + 32];
  const int n = tgi_shaped_views(shaped, views, (int)(sizeof views / sizeof views[0]));
  for (int i = 0; i < n; i++) {
    const tg_tensor *t = views[i].tensor;
    int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
    for (int k = 0; k < t->ndim; k++) {
      const int64_t extent = t->shape[k] > 0 ? t->shape[k] : 1; /* an empty one's strides, too */
      if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes >= INT64_C(1) << 47) {
        return false;
      }
    }
  }
  return true;
}

double tgi_cost_bytes(const tg_tensor *t)
{
  return (double)tgi_numel(t) * (double)tg_dtype_bytes(t->dtype);
}

/* Whether a call overwrites its accumulators instead of adding to them. */
static bool overwrites(const tgi_shaped *shaped)
{
  const tg_op_info *info = shaped->info;
  for (size_t i = 0; i < info->num_slots; i++) {
    if (strcmp(info->slots[i].name, "overwrite") == 0) {
      return *(const bool *)(const void *)(shaped->args.bytes + info->slots[i].offset);
    }
  }
  return false;
}

/* Every tensor once; in-place tensors and accumulators that are added to, twice. */
static tgi_cost slot_bytes(tgi_shaped *shaped)
{
  const bool overwrite = overwrites(shaped);
  tgi_shaped_view views[TGI_SHAPE_MAX_LISTED + 32];
  const int n = tgi_shaped_views(shaped, views, (int)(sizeof views / sizeof views[0]));
  tgi_cost cost = {0, 0, 0};
  for (int i = 0; i < n; i++) {
    const double bytes = tgi_cost_bytes(views[i].tensor);
    const tg_slot_role role = views[i].slot->role;
    cost.read_bytes += role == TG_ROLE_OUT || (role == TG_ROLE_ACC && overwrite) ? 0 : bytes;
    cost.written_bytes += role == TG_ROLE_IN ? 0 : bytes;
  }
  return cost;
}

tgi_cost tgi_cost_of(const tg_op_info *info, const void *args)
{
  tgi_cost cost = {0, 0, 0};
  tgi_shaped *shaped = calloc(1, sizeof *shaped);
  if (shaped) {
    shaped->info = info;
    memcpy(shaped->args.bytes, args, info->args_bytes);
    cost = slot_bytes(shaped);
    find(info->name)->cost((const void *)shaped->args.bytes, &cost);
  }
  free(shaped);
  return cost;
}

tg_status tgi_shape_fill(const char *op_dir, const char *text, tg_dtype dtype, tgi_shaped *out,
                         tg_error *error)
{
  const row *r = find(op_dir);
  memset(out, 0, sizeof *out);
  if (!r) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "op: expected a row of the op table, got \"%s\"",
                         op_dir ? op_dir : "NULL");
  }
  tgi_shape s;
  memset(&s, 0, sizeof s);
  s.dtype = dtype;
  s.listed = out->listed;
  if (text && strange_byte(text)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "%s: shape: expected %s, got the byte 0x%02x",
                         op_dir, r->syntax, strange_byte(text));
  }
  if (!text || !split(&s, text)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "%s: shape: expected %s, got \"%.40s\"", op_dir,
                         r->syntax, text ? text : "NULL");
  }
  r->shape(&s, out->args.bytes);
  for (int w = 0; w < s.num_words; w++) {
    if (!s.used[w]) {
      fail(&s, "a word of this op", s.word[w]);
    }
  }
  out->info = tg_op_find(op_dir);
  if (s.error.status == TG_OK && !tensors_fit(out)) {
    fail(&s, "tensors of less than 2^47 bytes", text);
  }
  if (s.error.status != TG_OK) {
    return tgi_error_set(error, s.error.status, "%s: shape: %s (syntax: %s)", op_dir, s.error.text,
                         r->syntax);
  }
  out->cost = slot_bytes(out);
  r->cost((const void *)out->args.bytes, &out->cost);
  return TG_OK;
}

void tgi_shaped_place(tgi_shaped *shaped)
{
  tgi_shaped_view views[TGI_SHAPE_MAX_LISTED + 32];
  const int n = tgi_shaped_views(shaped, views, (int)(sizeof views / sizeof views[0]));
  for (int i = 0; i < n; i++) { /* farther apart than any tensor is long */
    views[i].tensor->data = (void *)((uintptr_t)(i + 1) << 48);
  }
}

void tgi_shape_explain(const tg_context *ctx, const tgi_shaped *shaped, char *text, size_t bytes)
{
  ctx->chain.explain(ctx, shaped->info, shaped->args.bytes, text, bytes);
}

tg_tensor *tgi_shaped_tensor(tgi_shaped *shaped, const char *name)
{
  for (size_t i = 0; i < shaped->info->num_slots; i++) {
    const tg_slot_info *slot = &shaped->info->slots[i];
    if (slot->kind == TG_KIND_TENSOR && strcmp(slot->name, name) == 0) {
      return (void *)(shaped->args.bytes + slot->offset);
    }
  }
  return NULL;
}
