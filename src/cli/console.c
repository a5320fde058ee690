#include "console.h"

#include "core/machine/environment.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool tgi_console_is_live(void)
{
  return isatty(STDERR_FILENO) && !tgi_environment_dumb_terminal();
}

int tgi_console_columns(void)
{
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int tgi_console_fail_list(const char *command, const char *format, va_list arguments)
{
  const bool red = tgi_console_is_live() && !tgi_environment_no_color();
  char text[2048];
  vsnprintf(text, sizeof text, format, arguments);
  fprintf(stderr, red ? "\033[31m%s:\033[0m " : "%s: ", command);
  for (const char *p = text; *p; p++) {
    const unsigned char byte = (unsigned char)*p;
    fprintf(stderr, byte < ' ' || byte == 0x7f ? "\\x%02x" : "%c", byte);
  }
  fputc('\n', stderr);
  return 1;
}

int tgi_console_fail(const char *command, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  tgi_console_fail_list(command, format, arguments);
  va_end(arguments);
  return 1;
}

int tgi_console_fail_with(const char *command, const tg_error *error)
{
  return tgi_console_fail(command, "%s",
                          error->text[0] ? error->text : tg_status_text(error->status));
}

int tgi_console_finish(const char *command, int code)
{
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) {
    return code;
  }
  /* Of an earlier write the reason is gone, but not whether anybody reads. */
  const int reason = errno;
  struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
  if (reason == 0 && !(poll(&output, 1, 0) == 1 && output.revents & POLLERR)) {
    tgi_console_fail(command, "standard output: expected to write, got an error");
  } else if (reason != EPIPE && reason != 0) {
    tgi_console_fail(command, "standard output: expected to write, got %s", strerror(reason));
  }
  return code == 0 ? 1 : code;
}

tgi_size_text tgi_size(double bytes)
{
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  tgi_size_text out;
  int u = 0;
  for (; bytes >= 1024 && u < 4; u++) {
    bytes /= 1024;
  }
  snprintf(out.text, sizeof out.text, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
  return out;
}

tgi_size_text tgi_duration(double seconds)
{
  tgi_size_text out;
  const long long s = (long long)(seconds + 0.5);
  if (s >= 3600) {
    snprintf(out.text, sizeof out.text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  } else {
    snprintf(out.text, sizeof out.text, "%lld:%02lld", s / 60, s % 60);
  }
  return out;
}
