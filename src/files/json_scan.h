/**
 * Reads the long lists of a JSON document in place: a vocabulary of 200,000 entries is neither a
 * tree in memory nor as slow to read as one (json_file.h reads the rest). Errors name the byte at
 * fault. Text is taken as strictly as there: UTF-8, no lone surrogates, no \u0000.
 */
#ifndef TGI_FILES_JSON_SCAN_H
#define TGI_FILES_JSON_SCAN_H

#include "tegula/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tgi_json_scan {
  const char *path;  /* borrowed, for messages */
  const char *place; /* the key of what is read, for messages; NULL: none */
  const char *text;
  size_t size, at;
  char *unescaped; /* the newest string, if it had escapes; to be given to free */
  size_t capacity;
  tg_error *error;
} tgi_json_scan;

/** A string of the document: in its text, or in `unescaped` until the next one is read. */
typedef struct tgi_json_string {
  const char *bytes;
  size_t size;
} tgi_json_string;

/** BAD_FILE: `<path>: byte <of at>: <place>: expected <rule>, got <what stands there>`. */
tg_status tgi_json_scan_refuse(tgi_json_scan *scan, size_t at, const char *rule);

/** Passes over white space; returns where the next value begins. */
size_t tgi_json_scan_next(tgi_json_scan *scan);

/** The same and, if it is next, over the character. */
bool tgi_json_scan_take(tgi_json_scan *scan, char character);

/** Reads a string. Errors: BAD_FILE, NO_MEMORY. */
tg_status tgi_json_scan_string(tgi_json_scan *scan, tgi_json_string *out);

/** Reads an integer from 0 to `most`. Errors: BAD_FILE. */
tg_status tgi_json_scan_integer(tgi_json_scan *scan, int64_t most, int64_t *out);

/**
 * Passes over a value of any kind, looking at strings and brackets alone; *strings is how many
 * strings it holds, keys included. Errors: BAD_FILE.
 */
tg_status tgi_json_scan_skip(tgi_json_scan *scan, size_t *strings);

#endif
