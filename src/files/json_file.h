/**
 * JSON documents by jansson, with the guards that jansson 2.14 needs. Only here is it known that:
 *
 * - When memory runs out, jansson may lose a byte of a token and report success, or run past the
 *   token's end (the closing quote was lost), or abort (an assertion); it never reports
 *   json_error_out_of_memory. So its allocator is wrapped once per process (around the one that is
 *   in place, which a host program may have chosen): the wrapper notes failures per thread, and
 *   lends the first failing request of a parse a block that was set aside, after which the parse
 *   sees the end of its text. Calls here look at the note and return NO_MEMORY.
 * - A NUL byte behind a number or word is passed over. It is refused here.
 * - Integers beyond 64 bits are errors, unless JSON_DECODE_INT_AS_REAL makes every number a real.
 * - Values do not know where they stood. Errors of syntax name the byte behind the token at fault,
 *   errors of meaning the key alone.
 *
 * Refused by jansson itself: text that is not UTF-8, lone surrogates, \u0000 (with JSON_ALLOW_NUL:
 * in keys alone), a root other than an
 * array or object, duplicate keys (after unescaping), 2048 levels, reals beyond a double, anything
 * but white space behind the document. "-0" is the integer 0.
 */
#ifndef TGI_FILES_JSON_FILE_H
#define TGI_FILES_JSON_FILE_H

#include "tegula/status.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tgi_json {
  const char *path; /* borrowed, for messages */
  size_t flags;     /* that it was read with */
  json_t *root;     /* to be given to json_decref */
} tgi_json;

/**
 * Reads `size` bytes (below 2^31), which stand in the file from `byte` on, with jansson's decoding
 * flags beside JSON_REJECT_DUPLICATES.
 * Errors: BAD_FILE, NO_MEMORY; then root is NULL.
 */
tg_status tgi_json_parse(const char *path, const char *text, size_t size, uint64_t byte,
                         size_t flags, tgi_json *json, tg_error *error);

/** The same for a file of at most `limit` bytes. Errors: those of file_map.h too. */
tg_status tgi_json_load(const char *path, size_t limit, size_t flags, tgi_json *json,
                        tg_error *error);

/**
 * `<path>: <place and rule>, got <value>`, where the format says
 * "<key>: expected <rule>"; a NULL value is "none". An expression whose value is the status.
 */
#define tgi_json_refuse(json, status, value, error, ...)                                           \
  (tgi_json_fill_refusal(json, status, value, error, __VA_ARGS__), (status))

void tgi_json_fill_refusal(const tgi_json *json, tg_status status, const json_t *value,
                           tg_error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/**
 * Begins a document to be written: it is made by jansson's functions, whose results need no look,
 * as the functions below report what failed in this thread since. One document at a time; strings
 * must be UTF-8 already.
 */
void tgi_json_begin(void);

/** Bytes of a request of jansson's that failed in this thread since then, or since a parse; 0: none
 * did. */
size_t tgi_json_missing(void);

/** Begins a document, and gives an empty object for its root. */
json_t *tgi_json_new(void);

/** Takes `root` and gives its text, for tgi_json_free_text. Errors: NO_MEMORY; *text is NULL. */
tg_status tgi_json_text(const char *path, json_t *root, size_t flags, char **text, tg_error *error);

void tgi_json_free_text(char *text);

/** Takes `root` and writes it, indented by 2, with a last newline (durable_file.h). */
tg_status tgi_json_save(const char *path, json_t *root, size_t flags, tg_error *error);

#endif
