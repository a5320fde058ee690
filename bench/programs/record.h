/** Rows of bench/results/<device>.csv: the one record of what was measured. */
#ifndef TGI_BENCH_RECORD_H
#define TGI_BENCH_RECORD_H

#include <stdbool.h>
#include <stdio.h>

#define RECORD_COLUMNS                                                                             \
  "run,date,commit,device,driver,clock_mhz,suite,op,dir,dtype,shape,config,impl,version,ms,"       \
  "ms_min,ms_max,host_us,bytes,flops,gbps,tflops,roof,roof_share,tokens_per_s,peak_bytes,note"

/** What is the same in all rows of a run. */
typedef struct record_run {
  char id[48], date[32], device[128], driver[128];
  const char *commit; /* of the tree that was built */
} record_run;

/** One implementation's figures; a value of 0 and a NULL text leave the column empty. */
typedef struct record_row {
  const char *suite, *op, *dir, *dtype, *shape, *config, *impl, *version;
  double ms, ms_min, ms_max, bytes, flops;
  const char *roof;
  double roof_share;
  const char *note;
} record_row;

/** The commit that the build saw, with "-dirty" behind it if files differed from it. */
const char *record_commit(void);

/** `id` NULL: made from the time and the process. */
record_run record_begin(const char *id);

/** Appends; writes the heading into an empty file. False if the file cannot be written. */
bool record_append(const char *path, const record_run *run, const record_row *rows, int num_rows);

/** True if one run of this commit holds every row (its case and impl). */
bool record_has(const char *path, const record_row *rows, int num_rows);

#endif
