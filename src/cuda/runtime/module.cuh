/**
 * What every .cu file has, so that kernel_loading.c finds its module: the driver keeps the code of
 * each file as a module of its own, and tells of a module only through a kernel in it.
 */
#ifndef TGI_CUDA_MODULE_CUH
#define TGI_CUDA_MODULE_CUH

#include <cuda_runtime.h>

extern "C" {
#include "cuda/runtime/kernel_loading.h"
}

#define TGI_MODULE_NAME_(entry) #entry
#define TGI_MODULE_NAME(entry) TGI_MODULE_NAME_(entry)

/** Empty, and never launched. */
static __global__ void module_kernel() {}

/** The file's element of the table that the linker makes of the section. Aligned by hand: compilers
 * would leave gaps between large elements. */
__attribute__((section("tgi_modules"), used, aligned(8))) static const tgi_module module_element = {
    reinterpret_cast<const void *>(module_kernel), TGI_MODULE_NAME(TGI_ENTRY)};

#endif
