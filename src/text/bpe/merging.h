/**
 * Byte pair encoding of one piece (Sennrich et al. 2016, arXiv:1508.07909): of all neighbours that
 * have a merge, those of the lowest rank become one token, the leftmost first, until none is left.
 * Short pieces are scanned again for each merge; long ones take a heap, so that half a million
 * equal characters take n log n steps.
 */
#ifndef TGI_TEXT_MERGING_H
#define TGI_TEXT_MERGING_H

#include "merge_table.h"

/** Memory of calls, to be reused; starts zeroed, ends with tgi_merging_free. */
typedef struct tgi_merging {
  int32_t *ids; /* the result */
  size_t capacity;
  struct tgi_link *links;
  size_t link_capacity;
  uint64_t *heap;
  size_t heap_capacity;
} tgi_merging;

/**
 * Merges the tokens of single bytes (byte_ids[byte]) of a piece, below 2^32 bytes and not empty.
 * Returns the number of ids in m->ids; 0 without memory.
 */
size_t tgi_merge_piece(tgi_merging *m, const tgi_merge_table *table, const int32_t byte_ids[256],
                       const char *bytes, size_t size);

void tgi_merging_free(tgi_merging *m);

#endif
