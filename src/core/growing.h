/** Arrays that grow by doubling. */
#ifndef TGI_CORE_GROWING_H
#define TGI_CORE_GROWING_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * `block` with room for `wanted` elements of `size` bytes, moved if need be; *capacity is the room.
 * NULL without memory: `block` then stays as it was.
 */
static inline void *tgi_grow(void *block, size_t *capacity, size_t wanted, size_t size)
{
  if (wanted <= *capacity && block) {
    return block;
  }
  size_t room = *capacity < 16 ? 16 : *capacity;
  while (room < wanted) {
    if (room > SIZE_MAX / 2 / size) {
      return NULL;
    }
    room *= 2;
  }
  void *grown = realloc(block, room * size);
  if (grown) {
    *capacity = room;
  }
  return grown;
}

#endif
