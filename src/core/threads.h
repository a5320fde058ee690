/**
 * The parallel loop of the library.
 *
 * [0, n) is split into chunks of `grain` items; the last may be short. `body` is called once for
 * each chunk, on any thread and in any order. The split depends on n and grain alone, so a body
 * whose result depends only on its chunk gives the same bits at any number of threads.
 */
#ifndef TGI_CORE_THREADS_H
#define TGI_CORE_THREADS_H

#include <stdint.h>

/** `thread` is 0 .. num_threads - 1, an index for scratch memory that a thread reuses. */
typedef void tgi_loop_body(void *arg, int64_t begin, int64_t end, int thread);

void tgi_parallel_for(int num_threads, int64_t n, int64_t grain, tgi_loop_body *body, void *arg);

/** Default number of threads: OMP_NUM_THREADS, else one per usable CPU. */
int tgi_default_threads(void);

#endif
