/** Output: data goes to standard output, everything else to standard error. */
#ifndef TGI_CLI_CONSOLE_H
#define TGI_CLI_CONSOLE_H

#include "tegula/status.h"
#include <stdarg.h>
#include <stdbool.h>

/** Whether standard error is a terminal that can rewrite its line. */
bool tgi_console_is_live(void);

/** Columns of the terminal behind standard error; 80 if unknown. */
int tgi_console_columns(void);

/** "tegula train: <message>" on standard error, in one line, and returns 1: control bytes, as of a
 * file's name, become \xHH. Red unless NO_COLOR is set. */
int tgi_console_fail(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The same with the arguments of `format` in a list. */
int tgi_console_fail_list(const char *command, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/** The same for an error record. */
int tgi_console_fail_with(const char *command, const tg_error *error);

/**
 * Flushes standard output. Returns `code`, or 1 if the output could not be written. It prints a
 * message, unless the reader closed the pipe.
 */
int tgi_console_finish(const char *command, int code);

/** Text of tgi_size and tgi_duration, returned by value. */
typedef struct tgi_size_text {
  char text[24];
} tgi_size_text;

/** Bytes as "12.3 MiB". */
tgi_size_text tgi_size(double bytes);

/** Seconds as "0:07", "12:34" or "1:02:03". */
tgi_size_text tgi_duration(double seconds);

#endif
