/**
 * Writes JSON into a growing buffer, with commas, indentation and escapes in the right places.
 *
 * A failed allocation makes every later call do nothing; tgi_json_writer_ok tells at the end.
 * Numbers do not depend on the process's locale. Text must be UTF-8.
 */
#ifndef TGI_MODEL_JSON_WRITER_H
#define TGI_MODEL_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Starts zeroed, but for `indent`. */
typedef struct tgi_json_writer {
  int indent; /* spaces for a level; 0 writes everything on one line, without spaces */
  char *text; /* not terminated */
  size_t size, capacity;
  int level;
  bool filled; /* the innermost array or object holds something */
  bool failed;
} tgi_json_writer;

/** Every call takes the member's key, or NULL in arrays and at the top. */
void tgi_json_open_object(tgi_json_writer *writer, const char *key);
void tgi_json_close_object(tgi_json_writer *writer);
void tgi_json_open_array(tgi_json_writer *writer, const char *key);
void tgi_json_close_array(tgi_json_writer *writer);
void tgi_json_put_string(tgi_json_writer *writer, const char *key, const char *value);
void tgi_json_put_integer(tgi_json_writer *writer, const char *key, int64_t value);
void tgi_json_put_bool(tgi_json_writer *writer, const char *key, bool value);
void tgi_json_put_null(tgi_json_writer *writer, const char *key);

/** The shortest digits that read back as the same double; `value` must be finite. */
void tgi_json_put_real(tgi_json_writer *writer, const char *key, double value);

/** Adds bytes as they are (a last newline, padding). */
void tgi_json_put_raw(tgi_json_writer *writer, const char *bytes, size_t size);

/** Whether every byte so far found memory. */
bool tgi_json_writer_ok(const tgi_json_writer *writer);

void tgi_json_writer_free(tgi_json_writer *writer);

#endif
