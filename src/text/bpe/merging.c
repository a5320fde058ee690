#include "merging.h"
#include "core/growing.h"
#include <string.h>

enum { kScanned = 64 }; /* bytes of a piece up to which scanning is faster than a heap */

/* ---- short pieces ---- */

static size_t scan(const tgi_merge_table *table, int32_t *ids, size_t count)
{
  /* The merge of tokens i and i + 1. */
  uint32_t rank[kScanned];
  int32_t becomes[kScanned];
  for (size_t i = 0; i + 1 < count; i++) {
    const tgi_merge *merge = tgi_merge_table_find(table, ids[i], ids[i + 1]);
    rank[i] = merge ? merge->rank : TGI_NO_RANK;
    becomes[i] = merge ? merge->id : 0;
  }
  for (;;) {
    uint32_t least = TGI_NO_RANK;
    size_t at = 0;
    for (size_t i = 0; i + 1 < count; i++) {
      if (rank[i] < least) {
        least = rank[i];
        at = i;
      }
    }
    if (least == TGI_NO_RANK) {
      return count;
    }
    ids[at] = becomes[at];
    count--;
    memmove(ids + at + 1, ids + at + 2, (count - at - 1) * sizeof *ids);
    memmove(rank + at, rank + at + 1, (count - at - 1) * sizeof *rank);
    memmove(becomes + at, becomes + at + 1, (count - at - 1) * sizeof *becomes);
    for (size_t i = at > 0 ? at - 1 : 0; i <= at && i + 1 < count; i++) {
      const tgi_merge *merge = tgi_merge_table_find(table, ids[i], ids[i + 1]);
      rank[i] = merge ? merge->rank : TGI_NO_RANK;
      becomes[i] = merge ? merge->id : 0;
    }
  }
}

/* ---- long pieces ---- */

/* A token in a list of its neighbours; it stands where its first byte stands. */
typedef struct tgi_link {
  uint32_t before, after; /* positions; UINT32_MAX: none */
  uint32_t rank;          /* of the merge with the one behind; TGI_NO_RANK: none, or it is gone */
  int32_t id, becomes;
} tgi_link;

/* Entries are rank << 32 | position, the least on top. One whose token has another rank by now is
 * passed over. */
static void push(tgi_merging *m, size_t *count, uint64_t entry)
{
  size_t at = (*count)++;
  while (at > 0 && m->heap[(at - 1) / 2] > entry) {
    m->heap[at] = m->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  m->heap[at] = entry;
}

static uint64_t pop(tgi_merging *m, size_t *count)
{
  const uint64_t top = m->heap[0], last = m->heap[--*count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= *count) {
      break;
    }
    child += child + 1 < *count && m->heap[child + 1] < m->heap[child];
    if (m->heap[child] >= last) {
      break;
    }
    m->heap[at] = m->heap[child];
    at = child;
  }
  m->heap[at] = last;
  return top;
}

/** Looks up the merge of the token at `at` with the one behind, and puts it on the heap. */
static void offer(tgi_merging *m, const tgi_merge_table *table, size_t *count, uint32_t at)
{
  tgi_link *link = &m->links[at];
  const tgi_merge *merge = link->after == UINT32_MAX
                               ? NULL
                               : tgi_merge_table_find(table, link->id, m->links[link->after].id);
  link->rank = merge ? merge->rank : TGI_NO_RANK;
  link->becomes = merge ? merge->id : 0;
  if (merge) {
    push(m, count, (uint64_t)merge->rank << 32 | at);
  }
}

/** Every merge takes one entry and adds two at most. */
static bool make_room(tgi_merging *m, size_t size)
{
  tgi_link *links = tgi_grow(m->links, &m->link_capacity, size, sizeof *links);
  m->links = links ? links : m->links;
  uint64_t *heap = links ? tgi_grow(m->heap, &m->heap_capacity, 3 * size, sizeof *heap) : NULL;
  m->heap = heap ? heap : m->heap;
  return heap != NULL;
}

static size_t sift(tgi_merging *m, const tgi_merge_table *table, size_t size)
{
  size_t entries = 0;
  for (uint32_t i = 0; i < size; i++) {
    m->links[i] = (tgi_link){.before = i > 0 ? i - 1 : UINT32_MAX,
                             .after = i + 1 < size ? i + 1 : UINT32_MAX,
                             .id = m->ids[i]};
  }
  for (uint32_t i = 0; i < size; i++) {
    offer(m, table, &entries, i);
  }
  while (entries > 0) {
    const uint64_t entry = pop(m, &entries);
    tgi_link *link = &m->links[(uint32_t)entry];
    if (link->rank != entry >> 32) {
      continue;
    }
    tgi_link *gone = &m->links[link->after];
    gone->rank = TGI_NO_RANK;
    link->id = link->becomes;
    link->after = gone->after;
    if (link->after != UINT32_MAX) {
      m->links[link->after].before = (uint32_t)entry;
    }
    offer(m, table, &entries, (uint32_t)entry);
    if (link->before != UINT32_MAX) {
      offer(m, table, &entries, link->before);
    }
  }
  size_t count = 0;
  for (uint32_t i = 0; i != UINT32_MAX; i = m->links[i].after) {
    m->ids[count++] = m->links[i].id;
  }
  return count;
}

size_t tgi_merge_piece(tgi_merging *m, const tgi_merge_table *table, const int32_t byte_ids[256],
                       const char *bytes, size_t size)
{
  int32_t *ids = tgi_grow(m->ids, &m->capacity, size, sizeof *ids);
  if (!ids) {
    return 0;
  }
  m->ids = ids;
  for (size_t i = 0; i < size; i++) {
    ids[i] = byte_ids[(unsigned char)bytes[i]];
  }
  if (size <= kScanned) {
    return scan(table, ids, size);
  }
  return make_room(m, size) ? sift(m, table, size) : 0;
}

void tgi_merging_free(tgi_merging *m)
{
  free(m->ids);
  free(m->links);
  free(m->heap);
  *m = (tgi_merging){0};
}
