/**
 * The tile scheduler of attention's forward on tensor cores, and of dq by mma.sync. A work item is
 * a tile of queries of one head. Rows are counted in 32 bits; plans refuse longer extents.
 *
 * Without lengths on the device an item follows from its number. With lengths, a one-block
 * scheduler kernel first lists the tiles of all sequences, those with most keys in front
 * (attention_list.cuh).
 */
#ifndef TGI_OPS_ATTENTION_WORK_CUH
#define TGI_OPS_ATTENTION_WORK_CUH

#include "ops/attention/cuda/attention_sequences.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kMostRows = 1 << 28;   /* rows of an axis; |position - row| is within a factor of 4 */
constexpr int kMostWindow = 1 << 29; /* from here on a window masks nothing */
constexpr int kGroupRows = 64;       /* tiles of queries are multiples of this */
constexpr int kCosts = 1024;         /* classes of tiles by their number of blocks of keys */

enum place_state { kNoMore = -1, kFine = 0, kOutOfRange = 1 };

/** A tile of queries: rows q_row, q_row + 1, .. of q's axis; `rows` remain in the sequence, or in
 * the tile. Keys are rows first .. end - 1 of the extent, which begins at row k_row of k's axis;
 * the tile sees their blocks low_block .. high_block - 1. */
struct alignas(16) query_place {
  int q_row, rows, q_index, head;
  int k_row, k_index, first, end;
  int position; /* of the tile's first query */
  int low_block, high_block, state;
};

struct key_rule {
  int causal, window;
};

/** Keys low .. high - 1; high <= low: none. */
struct key_span {
  int low, high;
};

/** The keys that query i of a place sees. Neither bound decreases as i increases. */
__device__ __forceinline__ key_span span_of(key_rule rule, const query_place &x, int i)
{
  const int p = x.position + i;
  key_span s = {x.first, x.end};
  if (rule.causal) {
    s.high = min(s.high, p + 1);
  } else if (rule.window > 0) {
    s.high = min(s.high, p + rule.window);
  }
  if (rule.window > 0) {
    s.low = max(s.low, p - rule.window + 1);
  }
  return s;
}

/** The position in 32 bits: clamped where no mask can tell the difference. */
__device__ __forceinline__ int near_position(int64_t position)
{
  constexpr int64_t kFar = 2 * (int64_t)kMostWindow - kMostRows;
  return (int)(position < -kFar ? -kFar : position > kFar ? kFar : position);
}

/** Sets the blocks of `keys` keys that a tile of `size` queries sees. */
__device__ __forceinline__ void set_blocks(key_rule rule, query_place &x, int size, int keys)
{
  const int low = span_of(rule, x, 0).low, high = span_of(rule, x, min(size, x.rows) - 1).high;
  x.low_block = 0;
  x.high_block = 0;
  if (x.state == kFine && high > low) {
    x.low_block = low / keys;
    x.high_block = (high + keys - 1) / keys;
  }
}

/** Tiles of every sequence, most blocks of keys first. */
struct query_list {
  int count;
  int taken; /* through the atomic counter, beyond each block's first item */
  alignas(16) query_place place[1];
};

/** The order of the work items of a call. */
struct query_work {
  key_rule rule;
  int q_heads, group, nq, extent, size, keys; /* size: queries of a tile */
  int parts,
      parts_more; /* multiples of kGroupRows in a tile; the first parts_more tiles have one more */
  int tiles, pairs; /* of a head; heads of all sequences */
  int chunk, half;  /* longest_first: heads of a chunk, and tiles of each that precede all others */
  bool longest_first;
  query_list *list; /* NULL: no lengths */
  int *taken;       /* NULL: fixed shares (item_of_turn) */
};

/** Work of tiles of `rows` queries and blocks of `keys` keys: one chunk, in the order of numbers.
 * On the host. */
inline query_work work_of(const tgi_attention_layout &l, key_rule rule, int rows, int keys)
{
  query_work w = {};
  w.rule = rule;
  w.q_heads = (int)l.q_heads;
  w.group = (int)l.group;
  w.nq = (int)l.nq;
  w.extent = (int)l.extent;
  w.size = rows;
  w.keys = keys;
  w.tiles = (int)divide_up(l.nq, rows);
  w.parts = (int)divide_up(l.nq, kGroupRows) / w.tiles;
  w.parts_more = (int)divide_up(l.nq, kGroupRows) % w.tiles;
  w.pairs = (int)(l.batch * l.q_heads);
  w.chunk = w.pairs;
  w.half = w.tiles;
  return w;
}

/** The tile and pair of a work item, longest tiles first. Pairs (sequence, head) go in chunks, so
 * that concurrent blocks share keys and values in the second-level cache. The longer half of all
 * tiles precedes the shorter half, so that the grid ends with short ones. */
__device__ __forceinline__ void longest_first_item(const query_work &w, int item, int *tile,
                                                   int *pair)
{
  int before = 0, n = w.half;
  if (item >= w.pairs * w.half) {
    item -= w.pairs * w.half;
    before = w.half;
    n = w.tiles - w.half;
  }
  const int chunk = item / (w.chunk * n), width = min(w.chunk, w.pairs - chunk * w.chunk);
  item -= chunk * w.chunk * n;
  *tile = w.tiles - 1 - before - item / width;
  *pair = chunk * w.chunk + item % width;
}

/** The tile of slot `place` (tile_places), for head 0. False: the slot is empty. */
__device__ inline bool listed_place(const attention_call &c, const query_work &w, int64_t place,
                                    query_place &x)
{
  int64_t number;
  const tgi_attention_sequence s =
      sequence_at(c, sequence_of_place(c, false, place, 1, w.size, &number));
  const int64_t row = number * w.size;
  if (row >= s.nq) {
    return false;
  }
  x.q_row = (int)(s.q_first + row);
  x.rows = (int)(s.nq - row);
  x.q_index = (int)s.q_index;
  x.k_row = (int)s.k_first;
  x.k_index = (int)s.k_index;
  x.first = (int)s.first;
  x.end = (int)(s.first + s.count);
  x.position = near_position(s.position + row);
  x.state = s.count < 0 ? kOutOfRange : kFine;
  x.head = 0;
  set_blocks(w.rule, x, w.size, w.keys);
  return true;
}

/** Writes a work item's tile to shared memory, by one thread with few registers. False: no such
 * item. */
__device__ __forceinline__ bool put_place(const query_work &w, int item, query_place *to)
{
  if (w.list) {
    const int tile = item / w.q_heads;
    to->state = kNoMore;
    if (tile >= w.list->count) {
      return false;
    }
    const uint4 *from = reinterpret_cast<const uint4 *>(&w.list->place[tile]);
#pragma unroll 1
    for (int i = 0; i < (int)(sizeof(query_place) / sizeof(uint4)); i++) {
      reinterpret_cast<uint4 *>(to)[i] = from[i];
    }
    to->head = item - tile * w.q_heads;
    return true;
  }
  if (item >= w.tiles * w.pairs) {
    to->state = kNoMore;
    return false;
  }
  int pair = item / w.tiles, tile = item - pair * w.tiles;
  if (w.longest_first) {
    longest_first_item(w, item, &tile, &pair);
  }
  query_place x;
  x.q_index = x.k_index = pair / w.q_heads;
  x.head = pair - x.q_index * w.q_heads;
  x.q_row = (tile * w.parts + min(tile, w.parts_more)) * kGroupRows;
  x.rows = min(w.nq - x.q_row, (w.parts + (tile < w.parts_more)) * kGroupRows);
  x.k_row = 0;
  x.first = 0;
  x.end = w.extent;
  x.position = w.extent - w.nq + x.q_row;
  x.state = kFine;
  set_blocks(w.rule, x, w.size, w.keys);
  *to = x;
  return true;
}

/** The work item of a block in its n-th turn, with fixed shares: in alternating direction, so that
 * a block with a long item gets a short one next. */
__device__ __forceinline__ int item_of_turn(int turn)
{
  const int n = gridDim.x, block = blockIdx.x;
  return turn * n + (turn % 2 ? n - 1 - block : block);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
