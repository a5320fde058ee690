/** How times of the same work are spread. */
#ifndef TGI_CLI_BENCH_SPREAD_H
#define TGI_CLI_BENCH_SPREAD_H

#include <stddef.h>

typedef struct tgi_spread {
  double mean, deviation; /* deviation: of the population */
  double least, most, median, p95, p99;
} tgi_spread;

/** Sorts the times, one at least. Percentiles between two of them are interpolated linearly. */
tgi_spread tgi_spread_of(double *seconds, size_t count);

#endif
