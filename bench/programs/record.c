#include "record.h"

#include "build_commit.h"
#include "core/machine/processor.h"
#include "host_load.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { kMaxColumns = 32, kMaxLine = 1024, kMaxRows = 8 };

enum { kRun = 0, kCommit = 2, kSuite = 6, kOp, kDir, kDtype, kShape, kConfig, kImpl };

const char *record_commit(void)
{
  return TGI_BUILD_COMMIT;
}

record_run record_begin(const char *id)
{
  record_run run = {.commit = record_commit()};
  const time_t now = time(NULL);
  struct tm utc;
  struct utsname system;
  char name[96];
  gmtime_r(&now, &utc);
  uname(&system);
  tgi_processor_name(name, sizeof name);
  strftime(run.date, sizeof run.date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  if (id) {
    snprintf(run.id, sizeof run.id, "%s", id);
  } else {
    char stamp[24];
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%S", &utc);
    snprintf(run.id, sizeof run.id, "%s-%ld", stamp, (long)getpid());
  }
  snprintf(run.device, sizeof run.device, "%s %d cores", name, tgi_processor_count());
  snprintf(run.driver, sizeof run.driver, "%s %.60s", system.sysname, system.release);
  return run;
}

/* A comma would end the column. */
static void put_text(FILE *f, const char *text)
{
  for (const char *p = text ? text : ""; *p; p++) {
    fputc(*p == ',' || *p == '\n' || *p == '"' ? ';' : *p, f);
  }
  fputc(',', f);
}

static void put_number(FILE *f, double value)
{
  if (value != 0) {
    fprintf(f, "%.6g", value);
  }
  fputc(',', f);
}

static void put_row(FILE *f, const record_run *run, double clock_mhz, const record_row *r)
{
  const double per_s = r->ms > 0 ? 1e3 / r->ms : 0;
  const char *const start[] = {run->id, run->date, run->commit, run->device, run->driver};
  const char *const facts[] = {r->suite, r->op,     r->dir,  r->dtype,
                               r->shape, r->config, r->impl, r->version};
  for (size_t i = 0; i < sizeof start / sizeof start[0]; i++) {
    put_text(f, start[i]);
  }
  put_number(f, clock_mhz);
  for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
    put_text(f, facts[i]);
  }
  put_number(f, r->ms);
  put_number(f, r->ms_min);
  put_number(f, r->ms_max);
  put_text(f, ""); /* host_us */
  fprintf(f, "%.0f,%.0f,", r->bytes, r->flops);
  put_number(f, r->bytes * per_s * 1e-9);
  put_number(f, r->flops * per_s * 1e-12);
  put_text(f, r->roof);
  put_number(f, r->roof_share);
  put_text(f, ""); /* tokens_per_s */
  put_text(f, ""); /* peak_bytes */
  fprintf(f, "%s\n", r->note ? r->note : "");
}

bool record_append(const char *path, const record_run *run, const record_row *rows, int num_rows)
{
  struct stat status;
  const bool empty = stat(path, &status) != 0 || status.st_size == 0;
  FILE *f = fopen(path, "ae");
  if (!f) {
    return false;
  }
  if (empty) {
    fprintf(f, "%s\n", RECORD_COLUMNS);
  }
  const double clock_mhz = host_clock_mhz();
  for (int i = 0; i < num_rows; i++) {
    put_row(f, run, clock_mhz, &rows[i]);
  }
  const bool written = !ferror(f);
  return fclose(f) == 0 && written;
}

/* Cuts a line at its commas; returns the number of columns. */
static int split(char *line, char **column)
{
  int n = 0;
  column[n++] = line;
  for (char *p = line; *p && n < kMaxColumns; p++) {
    if (*p == ',' || *p == '\n') {
      const bool more = *p == ',';
      *p = 0;
      if (more) {
        column[n++] = p + 1;
      }
    }
  }
  return n;
}

static bool is_row(char **column, const record_row *r)
{
  const char *const want[] = {r->suite, r->op, r->dir, r->dtype, r->shape, r->config, r->impl};
  for (int i = 0; i < 7; i++) {
    if (strcmp(column[kSuite + i], want[i] ? want[i] : "") != 0) {
      return false;
    }
  }
  return true;
}

bool record_has(const char *path, const record_row *rows, int num_rows)
{
  FILE *f = fopen(path, "re");
  char line[kMaxLine], run[64] = "";
  char *column[kMaxColumns];
  bool found[kMaxRows] = {false}, all = false;
  while (f && !all && num_rows <= kMaxRows && fgets(line, sizeof line, f)) {
    if (split(line, column) <= kImpl || strcmp(column[kCommit], record_commit()) != 0) {
      continue;
    }
    if (strcmp(run, column[kRun]) != 0) { /* rows of a run stand together */
      snprintf(run, sizeof run, "%s", column[kRun]);
      memset(found, 0, sizeof found);
    }
    all = num_rows > 0;
    for (int i = 0; i < num_rows; i++) {
      found[i] = found[i] || is_row(column, &rows[i]);
      all = all && found[i];
    }
  }
  if (f) {
    fclose(f);
  }
  return all;
}
