/**
 * A hash of 128 bits that tells contents apart and shows accidental damage: MurmurHash3's x64
 * variant with seed 0 (Appleby 2011). It is fast and no cryptographic hash: whoever wants to can
 * make two contents with one hash.
 */
#ifndef TGI_FILES_HASH128_H
#define TGI_FILES_HASH128_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tgi_hash128 {
  uint64_t high, low;
} tgi_hash128;

/** Bytes that come piece by piece. Starts zeroed. */
typedef struct tgi_hasher {
  uint64_t high, low;
  uint64_t size;          /* bytes so far */
  unsigned char rest[16]; /* the last size % 16 of them */
} tgi_hasher;

void tgi_hasher_add(tgi_hasher *hasher, const void *bytes, size_t size);

/** Adds a size and the bytes, so that a list of contents has one hash however they are cut. */
void tgi_hasher_add_item(tgi_hasher *hasher, const void *bytes, size_t size);

/** The hash of all bytes so far; more may follow. */
tgi_hash128 tgi_hasher_end(const tgi_hasher *hasher);

tgi_hash128 tgi_hash_bytes(const void *bytes, size_t size);

bool tgi_hash_equal(tgi_hash128 a, tgi_hash128 b);

/** 32 hexadecimal digits and a terminator. */
typedef struct tgi_hash_text {
  char text[33];
} tgi_hash_text;

tgi_hash_text tgi_hash_print(tgi_hash128 hash);

#endif
