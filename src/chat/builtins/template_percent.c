/* format % values, as printf-style formatting of Python. */
#include "chat/values/template_format.h"
#include "chat/values/template_number.h"
#include "chat/values/template_print.h"
#include "template_call.h"
#include <string.h>

typedef struct formatting {
  tgi_job *job;
  tgi_writer writer;
  tgi_string *format;
  size_t at; /* in the format */
  tgi_value values;
  size_t used; /* of the values */
} formatting;

static char next_byte(formatting *f)
{
  if (f->at >= f->format->size) {
    tgi_job_fail(f->job, TG_BAD_ARGUMENT, "a complete format behind %%, got its end");
  }
  return f->format->bytes[f->at];
}

static tgi_value next_value(formatting *f)
{
  const bool tuple = f->values.kind == TGI_TUPLE;
  if (f->used >= (tuple ? f->values.as.list->count : 1)) {
    tgi_job_fail(f->job, TG_BAD_ARGUMENT, "a value for each format, got %zu values", f->used);
  }
  f->used++;
  return tuple ? f->values.as.list->items[f->used - 1] : f->values;
}

/** The value of "(key)", if that follows. */
static bool take_key(formatting *f, tgi_value *value)
{
  if (next_byte(f) != '(') {
    return false;
  }
  const size_t start = ++f->at;
  for (int depth = 1; depth > 0; f->at++) {
    const char c = next_byte(f);
    depth += (c == '(') - (c == ')');
  }
  if (f->values.kind != TGI_DICT) {
    tgi_fail_on(f->job, f->values, "a dict for a format with names");
  }
  const tgi_value key = tgi_text(tgi_string_slice(f->job, f->format, start, f->at - 1));
  const tgi_value *found = tgi_dict_get(f->job, f->values.as.dict, key);
  if (found) {
    *value = *found;
  } else {
    tgi_fail_on(f->job, key, "a key of the dict");
  }
  return true;
}

static int take_count(formatting *f)
{
  if (next_byte(f) != '*') {
    return tgi_format_count(f->job, f->format, &f->at);
  }
  f->at++;
  int64_t count;
  const tgi_value v = next_value(f);
  if (!tgi_is_integer(v, &count) || count > TGI_MAX_FORMAT_WIDTH || count < -TGI_MAX_FORMAT_WIDTH) {
    tgi_fail_on(f->job, v, "an int of at most 1000 for *");
  }
  return (int)count;
}

static tgi_format_spec take_spec(formatting *f)
{
  tgi_format_spec spec = {.precision = -1};
  bool zero = false;
  for (; strchr("#0- +", next_byte(f)); f->at++) {
    const char flag = next_byte(f);
    spec.alternate |= flag == '#';
    zero |= flag == '0';
    spec.align = flag == '-' ? '<' : spec.align;
    if (flag == '+' || (flag == ' ' && !spec.sign)) {
      spec.sign = flag;
    }
  }
  spec.width = take_count(f);
  if (spec.width < 0) {
    spec.width = -spec.width;
    spec.align = '<';
  }
  if (next_byte(f) == '.') {
    f->at++;
    const int precision = take_count(f);
    spec.precision = precision < 0 ? 0 : precision;
  }
  while (strchr("hlL", next_byte(f))) {
    f->at++;
  }
  spec.type = next_byte(f);
  f->at++;
  if (!spec.align) {
    spec.align = zero && strchr("diueEfFgGxXo", spec.type) ? '=' : '>';
    spec.fill = spec.align == '=' ? '0' : 0;
  }
  return spec;
}

static tgi_string *text_of(formatting *f, char type, tgi_value value)
{
  tgi_writer text = tgi_writer_begin(f->job);
  if (type == 'r') {
    tgi_print_repr(&text, value);
    value = tgi_text(tgi_writer_end(&text));
    text = tgi_writer_begin(f->job);
  }
  if (f->format->safe) {
    tgi_print_escaped(&text, value);
  } else {
    tgi_print(&text, value);
  }
  return tgi_writer_end(&text);
}

static tgi_string *character_of(formatting *f, tgi_value value)
{
  int64_t point = -1;
  if (value.kind == TGI_STRING && tgi_string_points(f->job, value.as.string) == 1) {
    return value.as.string;
  }
  if (!tgi_is_integer(value, &point) || point < 0 || point > 0x10ffff ||
      (point >= 0xd800 && point < 0xe000)) {
    tgi_fail_on(f->job, value, "one character for %c");
  }
  tgi_writer text = tgi_writer_begin(f->job);
  tgi_write_point(&text, (uint32_t)point, 0);
  return tgi_writer_end(&text);
}

static void write_value(formatting *f, tgi_format_spec *spec, tgi_value value)
{
  switch (spec->type) {
  case 's':
  case 'r':
    tgi_format_string(&f->writer, spec, text_of(f, spec->type, value));
    return;
  case 'c':
    spec->precision = -1;
    tgi_format_string(&f->writer, spec, character_of(f, value));
    return;
  case 'i':
  case 'u':
    spec->type = 'd';
    break;
  case 'd':
  case 'x':
  case 'X':
  case 'o':
  case 'e':
  case 'E':
  case 'f':
  case 'F':
  case 'g':
  case 'G':
    break;
  default:
    tgi_job_fail(f->job, TG_UNSUPPORTED,
                 "one of s r c d i u x X o e E f F g G %% behind %%, got "
                 "another byte");
  }
  const bool whole = strchr("xXo", spec->type) != NULL;
  const bool digits = whole || spec->type == 'd';
  if (!tgi_is_number(value) || (whole && value.kind == TGI_REAL)) {
    tgi_fail_on(f->job, value, "a number for a format of numbers");
  }
  if (digits && spec->precision > 0) {
    tgi_job_fail(f->job, TG_UNSUPPORTED, "a whole number without precision, got %d",
                 spec->precision);
  }
  tgi_format_number(&f->writer, spec, value);
}

tgi_string *tgi_format_percent(tgi_job *job, const tgi_string *format, tgi_value values)
{
  formatting f = {
      job, tgi_writer_begin(job), tgi_string_slice(job, format, 0, format->size), 0, values, 0};
  size_t plain = 0;
  while (f.at < format->size) {
    if (format->bytes[f.at] != '%') {
      f.at++;
      continue;
    }
    tgi_write_slice(&f.writer, format, plain, f.at);
    f.at++;
    if (next_byte(&f) == '%') {
      plain = f.at++;
      continue;
    }
    tgi_value value;
    const bool named = take_key(&f, &value);
    tgi_format_spec spec = take_spec(&f);
    write_value(&f, &spec, named ? value : next_value(&f));
    plain = f.at;
  }
  tgi_write_slice(&f.writer, format, plain, format->size);
  const bool mapping = values.kind == TGI_DICT || values.kind == TGI_LIST ||
                       values.kind == TGI_RANGE || values.kind == TGI_UNDEFINED; /* has items */
  const size_t given = values.kind == TGI_TUPLE ? values.as.list->count : 1;
  if (f.used < given && !mapping) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "a format for each of %zu values, got %zu", given, f.used);
  }
  tgi_string *text = tgi_writer_end(&f.writer);
  text->safe = format->safe;
  return text;
}
