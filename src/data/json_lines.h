/** Lines of JSON in a file: each is an object; lines of white space alone are passed over. */
#ifndef TGI_DATA_JSON_LINES_H
#define TGI_DATA_JSON_LINES_H

#include "files/json_file.h"
#include <stdbool.h>

enum { TGI_LINE_NAME_BYTES = 256 };

/** Begins with path, text and size, all else zeroed. */
typedef struct tgi_json_lines {
  const char *path, *text;
  size_t size;
  size_t at;                      /* where the next line begins */
  uint64_t number;                /* of the line, from 1 */
  char name[TGI_LINE_NAME_BYTES]; /* "<path>: line <number>": messages begin with it */
  tgi_json json;                  /* of the line */
} tgi_json_lines;

/**
 * Reads the next line; its JSON is valid until the call after. *found is false behind the last one.
 * Errors: NO_MEMORY, BAD_FILE (no JSON, no object), naming the line and the byte in it.
 */
tg_status tgi_json_lines_next(tgi_json_lines *lines, bool *found, tg_error *error);

/** Frees the last line's JSON. */
void tgi_json_lines_end(tgi_json_lines *lines);

/** The kind of the line's object: what it has of "messages" (checked to be a list) and "text" (a
 * text). Errors: BAD_FILE (neither, both, or of another type). */
tg_status tgi_json_line_kind(const tgi_json_lines *lines, bool *has_messages, tg_error *error);

#endif
