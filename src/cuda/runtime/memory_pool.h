/**
 * Memory of a GPU that outlives its blocks: what was freed is given out again. One pool for each
 * GPU, which its contexts share; with the last of them it goes. This and the driver are the only
 * state of the process.
 */
#ifndef TGI_CUDA_MEMORY_POOL_H
#define TGI_CUDA_MEMORY_POOL_H

#include "tegula/status.h"

typedef struct tgi_memory_pool tgi_memory_pool;

/** The pool of GPU `index`, for one more context; NULL: no memory for it. */
tgi_memory_pool *tgi_memory_pool_open(int index);

/** One context less; NULL is allowed. */
void tgi_memory_pool_close(tgi_memory_pool *pool);

#endif
