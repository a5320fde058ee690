#include "train_log.h"

#include "console.h"
#include "core/error_record.h"
#include <errno.h>
#include <math.h>
#include <string.h>

tg_status tgi_train_log_open(tgi_train_log *log, const char *path, bool append, tg_error *error)
{
  *log = (tgi_train_log){path, fopen(path, append ? "a" : "w"), false};
  return log->file ? TG_OK
                   : tgi_error_set(error, TG_IO, "%s: expected to open the log, got %s", path,
                                   strerror(errno));
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
