/* Global functions: namespace, dict, range, raise_exception, strftime_now. */
#include "template_functions.h"
#include "chat/template_render.h"
#include "chat/values/template_print.h"
#include "files/file_error.h"
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { kMaxRange = 100000, kDateBytes = 256 };

/** dict(mapping or pairs, name=value, ...). */
static tgi_dict *make_dict(tgi_call *call)
{
  tgi_job *job = call->job;
  const tgi_args *args = call->args;
  tgi_dict *dict = tgi_dict_new(job);
  if (args->count > 1) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "at most one argument without a name, got %zu", args->count);
  }
  if (args->count == 1) {
    const tgi_value from = args->values[0];
    tgi_walk walk = from.kind == TGI_DICT
                        ? tgi_walk_begin(job, tgi_from_dict(TGI_ITEMS, from.as.dict))
                        : tgi_walk_begin(job, from);
    tgi_value item;
    while (tgi_walk_next(job, &walk, &item)) {
      const tgi_list *pair = tgi_collect(job, item);
      if (pair->count != 2) {
        tgi_fail_on(job, item, "pairs of keys and values");
      }
      tgi_dict_set(job, dict, pair->items[0], pair->items[1]);
    }
  }
  for (size_t i = 0; i < args->num_named; i++) {
    tgi_dict_set(job, dict, tgi_text(args->names[i]), args->named[i]);
  }
  return dict;
}

static tgi_value run_dict(tgi_call *call)
{
  return tgi_from_dict(TGI_DICT, make_dict(call));
}

static tgi_value run_namespace(tgi_call *call)
{
  tgi_dict *dict = make_dict(call);
  for (size_t i = 0; i < dict->count; i++) {
    const tgi_value key = dict->entries[i].key;
    if (key.kind == TGI_STRING) {
      tgi_check_attribute(call->job, key.as.string);
    }
  }
  return tgi_from_dict(TGI_NAMESPACE, dict);
}

void tgi_check_attribute(tgi_job *job, const tgi_string *name)
{
  if (name->size > 0 && name->bytes[0] == '_') {
    tgi_fail_on(job, tgi_text((tgi_string *)(uintptr_t)name),
                "an attribute of a namespace that does not begin with an underscore");
  }
}

static tgi_value run_range(tgi_call *call)
{
  int64_t edge[3];
  for (int i = 0; i < 3; i++) {
    edge[i] = tgi_int_argument(call, i, i == 2 ? 1 : 0);
  }
  const bool single = call->arg[1].kind == TGI_MISSING;
  const int64_t start = single ? 0 : edge[0], stop = single ? edge[0] : edge[1], step = edge[2];
  if (step == 0) {
    tgi_job_fail(call->job, TG_BAD_ARGUMENT, "a step other than 0, got 0");
  }
  int64_t span;
  int64_t count = 0;
  if ((step > 0) == (stop > start) && start != stop) {
    const bool far = step > 0 ? __builtin_sub_overflow(stop, start, &span)
                              : __builtin_sub_overflow(start, stop, &span);
    const uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t steps = far ? UINT64_MAX : ((uint64_t)span - 1) / size + 1;
    if (steps > kMaxRange) {
      tgi_job_fail(call->job, TG_BAD_ARGUMENT, "a range of at most %d numbers, got more",
                   kMaxRange);
    }
    count = (int64_t)steps;
  }
  tgi_range *range = tgi_job_allocate(call->job, sizeof *range);
  *range = (tgi_range){start, step, count, stop};
  return (tgi_value){.kind = TGI_RANGE, .as.range = range};
}

static tgi_value run_raise_exception(tgi_call *call)
{
  const tgi_string *message = tgi_to_string(call->job, call->arg[0]);
  char text[320] = "";
  size_t used = 0, length;
  for (size_t at = 0; at < message->size && used + 8 < sizeof text; at += length) {
    tgi_string_point(message, at, &length);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s",
                             tgi_quote(message->bytes + at, length).text);
  }
  tgi_job_fail(call->job, TG_BAD_ARGUMENT, "messages that the template accepts, got \"%s\"", text);
}

/**
 * As datetime.strftime of Python: "%f" is microseconds, and a time without a zone prints nothing
 * for "%z" and "%Z".
 */
static tgi_value run_strftime_now(tgi_call *call)
{
  tgi_job *job = call->job;
  const tgi_string *format = tgi_string_argument(call, 0);
  tgi_writer form = tgi_writer_begin(job);
  for (size_t at = 0; at < format->size; at++) {
    const bool directive = format->bytes[at] == '%' && at + 1 < format->size;
    const char letter = directive ? format->bytes[at + 1] : 0;
    if (letter == 'f') {
      tgi_write_text(&form, "000000");
    } else if (letter != 'z' && letter != 'Z') {
      tgi_write(&form, format->bytes + at, directive ? 2 : 1);
    }
    at += directive;
  }
  tgi_write(&form, " ", 2); /* an empty result would look like one that found no room */
  if (memchr(form.bytes, '\0', form.size - 1)) {
    tgi_fail_on(job, call->arg[0], "a format of dates without a byte of value 0");
  }
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!plain) {
    tgi_job_fail(job, TG_NO_MEMORY, "memory for a locale, got none");
  }
  char *text = tgi_job_allocate(job, form.size + kDateBytes);
  const size_t size = strftime_l(text, form.size + kDateBytes, form.bytes, &call->run->now, plain);
  freelocale(plain);
  if (size == 0) {
    tgi_fail_on(job, call->arg[0], "a format of dates that makes a short text");
  }
  return tgi_text(tgi_string_new(job, text, size - 1));
}

const tgi_builtin tgi_functions[] = {
    {"dict", NULL, 0, run_dict},
    {"namespace", NULL, 0, run_namespace},
    {"raise_exception", "message", 1, run_raise_exception},
    {"range", "start stop step", 1, run_range},
    {"strftime_now", "format", 1, run_strftime_now},
    {NULL, NULL, 0, NULL},
};
