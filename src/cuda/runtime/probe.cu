/* An empty kernel, compiled like the kernels of each entry: if the runtime finds code for it, it
 * finds code for them. */
#include "cuda/runtime/module.cuh"
#include "cuda/runtime/probe.h"

#include <cuda_runtime.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

namespace
{

__global__ void probe_kernel() {}

} // namespace

extern "C" int JOIN(tgi_cuda_probe_, TGI_ENTRY)(void)
{
  cudaFuncAttributes found;
  const bool ok = cudaFuncGetAttributes(&found, probe_kernel) == cudaSuccess;
  (void)cudaGetLastError();
  return ok;
}
