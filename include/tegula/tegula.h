/**
 * Tegula: transformer kernels, forward and backward. Includes every header of libtegula. Those of
 * libtegula_model (model.h, engine.h, train.h, tokenizer.h, chat_template.h) are included one by
 * one.
 */
#ifndef TEGULA_TEGULA_H
#define TEGULA_TEGULA_H

#include "adamw.h"            // IWYU pragma: export
#include "add_rms_norm.h"     // IWYU pragma: export
#include "attention.h"        // IWYU pragma: export
#include "attention_naive.h"  // IWYU pragma: export
#include "context.h"          // IWYU pragma: export
#include "cross_entropy.h"    // IWYU pragma: export
#include "decoder.h"          // IWYU pragma: export
#include "dequantize_mxfp4.h" // IWYU pragma: export
#include "device.h"
#include "embedding.h"            // IWYU pragma: export
#include "gate_up.h"              // IWYU pragma: export
#include "geglu.h"                // IWYU pragma: export
#include "gelu.h"                 // IWYU pragma: export
#include "global_norm.h"          // IWYU pragma: export
#include "grouped_linear.h"       // IWYU pragma: export
#include "grouped_linear_mxfp4.h" // IWYU pragma: export
#include "layer_norm.h"           // IWYU pragma: export
#include "linear.h"               // IWYU pragma: export
#include "linear_cross_entropy.h" // IWYU pragma: export
#include "linear_fp8.h"           // IWYU pragma: export
#include "linear_fp8_fp8.h"       // IWYU pragma: export
#include "linear_int4.h"          // IWYU pragma: export
#include "linear_int8.h"          // IWYU pragma: export
#include "linear_swiglu.h"        // IWYU pragma: export
#include "moe_combine.h"          // IWYU pragma: export
#include "moe_mlp.h"              // IWYU pragma: export
#include "moe_plan.h"             // IWYU pragma: export
#include "op_info.h"              // IWYU pragma: export
#include "qk_norm_rope.h"         // IWYU pragma: export
#include "quantize_int4.h"        // IWYU pragma: export
#include "quantize_int8.h"        // IWYU pragma: export
#include "rms_norm.h"             // IWYU pragma: export
#include "rms_norm_swiglu.h"      // IWYU pragma: export
#include "rope.h"                 // IWYU pragma: export
#include "rounding.h"             // IWYU pragma: export
#include "sample.h"               // IWYU pragma: export
#include "silu.h"                 // IWYU pragma: export
#include "softmax.h"              // IWYU pragma: export
#include "status.h"               // IWYU pragma: export
#include "swiglu.h"               // IWYU pragma: export
#include "swiglu_clamped.h"       // IWYU pragma: export
#include "tensor.h"               // IWYU pragma: export
#include "topk_router.h"          // IWYU pragma: export
#include "tune.h"                 // IWYU pragma: export

#endif
