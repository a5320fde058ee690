#include "hash128.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { kBlock = 16 };

static const uint64_t kMulHigh = 0x87c37b91114253d5u, kMulLow = 0x4cf5ad432745937fu;

static uint64_t rotate(uint64_t x, int by)
{
  return x << by | x >> (64 - by);
}

static uint64_t mix_high(uint64_t word)
{
  return rotate(word * kMulHigh, 31) * kMulLow;
}

static uint64_t mix_low(uint64_t word)
{
  return rotate(word * kMulLow, 33) * kMulHigh;
}

static void add_block(tgi_hasher *h, const unsigned char *bytes)
{
  uint64_t words[2];
  memcpy(words, bytes, sizeof words);
  h->high = (rotate(h->high ^ mix_high(words[0]), 27) + h->low) * 5 + 0x52dce729u;
  h->low = (rotate(h->low ^ mix_low(words[1]), 31) + h->high) * 5 + 0x38495ab5u;
}

void tgi_hasher_add(tgi_hasher *h, const void *bytes, size_t size)
{
  const unsigned char *at = bytes;
  const size_t held = h->size % kBlock;
  h->size += size;
  if (held > 0 && size > 0) {
    const size_t taken = size < kBlock - held ? size : kBlock - held;
    memcpy(h->rest + held, at, taken);
    at += taken;
    size -= taken;
    if (held + taken < kBlock) {
      return;
    }
    add_block(h, h->rest);
  }
  for (; size >= kBlock; size -= kBlock, at += kBlock) {
    add_block(h, at);
  }
  if (size > 0) {
    memcpy(h->rest, at, size);
  }
}

void tgi_hasher_add_item(tgi_hasher *h, const void *bytes, size_t size)
{
  const uint64_t wide = size;
  tgi_hasher_add(h, &wide, sizeof wide);
  tgi_hasher_add(h, bytes, size);
}

static uint64_t finish(uint64_t x)
{
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

tgi_hash128 tgi_hasher_end(const tgi_hasher *h)
{
  unsigned char rest[kBlock] = {0};
  uint64_t words[2];
  memcpy(rest, h->rest, h->size % kBlock);
  memcpy(words, rest, sizeof words);
  uint64_t high = h->high ^ mix_high(words[0]) ^ h->size;
  uint64_t low = h->low ^ mix_low(words[1]) ^ h->size;
  high += low;
  low += high;
  high = finish(high);
  low = finish(low);
  high += low;
  return (tgi_hash128){high, low + high};
}

tgi_hash128 tgi_hash_bytes(const void *bytes, size_t size)
{
  tgi_hasher h = {0};
  tgi_hasher_add(&h, bytes, size);
  return tgi_hasher_end(&h);
}

bool tgi_hash_equal(tgi_hash128 a, tgi_hash128 b)
{
  return a.high == b.high && a.low == b.low;
}

tgi_hash_text tgi_hash_print(tgi_hash128 hash)
{
  tgi_hash_text out;
  snprintf(out.text, sizeof out.text, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
  return out;
}
