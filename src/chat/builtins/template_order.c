/* Filters that compare items: sort, unique, min, max. */
#include "chat/values/template_case.h"
#include "template_filters.h"
#include <string.h>

static tgi_value look_up_key(const tgi_call *call, tgi_value item, tgi_value attribute,
                             bool case_sensitive)
{
  const tgi_value key = tgi_look_up(call->job, item, attribute, (tgi_value){0});
  return case_sensitive ? key : tgi_ignore_case(call->job, key);
}

/** One key for each of the attributes, with commas between, that sort is given. */
static tgi_value sort_key(const tgi_call *call, tgi_value item, bool case_sensitive)
{
  tgi_job *job = call->job;
  const tgi_value attribute = call->arg[2];
  tgi_list *keys = tgi_list_new(job);
  if (attribute.kind != TGI_STRING) {
    tgi_list_add(job, keys, look_up_key(call, item, attribute, case_sensitive));
    return tgi_from_list(TGI_LIST, keys);
  }
  const tgi_string *all = attribute.as.string;
  for (size_t at = 0; at <= all->size;) {
    const char *comma = memchr(all->bytes + at, ',', all->size - at);
    const size_t end = comma ? (size_t)(comma - all->bytes) : all->size;
    const tgi_value one = tgi_text(tgi_string_slice(job, all, at, end));
    tgi_list_add(job, keys, look_up_key(call, item, one, case_sensitive));
    at = end + 1;
  }
  return tgi_from_list(TGI_LIST, keys);
}

static tgi_value run_sort(tgi_call *call)
{
  tgi_list *items = tgi_collect(call->job, call->self);
  tgi_list *keys = tgi_list_new(call->job);
  for (size_t i = 0; i < items->count; i++) {
    tgi_list_add(call->job, keys,
                 sort_key(call, items->items[i], tgi_bool_argument(call, 1, false)));
  }
  return tgi_from_list(TGI_LIST,
                       tgi_sorted(call->job, items, keys, tgi_bool_argument(call, 0, false)));
}

static tgi_value run_dictsort(tgi_call *call)
{
  tgi_job *job = call->job;
  if (call->self.kind != TGI_DICT) {
    tgi_fail_on(job, call->self, "a dict to sort");
  }
  size_t by = 0;
  if (call->arg[1].kind != TGI_MISSING) {
    const tgi_string *name = tgi_string_argument(call, 1);
    by = tgi_string_is(name, "value");
    if (!by && !tgi_string_is(name, "key")) {
      tgi_fail_on(job, call->arg[1], "\"key\" or \"value\" to sort by");
    }
  }
  tgi_list *items = tgi_collect(job, tgi_from_dict(TGI_ITEMS, call->self.as.dict));
  tgi_list *keys = tgi_list_new(job);
  for (size_t i = 0; i < items->count; i++) {
    const tgi_value key = items->items[i].as.list->items[by];
    tgi_list_add(job, keys, tgi_bool_argument(call, 0, false) ? key : tgi_ignore_case(job, key));
  }
  return tgi_from_list(TGI_LIST, tgi_sorted(job, items, keys, tgi_bool_argument(call, 2, false)));
}

static tgi_value extreme(tgi_call *call, bool largest)
{
  tgi_job *job = call->job;
  tgi_walk walk = tgi_walk_begin(job, call->self);
  const bool case_sensitive = tgi_bool_argument(call, 0, false);
  tgi_value best, item;
  if (!tgi_walk_next(job, &walk, &best)) {
    return tgi_undefined(NULL, (tgi_kind)call->self.kind);
  }
  tgi_value best_key = look_up_key(call, best, call->arg[1], case_sensitive);
  while (tgi_walk_next(job, &walk, &item)) {
    const tgi_value key = look_up_key(call, item, call->arg[1], case_sensitive);
    if (largest ? tgi_less(job, best_key, key) : tgi_less(job, key, best_key)) {
      best = item;
      best_key = key;
    }
  }
  return best;
}

static tgi_value run_min(tgi_call *call)
{
  return extreme(call, false);
}

static tgi_value run_max(tgi_call *call)
{
  return extreme(call, true);
}

static tgi_list *make_unique(tgi_call *call)
{
  tgi_dict *seen = tgi_dict_new(call->job);
  tgi_list *kept = tgi_list_new(call->job);
  tgi_walk walk = tgi_walk_begin(call->job, call->self);
  tgi_value item;
  while (tgi_walk_next(call->job, &walk, &item)) {
    const tgi_value key = look_up_key(call, item, call->arg[1], tgi_bool_argument(call, 0, false));
    if (!tgi_dict_get(call->job, seen, key)) {
      tgi_dict_set(call->job, seen, key, tgi_none());
      tgi_list_add(call->job, kept, item);
    }
  }
  return kept;
}

static tgi_value run_unique(tgi_call *call)
{
  return tgi_lazy(call, make_unique);
}

const tgi_builtin tgi_order_filters[] = {
    {"dictsort", "case_sensitive by reverse", 0, run_dictsort},
    {"max", "case_sensitive attribute", 0, run_max},
    {"min", "case_sensitive attribute", 0, run_min},
    {"sort", "reverse case_sensitive attribute", 0, run_sort},
    {"unique", "case_sensitive attribute", 0, run_unique},
    {NULL, NULL, 0, NULL},
};
