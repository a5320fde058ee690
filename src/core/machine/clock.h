/** Time between two moments of this process. */
#ifndef TGI_CORE_CLOCK_H
#define TGI_CORE_CLOCK_H

#include <time.h>

/** Seconds of a monotonic clock. */
static inline double tgi_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
