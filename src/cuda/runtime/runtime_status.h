/** Results of calls of the CUDA runtime as statuses with a message. */
#ifndef TGI_CUDA_RUNTIME_STATUS_H
#define TGI_CUDA_RUNTIME_STATUS_H

#include "core/context_state.h"

#include <cuda_runtime_api.h>

static inline tg_status tgi_cuda_status(cudaError_t e)
{
  return e == cudaSuccess ? TG_OK : e == cudaErrorMemoryAllocation ? TG_NO_MEMORY : TG_DEVICE;
}

/** Reports a failed call of the runtime; clears its error unless the device is lost. */
static inline tg_status tgi_cuda_check(const tg_context *ctx, const char *what, cudaError_t e)
{
  if (e == cudaSuccess) {
    return TG_OK;
  }
  (void)cudaGetLastError();
  return tgi_report(ctx, tgi_cuda_status(e), "%s: expected success, got %s (%s)", what,
                    cudaGetErrorName(e), cudaGetErrorString(e));
}

#endif
