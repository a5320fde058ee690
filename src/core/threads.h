/**
 * The one parallel loop of the library.
 *
 * [0, n) is cut into chunks of `grain` items (the last may be short) and every chunk is handed to
 * `body` once, on some thread, in any order. Where the cuts lie depends on n and grain alone, so
 * a body whose result depends only on its chunk gives the same bits at any number of threads.
 */
#ifndef TGI_CORE_THREADS_H
#define TGI_CORE_THREADS_H

#include <stdint.h>

/** thread: 0 .. num_threads - 1, for scratch memory that one thread reuses between chunks. */
typedef void tgi_loop_body(void *arg, int64_t begin, int64_t end, int thread);

void tgi_parallel_for(int num_threads, int64_t n, int64_t grain, tgi_loop_body *body, void *arg);

/** Threads that OpenMP would start: OMP_NUM_THREADS, else one per usable CPU. */
int tgi_default_threads(void);

#endif
