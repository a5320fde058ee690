/** Fills a caller's tg_error. Inline, since both libraries use it and neither exports it. */
#ifndef TGI_CORE_ERROR_RECORD_H
#define TGI_CORE_ERROR_RECORD_H

#include "tegula/status.h"
#include <stdarg.h>
#include <stdio.h>

/** Fills `error` (printf format) unless it is NULL, and returns `status`. */
__attribute__((format(printf, 3, 4))) static inline tg_status
tgi_error_set(tg_error *error, tg_status status, const char *format, ...)
{
  if (error) {
    va_list args;
    va_start(args, format);
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
  }
  return status;
}

#endif
