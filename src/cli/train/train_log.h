/**
 * The log of a training run: one JSON object per line, flushed line by line.
 *
 *   {"event":"start","version":"0.1.0",...}
 *   {"event":"step","step":1,"loss":5.5,"grad_norm":2.1,"lr":1e-05,"ms":12.3,"tokens_per_s":41000.0}
 *   {"event":"validation","step":100,"loss":1.2,"bits_per_byte":1.73}
 *   {"event":"sample","step":200,"text":"Once upon"}
 *   {"event":"checkpoint","step":250}
 *   {"event":"end","step":1000,"reason":"done"}
 *
 * Numbers that are not finite become null. A resumed run appends to the same file. If a step
 * appears twice, the later line is valid.
 */
#ifndef TGI_CLI_TRAIN_LOG_H
#define TGI_CLI_TRAIN_LOG_H

#include "files/json_file.h"
#include "tegula/status.h"
#include <stdbool.h>
#include <stdio.h>

typedef struct tgi_train_log {
  const char *path;
  FILE *file;
  bool failed; /* a write failed; reported once */
} tgi_train_log;

/** Opens the file, for appending or truncated, and locks it. Errors: IO (also that another process
 * writes it, and that it holds something else than a log). */
tg_status tgi_train_log_open(tgi_train_log *log, const char *path, bool append, tg_error *error);

void tgi_train_log_close(tgi_train_log *log);

/** Creates a line. The caller adds members and passes it to tgi_train_log_write, which frees it. */
json_t *tgi_train_log_line(const char *event);
void tgi_train_log_number(json_t *line, const char *key, double value);

/** Writes a line. The first failure is reported on standard error, and training continues. */
void tgi_train_log_write(tgi_train_log *log, json_t *line);

#endif
