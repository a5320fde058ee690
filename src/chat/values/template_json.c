/* Values as json.dumps of Python writes them. */
#include "template_number.h"
#include "template_print.h"
#include <stdio.h>

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
    tgi_print_repr(writer, v);
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
