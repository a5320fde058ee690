/** The chain of a backend: the kernel tables that this build and machine have, best first. */
#ifndef TGI_OPS_CHAIN_H
#define TGI_OPS_CHAIN_H

#include "core/device_state.h"
#include "ops/kernels.h"

/** tgi_chain.explain, of a call that the checks pass. One with nothing to compute reaches no
 * kernel, so none is asked. */
void tgi_explain_call(const tg_context *ctx, const tg_op_info *info, const void *args, char *text,
                      size_t bytes);

/** All entries of a backend, best first. Length 0: none. `device` is read for the CUDA backend
 * alone. */
tgi_chain tgi_chain_of(tg_backend backend, const tgi_processor *processor,
                       const tgi_device *device);

#endif
