#include "order.h"

/* splitmix64's finaliser over two words. */
uint64_t tgi_mix(uint64_t a, uint64_t b)
{
  uint64_t z = a * 0x9e3779b97f4a7c15u + b;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/*
 * A Feistel network on the next even number of bits, iterated until the result is below n (Black &
 * Rogaway 2002, "Ciphers with arbitrary finite domains").
 */
uint64_t tgi_permute(uint64_t i, uint64_t n, uint64_t key)
{
  int half = 1;
  while (half < 32 && (n - 1) >> (2 * half)) {
    half++;
  }
  const uint64_t mask = ((uint64_t)1 << half) - 1;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (uint64_t round = 0; round < 4; round++) {
      const uint64_t next = left ^ (tgi_mix(key + round, right) & mask);
      left = right;
      right = next;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}
