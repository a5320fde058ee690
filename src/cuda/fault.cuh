/** Data errors that a kernel finds: kept on the device until tg_context_check asks. */
#ifndef TGI_CUDA_FAULT_CUH
#define TGI_CUDA_FAULT_CUH

#include "cuda/launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** An argument of a call, by its numbers in ops.def (FAULT_SITE of ops/kernels.cuh). By value to
 * kernels. */
struct fault_site {
  tgi_fault *fault;
  int row, slot;
};

/** True if what is recorded stands before a fault at `site`, `index`. */
__device__ inline bool fault_is_before(const volatile tgi_fault *f, fault_site site, int64_t index)
{
  if (f->row != site.row) {
    return f->row < site.row;
  }
  if (f->slot != site.slot) {
    return f->slot < site.slot;
  }
  return f->index <= index;
}

/** Records element `index` of the site's argument: `value` where low .. high was expected. */
__device__ inline void record_fault(fault_site site, int64_t index, int64_t value, int64_t low,
                                    int64_t high)
{
  volatile tgi_fault *f = site.fault;
  bool done = false;
  while (!done) {
    if (atomicCAS(&site.fault->lock, 0u, 1u) == 0u) {
      __threadfence();
      if (!f->set || !fault_is_before(f, site, index)) {
        f->row = site.row;
        f->slot = site.slot;
        f->index = index;
        f->value = value;
        f->low = low;
        f->high = high;
        f->set = 1;
      }
      __threadfence();
      atomicExch(&site.fault->lock, 0u);
      done = true;
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
