/* Filters of single values. Those that go through lists stand in template_selection.c. */
#include "template_filters.h"
#include "chat/template_render.h"
#include "chat/values/template_case.h"
#include "chat/values/template_number.h"
#include "chat/values/template_print.h"
#include <math.h>
#include <string.h>

/* ---- text ---- */

static tgi_value run_string(tgi_call *call)
{
  return tgi_text(tgi_self_string(call));
}

static tgi_value run_safe(tgi_call *call)
{
  const tgi_string *s = tgi_self_string(call);
  tgi_string *safe = tgi_string_slice(call->job, s, 0, s->size);
  safe->safe = true;
  return tgi_text(safe);
}

static tgi_value run_escape(tgi_call *call)
{
  tgi_writer writer = tgi_writer_begin(call->job);
  tgi_print_escaped(&writer, call->self);
  tgi_string *escaped = tgi_writer_end(&writer);
  escaped->safe = true;
  return tgi_text(escaped);
}

static tgi_value run_lower(tgi_call *call)
{
  return tgi_text(tgi_lower(call->job, tgi_self_string(call)));
}

static tgi_value run_upper(tgi_call *call)
{
  return tgi_text(tgi_upper(call->job, tgi_self_string(call)));
}

static tgi_value run_capitalize(tgi_call *call)
{
  return tgi_text(tgi_capitalize(call->job, tgi_self_string(call)));
}

static tgi_value run_title(tgi_call *call)
{
  tgi_string *title = tgi_title(call->job, tgi_self_string(call));
  title->safe = false;
  return tgi_text(title);
}

static tgi_value run_trim(tgi_call *call)
{
  const tgi_string *which = tgi_given(call, 0) ? tgi_string_argument(call, 0) : NULL;
  return tgi_text(tgi_string_strip(call->job, tgi_self_string(call), which, TGI_BOTH));
}

static tgi_value run_replace(tgi_call *call)
{
  tgi_job *job = call->job;
  const int64_t count = tgi_given(call, 2) ? tgi_int_argument(call, 2, -1) : -1;
  return tgi_text(tgi_string_replace(job, tgi_to_string(job, call->self),
                                     tgi_to_string(job, call->arg[0]),
                                     tgi_to_string(job, call->arg[1]), count));
}

static tgi_value run_format(tgi_call *call)
{
  const tgi_args *args = call->args;
  if (args->count > 0 && args->num_named > 0) {
    tgi_job_fail(call->job, TG_BAD_ARGUMENT, "values by position or by name, got both");
  }
  tgi_value values;
  if (args->num_named > 0) {
    tgi_dict *dict = tgi_dict_new(call->job);
    for (size_t i = 0; i < args->num_named; i++) {
      tgi_dict_set(call->job, dict, tgi_text(args->names[i]), args->named[i]);
    }
    values = tgi_from_dict(TGI_DICT, dict);
  } else {
    tgi_list *list = tgi_list_new(call->job);
    for (size_t i = 0; i < args->count; i++) {
      tgi_list_add(call->job, list, args->values[i]);
    }
    values = tgi_from_list(TGI_TUPLE, list);
  }
  return tgi_text(tgi_format_percent(call->job, tgi_self_string(call), values));
}

/** The bytes of the line at `at` and what ends it. */
static size_t line_end(const tgi_string *s, size_t at, size_t *next)
{
  size_t length = 0;
  size_t end = at;
  while (end < s->size && !tgi_is_line_end(tgi_string_point(s, end, &length))) {
    end += length;
  }
  const bool both = end + 1 < s->size && s->bytes[end] == '\r' && s->bytes[end + 1] == '\n';
  *next = end >= s->size ? s->size : end + (both ? 2 : length);
  return end;
}

/** Jinja adds a line end, and then splits into lines: one at the end of the text is lost. */
static tgi_value run_indent(tgi_call *call)
{
  tgi_job *job = call->job;
  if (call->self.kind != TGI_STRING) {
    tgi_fail_on(job, call->self, "a str to indent");
  }
  const tgi_string *s = call->self.as.string;
  tgi_writer spaces = tgi_writer_begin(job);
  if (call->arg[0].kind == TGI_STRING) {
    tgi_write_string(&spaces, call->arg[0].as.string);
  } else {
    for (int64_t i = tgi_int_argument(call, 0, 4); i > 0; i--) {
      tgi_write_text(&spaces, " ");
    }
  }
  const tgi_string *indent = tgi_writer_end(&spaces);
  const bool blank = tgi_bool_argument(call, 2, false);
  tgi_writer writer = tgi_writer_begin(job);
  if (tgi_bool_argument(call, 1, false)) {
    tgi_write_string(&writer, indent);
  }
  size_t at = 0;
  /* An empty text, and one that ends with a line end, have one more line, which is empty. */
  for (bool first = true, more = true; more; first = false) {
    size_t next;
    const size_t end = line_end(s, at, &next);
    if (!first) {
      tgi_write_text(&writer, "\n");
      if (blank || end > at) {
        tgi_write_string(&writer, indent);
      }
    }
    tgi_write_slice(&writer, s, at, end);
    more = next < s->size || (next > end && s->bytes[next - 1] != '\r'); /* which "\n" completes */
    at = next;
  }
  tgi_string *indented = tgi_writer_end(&writer);
  indented->safe = s->safe;
  return tgi_text(indented);
}

/* ---- JSON ---- */

static tgi_string *json_indent(const tgi_call *call)
{
  if (call->arg[1].kind == TGI_STRING) {
    return call->arg[1].as.string;
  }
  tgi_writer spaces = tgi_writer_begin(call->job);
  for (int64_t i = tgi_int_argument(call, 1, 0); i > 0; i--) {
    tgi_write_text(&spaces, " ");
  }
  return tgi_writer_end(&spaces);
}

static tgi_value run_tojson(tgi_call *call)
{
  tgi_json_style style = {.ascii = tgi_bool_argument(call, 0, false),
                          .sort_keys = tgi_bool_argument(call, 3, false),
                          .indent = tgi_given(call, 1) ? json_indent(call) : NULL};
  if (tgi_given(call, 2)) {
    const tgi_list *pair = tgi_collect(call->job, call->arg[2]);
    if (pair->count != 2 || pair->items[0].kind != TGI_STRING ||
        pair->items[1].kind != TGI_STRING) {
      tgi_fail_on(call->job, call->arg[2], "two str as separators");
    }
    style.comma = pair->items[0].as.string;
    style.colon = pair->items[1].as.string;
  }
  tgi_writer writer = tgi_writer_begin(call->job);
  tgi_print_json(&writer, &style, call->self);
  return tgi_text(tgi_writer_end(&writer));
}

/* ---- numbers ---- */

static bool parse_special(const tgi_string *s, double *real)
{
  static const struct {
    const char *name;
    double value;
  } names[] = {{"inf", INFINITY}, {"infinity", INFINITY}, {"nan", NAN}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const size_t size = strlen(names[i].name);
    size_t same = 0;
    while (same < size && same < s->size && (s->bytes[same] | 0x20) == names[i].name[same]) {
      same++;
    }
    if (same == size && s->size == size) {
      *real = names[i].value;
      return true;
    }
  }
  return false;
}

/** float() of a text. */
static bool parse_float(tgi_job *job, const tgi_string *text, double *real)
{
  const tgi_string *s = tgi_string_strip(job, text, NULL, TGI_BOTH);
  const bool sign = s->size > 0 && (s->bytes[0] == '-' || s->bytes[0] == '+');
  const tgi_string *size = tgi_string_slice(job, s, sign, s->size);
  if (!tgi_parse_real(job, size->bytes, size->size, real) && !parse_special(size, real)) {
    return false;
  }
  *real = sign && s->bytes[0] == '-' ? -*real : *real;
  return true;
}

static tgi_value run_int(tgi_call *call)
{
  tgi_job *job = call->job;
  const tgi_value otherwise = call->arg[0].kind == TGI_MISSING ? tgi_int(0) : call->arg[0];
  int64_t integer;
  double real;
  switch ((tgi_kind)call->self.kind) {
  case TGI_BOOL:
  case TGI_INT:
    tgi_is_integer(call->self, &integer);
    return tgi_int(integer);
  case TGI_REAL:
    real = call->self.as.real;
    break;
  case TGI_STRING: {
    const tgi_string *s = tgi_string_strip(job, call->self.as.string, NULL, TGI_BOTH);
    const int64_t base = tgi_int_argument(call, 1, 10);
    if (base >= 0 && base <= 36 && base != 1 &&
        tgi_parse_integer(job, s->bytes, s->size, (int)base, true, &integer)) {
      return tgi_int(integer);
    }
    if (!parse_float(job, s, &real)) {
      return otherwise;
    }
    break;
  }
  case TGI_UNDEFINED:
    tgi_fail_on(job, call->self, "a number or text");
  default:
    return otherwise;
  }
  return isfinite(real) ? tgi_int(tgi_truncate(job, real)) : otherwise;
}

static tgi_value run_float(tgi_call *call)
{
  double real;
  if (tgi_is_number(call->self)) {
    return tgi_real(tgi_to_real(call->self));
  }
  if (call->self.kind == TGI_UNDEFINED) {
    tgi_fail_on(call->job, call->self, "a number or text");
  }
  if (call->self.kind == TGI_STRING && parse_float(call->job, call->self.as.string, &real)) {
    return tgi_real(real);
  }
  return call->arg[0].kind == TGI_MISSING ? tgi_real(0) : call->arg[0];
}

static tgi_value need_number(const tgi_call *call)
{
  if (!tgi_is_number(call->self)) {
    tgi_fail_on(call->job, call->self, "a number");
  }
  return call->self;
}

static tgi_value run_abs(tgi_call *call)
{
  const tgi_value number = need_number(call);
  if (number.kind == TGI_REAL) {
    return tgi_real(fabs(number.as.real));
  }
  const bool negative = tgi_to_real(number) < 0;
  const tgi_value turned = tgi_negate(call->job, number);
  return negative ? turned : tgi_negate(call->job, turned);
}

/* ---- whatever it is ---- */

static tgi_value run_default(tgi_call *call)
{
  const bool absent = call->self.kind == TGI_UNDEFINED ||
                      (tgi_bool_argument(call, 1, false) && !tgi_truth(call->self));
  if (!absent) {
    return call->self;
  }
  return call->arg[0].kind == TGI_MISSING ? tgi_text(tgi_string_new(call->job, "", 0))
                                          : call->arg[0];
}

static tgi_value run_length(tgi_call *call)
{
  if (call->self.kind == TGI_LOOP) {
    tgi_value length;
    tgi_loop_attribute(call->job, call->self.as.loop, tgi_string_new(call->job, "length", 6),
                       &length);
    return length;
  }
  return tgi_int(tgi_length(call->job, call->self));
}

static tgi_value run_attr(tgi_call *call)
{
  bool known;
  tgi_string *name = tgi_string_argument(call, 0);
  if (call->self.kind == TGI_NAMESPACE || call->self.kind == TGI_UNDEFINED) {
    return tgi_get_attribute(call->job, call->self, name);
  }
  return tgi_find_method(call->job, call->self, name, &known);
}

const tgi_builtin tgi_value_filters[] = {
    {"abs", "", 0, run_abs},
    {"attr", "name", 1, run_attr},
    {"capitalize", "", 0, run_capitalize},
    {"count", "", 0, run_length},
    {"d", "default_value boolean", 0, run_default},
    {"default", "default_value boolean", 0, run_default},
    {"e", "", 0, run_escape},
    {"escape", "", 0, run_escape},
    {"float", "default", 0, run_float},
    {"format", NULL, 0, run_format},
    {"indent", "width first blank", 0, run_indent},
    {"int", "default base", 0, run_int},
    {"length", "", 0, run_length},
    {"lower", "", 0, run_lower},
    {"replace", "old new count", 2, run_replace},
    {"safe", "", 0, run_safe},
    {"string", "", 0, run_string},
    {"title", "", 0, run_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, run_tojson},
    {"trim", "chars", 0, run_trim},
    {"upper", "", 0, run_upper},
    {NULL, NULL, 0, NULL},
};
