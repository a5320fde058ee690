#include "json_file.h"
#include "file_error.h"
#include "file_map.h"
#include "files/directories/durable_file.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the allocator around jansson's ---- */

static pthread_once_t wrapped = PTHREAD_ONCE_INIT;
static json_malloc_t inner_allocate;
static json_free_t inner_release;

static _Thread_local size_t missing; /* bytes of a request that failed; 0: none did */
static _Thread_local struct {
  void *block;
  size_t size;
} spare;

static void *allocate(size_t size)
{
  void *block = inner_allocate(size);
  if (!block) {
    if (missing == 0 && size <= spare.size) {
      block = spare.block;
    }
    missing = size;
  }
  return block;
}

static void release(void *block)
{
  if (block != spare.block) {
    inner_release(block);
  }
}

static void wrap(void)
{
  json_get_alloc_funcs(&inner_allocate, &inner_release);
  json_set_alloc_funcs(allocate, release);
}

void tgi_json_begin(void)
{
  pthread_once(&wrapped, wrap);
  missing = 0;
}

size_t tgi_json_missing(void)
{
  return missing;
}

/* ---- reading ---- */

typedef struct source {
  const char *at;
  const char *end;
} source;

/**
 * One byte at a time, so that nothing is appended to a token after a failure: only the token's own
 * buffer may not fail, and the spare block is as long as that can ask for.
 */
static size_t give_byte(void *buffer, size_t size, void *from)
{
  source *text = from;
  if (missing > 0 || text->at == text->end || size == 0) {
    return 0;
  }
  *(char *)buffer = *text->at++;
  return 1;
}

/** jansson's message, but for an escaped NUL, which is JSON all the same. */
static tg_status refuse_syntax(const char *path, uint64_t byte, const json_error_t *where,
                               tg_error *error)
{
  const enum json_error_code code = json_error_code(where);
  const bool nul = code == json_error_null_character || code == json_error_null_byte_in_key;
  const char *near = nul ? strstr(where->text, " near ") : NULL;
  const char *found = near ? near : where->text;
  return tgi_file_error(error, TG_BAD_FILE, path, byte + (uint64_t)where->position, "%s%s",
                        near ? "text without \\u0000, got it" : "JSON, got this error: ",
                        tgi_quote(found, strlen(found)).text);
}

tg_status tgi_json_parse(const char *path, const char *text, size_t size, uint64_t byte,
                         size_t flags, tgi_json *json, tg_error *error)
{
  *json = (tgi_json){.path = path, .flags = flags};
  const char *nul = memchr(text, '\0', size);
  if (nul) {
    return tgi_file_error(error, TG_BAD_FILE, path, byte + (uint64_t)(nul - text),
                          "JSON, got a byte of value 0");
  }
  const size_t spare_bytes = 2 * size + 32; /* a token's buffer doubles, from 16 bytes on */
  void *block = malloc(spare_bytes);
  if (!block) {
    return tgi_file_error_memory(error, path, spare_bytes);
  }
  tgi_json_begin();
  spare.block = block;
  spare.size = spare_bytes;
  source from = {text, text + size};
  json_error_t where;
  json_t *root = json_load_callback(give_byte, &from, flags | JSON_REJECT_DUPLICATES, &where);
  if (missing > 0) {
    json_decref(root);
    root = NULL;
  }
  spare.block = NULL;
  spare.size = 0;
  free(block);
  if (missing > 0) {
    return tgi_file_error_memory(error, path, missing);
  }
  if (!root) {
    return refuse_syntax(path, byte, &where, error);
  }
  json->root = root;
  return TG_OK;
}

tg_status tgi_json_load(const char *path, size_t limit, size_t flags, tgi_json *json,
                        tg_error *error)
{
  *json = (tgi_json){.path = path};
  tgi_file_map map;
  tg_status status = tgi_file_map_open(path, limit, &map, error);
  if (status != TG_OK) {
    return status;
  }
  status = tgi_json_parse(path, map.data, map.size, 0, flags, json, error);
  tgi_file_map_close(&map);
  return status;
}

/* ---- messages ---- */

/* The file's 7 became 7.0; in lists and objects, too. */
static void write_as_integers(char *text)
{
  bool quoted = false;
  char *to = text;
  for (const char *at = text; *at; at++) {
    if (quoted && at[0] == '\\' && at[1]) {
      *to++ = *at++;
    } else if (*at == '"') {
      quoted = !quoted;
    } else if (!quoted && at[0] == '.' && at[1] == '0' && strchr(",]}", at[2])) { /* or the end */
      at += 2;
      if (!*at) {
        break;
      }
    }
    *to++ = *at;
  }
  *to = '\0';
}

static tgi_quoted describe(const tgi_json *json, const json_t *value)
{
  char text[2 * TGI_QUOTED_BYTES] = {0};
  if (!value) {
    return tgi_quote("none", 4);
  }
  if (json_is_string(value)) {
    const tgi_quoted inner = tgi_quote(json_string_value(value), json_string_length(value));
    snprintf(text, sizeof text, "\"%s\"", inner.text);
  } else {
    /* The pieces that fit, then zeros. */
    const size_t room = sizeof text - sizeof "...";
    const size_t size =
        json_dumpb(value, text, room, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (json->flags & JSON_DECODE_INT_AS_REAL) {
      write_as_integers(text);
    }
    if (size > room) {
      memcpy(text + strlen(text), "...", sizeof "...");
    }
  }
  return tgi_quote(text, strlen(text));
}

void tgi_json_fill_refusal(const tgi_json *json, tg_status status, const json_t *value,
                           tg_error *error, const char *format, ...)
{
  char rule[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(rule, sizeof rule, format, arguments);
  va_end(arguments);
  tgi_file_error_fill_at(error, status, json->path, TGI_NO_BYTE, "%s, got %s", rule,
                         describe(json, value).text);
}

/* ---- writing ---- */

json_t *tgi_json_new(void)
{
  tgi_json_begin();
  return json_object();
}

tg_status tgi_json_text(const char *path, json_t *root, size_t flags, char **text, tg_error *error)
{
  *text = missing > 0 ? NULL : json_dumps(root, flags);
  json_decref(root);
  if (missing > 0 || !*text) { /* the former also where json_dumps lost a key and went on */
    tgi_json_free_text(*text);
    *text = NULL;
    return tgi_file_error_memory(error, path, missing);
  }
  return TG_OK;
}

void tgi_json_free_text(char *text)
{
  if (text) {
    inner_release(text);
  }
}

tg_status tgi_json_save(const char *path, json_t *root, size_t flags, tg_error *error)
{
  char *text;
  tg_status status = tgi_json_text(path, root, flags | JSON_INDENT(2), &text, error);
  if (status != TG_OK) {
    return status;
  }
  const size_t size = strlen(text);
  text[size] = '\n'; /* in place of the terminator */
  status = tgi_durable_file_save(path, text, size + 1, error);
  tgi_json_free_text(text);
  return status;
}
