/** What moe_mlp's backward computes between its products: the gradients of h and of the scores, w a
 * and the bias of down. Defined in moe_mlp_bwd.cu; the entry sm90 takes that of sm80. */
#ifndef TGI_OPS_MOE_MLP_BETWEEN_CUH
#define TGI_OPS_MOE_MLP_BETWEEN_CUH

#include "ops/kernels.cuh"

extern "C" {
#include "ops/moe_mlp/moe_mlp_steps.h"
}

#define TGI_MOE_MLP_BETWEEN(entry) TGI_CUDA_JOIN(tgi_moe_mlp_between_, entry)

extern "C" tg_status TGI_MOE_MLP_BETWEEN(any)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                                              const moe_mlp_bwd_steps *s);
extern "C" tg_status TGI_MOE_MLP_BETWEEN(sm80)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                                               const moe_mlp_bwd_steps *s);

#endif
