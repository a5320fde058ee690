/** What an op's CUDA files see: the typed kernel tables of kernels.h, launches, and how a kernel
 * names the argument in which it finds a data error. */
#ifndef TGI_OPS_KERNELS_CUH
#define TGI_OPS_KERNELS_CUH

#include "cuda/launch.cuh"

extern "C" {
#include "ops/kernels.h"
}

/** Names the argument of a call for cuda/fault.cuh: FAULT_SITE(ctx, embedding_fwd, ids). */
#define FAULT_SITE(ctx, op_dir, field)                                                             \
  fault_site                                                                                       \
  {                                                                                                \
    (ctx)->device->fault, TGI_ROW_##op_dir, (int)offsetof(tg_##op_dir##_args, field)               \
  }

#endif
