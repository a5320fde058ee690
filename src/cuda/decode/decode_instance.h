/** A decoder's kernel for one model's widths, as the host sees it (decode_sm90.cu). */
#ifndef TGI_CUDA_DECODE_INSTANCE_H
#define TGI_CUDA_DECODE_INSTANCE_H

#include <stddef.h>
#include <stdint.h>

/** Words that blocks exchange, one behind the other: so many of each kind. */
typedef enum tgi_decode_words {
  TGI_WORDS_X,         /* f32 of the residual stream, in copies */
  TGI_WORDS_QKV,       /* f32 */
  TGI_WORDS_PART,      /* f32: sums of a split's values */
  TGI_WORDS_PART_SUMS, /* f32: a split's maximum, and its sum */
  TGI_WORDS_ATTENTION, /* bf16 pairs, in copies */
  TGI_WORDS_INNER,     /* bf16 pairs, in copies */
  TGI_WORDS_KINDS
} tgi_decode_words;

typedef struct tgi_decode_instance {
  const char *name;
  int hidden, heads, kv_heads, head_dim, inner;
  int gpt, qk_norm;
  int blocks, threads;
  int atom, stage_k;               /* k of a row of a copy, and of a copy */
  size_t fixed_bytes, stage_bytes; /* of shared memory: all but the ring, and of a stage of it */
  size_t words[TGI_WORDS_KINDS];
  const void *kernel; /* decode_kernel(decode_maps, decode_job) */
} tgi_decode_instance;

#endif
