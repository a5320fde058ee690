/*
 * Keys are sorted by a hash, and by their text where hashes are equal, so that even an object made
 * of colliding keys costs no more than n log n comparisons.
 */
#include "json_keys.h"
#include <stdlib.h>

typedef struct hashed_key {
  uint32_t hash;
  uint32_t node;
} hashed_key;

static int compare_keys(const tgi_json *json, hashed_key a, hashed_key b)
{
  if (a.hash != b.hash) {
    return a.hash < b.hash ? -1 : 1;
  }
  return tgi_json_compare(json, a.node, b.node);
}

/** A heap sort: it needs neither memory nor the context argument that C17's qsort lacks. */
static void sort_keys(const tgi_json *json, hashed_key *keys, uint32_t count)
{
  for (uint32_t end = count, start = count / 2; end > 1;) {
    if (start > 0) {
      start--;
    } else {
      end--;
      const hashed_key last = keys[end];
      keys[end] = keys[0];
      keys[0] = last;
    }
    uint32_t root = start;
    const hashed_key moved = keys[root];
    for (uint64_t child; (child = 2 * (uint64_t)root + 1) < end; root = (uint32_t)child) {
      if (child + 1 < end && compare_keys(json, keys[child], keys[child + 1]) < 0) {
        child++;
      }
      if (compare_keys(json, moved, keys[child]) >= 0) {
        break;
      }
      keys[root] = keys[child];
    }
    keys[root] = moved;
  }
}

bool tgi_json_repeated_key(const tgi_json *json, uint32_t object, uint32_t count,
                           uint32_t *repeated)
{
  hashed_key fixed[16]; /* most objects are small */
  hashed_key *keys = fixed;
  *repeated = 0;
  if (count > sizeof fixed / sizeof fixed[0]) {
    keys = malloc(count * sizeof *keys);
    if (!keys) {
      return false;
    }
  }
  uint32_t used = 0;
  for (uint32_t key = object + 1; used < count; key = json->nodes[key + 1].next) {
    keys[used++] = (hashed_key){tgi_json_hash(json, key), key};
  }
  sort_keys(json, keys, count);
  for (uint32_t i = 1; i < count; i++) {
    if (compare_keys(json, keys[i - 1], keys[i]) == 0) {
      const uint32_t later = keys[i].node > keys[i - 1].node ? keys[i].node : keys[i - 1].node;
      if (*repeated == 0 || later < *repeated) {
        *repeated = later;
      }
    }
  }
  if (keys != fixed) {
    free(keys);
  }
  return true;
}
