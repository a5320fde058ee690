/** Random orders that need no memory: which comes i-th is computed. */
#ifndef TGI_DATA_ORDER_H
#define TGI_DATA_ORDER_H

#include <stdint.h>

/** A random number of two words. */
uint64_t tgi_mix(uint64_t a, uint64_t b);

/** Where i of 0 .. n - 1 goes in a permutation chosen by the key. */
uint64_t tgi_permute(uint64_t i, uint64_t n, uint64_t key);

#endif
