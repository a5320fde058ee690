/** A list of contiguous tensors as one row of chunks, each within one tensor: how the ops on lists
 * share their work. Where the cuts lie depends on the tensors' sizes alone. */
#ifndef TGI_OPS_LIST_CHUNKS_H
#define TGI_OPS_LIST_CHUNKS_H

#include "core/tensor_view.h"

typedef struct list_chunk {
  int64_t tensor; /* index in the list */
  int64_t first;  /* element */
  int64_t count;
} list_chunk;

static inline int64_t count_chunks(const tg_tensor *list, int64_t num_tensors, int64_t size)
{
  int64_t chunks = 0;
  for (int64_t i = 0; i < num_tensors; i++) {
    chunks += (tgi_numel(&list[i]) + size - 1) / size;
  }
  return chunks;
}

/** From a place in the list, which may be the end of a tensor, the chunk that starts there. */
static inline list_chunk settle_chunk(const tg_tensor *list, list_chunk c, int64_t size)
{
  while (c.first >= tgi_numel(&list[c.tensor])) {
    c.first = 0;
    c.tensor++;
  }
  const int64_t left = tgi_numel(&list[c.tensor]) - c.first;
  c.count = left < size ? left : size;
  return c;
}

/** Chunk `index`, which must exist. */
static inline list_chunk find_chunk(const tg_tensor *list, int64_t index, int64_t size)
{
  list_chunk c = {0, 0, 0};
  for (;; c.tensor++) {
    const int64_t chunks = (tgi_numel(&list[c.tensor]) + size - 1) / size;
    if (index < chunks) {
      c.first = index * size;
      return settle_chunk(list, c, size);
    }
    index -= chunks;
  }
}

/** The chunk after `c`, which must exist. */
static inline list_chunk next_chunk(const tg_tensor *list, list_chunk c, int64_t size)
{
  c.first += size;
  return settle_chunk(list, c, size);
}

/** Address of the chunk's first element in another list of the same shapes. */
static inline void *chunk_data(const tg_tensor *list, list_chunk c)
{
  const tg_tensor *t = &list[c.tensor];
  return (char *)t->data + c.first * (int64_t)tg_dtype_bytes(t->dtype);
}

#endif
