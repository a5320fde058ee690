/* What a document that json_reader.c checked is asked for. */
#include "file_error.h"
#include "json_reader.h"
#include "utf8.h"
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tgi_json_kind tgi_json_kind_of(const tgi_json *json, uint32_t node)
{
  return (tgi_json_kind)json->nodes[node].kind;
}

uint64_t tgi_json_byte(const tgi_json *json, uint32_t node)
{
  return json->base + json->nodes[node].begin;
}

uint32_t tgi_json_first(const tgi_json *json, uint32_t parent)
{
  return json->nodes[parent].next > parent + 1 ? parent + 1 : 0;
}

uint32_t tgi_json_next(const tgi_json *json, uint32_t parent, uint32_t node)
{
  const uint32_t next = json->nodes[node].next;
  return next < json->nodes[parent].next ? next : 0;
}

uint32_t tgi_json_size(const tgi_json *json, uint32_t parent)
{
  uint32_t size = 0;
  for (uint32_t node = tgi_json_first(json, parent); node;
       node = tgi_json_next(json, parent, node)) {
    size++;
  }
  return tgi_json_kind_of(json, parent) == TGI_JSON_OBJECT ? size / 2 : size;
}

uint32_t tgi_json_member(const tgi_json *json, uint32_t object, const char *key)
{
  if (tgi_json_kind_of(json, object) != TGI_JSON_OBJECT) {
    return 0;
  }
  for (uint32_t node = tgi_json_first(json, object); node;
       node = tgi_json_next(json, object, node + 1)) {
    if (tgi_json_equals(json, node, key)) {
      return node + 1;
    }
  }
  return 0;
}

static uint32_t hex4(const char *text)
{
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned char c = (unsigned char)text[i];
    value = value << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

/** Decodes the character at *at (not the closing quote), moves *at behind it, returns its size. */
static size_t decode_one(const char **at, char out[4])
{
  static const char named[] = "\"\\/bfnrt";
  static const char meant[] = "\"\\/\b\f\n\r\t";
  const char *text = *at;
  if (*text != '\\') {
    out[0] = *text;
    *at = text + 1;
    return 1;
  }
  if (text[1] != 'u') {
    out[0] = meant[strchr(named, text[1]) - named];
    *at = text + 2;
    return 1;
  }
  uint32_t point = hex4(text + 2);
  *at = text + 6;
  if (point >= 0xd800 && point < 0xdc00) {
    point = 0x10000 + ((point - 0xd800) << 10) + (hex4(text + 8) - 0xdc00);
    *at = text + 12;
  }
  return tgi_utf8_encode(point, out);
}

size_t tgi_json_string_bound(const tgi_json *json, uint32_t node)
{
  /* An escape is never shorter than what it stands for. */
  return json->nodes[node].end - json->nodes[node].begin - 2;
}

size_t tgi_json_string(const tgi_json *json, uint32_t node, char *out)
{
  const char *at = json->text + json->nodes[node].begin + 1;
  const char *end = json->text + json->nodes[node].end - 1;
  size_t size = 0;
  while (at < end) {
    char piece[4];
    const size_t length = decode_one(&at, piece);
    memcpy(out + size, piece, length);
    size += length;
  }
  out[size] = '\0';
  return size;
}

bool tgi_json_equals(const tgi_json *json, uint32_t node, const char *text)
{
  if (tgi_json_kind_of(json, node) != TGI_JSON_STRING) {
    return false;
  }
  const char *at = json->text + json->nodes[node].begin + 1;
  const char *end = json->text + json->nodes[node].end - 1;
  while (at < end) {
    char piece[4];
    const size_t length = decode_one(&at, piece);
    for (size_t i = 0; i < length; i++) { /* no piece holds a NUL, so this stops at text's end */
      if (*text++ != piece[i]) {
        return false;
      }
    }
  }
  return *text == '\0';
}

/** Decoded bytes of a string, one at a time. */
typedef struct string_bytes {
  const char *at, *end;
  char piece[4];
  size_t used, size;
} string_bytes;

static int next_byte(string_bytes *s)
{
  if (s->used == s->size) {
    if (s->at == s->end) {
      return -1;
    }
    s->size = decode_one(&s->at, s->piece);
    s->used = 0;
  }
  return (unsigned char)s->piece[s->used++];
}

int tgi_json_compare(const tgi_json *json, uint32_t a, uint32_t b)
{
  const tgi_json_node *nodes = json->nodes;
  string_bytes left = {.at = json->text + nodes[a].begin + 1, .end = json->text + nodes[a].end - 1};
  string_bytes right = {.at = json->text + nodes[b].begin + 1,
                        .end = json->text + nodes[b].end - 1};
  for (;;) {
    const int x = next_byte(&left);
    const int y = next_byte(&right);
    if (x != y || x < 0) {
      return (x > y) - (x < y);
    }
  }
}

uint32_t tgi_json_hash(const tgi_json *json, uint32_t node)
{
  const char *at = json->text + json->nodes[node].begin + 1;
  const char *end = json->text + json->nodes[node].end - 1;
  uint32_t hash = 2166136261u;
  while (at < end) {
    char piece[4];
    const size_t length = decode_one(&at, piece);
    for (size_t i = 0; i < length; i++) {
      hash = (hash ^ (unsigned char)piece[i]) * 16777619u;
    }
  }
  return hash;
}

bool tgi_json_int64(const tgi_json *json, uint32_t node, int64_t *value)
{
  if (tgi_json_kind_of(json, node) != TGI_JSON_NUMBER) {
    return false;
  }
  const char *at = json->text + json->nodes[node].begin;
  const char *end = json->text + json->nodes[node].end;
  const bool negative = *at == '-';
  int64_t sum = 0;
  for (at += negative; at < end; at++) {
    if (*at < '0' || *at > '9') {
      return false;
    }
    const int digit = *at - '0';
    if (__builtin_mul_overflow(sum, 10, &sum) ||
        __builtin_add_overflow(sum, negative ? -digit : digit, &sum)) {
      return false;
    }
  }
  *value = sum;
  return true;
}

bool tgi_json_double(const tgi_json *json, uint32_t node, double *value)
{
  if (tgi_json_kind_of(json, node) != TGI_JSON_NUMBER) {
    return false;
  }
  /* strtod needs a terminator; 400 bytes are beyond any number that is meant seriously. */
  char text[400];
  const size_t size = json->nodes[node].end - json->nodes[node].begin;
  if (size >= sizeof text) {
    return false;
  }
  memcpy(text, json->text + json->nodes[node].begin, size);
  text[size] = '\0';
  /* The process's locale may write decimal commas. glibc's "C" locale object is not allocated. */
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  const locale_t before = uselocale(plain);
  *value = strtod(text, NULL);
  uselocale(before);
  freelocale(plain);
  return isfinite(*value);
}

void tgi_json_fill_unexpected(const tgi_json *json, uint32_t node, tg_error *error,
                              const char *rule, ...)
{
  const tgi_json_node *n = &json->nodes[node];
  const tgi_quoted found = tgi_quote(json->text + n->begin, n->end - n->begin);
  char expected[256];
  va_list arguments;
  va_start(arguments, rule);
  vsnprintf(expected, sizeof expected, rule, arguments);
  va_end(arguments);
  tgi_file_error_fill(error, TG_BAD_FILE, json->path, json->base + n->begin, "%s, got %s", expected,
                      found.text);
}
