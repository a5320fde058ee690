#include "cuda/runtime/probe.h"

#include "core/device_state.h"

unsigned tgi_cuda_probe(int sm)
{
  bool sm90 = false, sm80 = false, any = false;
#ifdef TGI_HAVE_SM90
  sm90 = sm == 90 && tgi_cuda_probe_sm90();
#endif
#ifdef TGI_HAVE_SM80
  sm80 = sm >= 80 && tgi_cuda_probe_sm80();
#endif
#ifdef TGI_HAVE_ANY
  /* Behind sm80 it may be PTX (cmake/cuda.cmake). To ask for its code would have the driver compile
   * the empty kernel in the first context on a machine: 60 ms, for what nobody but a test uses. */
  any = sm80 || tgi_cuda_probe_any();
#endif
  (void)sm;
  return (unsigned)sm90 << TGI_CUDA_SM90 | (unsigned)sm80 << TGI_CUDA_SM80 |
         (unsigned)any << TGI_CUDA_ANY;
}
