#include "cuda/probe.h"

#include "core/device_state.h"

unsigned tgi_cuda_probe(int sm)
{
  unsigned entries = 0;
#ifdef TGI_HAVE_ANY
  entries |= (unsigned)tgi_cuda_probe_any() << TGI_CUDA_ANY;
#endif
#ifdef TGI_HAVE_SM80
  entries |= (unsigned)(sm >= 80 && tgi_cuda_probe_sm80()) << TGI_CUDA_SM80;
#endif
#ifdef TGI_HAVE_SM90
  entries |= (unsigned)(sm == 90 && tgi_cuda_probe_sm90()) << TGI_CUDA_SM90;
#endif
  (void)sm;
  return entries;
}
