/** How much memory of the host a process may still take. */
#ifndef TGI_GENERATION_FREE_MEMORY_H
#define TGI_GENERATION_FREE_MEMORY_H

#include <stdint.h>

/**
 * Bytes: what the kernel calls available, or less where the process's control group (version 1 or
 * 2) may take less; 0: unknown. `root` is put before the paths of /proc and /sys; "" but in tests.
 */
int64_t tgi_free_memory(const char *root);

#endif
