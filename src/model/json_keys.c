#include "json_keys.h"
#include <stdlib.h>

/** Sorts keys; a heap sort, as it needs neither memory nor a context argument that C17's qsort
 * lacks. */
static void sort_keys(const tgi_json *json, uint32_t *keys, uint32_t count)
{
  for (uint32_t end = count, start = count / 2; end > 1;) {
    if (start > 0) {
      start--;
    } else {
      end--;
      const uint32_t last = keys[end];
      keys[end] = keys[0];
      keys[0] = last;
    }
    uint32_t root = start;
    const uint32_t moved = keys[root];
    for (uint64_t child; (child = 2 * (uint64_t)root + 1) < end; root = (uint32_t)child) {
      if (child + 1 < end && tgi_json_compare(json, keys[child], keys[child + 1]) < 0) {
        child++;
      }
      if (tgi_json_compare(json, moved, keys[child]) >= 0) {
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
  uint32_t fixed[16]; /* most objects are small */
  uint32_t *keys = fixed;
  *repeated = 0;
  if (count > sizeof fixed / sizeof fixed[0]) {
    keys = malloc(count * sizeof *keys);
    if (!keys) {
      return false;
    }
  }
  uint32_t used = 0;
  for (uint32_t key = object + 1; used < count; key = json->nodes[key + 1].next) {
    keys[used++] = key;
  }
  sort_keys(json, keys, count);
  for (uint32_t i = 1; i < count; i++) {
    if (tgi_json_compare(json, keys[i - 1], keys[i]) == 0) {
      const uint32_t later = keys[i] > keys[i - 1] ? keys[i] : keys[i - 1];
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
