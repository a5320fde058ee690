/** How much of the machine other processes use: recorded figures need a quiet one. */
#ifndef TGI_BENCH_HOST_LOAD_H
#define TGI_BENCH_HOST_LOAD_H

#include <stdbool.h>

/** Recorded runs refuse more than this many CPUs' worth of other load. */
#define HOST_LOAD_LIMIT 0.1

/** A moment: CPU seconds used by all, and by this process and its children. */
typedef struct host_load {
  double busy, own, clock;
} host_load;

host_load host_load_now(void);

/** CPUs that others kept busy since then; 0 at least. Ticks of 10 ms: wants a second or more. */
double host_load_since(const host_load *then);

/** Waits up to `patience` seconds for a second below the limit; returns the last second's load. */
double host_load_wait(double patience);

/** Mean clock of the CPUs in MHz as the system reports it; 0 if it does not. */
double host_clock_mhz(void);

#endif
