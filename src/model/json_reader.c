/* Recursive descent over the text; the nodes of a value follow it in the array (pre-order). */
#include "json_reader.h"
#include "file_error.h"
#include "json_keys.h"
#include "utf8.h"
#include <stdlib.h>
#include <string.h>

#define LEVELS 127

typedef struct reader {
  tgi_json *json;
  tg_error *error;
  uint32_t size;
  uint32_t at;
  uint32_t capacity;
  uint32_t levels;
  tg_status status;
} reader;

static bool fail(reader *r, const char *rule)
{
  if (r->at >= r->size) {
    r->status = tgi_file_error(r->error, TG_BAD_FILE, r->json->path, r->json->base + r->size,
                               "%s, got the end of the text", rule);
  } else {
    const uint32_t left = r->size - r->at;
    const tgi_quoted found = tgi_quote(r->json->text + r->at, left < 16 ? left : 16);
    r->status = tgi_file_error(r->error, TG_BAD_FILE, r->json->path, r->json->base + r->at,
                               "%s, got %s", rule, found.text);
  }
  return false;
}

static bool fail_memory(reader *r, uint64_t bytes)
{
  r->status = tgi_file_error_memory(r->error, r->json->path, bytes);
  return false;
}

static int peek(const reader *r)
{
  return r->at < r->size ? (unsigned char)r->json->text[r->at] : -1;
}

static void skip_space(reader *r)
{
  for (int c = peek(r); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(r)) {
    r->at++;
  }
}

static bool add_node(reader *r, tgi_json_kind kind, uint32_t *index)
{
  tgi_json *json = r->json;
  if (json->count == r->capacity) {
    /* Every node takes a byte of text at least, which bounds the array. */
    uint64_t wanted = r->capacity < 64 ? 64 : (uint64_t)r->capacity * 2;
    if (wanted > (uint64_t)r->size + 1) {
      wanted = (uint64_t)r->size + 1;
    }
    tgi_json_node *nodes = realloc(json->nodes, wanted * sizeof *nodes);
    if (!nodes) {
      return fail_memory(r, wanted * sizeof *nodes);
    }
    json->nodes = nodes;
    r->capacity = (uint32_t)wanted;
  }
  *index = json->count++;
  json->nodes[*index] = (tgi_json_node){.begin = r->at, .kind = kind};
  return true;
}

static void end_node(reader *r, uint32_t index)
{
  r->json->nodes[index].end = r->at;
  r->json->nodes[index].next = r->json->count;
}

static int hex_digit(int c)
{
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/** The 16 bits of the four hex digits at `text`, or -1. */
static int32_t hex4(const char *text)
{
  int32_t value = 0;
  for (int i = 0; i < 4; i++) {
    const int digit = hex_digit((unsigned char)text[i]);
    if (digit < 0) {
      return -1;
    }
    value = value << 4 | digit;
  }
  return value;
}

static bool is_high(int32_t unit)
{
  return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(int32_t unit)
{
  return unit >= 0xdc00 && unit < 0xe000;
}

/** At a backslash. */
static bool read_escape(reader *r)
{
  const char *text = r->json->text + r->at;
  const uint32_t left = r->size - r->at;
  if (left >= 2 && text[1] != '\0' && strchr("\"\\/bfnrt", text[1])) {
    r->at += 2;
    return true;
  }
  const int32_t unit = left >= 6 && text[1] == 'u' ? hex4(text + 2) : -1;
  if (unit < 0) {
    return fail(r, "an escape sequence");
  }
  if (unit == 0) {
    return fail(r, "a character other than \\u0000");
  }
  if (is_low(unit)) {
    return fail(r, "a high surrogate before a low one");
  }
  if (is_high(unit)) {
    if (left < 12 || text[6] != '\\' || text[7] != 'u' || !is_low(hex4(text + 8))) {
      return fail(r, "a low surrogate after a high one");
    }
    r->at += 6;
  }
  r->at += 6;
  return true;
}

/** At a quote. */
static bool read_string(reader *r, uint32_t *index)
{
  if (!add_node(r, TGI_JSON_STRING, index)) {
    return false;
  }
  r->at++;
  for (;;) {
    const int c = peek(r);
    if (c == '"') {
      break;
    }
    if (c == '\\') {
      if (!read_escape(r)) {
        return false;
      }
    } else if (c < 0x20) {
      return fail(r, "a closing quote, or control characters escaped");
    } else if (c < 0x80) {
      r->at++;
    } else {
      uint32_t point;
      const size_t length = tgi_utf8_decode(r->json->text + r->at, r->size - r->at, &point);
      if (length == 0) {
        return fail(r, "UTF-8");
      }
      r->at += (uint32_t)length;
    }
  }
  r->at++;
  end_node(r, *index);
  return true;
}

static bool is_digit(int c)
{
  return c >= '0' && c <= '9';
}

static bool read_digits(reader *r)
{
  if (!is_digit(peek(r))) {
    return fail(r, "a digit");
  }
  while (is_digit(peek(r))) {
    r->at++;
  }
  return true;
}

static bool read_number(reader *r)
{
  uint32_t index;
  if (!add_node(r, TGI_JSON_NUMBER, &index)) {
    return false;
  }
  if (peek(r) == '-') {
    r->at++;
  }
  if (peek(r) == '0') {
    r->at++;
  } else if (!read_digits(r)) {
    return false;
  }
  if (peek(r) == '.') {
    r->at++;
    if (!read_digits(r)) {
      return false;
    }
  }
  if (peek(r) == 'e' || peek(r) == 'E') {
    r->at++;
    if (peek(r) == '+' || peek(r) == '-') {
      r->at++;
    }
    if (!read_digits(r)) {
      return false;
    }
  }
  end_node(r, index);
  return true;
}

static bool read_word(reader *r, const char *word, tgi_json_kind kind)
{
  uint32_t index;
  const size_t length = strlen(word);
  if (r->size - r->at < length || memcmp(r->json->text + r->at, word, length) != 0) {
    return fail(r, "a value");
  }
  if (!add_node(r, kind, &index)) {
    return false;
  }
  r->at += (uint32_t)length;
  end_node(r, index);
  return true;
}

static bool read_value(reader *r);

static bool read_array(reader *r)
{
  uint32_t index;
  if (!add_node(r, TGI_JSON_ARRAY, &index)) {
    return false;
  }
  r->at++;
  skip_space(r);
  if (peek(r) != ']') {
    for (;;) {
      if (!read_value(r)) {
        return false;
      }
      skip_space(r);
      if (peek(r) != ',') {
        break;
      }
      r->at++;
      skip_space(r);
    }
    if (peek(r) != ']') {
      return fail(r, "',' or ']'");
    }
  }
  r->at++;
  end_node(r, index);
  return true;
}

static bool check_keys(reader *r, uint32_t object, uint32_t count)
{
  uint32_t repeated;
  if (!tgi_json_repeated_key(r->json, object, count, &repeated)) {
    return fail_memory(r, (uint64_t)count * 8);
  }
  if (repeated == 0) {
    return true;
  }
  r->status = tgi_json_unexpected(r->json, repeated, r->error, "each key once");
  return false;
}

static bool read_object(reader *r)
{
  uint32_t index, key;
  uint32_t members = 0;
  if (!add_node(r, TGI_JSON_OBJECT, &index)) {
    return false;
  }
  r->at++;
  skip_space(r);
  if (peek(r) != '}') {
    for (;; members++) {
      if (peek(r) != '"') {
        return fail(r, "a key in quotes");
      }
      if (!read_string(r, &key)) {
        return false;
      }
      skip_space(r);
      if (peek(r) != ':') {
        return fail(r, "':'");
      }
      r->at++;
      skip_space(r);
      if (!read_value(r)) {
        return false;
      }
      skip_space(r);
      if (peek(r) != ',') {
        break;
      }
      r->at++;
      skip_space(r);
    }
    members++;
    if (peek(r) != '}') {
      return fail(r, "',' or '}'");
    }
  }
  r->at++;
  end_node(r, index);
  return check_keys(r, index, members);
}

static bool read_value(reader *r)
{
  uint32_t index;
  bool done;
  switch (peek(r)) {
  case '"':
    return read_string(r, &index);
  case '[':
  case '{':
    if (r->levels == LEVELS) {
      return fail(r, "at most 127 levels");
    }
    r->levels++;
    done = peek(r) == '[' ? read_array(r) : read_object(r);
    r->levels--;
    return done;
  case 'n':
    return read_word(r, "null", TGI_JSON_NULL);
  case 't':
    return read_word(r, "true", TGI_JSON_TRUE);
  case 'f':
    return read_word(r, "false", TGI_JSON_FALSE);
  default:
    if (peek(r) == '-' || is_digit(peek(r))) {
      return read_number(r);
    }
    return fail(r, "a value");
  }
}

tg_status tgi_json_read(const char *path, const char *text, size_t size, uint64_t base,
                        tgi_json *json, tg_error *error)
{
  *json = (tgi_json){.path = path, .text = text, .base = base};
  if (size > INT32_MAX) {
    return tgi_file_error(error, TG_BAD_FILE, path, base, "at most %d bytes of JSON, got %zu",
                          INT32_MAX, size);
  }
  reader r = {.json = json, .error = error, .size = (uint32_t)size};
  skip_space(&r);
  if (read_value(&r)) {
    skip_space(&r);
    if (r.at == r.size) {
      return TG_OK;
    }
    fail(&r, "the end of the text");
  }
  tgi_json_free(json);
  return r.status;
}

void tgi_json_free(tgi_json *json)
{
  free(json->nodes);
  json->nodes = NULL;
  json->count = 0;
}
