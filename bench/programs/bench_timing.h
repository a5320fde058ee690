/** Times a case and its roof in turn. */
#ifndef TGI_BENCH_BENCH_TIMING_H
#define TGI_BENCH_BENCH_TIMING_H

#include "bench_case.h"

enum { BENCH_MAX_PAIRS = 101 };

typedef struct bench_result {
  double ms, ms_min, ms_max; /* of one call; ms is the median */
} bench_result;

typedef struct bench_timing {
  bench_result ours, roof;
  double share; /* of the roof: the median of the pairs' shares */
  double roof_bytes, roof_flops;
  char roof_name[24], roof_detail[40], note[160];
} bench_timing;

/** False with a message on stderr: the op refused, or memory is short. */
bool bench_time(bench_case *c, int pairs, bench_timing *t);

#endif
