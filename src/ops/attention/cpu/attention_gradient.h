/** One block of rows of the backward; attention_bwd_cpu.c calls it, once per instruction set. */
#ifndef TGI_OPS_ATTENTION_GRADIENT_H
#define TGI_OPS_ATTENTION_GRADIENT_H

#include "ops/attention/cpu/attention_block.h"

/** Sums that blocks of one kv head of one sequence add to; NULL: not wanted. */
typedef struct attention_sums_bwd {
  float *dk, *dv; /* [keys, in whole TGI_TILE_ROWS][padded(head_dim) or padded(v_dim)] */
  double *dsinks; /* [q_heads] */
} attention_sums_bwd;

/** Floats of scratch memory that attention_gradient needs; 64-byte aligned. */
int64_t TGI_KERNEL(attention_gradient_scratch)(const tgi_attention_layout *l);

/** Writes the block's rows of dq, if wanted, and adds its part of the rest. */
void TGI_KERNEL(attention_gradient)(attention_block *k, const tg_attention_bwd_args *a,
                                    float *scratch, const attention_sums_bwd *to);

#endif
