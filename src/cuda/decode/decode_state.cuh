/** What a decoder's kernel is told, and what a thread of it keeps. */
#ifndef TGI_CUDA_DECODE_STATE_CUH
#define TGI_CUDA_DECODE_STATE_CUH

#include "cuda/decode/decode_words.cuh"
#include "cuda/reduce.cuh"
#include "cuda/tma.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Matrices in the order of a layer; the head is behind them. */
enum decode_matrix { kMatrixQkv, kMatrixOut, kMatrixUp, kMatrixDown, kMatrixHead, kMatrices };

/** Each as [layers, k / atom, rows, atom]: a copy is 8 rows of a chunk of k. */
struct decode_maps {
  CUtensorMap of[kMatrices];
};

/** A vector of each layer; absent: NULL. */
struct decode_vectors {
  const __nv_bfloat16 *norm1, *norm1_bias, *norm2, *norm2_bias, *q_norm, *k_norm;
  const __nv_bfloat16 *qkv_bias, *out_bias, *up_bias, *down_bias;
};

struct decode_job {
  decode_vectors vector; /* of layer 0 */
  int64_t layer_step;    /* elements from a layer's to the next one's */
  const __nv_bfloat16 *tokens, *positions, *final_norm, *final_norm_bias;
  const float *cos, *sin;
  __nv_bfloat16 *const *cache; /* [2 * layers]: keys, then values, of each layer */
  const int32_t *table;        /* NULL: blocks 0, 1, ... */
  const int32_t *id;
  int32_t *greedy;
  float *logits;
  decode_word *words[TGI_WORDS_KINDS];
  decode_word *best; /* [blocks] */
  unsigned *ended;   /* blocks; 0 between launches */
  int layers, vocab, position, block_tokens;
  int stages;     /* of the ring */
  uint32_t epoch; /* that of the layer before the first */
  float eps, scale;
};

/** A thread's view of its block. */
struct decode_state {
  float *sums;            /* [2][warps][8 * kDecodeGroup] */
  float *reduced;         /* [64] */
  __nv_bfloat16 *operand; /* x of the stage's product */
  __nv_bfloat16 *query;   /* [group][head_dim] */
  __nv_bfloat16 *newest;  /* [2][head_dim]: the token's own key and value */
  float2 *maxima;         /* [warps][group]: maximum and sum of a warp's keys */
  char *keys;             /* a split's keys, then values */
  mbarrier *full, *empty; /* of the ring */
  uint32_t ring;          /* this warp's part of the first stage */
  int slot, parity;
  int thread, warp, lane, row, quad, block;
  int first_key, num_keys; /* of the split */
  int token;
  float residual; /* of row block * kRows + thread */
  decode_watch watch;
};

/** All threads but the producer's. */
__device__ __forceinline__ void decode_sync()
{
  asm volatile("bar.sync 1, %0;" : : "n"(kDecodeThreads) : "memory");
}

__device__ __forceinline__ const __nv_bfloat16 *at_layer(const __nv_bfloat16 *vector,
                                                         const decode_job &job, int layer)
{
  return vector + layer * job.layer_step;
}

__device__ __forceinline__ uint32_t load_pair(const __nv_bfloat16 *from)
{
  return __ldg(reinterpret_cast<const unsigned int *>(from));
}

} // namespace TGI_CUDA_ENTRY

#endif
