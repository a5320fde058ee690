/** The modules of the library: one for each .cu file and entry (cuda/runtime/module.cuh). */
#ifndef TGI_CUDA_KERNEL_LOADING_H
#define TGI_CUDA_KERNEL_LOADING_H

#include <stddef.h>

typedef struct tgi_module {
  const void *kernel; /* one of its kernels, as the runtime knows it */
  const char *entry;  /* of the chain; "all": none */
} tgi_module;

/** Modules of all entries, those for other GPUs too. */
size_t tgi_module_count(void);

#endif
