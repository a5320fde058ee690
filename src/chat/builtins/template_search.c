/* Methods that look for something in a text. */
#include "template_methods.h"

/** Bytes that two arguments choose as str[start:stop] does; *from may be above *to. */
static void find_bounds(const tgi_call *call, int start, int stop, size_t *from, size_t *to)
{
  tgi_string *s = call->self.as.string;
  const int64_t length = (int64_t)tgi_string_points(call->job, s);
  int64_t edge[2] = {0, length};
  for (int i = 0; i < 2; i++) {
    const int parameter = i == 0 ? start : stop;
    if (tgi_given(call, parameter)) {
      const int64_t given = tgi_int_argument(call, parameter, 0);
      edge[i] = given >= 0 ? given : given + length < 0 ? 0 : given + length;
    }
  }
  *to = tgi_string_offset(call->job, s, (size_t)edge[1]);
  *from = edge[0] > length ? s->size + 1 : tgi_string_offset(call->job, s, (size_t)edge[0]);
}

static tgi_value point_index(const tgi_call *call, size_t at)
{
  tgi_string *before = tgi_string_slice(call->job, call->self.as.string, 0, at);
  return tgi_int((int64_t)tgi_string_points(call->job, before));
}

static tgi_value run_find(tgi_call *call)
{
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  const size_t at =
      tgi_string_find(call->job, call->self.as.string, tgi_string_argument(call, 0), from, to);
  return at == TGI_NOT_FOUND ? tgi_int(-1) : point_index(call, at);
}

static tgi_value run_rfind(tgi_call *call)
{
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  const size_t at =
      tgi_string_find_last(call->job, call->self.as.string, tgi_string_argument(call, 0), from, to);
  return at == TGI_NOT_FOUND ? tgi_int(-1) : point_index(call, at);
}

static tgi_value run_index(tgi_call *call)
{
  const tgi_value found = run_find(call);
  if (found.as.integer < 0) {
    tgi_fail_on(call->job, call->arg[0], "a part of the text");
  }
  return found;
}

static tgi_value run_count(tgi_call *call)
{
  const tgi_string *part = tgi_string_argument(call, 0);
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  tgi_string *s = call->self.as.string;
  if (part->size == 0) {
    return from > to ? tgi_int(0)
                     : tgi_int(1 + (int64_t)tgi_string_points(
                                       call->job, tgi_string_slice(call->job, s, from, to)));
  }
  int64_t count = 0;
  for (; (from = tgi_string_find(call->job, s, part, from, to)) != TGI_NOT_FOUND; count++) {
    from += part->size;
  }
  return tgi_int(count);
}

/** startswith and endswith of one text or of each in a tuple. */
static tgi_value run_affix(tgi_call *call, bool (*matches)(const tgi_string *, const tgi_string *))
{
  size_t from, to;
  find_bounds(call, 1, 2, &from, &to);
  if (from > to) {
    return tgi_bool(false);
  }
  const tgi_string *s = tgi_string_slice(call->job, call->self.as.string, from, to);
  if (call->arg[0].kind != TGI_TUPLE) {
    return tgi_bool(matches(s, tgi_string_argument(call, 0)));
  }
  const tgi_list *choices = call->arg[0].as.list;
  for (size_t i = 0; i < choices->count; i++) {
    tgi_job_step(call->job, 0);
    if (choices->items[i].kind != TGI_STRING) {
      tgi_fail_on(call->job, choices->items[i], "a tuple of str");
    }
    if (matches(s, choices->items[i].as.string)) {
      return tgi_bool(true);
    }
  }
  return tgi_bool(false);
}

static tgi_value run_startswith(tgi_call *call)
{
  return run_affix(call, tgi_string_starts);
}

static tgi_value run_endswith(tgi_call *call)
{
  return run_affix(call, tgi_string_ends);
}

const tgi_builtin tgi_search_methods[] = {
    {"count", "sub start end", 1, run_count},
    {"endswith", "suffix start end", 1, run_endswith},
    {"find", "sub start end", 1, run_find},
    {"index", "sub start end", 1, run_index},
    {"rfind", "sub start end", 1, run_rfind},
    {"startswith", "prefix start end", 1, run_startswith},
    {NULL, NULL, 0, NULL},
};
