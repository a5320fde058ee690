/** Attention backward by mma.sync: tiles of keys, and which queries see them. */
#ifndef TGI_OPS_ATTENTION_KEY_PLACE_SM80_CUH
#define TGI_OPS_ATTENTION_KEY_PLACE_SM80_CUH

#include "ops/attention/sm80/attention_bwd_job_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A tile of keys: from row key0 of the extent on; `rows` remain in the sequence. Queries of its
 * blocks low_block .. high_block - 1 see some of them. */
struct key_place {
  int q_row, nq, q_index, q_place; /* q_place: the sequence's first block of queries among all */
  int k_row, rows, k_index, key0, kv_head;
  int first, end, position;
  int low_block, high_block, state;
};

/** Queries low .. high - 1 see key j of the extent. For keys in first .. end - 1, neither bound
 * decreases as j increases. */
__device__ __forceinline__ key_span queries_of(key_rule rule, const key_place &x, int j)
{
  key_span s = {0, x.nq};
  if (j < x.first || j >= x.end) {
    s.high = 0;
  }
  if (rule.causal) {
    s.low = max(s.low, j - x.position);
  } else if (rule.window > 0) {
    s.low = max(s.low, j - x.position - rule.window + 1);
  }
  if (rule.window > 0) {
    s.high = min(s.high, j - x.position + rule.window);
  }
  return s;
}

/** The range of queries that see keys first .. first + count - 1 of the tile. */
__device__ __forceinline__ warp_range queries_range(key_rule rule, const key_place &x, int first,
                                                    int count, int queries)
{
  const int begin = x.key0 + first, end = min(begin + count, x.key0 + x.rows);
  const int from = max(begin, x.first), to = min(end, x.end) - 1;
  warp_range w = {0, 0, 0, 0};
  if (x.state == kFine && to >= from) {
    const key_span top = queries_of(rule, x, from), bottom = queries_of(rule, x, to);
    if (bottom.high > top.low) {
      w.below = top.low / queries;
      w.above = (bottom.high + queries - 1) / queries;
    }
    const bool all = from == begin && to == begin + count - 1;
    w.all_from = bottom.low;
    w.all_to = all ? top.high : 0;
  }
  return w;
}

/** Writes the tile of a work item, by one thread. False: no such item. */
__device__ inline bool put_key_place(const bwd_tiles_job &job, int size, int queries, int64_t item,
                                     key_place &x)
{
  const tgi_attention_layout &l = job.c.l;
  int64_t place = item / l.kv_heads, number;
  x.kv_head = (int)(item % l.kv_heads);
  x.state = kNoMore;
  if (!job.c.records && !job.work.rule.causal) { /* heads are adjacent items */
    const int64_t tiles = divide_up(l.extent, size), pair = item / tiles;
    x.kv_head = (int)(pair % l.kv_heads);
    place = pair / l.kv_heads * tiles + item % tiles;
  } else if (!job.c.records) { /* first keys first: most queries see them */
    const int64_t tiles = divide_up(l.extent, size);
    place = place % l.batch * tiles + place / l.batch;
  }
  const int64_t b = sequence_of_place(job.c, true, place, 1, size, &number);
  const tgi_attention_sequence s = sequence_at(job.c, b);
  const int64_t row = number * size, far = 2 * (int64_t)kMostWindow - kMostRows;
  if (row >= s.extent) {
    return false;
  }
  x.q_row = (int)s.q_first;
  x.nq = (int)s.nq;
  x.q_index = (int)s.q_index;
  x.q_place = (int)(l.packed_q ? s.q_first / queries + b : b * divide_up(l.nq, queries));
  x.k_row = (int)(s.k_first + row);
  x.rows = (int)(s.extent - row);
  x.k_index = (int)s.k_index;
  x.key0 = (int)row;
  x.first = (int)s.first;
  x.end = (int)(s.first + s.count);
  x.position = (int)(s.position < -far ? -far : s.position > far ? far : s.position);
  x.state = s.count < 0 ? kOutOfRange : kFine;
  const warp_range w = queries_range(job.work.rule, x, 0, size, queries);
  x.low_block = w.below;
  x.high_block = w.above;
  return true;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
