#include "file_error.h"
#include "utf8.h"
#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 160

static const char *path_tail(const char *path, const char **dots)
{
  const size_t size = strlen(path);
  *dots = size > PATH_BYTES ? "..." : "";
  return size > PATH_BYTES ? path + size - PATH_BYTES : path;
}

__attribute__((format(printf, 6, 0))) static void fill(tg_error *error, tg_status status,
                                                       const char *path, uint64_t byte,
                                                       const char *lead, const char *format,
                                                       va_list arguments)
{
  if (!error) {
    return;
  }
  const char *dots;
  const char *tail = path_tail(path, &dots);
  error->status = status;
  char place[40] = "";
  if (byte != TGI_NO_BYTE) {
    snprintf(place, sizeof place, "byte %" PRIu64 ": ", byte);
  }
  const int used = snprintf(error->text, sizeof error->text, "%s%s: %s%s", dots, tail, place, lead);
  vsnprintf(error->text + used, sizeof error->text - (size_t)used, format, arguments);
}

void tgi_file_error_fill(tg_error *error, tg_status status, const char *path, uint64_t byte,
                         const char *rule, ...)
{
  va_list arguments;
  va_start(arguments, rule);
  fill(error, status, path, byte, "expected ", rule, arguments);
  va_end(arguments);
}

void tgi_file_error_fill_at(tg_error *error, tg_status status, const char *path, uint64_t byte,
                            const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  fill(error, status, path, byte, "", format, arguments);
  va_end(arguments);
}

void tgi_file_error_fill_system(tg_error *error, const char *path, uint64_t byte,
                                const char *action, int errno_value)
{
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  tgi_file_error_fill(error, TG_IO, path, byte, "to %s, got %s", action,
                      strerror_l(errno_value, plain));
  freelocale(plain);
}

tgi_quoted tgi_quote(const char *text, size_t size)
{
  tgi_quoted quoted;
  size_t used = 0;
  for (size_t i = 0; i < size;) {
    const unsigned char byte = (unsigned char)text[i];
    uint32_t point;
    const size_t length = tgi_utf8_decode(text + i, size - i, &point);
    const bool plain = length > 0 && point >= 0x20 && !(point >= 0x7f && point < 0xa0);
    const size_t wanted = plain ? length : 4;
    if (used + wanted > sizeof quoted.text - 4) {
      memcpy(quoted.text + used, "...", 4);
      return quoted;
    }
    if (plain) {
      memcpy(quoted.text + used, text + i, length);
    } else {
      snprintf(quoted.text + used, 5, "\\x%02x", byte);
    }
    used += wanted;
    i += plain ? length : 1;
  }
  quoted.text[used] = '\0';
  return quoted;
}
