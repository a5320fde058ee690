/** The two functions that compute a block of rows against a range of keys, for the forward. Both
 * leave unnormalised sums, which attention_cpu.c divides or combines; each has one version per
 * instruction set. */
#ifndef TGI_OPS_ATTENTION_PARTS_H
#define TGI_OPS_ATTENTION_PARTS_H

#include "ops/attention/cpu/attention_block.h"

/** Blocks of at most so many rows are faster key by key. */
enum { kFewRows = 8 };

typedef struct attention_sums {
  float *rows;         /* [kBlockRows][padded(v_dim)]: sum_j e^(s[r,j] - m[r]) v[j] */
  float m[kBlockRows]; /* greatest score; -infinity: no key seen */
  float l[kBlockRows]; /* sum_j e^(s[r,j] - m[r]) */
} attention_sums;

/** Floats of scratch memory that attention_tiles needs; scratch is 64-byte aligned. */
int64_t TGI_KERNEL(attention_tiles_scratch)(const tgi_attention_layout *l);

/** Sums over the block's visible keys in [begin, end); begin is a multiple of kTileKeys. */
void TGI_KERNEL(attention_tiles)(const attention_block *k, const tg_attention_fwd_args *a,
                                 int64_t begin, int64_t end, float *scratch, attention_sums *to);

/**
 * The same for at most kFewRows rows, of `heads` kv heads from the block's on. Head i leaves its
 * sums at to + i * to_pitch: rows [rows][padded(v_dim)], m [rows], l [rows]. Scratch holds
 * heads * rows * padded(head_dim) floats.
 */
void TGI_KERNEL(attention_few)(const attention_block *k, int64_t heads,
                               const tg_attention_fwd_args *a, int64_t begin, int64_t end,
                               float *scratch, float *to, int64_t to_pitch);

#endif
