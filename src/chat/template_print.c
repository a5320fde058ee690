#include "template_print.h"
#include "template_call.h"
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
    print_quoted(writer, v.as.macro->node->text);
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

/* ---- JSON ---- */

static void json_escape(tgi_writer *writer, uint32_t point)
{
  static const char controls[] = "btn\0fr"; /* of \b on */
  char text[16];
  if (point == '"' || point == '\\') {
    snprintf(text, sizeof text, "\\%c", (char)point);
  } else if (point >= '\b' && point <= '\r' && controls[point - '\b']) {
    snprintf(text, sizeof text, "\\%c", controls[point - '\b']);
  } else if (point < 0x10000) {
    snprintf(text, sizeof text, "\\u%04x", (unsigned)point);
  } else {
    const unsigned above = (unsigned)point - 0x10000;
    snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (above >> 10), 0xdc00 + (above & 0x3ff));
  }
  tgi_write_text(writer, text);
}

static void json_string(tgi_writer *writer, const tgi_json_style *style, const tgi_string *s)
{
  tgi_write_text(writer, "\"");
  size_t length, plain = 0;
  for (size_t at = 0; at < s->size; at += length) {
    const uint32_t point = tgi_string_point(s, at, &length);
    const bool escaped =
        point < 0x20 || point == '"' || point == '\\' || (style->ascii && point > 0x7e);
    if (escaped) {
      tgi_write_slice(writer, s, plain, at);
      json_escape(writer, point);
      plain = at + length;
    }
  }
  tgi_write_slice(writer, s, plain, s->size);
  tgi_write_text(writer, "\"");
}

static void json_number(tgi_writer *writer, tgi_value v)
{
  if (v.kind == TGI_REAL && v.as.real - v.as.real != 0) {
    tgi_write_text(writer, v.as.real > 0 ? "Infinity" : v.as.real < 0 ? "-Infinity" : "NaN");
  } else {
    print_number(writer, v);
  }
}

static void json_line(tgi_writer *writer, const tgi_json_style *style, int level)
{
  if (style->indent) {
    tgi_write_text(writer, "\n");
    for (int i = 0; i < level; i++) {
      tgi_write_string(writer, style->indent);
    }
  }
}

static void json_comma(tgi_writer *writer, const tgi_json_style *style)
{
  if (style->comma) {
    tgi_write_string(writer, style->comma);
  } else {
    tgi_write_text(writer, style->indent ? "," : ", ");
  }
}

static void json_value(tgi_writer *writer, const tgi_json_style *style, tgi_value v, int level);

static void json_list(tgi_writer *writer, const tgi_json_style *style, const tgi_list *list,
                      int level)
{
  if (list->count == 0) {
    tgi_write_text(writer, "[]");
    return;
  }
  tgi_write_text(writer, "[");
  for (size_t i = 0; i < list->count; i++) {
    if (i > 0) {
      json_comma(writer, style);
    }
    json_line(writer, style, level + 1);
    json_value(writer, style, list->items[i], level + 1);
  }
  json_line(writer, style, level);
  tgi_write_text(writer, "]");
}

static void json_key(tgi_writer *writer, const tgi_json_style *style, tgi_value key)
{
  if (key.kind == TGI_STRING) {
    json_string(writer, style, key.as.string);
    return;
  }
  if (!tgi_is_number(key) && key.kind != TGI_NONE) {
    tgi_fail_on(writer->job, key, "keys of JSON that are text, numbers, booleans or none");
  }
  tgi_write_text(writer, "\"");
  json_value(writer, style, key, 0);
  tgi_write_text(writer, "\"");
}

static void json_dict(tgi_writer *writer, const tgi_json_style *style, tgi_dict *dict, int level)
{
  if (dict->count == 0) {
    tgi_write_text(writer, "{}");
    return;
  }
  const tgi_list *pairs = tgi_collect(writer->job, tgi_from_dict(TGI_ITEMS, dict));
  if (style->sort_keys) {
    pairs = tgi_sorted(writer->job, pairs, NULL, false);
  }
  tgi_write_text(writer, "{");
  for (size_t i = 0; i < pairs->count; i++) {
    const tgi_list *pair = pairs->items[i].as.list;
    if (i > 0) {
      json_comma(writer, style);
    }
    json_line(writer, style, level + 1);
    json_key(writer, style, pair->items[0]);
    if (style->colon) {
      tgi_write_string(writer, style->colon);
    } else {
      tgi_write_text(writer, ": ");
    }
    json_value(writer, style, pair->items[1], level + 1);
  }
  json_line(writer, style, level);
  tgi_write_text(writer, "}");
}

static void json_value(tgi_writer *writer, const tgi_json_style *style, tgi_value v, int level)
{
  tgi_job_step(writer->job, 0);
  tgi_job_enter(writer->job);
  switch ((tgi_kind)v.kind) {
  case TGI_NONE:
    tgi_write_text(writer, "null");
    break;
  case TGI_BOOL:
    tgi_write_text(writer, v.as.truth ? "true" : "false");
    break;
  case TGI_INT:
  case TGI_REAL:
    json_number(writer, v);
    break;
  case TGI_STRING:
    json_string(writer, style, v.as.string);
    break;
  case TGI_LIST:
  case TGI_TUPLE:
    json_list(writer, style, v.as.list, level);
    break;
  case TGI_DICT:
    json_dict(writer, style, v.as.dict, level);
    break;
  default:
    tgi_fail_on(writer->job, v, "a value that JSON has");
  }
  tgi_job_leave(writer->job);
}

void tgi_print_json(tgi_writer *writer, const tgi_json_style *style, tgi_value v)
{
  json_value(writer, style, v, 0);
}
