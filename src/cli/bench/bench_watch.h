/** Marks of passes, layers and ops in the timeline of a profiler that reads NVTX, as Nsight Systems
 * does. */
#ifndef TGI_CLI_BENCH_WATCH_H
#define TGI_CLI_BENCH_WATCH_H

#include "model/pass_watch.h"
#include "tegula/status.h"

/** UNSUPPORTED in a build without NVTX's headers, which come with the CUDA toolkit. */
tg_status tgi_bench_nvtx_check(tg_error *error);

/** Whether a profiler listens: without one, marks go nowhere. */
bool tgi_bench_nvtx_heard(void);

/** Makes the marks; NULL in a build without. */
const tgi_pass_watch *tgi_bench_nvtx(void);

#endif
