#include "json_scan.h"
#include "core/growing.h"
#include "file_error.h"
#include "utf8.h"
#include <stdio.h>
#include <string.h>

enum { kMaxDepth = 2048 /* as jansson has it */ };

tg_status tgi_json_scan_refuse(tgi_json_scan *scan, size_t at, const char *rule)
{
  char shown[64] = "the end of the file";
  if (at < scan->size) {
    const size_t left = scan->size - at;
    size_t some = left < 20 ? left : 20;
    while (some < left && some > 0 && ((unsigned char)scan->text[at + some] & 0xc0) == 0x80) {
      some--; /* not into a character */
    }
    snprintf(shown, sizeof shown, "%.60s", tgi_quote(scan->text + at, some).text);
  }
  tgi_file_error_fill_at(scan->error, TG_BAD_FILE, scan->path, at, "%s%sexpected %s, got %s",
                         scan->place ? scan->place : "", scan->place ? ": " : "", rule, shown);
  return TG_BAD_FILE;
}

size_t tgi_json_scan_next(tgi_json_scan *scan)
{
  while (scan->at < scan->size) {
    const char c = scan->text[scan->at];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      break;
    }
    scan->at++;
  }
  return scan->at;
}

bool tgi_json_scan_take(tgi_json_scan *scan, char character)
{
  const bool is = tgi_json_scan_next(scan) < scan->size && scan->text[scan->at] == character;
  scan->at += is;
  return is;
}

/* ---- strings ---- */

static tg_status begin_string(tgi_json_scan *scan, size_t *start)
{
  if (!tgi_json_scan_take(scan, '"')) {
    return tgi_json_scan_refuse(scan, scan->at, "a string");
  }
  *start = scan->at;
  return TG_OK;
}

/** Four hexadecimal digits at `at`, or -1. */
static int32_t hexadecimal(const tgi_json_scan *scan, size_t at)
{
  int32_t value = 0;
  if (scan->size - at < 4) {
    return -1;
  }
  for (size_t i = at; i < at + 4; i++) {
    const char c = scan->text[i];
    const char lower = (char)(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

/** \uXXXX, or two of them for a code point beyond 16 bits; `at` stands on the u. */
static tg_status unicode_escape(tgi_json_scan *scan, uint32_t *point)
{
  const size_t start = scan->at - 1;
  const int32_t first = hexadecimal(scan, scan->at + 1);
  scan->at += 5;
  if (first <= 0) {
    return tgi_json_scan_refuse(scan, start, "\\u with four digits that are not 0000");
  }
  *point = (uint32_t)first;
  if (first >= 0xd800 && first < 0xe000) {
    const bool paired = first < 0xdc00 && scan->size - scan->at >= 6 &&
                        scan->text[scan->at] == '\\' && scan->text[scan->at + 1] == 'u';
    const int32_t second = paired ? hexadecimal(scan, scan->at + 2) : -1;
    if (second < 0xdc00 || second >= 0xe000) {
      return tgi_json_scan_refuse(scan, start, "both halves of a surrogate pair");
    }
    scan->at += 6;
    *point = 0x10000 + ((uint32_t)(first - 0xd800) << 10) + (uint32_t)(second - 0xdc00);
  }
  return TG_OK;
}

/** One escape; `at` stands on the \. */
static tg_status escape(tgi_json_scan *scan, uint32_t *point)
{
  static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const size_t start = scan->at++;
  const char c = scan->at < scan->size ? scan->text[scan->at] : '\0';
  if (c == 'u') {
    return unicode_escape(scan, point);
  }
  const char *letter = c ? strchr(letters, c) : NULL;
  if (!letter) {
    return tgi_json_scan_refuse(scan, start, "an escape of JSON");
  }
  scan->at++;
  *point = (unsigned char)values[letter - letters];
  return TG_OK;
}

/** Passes over plain characters up to a quote or an escape. */
static tg_status plain(tgi_json_scan *scan)
{
  while (scan->at < scan->size) {
    const unsigned char c = (unsigned char)scan->text[scan->at];
    if (c == '"' || c == '\\') {
      return TG_OK;
    }
    if (c < 0x20) {
      break;
    }
    uint32_t point;
    const size_t length =
        c < 0x80 ? 1 : tgi_utf8_decode(scan->text + scan->at, scan->size - scan->at, &point);
    if (length == 0) {
      break;
    }
    scan->at += length;
  }
  return tgi_json_scan_refuse(scan, scan->at, "a string in UTF-8 without control characters");
}

static tg_status append(tgi_json_scan *scan, size_t *used, const char *bytes, size_t size)
{
  char *grown = tgi_grow(scan->unescaped, &scan->capacity, *used + size, 1);
  if (!grown) {
    return tgi_file_error_memory(scan->error, scan->path, *used + size);
  }
  scan->unescaped = grown;
  memcpy(grown + *used, bytes, size);
  *used += size;
  return TG_OK;
}

tg_status tgi_json_scan_string(tgi_json_scan *scan, tgi_json_string *out)
{
  size_t start = 0, used = 0;
  bool escaped = false;
  tg_status status = begin_string(scan, &start);
  while (status == TG_OK) {
    const size_t from = scan->at;
    status = plain(scan);
    const bool ends = status == TG_OK && scan->text[scan->at] == '"';
    if (ends && !escaped) {
      *out = (tgi_json_string){scan->text + start, scan->at++ - start};
      return TG_OK;
    }
    status = status ? status : append(scan, &used, scan->text + from, scan->at - from);
    if (ends && status == TG_OK) {
      *out = (tgi_json_string){scan->unescaped, used};
      scan->at++;
      return TG_OK;
    }
    uint32_t point = 0;
    char bytes[4];
    escaped = true;
    status = status ? status : escape(scan, &point);
    status = status ? status : append(scan, &used, bytes, tgi_utf8_encode(point, bytes));
  }
  return status;
}

/* ---- numbers, anything ---- */

tg_status tgi_json_scan_integer(tgi_json_scan *scan, int64_t most, int64_t *out)
{
  const size_t start = tgi_json_scan_next(scan);
  int64_t value = 0;
  bool fits = true;
  for (; scan->at < scan->size && scan->text[scan->at] >= '0' && scan->text[scan->at] <= '9';
       scan->at++) {
    fits = fits && value <= most / 10;
    value = fits ? value * 10 + (scan->text[scan->at] - '0') : value;
  }
  const size_t digits = scan->at - start;
  const char next = scan->at < scan->size ? scan->text[scan->at] : '\0';
  if (digits == 0 || (digits > 1 && scan->text[start] == '0') || (next && strchr(".eE", next)) ||
      !fits || value > most) {
    char rule[64];
    snprintf(rule, sizeof rule, "an integer from 0 to %lld", (long long)most);
    return tgi_json_scan_refuse(scan, start, rule);
  }
  *out = value;
  return TG_OK;
}

/** Passes over a string without looking at what it holds. */
static tg_status skip_string(tgi_json_scan *scan)
{
  const char *text = scan->text;
  size_t at = scan->at + 1;
  while (at < scan->size && text[at] != '"') {
    at += text[at] == '\\' ? 2 : 1;
  }
  if (at >= scan->size) {
    return tgi_json_scan_refuse(scan, scan->at, "a string with its last quote");
  }
  scan->at = at + 1;
  return TG_OK;
}

/** The next quote or bracket, or a comma if they end the value. */
static size_t next_sign(const tgi_json_scan *scan, bool or_comma)
{
  static const bool signs[256] = {
      ['"'] = true, ['['] = true, [']'] = true, ['{'] = true, ['}'] = true};
  size_t at = scan->at;
  while (at < scan->size && !signs[(unsigned char)scan->text[at]] &&
         !(or_comma && scan->text[at] == ',')) {
    at++;
  }
  return at;
}

tg_status tgi_json_scan_skip(tgi_json_scan *scan, size_t *strings)
{
  const size_t start = tgi_json_scan_next(scan);
  int depth = 0;
  *strings = 0;
  while ((scan->at = next_sign(scan, depth == 0)) < scan->size) {
    const char c = scan->text[scan->at];
    if (c == '"') {
      const tg_status status = skip_string(scan);
      ++*strings;
      if (status != TG_OK || depth == 0) {
        return status;
      }
      continue;
    }
    const bool opens = c == '{' || c == '[';
    if (depth == 0 && !opens && scan->at > start) {
      return TG_OK; /* a number or a word ended */
    }
    depth += opens ? 1 : -1;
    if (depth < 0 || depth > kMaxDepth) {
      break;
    }
    scan->at++;
    if (depth == 0) {
      return TG_OK;
    }
  }
  return tgi_json_scan_refuse(scan, scan->at, "a value of JSON");
}
