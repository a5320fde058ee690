#include "train_log.h"

#include "cli/console.h"
#include "core/error_record.h"
#include "files/directories/process_lock.h"
#include "files/file_error.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tg_status refuse(const char *path, tg_error *error)
{
  return tgi_error_set(error, TG_IO, "%s: expected to open the log, got %s", path, strerror(errno));
}

/* A file with something in it is a log, whose first line may have been cut short, or somebody's
 * data, which no log may replace. */
static tg_status check_beginning(const char *path, tg_error *error)
{
  static const char kStart[] = "{\"event\":\"start\"";
  char bytes[sizeof kStart - 1];
  const int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
  const ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
  const tg_status status =
      size < 0 ? refuse(path, error)
      : memcmp(bytes, kStart, (size_t)size) == 0
          ? TG_OK
          : tgi_error_set(error, TG_IO,
                          "%s: expected a new name or a log, which begins with %s, got a file that "
                          "begins with %s (--log names another)",
                          path, kStart, tgi_quote(bytes, (size_t)size).text);
  if (fd >= 0) {
    close(fd);
  }
  return status;
}

tg_status tgi_train_log_open(tgi_train_log *log, const char *path, bool append, tg_error *error)
{
  *log = (tgi_train_log){path, NULL, false};
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC, 0666);
  if (fd < 0) {
    return refuse(path, error);
  }
  struct stat info;
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode); /* or a pipe, a terminal */
  tg_status status = regular ? check_beginning(path, error) : TG_OK;
  if (status == TG_OK && regular) { /* only now: closing any descriptor of a file ends its lock */
    status = tgi_process_lock_file(fd, path, "a log", error);
  }
  if (status == TG_OK && regular && !append && ftruncate(fd, 0) != 0) {
    status = refuse(path, error);
  }
  if (status == TG_OK && !(log->file = fdopen(fd, "a"))) {
    status = refuse(path, error);
  }
  if (status != TG_OK) {
    close(fd);
  }
  return status;
}

void tgi_train_log_close(tgi_train_log *log)
{
  if (log->file) {
    (void)fclose(log->file);
    log->file = NULL;
  }
}

json_t *tgi_train_log_line(const char *event)
{
  json_t *line = tgi_json_new();
  json_object_set_new(line, "event", json_string(event));
  return line;
}

void tgi_train_log_number(json_t *line, const char *key, double value)
{
  json_object_set_new(line, key, isfinite(value) ? json_real(value) : json_null());
}

static bool write_line(const tgi_train_log *log, const char *text)
{
  return fputs(text, log->file) >= 0 && fputc('\n', log->file) >= 0 && fflush(log->file) == 0;
}

void tgi_train_log_write(tgi_train_log *log, json_t *line)
{
  char *text = NULL;
  const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(9);
  if (tgi_json_text(log->path, line, flags, &text, NULL) == TG_OK && log->file &&
      !write_line(log, text) && !log->failed) {
    log->failed = true;
    (void)tgi_console_fail("tegula train",
                           "%s: expected to write the log, got %s (training continues)", log->path,
                           strerror(errno));
  }
  tgi_json_free_text(text);
}
