/* ==, <, in and hashes, as Python has them. */
#include "template_number.h"
#include "template_value.h"

static bool equal_lists(tgi_job *job, const tgi_list *a, const tgi_list *b)
{
  if (a->count != b->count) {
    return false;
  }
  tgi_job_enter(job);
  bool equal = true;
  for (size_t i = 0; equal && i < a->count; i++) {
    equal = tgi_equal(job, a->items[i], b->items[i]);
  }
  tgi_job_leave(job);
  return equal;
}

static bool equal_dicts(tgi_job *job, const tgi_dict *a, const tgi_dict *b)
{
  if (a->count != b->count) {
    return false;
  }
  tgi_job_enter(job);
  bool equal = true;
  for (size_t i = 0; equal && i < a->count; i++) {
    const tgi_value *other = tgi_dict_get(job, b, a->entries[i].key);
    equal = other && tgi_equal(job, a->entries[i].value, *other);
  }
  tgi_job_leave(job);
  return equal;
}

static bool equal_ranges(const tgi_range *a, const tgi_range *b)
{
  return a->count == b->count && (a->count == 0 || a->start == b->start) &&
         (a->count <= 1 || a->step == b->step);
}

bool tgi_same(tgi_value a, tgi_value b)
{
  if (a.kind != b.kind) {
    return false;
  }
  switch ((tgi_kind)a.kind) {
  case TGI_UNDEFINED:
  case TGI_NONE:
    return true;
  case TGI_BOOL:
    return a.as.truth == b.as.truth;
  case TGI_INT:
    return a.as.integer == b.as.integer;
  case TGI_REAL:
    return false;
  default:
    return a.as.list == b.as.list; /* whichever pointer it is */
  }
}

bool tgi_equal(tgi_job *job, tgi_value a, tgi_value b)
{
  tgi_job_step(job, 0);
  if (tgi_is_number(a) && tgi_is_number(b)) {
    return tgi_number_order(a, b) == TGI_SAME;
  }
  if (a.kind != b.kind) {
    return false;
  }
  switch ((tgi_kind)a.kind) {
  case TGI_STRING:
    tgi_job_step(job, a.as.string->size);
    return tgi_string_compare(a.as.string, b.as.string) == 0;
  case TGI_LIST:
  case TGI_TUPLE:
    return a.as.list == b.as.list || equal_lists(job, a.as.list, b.as.list);
  case TGI_DICT:
    return a.as.dict == b.as.dict || equal_dicts(job, a.as.dict, b.as.dict);
  case TGI_RANGE:
    return equal_ranges(a.as.range, b.as.range);
  case TGI_KEYS:
  case TGI_ITEMS:
    tgi_job_fail(job, TG_UNSUPPORTED, "a comparison of lists, got views of dictionaries");
  default:
    return tgi_same(a, b);
  }
}

/** The first pair of items that differ decides; else the lengths. */
static bool less_lists(tgi_job *job, const tgi_list *a, const tgi_list *b, bool or_equal)
{
  const size_t count = a->count < b->count ? a->count : b->count;
  tgi_job_enter(job);
  for (size_t i = 0; i < count; i++) {
    if (!tgi_equal(job, a->items[i], b->items[i])) {
      const bool less = or_equal ? tgi_less_equal(job, a->items[i], b->items[i])
                                 : tgi_less(job, a->items[i], b->items[i]);
      tgi_job_leave(job);
      return less;
    }
  }
  tgi_job_leave(job);
  return or_equal ? a->count <= b->count : a->count < b->count;
}

static bool less(tgi_job *job, tgi_value a, tgi_value b, bool or_equal)
{
  tgi_job_step(job, 0);
  if (tgi_is_number(a) && tgi_is_number(b)) {
    const tgi_order order = tgi_number_order(a, b);
    return order == TGI_BELOW || (or_equal && order == TGI_SAME);
  }
  if (a.kind == TGI_STRING && b.kind == TGI_STRING) {
    tgi_job_step(job, a.as.string->size);
    const int order = tgi_string_compare(a.as.string, b.as.string);
    return or_equal ? order <= 0 : order < 0;
  }
  if (a.kind == b.kind && (a.kind == TGI_LIST || a.kind == TGI_TUPLE)) {
    return less_lists(job, a.as.list, b.as.list, or_equal);
  }
  if (a.kind == TGI_UNDEFINED || b.kind == TGI_UNDEFINED) {
    tgi_fail_on(job, a.kind == TGI_UNDEFINED ? a : b, "values that have an order");
  }
  tgi_job_fail(job, TG_BAD_ARGUMENT, "values that have an order, got %s and %s", tgi_type_name(a),
               tgi_type_name(b));
}

bool tgi_less(tgi_job *job, tgi_value a, tgi_value b)
{
  return less(job, a, b, false);
}

bool tgi_less_equal(tgi_job *job, tgi_value a, tgi_value b)
{
  return less(job, a, b, true);
}

bool tgi_contains(tgi_job *job, tgi_value container, tgi_value item)
{
  if (container.kind == TGI_STRING) {
    if (item.kind != TGI_STRING) {
      tgi_fail_on(job, item, "a str left of \"in\" and a str");
    }
    return tgi_string_find(job, container.as.string, item.as.string, 0,
                           container.as.string->size) != TGI_NOT_FOUND;
  }
  if (container.kind == TGI_DICT || container.kind == TGI_KEYS) {
    return tgi_dict_get(job, container.as.dict, item) != NULL;
  }
  tgi_walk walk = tgi_walk_begin(job, container);
  tgi_value candidate;
  while (tgi_walk_next(job, &walk, &candidate)) {
    if (tgi_same(candidate, item) || tgi_equal(job, candidate, item)) {
      return true;
    }
  }
  return false;
}

static uint64_t mix(uint64_t hash, uint64_t more)
{
  hash = (hash ^ more) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

/** Equal numbers have equal hashes, whatever their type. */
static uint64_t hash_number(tgi_value v)
{
  int64_t integer;
  if (tgi_is_integer(v, &integer)) {
    return mix(1, (uint64_t)integer);
  }
  const double real = v.as.real;
  if (real > -TGI_INTEGER_END && real < TGI_INTEGER_END && real == (double)(int64_t)real) {
    return mix(1, (uint64_t)(int64_t)real);
  }
  union {
    double real;
    uint64_t bits;
  } both = {.real = real};
  return mix(2, both.bits);
}

static uint64_t hash_string(const tgi_string *s)
{
  uint64_t hash = 3;
  for (size_t i = 0; i < s->size; i++) {
    hash = (hash ^ (unsigned char)s->bytes[i]) * 0x100000001b3u;
  }
  return mix(hash, s->size);
}

static uint64_t hash_any(tgi_value v)
{
  switch ((tgi_kind)v.kind) {
  case TGI_BOOL:
  case TGI_INT:
  case TGI_REAL:
    return hash_number(v);
  case TGI_STRING:
    return hash_string(v.as.string);
  case TGI_RANGE:
    return mix(4, (uint64_t)v.as.range->count);
  case TGI_TUPLE: {
    uint64_t hash = 5;
    for (size_t i = 0; i < v.as.list->count; i++) {
      hash = mix(hash, hash_any(v.as.list->items[i]));
    }
    return hash;
  }
  default:
    return mix(6, v.kind); /* few are keys */
  }
}

uint64_t tgi_hash(tgi_job *job, tgi_value v)
{
  if (!tgi_is_hashable(job, v)) {
    tgi_fail_on(job, v, "a key that can be one: text, a number, none, a tuple of them");
  }
  tgi_job_step(job, v.kind == TGI_STRING ? v.as.string->size : 0);
  return hash_any(v);
}

/** Merges two sorted halves of `order`; what is equal keeps its place, also where it descends. */
static void merge(tgi_job *job, const tgi_value *keys, bool descending, const size_t *order,
                  size_t middle, size_t count, size_t *merged)
{
  size_t left = 0, right = middle;
  for (size_t i = 0; i < count; i++) {
    bool take_right = left == middle;
    if (!take_right && right < count) {
      const tgi_value a = keys[order[left]], b = keys[order[right]];
      take_right = descending ? tgi_less(job, a, b) : tgi_less(job, b, a);
    }
    merged[i] = order[take_right ? right++ : left++];
  }
}

tgi_list *tgi_sorted(tgi_job *job, const tgi_list *items, const tgi_list *keys, bool descending)
{
  const size_t count = items->count;
  const tgi_value *by = keys ? keys->items : items->items;
  size_t *order = tgi_job_allocate(job, count * sizeof *order);
  size_t *merged = tgi_job_allocate(job, count * sizeof *merged);
  for (size_t i = 0; i < count; i++) {
    order[i] = i;
  }
  for (size_t half = 1; half < count; half *= 2) {
    for (size_t from = 0; from < count; from += 2 * half) {
      const size_t left = count - from, run = left < 2 * half ? left : 2 * half;
      merge(job, by, descending, order + from, half < run ? half : run, run, merged + from);
    }
    size_t *swap = order;
    order = merged;
    merged = swap;
  }
  tgi_list *sorted = tgi_list_new(job);
  for (size_t i = 0; i < count; i++) {
    tgi_list_add(job, sorted, items->items[order[i]]);
  }
  return sorted;
}
