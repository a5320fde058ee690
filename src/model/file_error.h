/** Error records of functions that read or write files: `<path>: byte <offset>: expected ..., got
 * ...`. */
#ifndef TGI_MODEL_FILE_ERROR_H
#define TGI_MODEL_FILE_ERROR_H

#include "tegula/status.h"
#include <stddef.h>
#include <stdint.h>

/**
 * Fills `error` (NULL is allowed) and returns `status`. `rule` is a printf format that says
 * "<rule>, got <value>"; of a long path the last 160 bytes are kept, so that the rule is never cut
 * off.
 */
tg_status tgi_file_error(tg_error *error, tg_status status, const char *path, uint64_t byte,
                         const char *rule, ...) __attribute__((format(printf, 5, 6)));

/** IO: `<path>: byte <byte>: expected to <action>, got <what errno_value says>`. */
tg_status tgi_file_error_system(tg_error *error, const char *path, uint64_t byte,
                                const char *action, int errno_value);

/** NO_MEMORY: `<path>: byte 0: expected <bytes> bytes of memory, got none`. */
tg_status tgi_file_error_memory(tg_error *error, const char *path, uint64_t bytes);

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
