#include "json_writer.h"
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tgi_json_put_raw(tgi_json_writer *writer, const char *bytes, size_t size)
{
  if (writer->failed || size == 0) {
    return;
  }
  if (size > writer->capacity - writer->size) {
    size_t wanted = writer->capacity ? writer->capacity : 256;
    while (wanted - writer->size < size && wanted < SIZE_MAX / 2) {
      wanted *= 2;
    }
    char *text = wanted - writer->size < size ? NULL : realloc(writer->text, wanted);
    if (!text) {
      writer->failed = true;
      return;
    }
    writer->text = text;
    writer->capacity = wanted;
  }
  memcpy(writer->text + writer->size, bytes, size);
  writer->size += size;
}

static void put_text(tgi_json_writer *writer, const char *text)
{
  tgi_json_put_raw(writer, text, strlen(text));
}

static void put_line(tgi_json_writer *writer)
{
  if (writer->indent == 0) {
    return;
  }
  put_text(writer, "\n");
  for (int i = 0; i < writer->indent * writer->level; i++) {
    tgi_json_put_raw(writer, " ", 1);
  }
}

static void put_quoted(tgi_json_writer *writer, const char *text)
{
  static const char special[] = "\"\\\b\f\n\r\t";
  static const char letter[] = "\"\\bfnrt";
  tgi_json_put_raw(writer, "\"", 1);
  for (; *text; text++) {
    const char *found = strchr(special, *text);
    if (found) {
      tgi_json_put_raw(writer, "\\", 1);
      tgi_json_put_raw(writer, &letter[found - special], 1);
    } else if ((unsigned char)*text < 0x20 || *text == 0x7f) {
      char escape[7];
      snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text);
      tgi_json_put_raw(writer, escape, 6);
    } else {
      tgi_json_put_raw(writer, text, 1);
    }
  }
  tgi_json_put_raw(writer, "\"", 1);
}

/** Whatever stands before a value: the comma, the line, the key. */
static void begin_value(tgi_json_writer *writer, const char *key)
{
  if (writer->filled) {
    put_text(writer, ",");
  }
  if (writer->level > 0) {
    put_line(writer);
  }
  if (key) {
    put_quoted(writer, key);
    put_text(writer, writer->indent > 0 ? ": " : ":");
  }
  writer->filled = true;
}

static void open_group(tgi_json_writer *writer, const char *key, const char *bracket)
{
  begin_value(writer, key);
  put_text(writer, bracket);
  writer->level++;
  writer->filled = false;
}

static void close_group(tgi_json_writer *writer, const char *bracket)
{
  writer->level--;
  if (writer->filled) {
    put_line(writer);
  }
  put_text(writer, bracket);
  writer->filled = true;
}

void tgi_json_open_object(tgi_json_writer *writer, const char *key)
{
  open_group(writer, key, "{");
}

void tgi_json_close_object(tgi_json_writer *writer)
{
  close_group(writer, "}");
}

void tgi_json_open_array(tgi_json_writer *writer, const char *key)
{
  open_group(writer, key, "[");
}

void tgi_json_close_array(tgi_json_writer *writer)
{
  close_group(writer, "]");
}

void tgi_json_put_string(tgi_json_writer *writer, const char *key, const char *value)
{
  begin_value(writer, key);
  put_quoted(writer, value);
}

void tgi_json_put_integer(tgi_json_writer *writer, const char *key, int64_t value)
{
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, value);
  begin_value(writer, key);
  put_text(writer, text);
}

void tgi_json_put_bool(tgi_json_writer *writer, const char *key, bool value)
{
  begin_value(writer, key);
  put_text(writer, value ? "true" : "false");
}

void tgi_json_put_null(tgi_json_writer *writer, const char *key)
{
  begin_value(writer, key);
  put_text(writer, "null");
}

void tgi_json_put_real(tgi_json_writer *writer, const char *key, double value)
{
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  const locale_t before = uselocale(plain);
  char text[40];
  int precision = 1;
  do {
    snprintf(text, sizeof text - 2, "%.*g", precision, value);
  } while (strtod(text, NULL) != value && ++precision <= 17);
  uselocale(before);
  freelocale(plain);
  if (!strpbrk(text, ".e")) { /* readers that tell integers from reals shall see a real */
    strcat(text, ".0");
  }
  begin_value(writer, key);
  put_text(writer, text);
}

bool tgi_json_writer_ok(const tgi_json_writer *writer)
{
  return !writer->failed;
}

void tgi_json_writer_free(tgi_json_writer *writer)
{
  free(writer->text);
  *writer = (tgi_json_writer){.indent = writer->indent};
}
