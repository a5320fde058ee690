/**
 * Widths that a decoder is compiled for, and what follows from them.
 *
 * Every stage's rows divide evenly among the blocks in tiles of 8, so that each block writes
 * something in every stage: the reuse of the exchanged words rests on it (decode_words.cuh).
 */
#ifndef TGI_CUDA_DECODE_SHAPE_CUH
#define TGI_CUDA_DECODE_SHAPE_CUH

#include "cuda/launch.cuh"

#include <cuda_bf16.h>

extern "C" {
#include "cuda/decode/decode_instance.h"
}

inline namespace TGI_CUDA_ENTRY
{

struct gpt2_124m {
  static constexpr int kHidden = 768, kHeads = 12, kKvHeads = 12, kHeadDim = 64, kInner = 3072;
  static constexpr int kBlocks = 96;
  static constexpr bool kGpt = true, kQkNorm = false;
  static constexpr const char *kName = "gpt2-124m";
};

struct qwen3_600m {
  static constexpr int kHidden = 1024, kHeads = 16, kKvHeads = 8, kHeadDim = 128, kInner = 3072;
  static constexpr int kBlocks = 128;
  static constexpr bool kGpt = false, kQkNorm = true;
  static constexpr const char *kName = "qwen3-0.6b";
};

struct qwen3_1700m {
  static constexpr int kHidden = 2048, kHeads = 16, kKvHeads = 8, kHeadDim = 128, kInner = 6144;
  static constexpr int kBlocks = 128;
  static constexpr bool kGpt = false, kQkNorm = true;
  static constexpr const char *kName = "qwen3-1.7b";
};

struct qwen3_8b {
  static constexpr int kHidden = 4096, kHeads = 32, kKvHeads = 8, kHeadDim = 128, kInner = 12288;
  static constexpr int kBlocks = 128;
  static constexpr bool kGpt = false, kQkNorm = true;
  static constexpr const char *kName = "qwen3-8b";
};

struct llama32_1b {
  static constexpr int kHidden = 2048, kHeads = 32, kKvHeads = 8, kHeadDim = 64, kInner = 8192;
  static constexpr int kBlocks = 128;
  static constexpr bool kGpt = false, kQkNorm = false;
  static constexpr const char *kName = "llama-3.2-1b";
};

struct llama31_8b {
  static constexpr int kHidden = 4096, kHeads = 32, kKvHeads = 8, kHeadDim = 128, kInner = 14336;
  static constexpr int kBlocks = 128;
  static constexpr bool kGpt = false, kQkNorm = false;
  static constexpr const char *kName = "llama-3.1-8b";
};

constexpr int kDecodeWarps = 8, kDecodeThreads = 32 * kDecodeWarps;
constexpr int kDecodeCopies = 4; /* of words that all blocks read: fewer poll a line */
constexpr int kDecodeGroup = 8;  /* tiles whose sums are finished together */

constexpr int larger(int a, int b)
{
  return a > b ? a : b;
}

template <typename M> struct decode_shape : M {
  static constexpr int kQuery = M::kHeads * M::kHeadDim;
  static constexpr int kQkv = kQuery + 2 * M::kKvHeads * M::kHeadDim;
  static constexpr int kUp = M::kGpt ? M::kInner : 2 * M::kInner;
  static constexpr int kGroup = M::kHeads / M::kKvHeads;   /* query heads of a key head */
  static constexpr int kSplits = M::kBlocks / M::kKvHeads; /* of the keys */
  static constexpr int kRows = M::kHidden / M::kBlocks;    /* of the residual stream, a block's */
  static constexpr int kShare = M::kHidden / kDecodeWarps; /* of k, a warp's, at its least */
  static constexpr int kAtom = kShare % 64 == 0 ? 64 : 32; /* k of a row of a copy */
  static constexpr int kChunk = kShare % 128 == 0 ? 128 : kShare;
  static constexpr int kChunkBytes = kChunk * 16;       /* 8 rows of a warp's k in a stage */
  static constexpr int kStageK = kDecodeWarps * kChunk; /* k of a stage: of all warps */
  static constexpr int kStageBytes = kStageK * 16;
  static constexpr int kKeys = 96 * 64 / M::kHeadDim;    /* of a split, in shared memory */
  static constexpr int kKeyBytes = 2 * M::kHeadDim + 16; /* no two rows in the same banks */
  static constexpr int kOperand =
      larger(2 * larger(M::kInner, kQuery), kDecodeWarps *kGroup *M::kHeadDim * 4); /* bytes */
  static_assert(kQkv % (8 * M::kBlocks) == 0 && M::kHidden % (8 * M::kBlocks) == 0 &&
                    kUp % (16 * M::kBlocks) == 0 && kRows <= 8 * kDecodeGroup &&
                    kQuery % (2 * M::kBlocks) == 0,
                "rows divide evenly");
  static_assert(kGroup + 2 <= kDecodeWarps && 32 % kSplits == 0, "heads and splits");
};

} // namespace TGI_CUDA_ENTRY

#endif
