/** The chain of a backend: the kernel tables that this build and machine have, best first. */
#ifndef TGI_OPS_CHAIN_H
#define TGI_OPS_CHAIN_H

#include "core/device_state.h"
#include "ops/kernels.h"

/** All entries of a backend, best first. Length 0: none. `device` is read for the CUDA backend
 * alone. */
tgi_chain tgi_chain_of(tg_backend backend, const tgi_processor *processor,
                       const tgi_device *device);

#endif
