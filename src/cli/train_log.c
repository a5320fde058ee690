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
                   : tgi_error_set(error, TG_IO, "%s: byte 0: expected to open the log, got %s",
                                   path, strerror(errno));
}

void tgi_train_log_close(tgi_train_log *log)
{
  if (log->file) {
    (void)fclose(log->file);
    log->file = NULL;
  }
}

tgi_json_writer tgi_train_log_line(const char *event)
{
  tgi_json_writer line = {.indent = 0};
  tgi_json_open_object(&line, NULL);
  tgi_json_put_string(&line, "event", event);
  return line;
}

void tgi_train_log_number(tgi_json_writer *line, const char *key, double value)
{
  if (isfinite(value)) {
    tgi_json_put_real(line, key, value);
  } else {
    tgi_json_put_null(line, key);
  }
}

void tgi_train_log_write(tgi_train_log *log, tgi_json_writer *line)
{
  tgi_json_close_object(line);
  tgi_json_put_raw(line, "\n", 1);
  if (log->file && tgi_json_writer_ok(line) &&
      (fwrite(line->text, 1, line->size, log->file) != line->size || fflush(log->file) != 0) &&
      !log->failed) {
    log->failed = true;
    (void)tgi_console_fail("tegula train",
                           "%s: expected to write the log, got %s (training goes on)", log->path,
                           strerror(errno));
  }
  tgi_json_writer_free(line);
}
