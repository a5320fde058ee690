#include "token_store.h"

#include "core/growing.h"
#include "files/file_error.h"
#include <stdlib.h>
#include <string.h>

enum { kPiece = 4096 }; /* ids looked at at a time */

static void copy_ids(const tgi_token_part *part, int64_t at, int64_t n, int32_t *ids)
{
  if (part->id_bytes == 2) {
    const uint16_t *from = (const uint16_t *)part->ids + (at - part->begin);
    for (int64_t i = 0; i < n; i++) {
      ids[i] = from[i];
    }
  } else {
    memcpy(ids, (const int32_t *)part->ids + (at - part->begin), (size_t)n * sizeof *ids);
  }
}

/** The part that holds token `at`: the last one that begins there or before. */
static size_t find_part(const tgi_token_store *store, int64_t at)
{
  size_t low = 0, high = store->num_parts;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if (store->parts[middle].begin <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

void tgi_store_read(const tgi_token_store *store, int64_t at, int64_t n, int32_t *ids)
{
  for (size_t p = find_part(store, at); n > 0; p++) {
    const int64_t end = p + 1 < store->num_parts ? store->parts[p + 1].begin : store->count;
    const int64_t some = n < end - at ? n : end - at;
    copy_ids(&store->parts[p], at, some, ids);
    at += some;
    ids += some;
    n -= some;
  }
}

bool tgi_store_counts(const tgi_token_store *store, int64_t at)
{
  return !store->counted || (store->counted[at / 8] >> at % 8 & 1);
}

int64_t tgi_store_read_targets(const tgi_token_store *store, int64_t at, int64_t n,
                               int32_t *targets)
{
  int64_t count = n;
  tgi_store_read(store, at, n, targets);
  for (int64_t i = 0; i < n && store->counted; i++) {
    if (!tgi_store_counts(store, at + i)) {
      targets[i] = TGI_IGNORED;
      count--;
    }
  }
  return count;
}

int64_t tgi_store_count_targets(const tgi_token_store *store, int64_t at, int64_t n)
{
  int64_t count = 0;
  if (!store->counted) {
    return n;
  }
  const int64_t end = at + n;
  while (at < end) {
    if (at % 8 == 0 && end - at >= 8) { /* a byte at a time */
      count += __builtin_popcount(store->counted[at / 8]);
      at += 8;
    } else {
      count += tgi_store_counts(store, at++);
    }
  }
  return count;
}

int64_t tgi_store_begin(const tgi_token_store *store, int64_t index)
{
  return index > 0 ? (int64_t)store->ends[index - 1] : 0;
}

int32_t tgi_store_largest(const tgi_token_store *store, int64_t *at)
{
  int32_t ids[kPiece] = {0};
  uint32_t largest = 0;
  *at = 0;
  for (int64_t from = 0; from < store->count; from += kPiece) {
    const int64_t n = store->count - from < kPiece ? store->count - from : kPiece;
    tgi_store_read(store, from, n, ids);
    for (int64_t i = 0; i < n; i++) {
      if ((uint32_t)ids[i] > largest) { /* a uint32 above 2^31 stays the largest */
        largest = (uint32_t)ids[i];
        *at = from + i;
      }
    }
  }
  if (store->count == 0) {
    return -1;
  }
  return largest > INT32_MAX ? INT32_MAX : (int32_t)largest;
}

static tg_status add_end(tgi_token_store *store, size_t *capacity, int64_t end, tg_error *error)
{
  const size_t wanted = (size_t)store->num_documents + 1;
  uint64_t *grown = tgi_grow(store->own_ends, capacity, wanted, sizeof *grown);
  if (!grown) {
    return tgi_file_error_memory(error, "documents", wanted * sizeof *grown);
  }
  grown[store->num_documents++] = (uint64_t)end;
  store->own_ends = grown;
  store->ends = grown;
  return TG_OK;
}

tg_status tgi_store_find_documents(tgi_token_store *store, int32_t end_token, tg_error *error)
{
  int32_t ids[kPiece] = {0};
  size_t capacity = 0;
  int64_t last = 0;
  tg_status status = TG_OK;
  for (int64_t from = 0; from < store->count && end_token >= 0; from += kPiece) {
    const int64_t n = store->count - from < kPiece ? store->count - from : kPiece;
    tgi_store_read(store, from, n, ids);
    for (int64_t i = 0; i < n && status == TG_OK; i++) {
      if (ids[i] == end_token) {
        last = from + i + 1;
        status = add_end(store, &capacity, last, error);
      }
    }
  }
  if (status == TG_OK && last < store->count) {
    status = add_end(store, &capacity, store->count, error);
  }
  return status;
}

uint64_t tgi_store_bytes(const tgi_token_store *store)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < store->num_maps; i++) {
    bytes += store->maps[i].size;
  }
  return bytes;
}

void tgi_store_close(tgi_token_store *store)
{
  for (size_t i = 0; i < store->num_maps; i++) {
    tgi_file_map_close(&store->maps[i]);
  }
  free(store->maps);
  free(store->parts);
  free(store->own_ends);
  *store = (tgi_token_store){0};
}
