/* format.format(...), as in Python; fields do not nest within formats. */
#include "chat/values/template_format.h"
#include "chat/values/template_number.h"
#include "chat/values/template_print.h"
#include "template_call.h"
#include <string.h>

typedef struct formatting {
  tgi_job *job;
  tgi_writer writer;
  tgi_string *format;
  const tgi_args *args;
  size_t next;        /* of the fields without a number */
  bool counts, names; /* whether there was one without (with) a number */
} formatting;

static _Noreturn void refuse(formatting *f, const char *got)
{
  tgi_job_fail(f->job, TG_BAD_ARGUMENT, "a format such as {}, {0}, {name.key[0]!r:>8}, got %s",
               got);
}

static bool all_digits(const tgi_string *s)
{
  for (size_t i = 0; i < s->size; i++) {
    if (s->bytes[i] < '0' || s->bytes[i] > '9') {
      return false;
    }
  }
  return s->size > 0;
}

static int64_t read_number(formatting *f, const tgi_string *s)
{
  size_t at = 0;
  return tgi_format_count(f->job, s, &at);
}

static tgi_value find_argument(formatting *f, tgi_string *name)
{
  if (name->size == 0 || all_digits(name)) {
    const bool numbered = name->size > 0;
    f->counts |= !numbered;
    f->names |= numbered;
    if (f->counts && f->names) {
      refuse(f, "fields with and without numbers");
    }
    const size_t index = numbered ? (size_t)read_number(f, name) : f->next++;
    if (index >= f->args->count) {
      refuse(f, "a field without an argument");
    }
    return f->args->values[index];
  }
  for (size_t i = 0; i < f->args->num_named; i++) {
    if (tgi_string_compare(f->args->names[i], name) == 0) {
      return f->args->named[i];
    }
  }
  tgi_fail_on(f->job, tgi_text(name), "the name of an argument");
}

/** Bytes from `at` that are none of `ends`, at most to `to`. */
static size_t take_until(const tgi_string *s, size_t at, size_t to, const char *ends)
{
  while (at < to && !strchr(ends, s->bytes[at])) {
    at++;
  }
  return at;
}

/** "name.attribute[item]": bytes `from` to `to` - 1. */
static tgi_value find_field(formatting *f, size_t from, size_t to)
{
  const tgi_string *s = f->format;
  size_t at = take_until(s, from, to, ".[");
  tgi_value value = find_argument(f, tgi_string_slice(f->job, s, from, at));
  while (at < to) {
    const bool item = s->bytes[at] == '[';
    const size_t start = at + 1;
    at = take_until(s, start, to, item ? "]" : ".[");
    if (start == at || (item && at == to)) {
      refuse(f, "an empty or open attribute");
    }
    tgi_string *name = tgi_string_slice(f->job, s, start, at);
    if (!item) {
      value = tgi_get_attribute(f->job, value, name);
    } else {
      const tgi_value key = all_digits(name) ? tgi_int(read_number(f, name)) : tgi_text(name);
      value = tgi_get_item(f->job, value, key);
      at++;
    }
  }
  return value;
}

static bool is_align(char c)
{
  return c == '<' || c == '>' || c == '^' || c == '=';
}

/** [[fill]align][sign][#][0][width][.precision][type] */
static tgi_format_spec read_spec(formatting *f, const tgi_string *s)
{
  tgi_format_spec spec = {.precision = -1};
  size_t at = 0, length = 0;
  const uint32_t first = s->size > 0 ? tgi_string_point(s, 0, &length) : 0;
  if (length < s->size && length > 0 && is_align(s->bytes[length])) {
    spec.fill = first;
    spec.align = s->bytes[length];
    at = length + 1;
  } else if (s->size > 0 && is_align(s->bytes[0])) {
    spec.align = s->bytes[at++];
  }
  if (at < s->size && strchr("+- ", s->bytes[at])) {
    spec.sign = s->bytes[at] == '-' ? 0 : s->bytes[at];
    at++;
  }
  if (at < s->size && s->bytes[at] == '#') {
    spec.alternate = true;
    at++;
  }
  if (at < s->size && s->bytes[at] == '0') {
    spec.fill = spec.fill ? spec.fill : '0';
    spec.zero = !spec.align;
    at++;
  }
  spec.width = tgi_format_count(f->job, s, &at);
  if (at < s->size && s->bytes[at] == '.') {
    at++;
    spec.precision = tgi_format_count(f->job, s, &at);
  }
  if (at < s->size) {
    spec.type = s->bytes[at++];
  }
  if (at < s->size || (spec.type && !strchr("sdxXobeEfFgG%", spec.type))) {
    tgi_job_fail(f->job, TG_UNSUPPORTED,
                 "[[fill]align][sign][#][0][width][.precision][s d x X o b e E f F g G %%] as a "
                 "format, got another");
  }
  return spec;
}

static void write_field(formatting *f, tgi_format_spec *spec, tgi_value value)
{
  const bool text = value.kind == TGI_STRING;
  const bool whole = value.kind == TGI_INT || (value.kind == TGI_BOOL && spec->type);
  const bool plain = !spec->type || spec->type == 's';
  if (text && plain && spec->align != '=' && !spec->sign && !spec->alternate) {
    tgi_writer escaped = tgi_writer_begin(f->job);
    if (f->format->safe) {
      tgi_print_escaped(&escaped, value);
      value = tgi_text(tgi_writer_end(&escaped));
    }
    tgi_format_string(&f->writer, spec, value.as.string);
    return;
  }
  if (value.kind == TGI_REAL && !spec->type && spec->precision < 0 && !spec->sign) {
    spec->align = spec->align ? spec->align : '>';
    tgi_format_string(&f->writer, spec, tgi_to_string(f->job, value));
    return;
  }
  spec->align = spec->zero ? '=' : spec->align;
  spec->type = whole && !spec->type ? 'd' : spec->type;
  const bool real_type = spec->type && strchr("eEfFgG%", spec->type);
  if ((whole && spec->type != 's' && (real_type || spec->precision < 0)) ||
      (value.kind == TGI_REAL && real_type)) {
    tgi_format_number(&f->writer, spec, value);
    return;
  }
  tgi_fail_on(f->job, value, "a value that fits the format");
}

/** The field whose "{" is at `at`; returns where its "}" ends. */
static size_t replace_field(formatting *f, size_t at)
{
  const tgi_string *s = f->format;
  const size_t end = take_until(s, at + 1, s->size, "{}");
  if (end == s->size || s->bytes[end] == '{') {
    refuse(f, "one that does not end, or nests");
  }
  const size_t name = take_until(s, at + 1, end, "!:");
  tgi_value value = find_field(f, at + 1, name);
  size_t spec_at = name;
  if (spec_at < end && s->bytes[spec_at] == '!') {
    const char how = spec_at + 1 < end ? s->bytes[spec_at + 1] : 0;
    spec_at += 2;
    if ((how != 'r' && how != 's') || (spec_at < end && s->bytes[spec_at] != ':')) {
      refuse(f, "another conversion than !r and !s");
    }
    tgi_writer text = tgi_writer_begin(f->job);
    if (how == 'r') {
      tgi_print_repr(&text, value);
    } else {
      tgi_print(&text, value);
    }
    value = tgi_text(tgi_writer_end(&text));
  }
  const size_t start = spec_at < end ? spec_at + 1 : end;
  if (start >= end && (value.kind != TGI_STRING || !f->format->safe)) {
    tgi_print(&f->writer, value);
  } else {
    tgi_format_spec spec = read_spec(f, tgi_string_slice(f->job, s, start, end));
    write_field(f, &spec, value);
  }
  return end + 1;
}

tgi_string *tgi_format_braces(tgi_job *job, const tgi_string *format, const tgi_args *args)
{
  formatting f = {job, tgi_writer_begin(job), tgi_string_slice(job, format, 0, format->size), args};
  size_t plain = 0, at = 0;
  while (at < format->size) {
    const char c = format->bytes[at];
    if (c != '{' && c != '}') {
      at++;
      continue;
    }
    const bool twice = at + 1 < format->size && format->bytes[at + 1] == c;
    tgi_write_slice(&f.writer, format, plain, at + twice);
    if (twice) {
      at += 2;
    } else if (c == '{') {
      at = replace_field(&f, at);
    } else {
      refuse(&f, "a single }");
    }
    plain = at;
  }
  tgi_write_slice(&f.writer, format, plain, format->size);
  tgi_string *text = tgi_writer_end(&f.writer);
  text->safe = format->safe;
  return text;
}
