/** Which pairs of tokens are merged, into what, and in which order. */
#ifndef TGI_TEXT_MERGE_TABLE_H
#define TGI_TEXT_MERGE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TGI_NO_RANK UINT32_MAX

typedef struct tgi_merge {
  uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
  uint32_t rank; /* lower ranks are merged first */
  int32_t id;    /* of what the pair becomes */
} tgi_merge;

/** Starts zeroed. */
typedef struct tgi_merge_table {
  tgi_merge *slots;
  size_t num_slots; /* 0, or a power of two, at least twice `count` */
  size_t count;
} tgi_merge_table;

/** Room for so many pairs. False without memory. */
bool tgi_merge_table_reserve(tgi_merge_table *t, size_t count);

/** Adds a pair; of a pair that is there already the new rank counts. False without memory. */
bool tgi_merge_table_add(tgi_merge_table *t, int32_t left, int32_t right, uint32_t rank,
                         int32_t id);

static inline uint64_t tgi_pair(int32_t left, int32_t right)
{
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline size_t tgi_pair_slot(const tgi_merge_table *t, uint64_t pair)
{
  const uint64_t product = pair * 0x9e3779b97f4a7c15u;
  return (product ^ product >> 32) & (t->num_slots - 1);
}

/** The pair's merge, or NULL. */
static inline const tgi_merge *tgi_merge_table_find(const tgi_merge_table *t, int32_t left,
                                                    int32_t right)
{
  if (t->num_slots == 0) {
    return NULL;
  }
  const uint64_t pair = tgi_pair(left, right);
  for (size_t i = tgi_pair_slot(t, pair);; i = (i + 1) & (t->num_slots - 1)) {
    if (t->slots[i].pair == pair) {
      return &t->slots[i];
    }
    if (t->slots[i].pair == UINT64_MAX) {
      return NULL;
    }
  }
}

void tgi_merge_table_free(tgi_merge_table *t);

#endif
