/** Error records of functions that read or write files: `<path>: byte <offset>: expected ..., got
 * ...`, without the byte where the error has no place in the file. */
#ifndef TGI_FILES_FILE_ERROR_H
#define TGI_FILES_FILE_ERROR_H

#include "tegula/status.h"
#include <inttypes.h>
#include <stddef.h>

/** For `byte`: no place in the file. */
#define TGI_NO_BYTE UINT64_MAX

/**
 * Fills `error` (NULL is allowed). `rule` is a printf format that says "<rule>, got <value>"; of a
 * long path the last 160 bytes are kept, so that the rule is never cut off.
 */
void tgi_file_error_fill(tg_error *error, tg_status status, const char *path, uint64_t byte,
                         const char *rule, ...) __attribute__((format(printf, 5, 6)));

/** The same with a format that says "<key>: expected <rule>, got <value>". */
void tgi_file_error_fill_at(tg_error *error, tg_status status, const char *path, uint64_t byte,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));

/** IO: `<path>: expected to <action>, got <what errno_value says>`. */
void tgi_file_error_fill_system(tg_error *error, const char *path, uint64_t byte,
                                const char *action, int errno_value);

/** The same as expressions with the status as their value, which readers and analysers then see. */
#define tgi_file_error(error, status, path, ...)                                                   \
  (tgi_file_error_fill(error, status, path, __VA_ARGS__), (status))

static inline tg_status tgi_file_error_system(tg_error *error, const char *path, uint64_t byte,
                                              const char *action, int errno_value)
{
  tgi_file_error_fill_system(error, path, byte, action, errno_value);
  return TG_IO;
}

/** NO_MEMORY: `<path>: expected <bytes> bytes of memory, got none`. */
static inline tg_status tgi_file_error_memory(tg_error *error, const char *path, uint64_t bytes)
{
  tgi_file_error_fill(error, TG_NO_MEMORY, path, TGI_NO_BYTE,
                      "%" PRIu64 " bytes of memory, got none", bytes);
  return TG_NO_MEMORY;
}

/** Bytes of a tgi_quoted text: enough for a tensor name, short enough for one message. */
#define TGI_QUOTED_BYTES 96

typedef struct tgi_quoted {
  char text[TGI_QUOTED_BYTES];
} tgi_quoted;

/**
 * A printable copy of text that came out of a file: control bytes and bytes that are no UTF-8
 * become \xHH, and what does not fit is replaced by "...".
 */
tgi_quoted tgi_quote(const char *text, size_t size);

#endif
