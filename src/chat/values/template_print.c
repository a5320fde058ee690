#include "template_print.h"
#include "template_number.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* ---- repr ---- */

/** str.isprintable() of one code point. */
static bool is_printable(uint32_t point)
{
  if (point < 0x7f) {
    return point >= 0x20;
  }
  switch (utf8proc_category((utf8proc_int32_t)point)) {
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP:
  case UTF8PROC_CATEGORY_ZS:
    return false;
  default:
    return true;
  }
}

static void print_escape(tgi_writer *writer, uint32_t point)
{
  char text[16];
  const char letter = point == '\n' ? 'n' : point == '\r' ? 'r' : point == '\t' ? 't' : 0;
  if (letter) {
    snprintf(text, sizeof text, "\\%c", letter);
  } else {
    snprintf(text, sizeof text,
             point < 0x100     ? "\\x%02x"
             : point < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
             (unsigned)point);
  }
  tgi_write_text(writer, text);
}

static void print_quoted(tgi_writer *writer, const tgi_string *s)
{
  const bool single = memchr(s->bytes, '\'', s->size) != NULL;
  const bool both = single && memchr(s->bytes, '"', s->size) != NULL;
  const char quote = single && !both ? '"' : '\'';
  tgi_write(writer, &quote, 1);
  size_t length, plain = 0;
  for (size_t at = 0; at < s->size; at += length) {
    const uint32_t point = tgi_string_point(s, at, &length);
    const bool slash = point == '\\' || point == (unsigned char)quote;
    if (slash || !is_printable(point)) {
      tgi_write_slice(writer, s, plain, at);
      plain = at + length;
      if (slash) {
        tgi_write(writer, "\\", 1);
        plain = at;
      } else {
        print_escape(writer, point);
      }
    }
  }
  tgi_write_slice(writer, s, plain, s->size);
  tgi_write(writer, &quote, 1);
}

static void print_items(tgi_writer *writer, tgi_value v, const char *open, const char *close)
{
  tgi_write_text(writer, open);
  tgi_walk walk = tgi_walk_begin(writer->job, v);
  tgi_value item;
  for (size_t i = 0; tgi_walk_next(writer->job, &walk, &item); i++) {
    tgi_write_text(writer, i > 0 ? ", " : "");
    tgi_print_repr(writer, item);
  }
  tgi_write_text(writer, v.kind == TGI_TUPLE && v.as.list->count == 1 ? "," : "");
  tgi_write_text(writer, close);
}

static void print_dict(tgi_writer *writer, const tgi_dict *dict)
{
  tgi_write_text(writer, "{");
  for (size_t i = 0; i < dict->count; i++) {
    tgi_write_text(writer, i > 0 ? ", " : "");
    tgi_print_repr(writer, dict->entries[i].key);
    tgi_write_text(writer, ": ");
    tgi_print_repr(writer, dict->entries[i].value);
  }
  tgi_write_text(writer, "}");
}

static void print_range(tgi_writer *writer, const tgi_range *range)
{
  char text[80];
  snprintf(text, sizeof text,
           range->step == 1 ? "range(%" PRId64 ", %" PRId64 ")"
                            : "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")",
           range->start, range->stop, range->step);
  tgi_write_text(writer, text);
}

/** The same in str() and repr(). */
static void print_number(tgi_writer *writer, tgi_value v)
{
  char text[TGI_REAL_BYTES];
  if (v.kind == TGI_REAL) {
    tgi_print_real(v.as.real, text);
  } else {
    snprintf(text, sizeof text, "%" PRId64, v.as.integer);
  }
  tgi_write_text(writer, text);
}

static void print_nested(tgi_writer *writer, tgi_value v)
{
  switch ((tgi_kind)v.kind) {
  case TGI_LIST:
    print_items(writer, v, "[", "]");
    break;
  case TGI_TUPLE:
    print_items(writer, v, "(", ")");
    break;
  case TGI_KEYS:
    print_items(writer, v, "dict_keys([", "])");
    break;
  case TGI_VALUES:
    print_items(writer, v, "dict_values([", "])");
    break;
  case TGI_ITEMS:
    print_items(writer, v, "dict_items([", "])");
    break;
  case TGI_DICT:
    print_dict(writer, v.as.dict);
    break;
  case TGI_NAMESPACE:
    tgi_write_text(writer, "<Namespace ");
    print_dict(writer, v.as.dict);
    tgi_write_text(writer, ">");
    break;
  case TGI_MACRO:
    tgi_write_text(writer, "<Macro ");
    print_quoted(writer, v.as.macro->name);
    tgi_write_text(writer, ">");
    break;
  default: /* Python prints an address */
    tgi_job_fail(writer->job, TG_UNSUPPORTED, "something to print, got a %s", tgi_type_name(v));
  }
}

void tgi_print_repr(tgi_writer *writer, tgi_value v)
{
  tgi_job_step(writer->job, 0);
  tgi_job_enter(writer->job);
  switch ((tgi_kind)v.kind) {
  case TGI_MISSING:
  case TGI_UNDEFINED:
    tgi_write_text(writer, "Undefined");
    break;
  case TGI_NONE:
    tgi_write_text(writer, "None");
    break;
  case TGI_BOOL:
    tgi_write_text(writer, v.as.truth ? "True" : "False");
    break;
  case TGI_INT:
  case TGI_REAL:
    print_number(writer, v);
    break;
  case TGI_STRING:
    tgi_write_text(writer, v.as.string->safe ? "Markup(" : "");
    print_quoted(writer, v.as.string);
    tgi_write_text(writer, v.as.string->safe ? ")" : "");
    break;
  case TGI_RANGE:
    print_range(writer, v.as.range);
    break;
  default:
    print_nested(writer, v);
  }
  tgi_job_leave(writer->job);
}

/* ---- str ---- */

void tgi_print(tgi_writer *writer, tgi_value v)
{
  if (v.kind == TGI_STRING) {
    tgi_write_string(writer, v.as.string);
  } else if (v.kind != TGI_UNDEFINED) {
    tgi_print_repr(writer, v);
  }
}

tgi_string *tgi_to_string(tgi_job *job, tgi_value v)
{
  if (v.kind == TGI_STRING && !v.as.string->safe) {
    return v.as.string;
  }
  if (v.kind == TGI_STRING) {
    tgi_string *plain = tgi_string_slice(job, v.as.string, 0, v.as.string->size);
    plain->safe = false;
    return plain;
  }
  tgi_writer writer = tgi_writer_begin(job);
  tgi_print(&writer, v);
  return tgi_writer_end(&writer);
}

static const char *html_escape(char byte)
{
  switch (byte) {
  case '&':
    return "&amp;";
  case '<':
    return "&lt;";
  case '>':
    return "&gt;";
  case '\'':
    return "&#39;";
  case '"':
    return "&#34;";
  default:
    return NULL;
  }
}

void tgi_print_escaped(tgi_writer *writer, tgi_value v)
{
  if (v.kind == TGI_STRING && v.as.string->safe) {
    tgi_write_string(writer, v.as.string);
    return;
  }
  const tgi_string *s = tgi_to_string(writer->job, v);
  size_t plain = 0;
  for (size_t at = 0; at < s->size; at++) {
    const char *escape = html_escape(s->bytes[at]);
    if (escape) {
      tgi_write_slice(writer, s, plain, at);
      tgi_write_text(writer, escape);
      plain = at + 1;
    }
  }
  tgi_write_slice(writer, s, plain, s->size);
}
