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

/** `thread` is 0 .. num_threads - 1, an index for scratch memory that a thread reuses. No two calls
 * run at once with one index. */
typedef void tgi_loop_body(void *arg, int64_t begin, int64_t end, int thread);

/**
 * Runs the loop on the calling thread and at most num_threads - 1 workers; returns when every chunk
 * is done. Any number of threads may call it at once. It runs on the calling thread alone inside of
 * a body, in a child process whose parent had started workers before the fork, and where the system
 * has no threads left.
 */
void tgi_parallel_for(int num_threads, int64_t n, int64_t grain, tgi_loop_body *body, void *arg);

/**
 * Default number of threads, read anew: OMP_NUM_THREADS, else the CPUs that the process may run on,
 * at most as many as the CPU time that its control group grants. At least 1.
 */
int tgi_default_threads(void);

#endif
