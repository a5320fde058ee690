/** A launch without the library around it. */
#ifndef TGI_BENCH_EMPTY_KERNEL_H
#define TGI_BENCH_EMPTY_KERNEL_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Launches one warp of a kernel that does nothing on a cudaStream_t. */
bool launch_empty_kernel(void *stream);

#ifdef __cplusplus
}
#endif

#endif
