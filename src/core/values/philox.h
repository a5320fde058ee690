/**
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011,
 * doi:10.1145/2063384.2063405). A draw is a pure function of (key, counter), so results do not
 * depend on order, threads or backend, and resuming needs no generator state.
 */
#ifndef TGI_CORE_PHILOX_H
#define TGI_CORE_PHILOX_H

#include <math.h>
#include <stdint.h>

typedef struct tgi_philox_block {
  uint32_t word[4];
} tgi_philox_block;

static inline tgi_philox_block tgi_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c[4] = {(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high,
                   (uint32_t)(counter_high >> 32)};
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xd2511f53u * c[0], p1 = (uint64_t)0xcd9e8d57u * c[2];
    const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
                              (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};
    for (int i = 0; i < 4; i++) {
      c[i] = next[i];
    }
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return (tgi_philox_block){{c[0], c[1], c[2], c[3]}};
}

/** Uniform in the open interval (0, 1). */
static inline double tgi_uniform(uint32_t high, uint32_t low)
{
  return ((double)((uint64_t)high << 20 ^ low >> 12) + 0.5) * 0x1p-52;
}

/** Standard normal (Box & Muller). */
static inline double tgi_normal(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
  const tgi_philox_block b = tgi_philox(key, counter_high, counter_low);
  const double u = tgi_uniform(b.word[0], b.word[1]), v = tgi_uniform(b.word[2], b.word[3]);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

#endif
