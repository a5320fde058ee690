/** Elements from one dtype to another, on the threads of a CPU context. */
#ifndef TGI_CORE_CONVERT_H
#define TGI_CORE_CONVERT_H

#include "core/context_state.h"
#include "tegula/tensor.h"

/** Implements tg_memory_convert for checked views that are not empty. */
void tgi_convert(const tg_context *ctx, const tg_tensor *to, const tg_tensor *from);

#endif
