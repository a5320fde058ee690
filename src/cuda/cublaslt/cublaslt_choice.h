/* Which of cublasLt's candidates for a product of 16-bit operands is taken on Hopper. A rule of
 * numbers alone, so that it can be tested without a GPU; docs/kernels/linear.md has the
 * measurements behind it. */
#ifndef TGI_CUDA_CUBLASLT_CHOICE_H
#define TGI_CUDA_CUBLASLT_CHOICE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/** Numbers of cublasLt's tiles (cublasLtMatmulTile_t). */
enum { kTile128x160 = 29, kTile168x128 = 197, kTile176x128 = 201, kTile320x128 = 248 };

enum { kLeastWaves = 12 };

typedef struct tgi_lt_candidate {
  uint32_t tile;
  float waves; /* tiles over those that run at a time; 0 if the candidate cannot run */
} tgi_lt_candidate;

/** The tiles whose two warp groups take turns, each with a tile of its own: one stores while the
 * other multiplies. cublasLt mostly puts tiles first that two groups share. */
static inline bool tgi_lt_takes_turns(uint32_t tile)
{
  return tile == kTile128x160 || tile == kTile168x128 || tile == kTile176x128;
}

/** What a last wave that is not full costs: 1 is nothing. */
static inline float tgi_lt_wave_cost(float waves)
{
  return waves > 0 ? ceilf(waves - 1e-6F) / waves : 1;
}

/** Index of the candidate to take, of `count` >= 1 in cublasLt's order: the first, or tiles that
 * take turns where there are waves enough and their last one does not cost more than the turns
 * save: the more, the shorter the sums of `k` products. */
static inline int tgi_lt_choice(const tgi_lt_candidate *all, int count, int64_t k)
{
  const float saved = 164.0F / (float)k - (all[0].tile == kTile320x128 ? 0.01F : 0.04F);
  const float most = tgi_lt_wave_cost(all[0].waves) * (1 + saved);
  int best = 0;
  if (tgi_lt_takes_turns(all[0].tile)) {
    return 0;
  }
  for (int i = 1; i < count; i++) {
    const float cost = tgi_lt_wave_cost(all[i].waves);
    if (all[i].waves >= kLeastWaves && tgi_lt_takes_turns(all[i].tile) && cost <= most &&
        (best == 0 || cost < tgi_lt_wave_cost(all[best].waves))) {
      best = i;
    }
  }
  return best;
}

#endif
