/* Filters that go through lists and the like: choosing, mapping, joining. */
#include "chat/values/template_number.h"
#include "chat/values/template_print.h"
#include "template_filters.h"
#include <string.h>

/* ---- filters and tests by name ---- */

/** Arguments from `first` on, with those by name. */
static tgi_args rest_of(const tgi_args *args, size_t first)
{
  tgi_args rest = *args;
  rest.values += first;
  rest.count -= first;
  return rest;
}

static tgi_string *name_argument(const tgi_call *call, size_t at)
{
  if (call->args->values[at].kind != TGI_STRING) {
    tgi_fail_on(call->job, call->args->values[at], "the name of a filter or test");
  }
  return call->args->values[at].as.string;
}

static const tgi_builtin *need_builtin(const tgi_call *call, const tgi_builtin *found,
                                       const tgi_string *name)
{
  if (!found) {
    tgi_job_fail(call->job, TG_UNSUPPORTED, "a filter or test that is known, got \"%.*s\"",
                 (int)name->size, name->bytes);
  }
  return found;
}

/** The value of the argument called `name`, or MISSING. */
static tgi_value named_argument(const tgi_args *args, const char *name)
{
  for (size_t i = 0; i < args->num_named; i++) {
    if (tgi_string_is(args->names[i], name)) {
      return args->named[i];
    }
  }
  return (tgi_value){0};
}

static tgi_list *make_map(tgi_call *call)
{
  tgi_job *job = call->job;
  tgi_list *mapped = tgi_list_new(job);
  if (!tgi_truth(call->self)) {
    return mapped;
  }
  const tgi_value attribute = named_argument(call->args, "attribute");
  const tgi_builtin *filter = NULL;
  tgi_args rest = *call->args;
  if (rest.count > 0) {
    const tgi_string *name = name_argument(call, 0);
    filter = need_builtin(call, tgi_find_filter(name), name);
    rest = rest_of(call->args, 1);
  } else if (attribute.kind == TGI_MISSING) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "the name of a filter or an attribute, got neither");
  }
  const tgi_value otherwise = named_argument(call->args, "default");
  tgi_walk walk = tgi_walk_begin(job, call->self);
  tgi_value item;
  while (tgi_walk_next(job, &walk, &item)) {
    tgi_list_add(job, mapped,
                 filter ? tgi_run_builtin(call->run, filter, item, &rest)
                        : tgi_look_up(job, item, attribute, otherwise));
  }
  return mapped;
}

static tgi_value run_map(tgi_call *call)
{
  return tgi_lazy(call, make_map);
}

/** Items for which a test (or, without one, their truth) is `wanted`. */
static tgi_list *choose(tgi_call *call, bool by_attribute, bool wanted)
{
  tgi_job *job = call->job;
  tgi_list *chosen = tgi_list_new(job);
  if (!tgi_truth(call->self)) {
    return chosen;
  }
  const size_t first = by_attribute;
  if (by_attribute && call->args->count == 0) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "the name of an attribute, got none");
  }
  const tgi_value attribute = by_attribute ? call->args->values[0] : tgi_none();
  const tgi_builtin *test = NULL;
  tgi_args rest = *call->args;
  if (call->args->count > first) {
    const tgi_string *name = name_argument(call, first);
    test = need_builtin(call, tgi_find_test(name), name);
    rest = rest_of(call->args, first + 1);
  }
  tgi_walk walk = tgi_walk_begin(job, call->self);
  tgi_value item;
  while (tgi_walk_next(job, &walk, &item)) {
    const tgi_value tested = tgi_look_up(job, item, attribute, (tgi_value){0});
    const tgi_value result = test ? tgi_run_builtin(call->run, test, tested, &rest) : tested;
    if (tgi_truth(result) == wanted) {
      tgi_list_add(job, chosen, item);
    }
  }
  return chosen;
}

static tgi_list *make_select(tgi_call *call)
{
  return choose(call, false, true);
}

static tgi_list *make_reject(tgi_call *call)
{
  return choose(call, false, false);
}

static tgi_list *make_selectattr(tgi_call *call)
{
  return choose(call, true, true);
}

static tgi_list *make_rejectattr(tgi_call *call)
{
  return choose(call, true, false);
}

static tgi_value run_select(tgi_call *call)
{
  return tgi_lazy(call, make_select);
}

static tgi_value run_reject(tgi_call *call)
{
  return tgi_lazy(call, make_reject);
}

static tgi_value run_selectattr(tgi_call *call)
{
  return tgi_lazy(call, make_selectattr);
}

static tgi_value run_rejectattr(tgi_call *call)
{
  return tgi_lazy(call, make_rejectattr);
}

/* ---- the rest ---- */

static tgi_value run_first(tgi_call *call)
{
  tgi_walk walk = tgi_walk_begin(call->job, call->self);
  tgi_value item;
  return tgi_walk_next(call->job, &walk, &item) ? item
                                                : tgi_undefined(NULL, (tgi_kind)call->self.kind);
}

static tgi_value run_last(tgi_call *call)
{
  if (call->self.kind == TGI_ITERATOR) {
    tgi_fail_on(call->job, call->self, "something that can be gone through from its end");
  }
  const tgi_list *items = tgi_collect(call->job, call->self);
  return items->count > 0 ? items->items[items->count - 1]
                          : tgi_undefined(NULL, (tgi_kind)call->self.kind);
}

static tgi_value run_list(tgi_call *call)
{
  return tgi_from_list(TGI_LIST, tgi_collect(call->job, call->self));
}

static tgi_list *make_items(tgi_call *call)
{
  if (call->self.kind == TGI_UNDEFINED) {
    return tgi_list_new(call->job);
  }
  if (call->self.kind != TGI_DICT) {
    tgi_fail_on(call->job, call->self, "a dict, whose items are wanted");
  }
  return tgi_collect(call->job, tgi_from_dict(TGI_ITEMS, call->self.as.dict));
}

static tgi_value run_items(tgi_call *call)
{
  return tgi_lazy(call, make_items);
}

static tgi_value run_join(tgi_call *call)
{
  tgi_job *job = call->job;
  const tgi_string *glue = call->arg[0].kind == TGI_MISSING ? tgi_string_new(job, "", 0)
                                                            : tgi_to_string(job, call->arg[0]);
  tgi_writer writer = tgi_writer_begin(job);
  tgi_walk walk = tgi_walk_begin(job, call->self);
  tgi_value item;
  for (size_t i = 0; tgi_walk_next(job, &walk, &item); i++) {
    if (i > 0) {
      tgi_write_string(&writer, glue);
    }
    tgi_print(&writer, tgi_look_up(job, item, call->arg[1], (tgi_value){0}));
  }
  return tgi_text(tgi_writer_end(&writer));
}

static tgi_list *make_reverse(tgi_call *call)
{
  const tgi_list *items = tgi_collect(call->job, call->self);
  tgi_list *turned = tgi_list_new(call->job);
  for (size_t i = items->count; i > 0; i--) {
    tgi_list_add(call->job, turned, items->items[i - 1]);
  }
  return turned;
}

static tgi_value run_reverse(tgi_call *call)
{
  tgi_job *job = call->job;
  if (call->self.kind == TGI_STRING) {
    const tgi_string *s = call->self.as.string;
    tgi_writer writer = tgi_writer_begin(job);
    for (size_t at = s->size; at > 0;) {
      const size_t before = tgi_string_before(s, at);
      tgi_write_slice(&writer, s, before, at);
      at = before;
    }
    tgi_string *turned = tgi_writer_end(&writer);
    turned->safe = s->safe;
    return tgi_text(turned);
  }
  if (!tgi_is_iterable(call->self)) {
    tgi_fail_on(job, call->self, "something to turn round");
  }
  return call->self.kind == TGI_ITERATOR ? tgi_from_list(TGI_LIST, make_reverse(call))
                                         : tgi_lazy(call, make_reverse);
}

static tgi_value run_sum(tgi_call *call)
{
  tgi_value total = call->arg[1].kind == TGI_MISSING ? tgi_int(0) : call->arg[1];
  tgi_walk walk = tgi_walk_begin(call->job, call->self);
  tgi_value item;
  while (tgi_walk_next(call->job, &walk, &item)) {
    const tgi_value value = tgi_look_up(call->job, item, call->arg[0], (tgi_value){0});
    if (!tgi_is_number(total) || !tgi_is_number(value)) {
      tgi_fail_on(call->job, tgi_is_number(total) ? value : total, "numbers to add");
    }
    total = tgi_arithmetic(call->job, TGI_OP_ADD, total, value);
  }
  return total;
}

const tgi_builtin tgi_selection_filters[] = {
    {"first", "", 0, run_first},
    {"items", "", 0, run_items},
    {"join", "d attribute", 0, run_join},
    {"last", "", 0, run_last},
    {"list", "", 0, run_list},
    {"map", NULL, 0, run_map},
    {"reject", NULL, 0, run_reject},
    {"rejectattr", NULL, 0, run_rejectattr},
    {"reverse", "", 0, run_reverse},
    {"select", NULL, 0, run_select},
    {"selectattr", NULL, 0, run_selectattr},
    {"sum", "attribute start", 0, run_sum},
    {NULL, NULL, 0, NULL},
};
