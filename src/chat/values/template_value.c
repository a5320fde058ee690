#include "template_value.h"
#include "files/file_error.h"
#include "template_print.h"
#include <stdio.h>
#include <string.h>

enum { kFewEntries = 8 };

tgi_list *tgi_list_new(tgi_job *job)
{
  return tgi_job_allocate(job, sizeof(tgi_list));
}

void tgi_list_add(tgi_job *job, tgi_list *list, tgi_value value)
{
  tgi_job_step(job, 0);
  if (list->count == list->capacity) {
    const size_t capacity = list->capacity ? 2 * list->capacity : 4;
    list->items = tgi_job_grow(job, list->items, list->capacity * sizeof *list->items,
                               capacity * sizeof *list->items);
    list->capacity = capacity;
  }
  list->items[list->count++] = value;
}

tgi_value tgi_pair(tgi_job *job, tgi_value first, tgi_value second)
{
  tgi_list *list = tgi_list_new(job);
  tgi_list_add(job, list, first);
  tgi_list_add(job, list, second);
  return tgi_from_list(TGI_TUPLE, list);
}

/* ---- dictionaries ---- */

tgi_dict *tgi_dict_new(tgi_job *job)
{
  return tgi_job_allocate(job, sizeof(tgi_dict));
}

/** Slot of the key, or the empty one where it belongs. */
static size_t find_slot(tgi_job *job, const tgi_dict *dict, tgi_value key, uint64_t hash)
{
  size_t slot = hash & (dict->num_slots - 1);
  for (; dict->slots[slot] != 0; slot = (slot + 1) & (dict->num_slots - 1)) {
    const tgi_entry *entry = &dict->entries[dict->slots[slot] - 1];
    if (entry->hash == hash && tgi_equal(job, entry->key, key)) {
      break;
    }
    tgi_job_step(job, 0); /* keys may be chosen to collide */
  }
  return slot;
}

static tgi_entry *find_entry(tgi_job *job, const tgi_dict *dict, tgi_value key, uint64_t hash)
{
  if (dict->slots) {
    const uint32_t found = dict->slots[find_slot(job, dict, key, hash)];
    return found ? &dict->entries[found - 1] : NULL;
  }
  for (size_t i = 0; i < dict->count; i++) {
    if (dict->entries[i].hash == hash && tgi_equal(job, dict->entries[i].key, key)) {
      return &dict->entries[i];
    }
  }
  return NULL;
}

/** At most half of the slots are in use. */
static void index_entries(tgi_job *job, tgi_dict *dict)
{
  dict->num_slots = 4 * dict->capacity;
  dict->slots = tgi_job_allocate(job, dict->num_slots * sizeof *dict->slots);
  for (size_t i = 0; i < dict->count; i++) {
    const tgi_entry *entry = &dict->entries[i];
    dict->slots[find_slot(job, dict, entry->key, entry->hash)] = (uint32_t)i + 1;
  }
}

void tgi_dict_set(tgi_job *job, tgi_dict *dict, tgi_value key, tgi_value value)
{
  const uint64_t hash = tgi_hash(job, key);
  tgi_entry *entry = find_entry(job, dict, key, hash);
  if (entry) {
    entry->value = value;
    return;
  }
  tgi_job_step(job, 0);
  if (dict->count == dict->capacity) {
    const size_t capacity = dict->capacity ? 2 * dict->capacity : kFewEntries;
    dict->entries = tgi_job_grow(job, dict->entries, dict->capacity * sizeof *dict->entries,
                                 capacity * sizeof *dict->entries);
    dict->capacity = capacity;
    if (capacity > kFewEntries) {
      index_entries(job, dict);
    }
  }
  if (dict->slots) {
    dict->slots[find_slot(job, dict, key, hash)] = (uint32_t)dict->count + 1;
  }
  dict->entries[dict->count++] = (tgi_entry){key, value, hash};
}

const tgi_value *tgi_dict_get(tgi_job *job, const tgi_dict *dict, tgi_value key)
{
  const tgi_entry *entry = find_entry(job, dict, key, tgi_hash(job, key));
  return entry ? &entry->value : NULL;
}

const tgi_value *tgi_dict_get_text(tgi_job *job, const tgi_dict *dict, const char *key)
{
  tgi_string name = {.bytes = key, .size = strlen(key), .points = TGI_NOT_FOUND};
  return tgi_dict_get(job, dict, tgi_text(&name));
}

/* ---- looking ---- */

bool tgi_is_hashable(tgi_job *job, tgi_value v)
{
  if (v.kind != TGI_TUPLE) {
    return v.kind != TGI_LIST && v.kind != TGI_DICT && v.kind != TGI_KEYS && v.kind != TGI_ITEMS;
  }
  bool hashable = true;
  tgi_job_enter(job);
  for (size_t i = 0; hashable && i < v.as.list->count; i++) {
    const tgi_value item = v.as.list->items[i];
    tgi_job_step(job, item.kind == TGI_STRING ? item.as.string->size : 0);
    hashable = tgi_is_hashable(job, item);
  }
  tgi_job_leave(job);
  return hashable;
}

bool tgi_truth(tgi_value v)
{
  switch ((tgi_kind)v.kind) {
  case TGI_BOOL:
    return v.as.truth;
  case TGI_INT:
    return v.as.integer != 0;
  case TGI_REAL:
    return v.as.real != 0;
  case TGI_STRING:
    return v.as.string->size > 0;
  case TGI_LIST:
  case TGI_TUPLE:
    return v.as.list->count > 0;
  case TGI_DICT:
  case TGI_KEYS:
  case TGI_VALUES:
  case TGI_ITEMS:
    return v.as.dict->count > 0;
  case TGI_RANGE:
    return v.as.range->count > 0;
  case TGI_MISSING:
  case TGI_UNDEFINED:
  case TGI_NONE:
    return false;
  default:
    return true;
  }
}

const char *tgi_type_name(tgi_value v)
{
  static const char *const names[TGI_NUM_KINDS] = {
      "nothing",  "undefined", "None",  "bool",     "int",       "float",       "str",
      "list",     "tuple",     "dict",  "range",    "dict_keys", "dict_values", "dict_items",
      "iterator", "namespace", "macro", "function", "method",    "loop"};
  return names[v.kind];
}

/* Short values as Python prints them, behind the name of their type. */
static tgi_quoted describe(tgi_value v)
{
  char text[2 * TGI_QUOTED_BYTES];
  switch ((tgi_kind)v.kind) {
  case TGI_STRING:
    snprintf(text, sizeof text, "str \"%s\"",
             tgi_quote(v.as.string->bytes, v.as.string->size > 40 ? 40 : v.as.string->size).text);
    break;
  case TGI_INT:
    snprintf(text, sizeof text, "int %lld", (long long)v.as.integer);
    break;
  case TGI_BOOL:
    snprintf(text, sizeof text, "bool %s", v.as.truth ? "True" : "False");
    break;
  default:
    snprintf(text, sizeof text, "%s", tgi_type_name(v));
  }
  return tgi_quote(text, strlen(text));
}

void tgi_fail_on(tgi_job *job, tgi_value v, const char *rule)
{
  if (v.kind != TGI_UNDEFINED) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "%s, got %s", rule, describe(v).text);
  }
  const tgi_quoted name =
      v.as.name ? tgi_quote(v.as.name->bytes, v.as.name->size) : tgi_quote("", 0);
  if (v.owner) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "%s, got \"%s\" of a %s, which is undefined", rule,
                 name.text, tgi_type_name((tgi_value){.kind = v.owner}));
  }
  tgi_job_fail(job, TG_BAD_ARGUMENT, "%s, got \"%s\", which is undefined", rule, name.text);
}

int64_t tgi_length(tgi_job *job, tgi_value v)
{
  switch ((tgi_kind)v.kind) {
  case TGI_UNDEFINED:
    return 0;
  case TGI_STRING:
    return (int64_t)tgi_string_points(job, v.as.string);
  case TGI_LIST:
  case TGI_TUPLE:
    return (int64_t)v.as.list->count;
  case TGI_DICT:
  case TGI_KEYS:
  case TGI_VALUES:
  case TGI_ITEMS:
    return (int64_t)v.as.dict->count;
  case TGI_RANGE:
    return v.as.range->count;
  default:
    tgi_fail_on(job, v, "something with a length");
  }
}

bool tgi_item_at(tgi_job *job, tgi_value v, int64_t index, tgi_value *item)
{
  const int64_t length = tgi_length(job, v);
  index += index < 0 ? length : 0;
  if (index < 0 || index >= length) {
    return false;
  }
  if (v.kind == TGI_STRING) {
    size_t size;
    const size_t at = tgi_string_offset(job, v.as.string, (size_t)index);
    tgi_string_point(v.as.string, at, &size);
    *item = tgi_text(tgi_string_slice(job, v.as.string, at, at + size));
  } else if (v.kind == TGI_RANGE) {
    *item = tgi_int(v.as.range->start + index * v.as.range->step);
  } else {
    *item = v.as.list->items[index];
  }
  return true;
}

bool tgi_is_integer(tgi_value v, int64_t *integer)
{
  if (v.kind == TGI_BOOL) {
    *integer = v.as.truth;
  } else if (v.kind == TGI_INT) {
    *integer = v.as.integer;
  }
  return v.kind == TGI_BOOL || v.kind == TGI_INT;
}

/* ---- going through ---- */

bool tgi_is_iterable(tgi_value v)
{
  return v.kind == TGI_UNDEFINED || v.kind == TGI_LOOP ||
         (v.kind >= TGI_STRING && v.kind <= TGI_ITERATOR);
}

tgi_walk tgi_walk_begin(tgi_job *job, tgi_value v)
{
  if (!tgi_is_iterable(v) || v.kind == TGI_LOOP) {
    tgi_fail_on(job, v, "something to go through");
  }
  return (tgi_walk){v, 0};
}

bool tgi_walk_next(tgi_job *job, tgi_walk *walk, tgi_value *item)
{
  tgi_value v = walk->over;
  tgi_job_step(job, 0);
  switch ((tgi_kind)v.kind) {
  case TGI_STRING: { /* `at` counts bytes */
    if (walk->at >= v.as.string->size) {
      return false;
    }
    size_t size;
    tgi_string_point(v.as.string, walk->at, &size);
    tgi_string *one = tgi_string_slice(job, v.as.string, walk->at, walk->at + size);
    one->safe = false;
    *item = tgi_text(one);
    walk->at += size;
    return true;
  }
  case TGI_LIST:
  case TGI_TUPLE:
  case TGI_RANGE:
    return tgi_item_at(job, v, (int64_t)walk->at++, item);
  case TGI_DICT:
  case TGI_KEYS:
  case TGI_VALUES:
  case TGI_ITEMS: {
    if (walk->at >= v.as.dict->count) {
      return false;
    }
    const tgi_entry *entry = &v.as.dict->entries[walk->at++];
    *item = v.kind == TGI_VALUES  ? entry->value
            : v.kind == TGI_ITEMS ? tgi_pair(job, entry->key, entry->value)
                                  : entry->key;
    return true;
  }
  case TGI_ITERATOR: {
    tgi_iterator *iterator = v.as.iterator;
    if (!iterator->items) {
      iterator->items = iterator->make(iterator->call);
    }
    if (iterator->at >= iterator->items->count) {
      return false;
    }
    *item = iterator->items->items[iterator->at++];
    return true;
  }
  default:
    return false;
  }
}

tgi_list *tgi_collect(tgi_job *job, tgi_value v)
{
  tgi_list *list = tgi_list_new(job);
  tgi_walk walk = tgi_walk_begin(job, v);
  tgi_value item;
  while (tgi_walk_next(job, &walk, &item)) {
    tgi_list_add(job, list, item);
  }
  return list;
}
