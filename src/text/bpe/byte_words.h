/** Short strings as words, and a hash of strings of any length. */
#ifndef TGI_TEXT_BYTE_WORDS_H
#define TGI_TEXT_BYTE_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** 8 bytes or fewer with zeros behind them; reads no byte beyond. Different for different bytes. */
static inline uint64_t tgi_short_word(const char *bytes, size_t size)
{
  if (size >= 8) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    return word;
  }
  if (size > 4) { /* two halves, the second moved to behind the first */
    uint32_t low, high;
    memcpy(&low, bytes, 4);
    memcpy(&high, bytes + size - 4, 4);
    return low | (uint64_t)(high >> 8 * (8 - size)) << 32;
  }
  uint64_t word = 0;
  for (size_t i = 0; i < size; i++) {
    word |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
  }
  return word;
}

static inline uint64_t tgi_mix_words(uint64_t a, uint64_t b)
{
  const uint64_t product = (a ^ 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  const uint64_t next =
      ((product ^ product >> 32) ^ b) * 0x94d049bb133111ebu; /* each step can be undone */
  return next ^ next >> 29;
}

enum { TGI_EXACT_BYTES = 8 }; /* bytes up to which strings of one size have a hash each */

static inline uint64_t tgi_hash_bytes(const char *bytes, size_t size)
{
  uint64_t hash = size;
  for (; size > 8; bytes += 8, size -= 8) {
    hash = tgi_mix_words(hash, tgi_short_word(bytes, 8));
  }
  return tgi_mix_words(hash, tgi_short_word(bytes, size));
}

#endif
