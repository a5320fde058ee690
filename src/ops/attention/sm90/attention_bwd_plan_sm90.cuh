/** Attention backward on Hopper: the plan, which the host decides from a call's shapes and the
 * number of multiprocessors alone, and the job, which kernels get. */
#ifndef TGI_OPS_ATTENTION_BWD_PLAN_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_PLAN_SM90_CUH

#include "ops/attention/cuda/attention_softmax.cuh"
#include "ops/attention/cuda/attention_work.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kGroupWarps = 4;

/** Sizes of parts are offsets from the workspace's start, in bytes. */
struct attention_bwd_plan {
  bool taken, lengths;
  bool ordered; /* sums of dq are added in the order of the blocks of keys */
  bool rounds;  /* dq is rounded by a pass after the tiles */
  tgi_attention_layout l;
  int window;                     /* 0: masks nothing */
  int d;                          /* elements of a head that products cover */
  int columns;                    /* of the sums of dq: whole pages */
  int values;                     /* and of a row of v */
  int queries, keys;              /* of a tile; of a block */
  int64_t query_tiles, key_tiles; /* of all sequences, for one head */
  int chunk, half, parts;         /* bwd_job */
  int64_t second_from;            /* bwd_job */
  size_t places, sums, minus, delta, turns, counts, lost_tile, part_sums, sink_delta, bytes;
};

namespace
{

/** A work item's block of keys of a kv head: from row key0 of the extent on; `rows` remain in the
 * sequence. Queries of the tiles low_tile .. high_tile - 1 see some of them. The `parts` items of a
 * block are adjacent, each with an equal share of the group's heads. */
struct alignas(16) key_place {
  int q_row, nq, q_index, q_tile; /* q_tile: the sequence's first tile */
  int k_row, rows, k_index, key0, kv_head;
  int first, end, position;
  int low_tile, high_tile, state, item;
};

/**
 * Tiles of queries are numbered through all sequences; with heads as the faster index, a tile of a
 * head has `queries` x `columns` sums of dq, in the order of the registers that hold them.
 */
struct bwd_job {
  attention_call c;
  key_rule rule;
  heads_view<const uint16_t> q, k, v, out, dout;
  heads_view<uint16_t> dq, dk, dv; /* NULL: not wanted */
  const float *lse;
  float *sums;          /* of dq */
  int second_from;      /* keys from this one on add to second sums, behind the first */
  float *minus, *delta; /* of each row: -lse as exponent of 2; -sum of dout * out */
  float *sink_delta;    /* that sum where lse has its elements; NULL: not wanted */
  int *turns;           /* for each tile of a head: blocks of keys that have added */
  int *lost;            /* for each block of keys: its dk or dv has a NaN */
  int *lost_tile;       /* for each tile of a head: its dq has one */
  int *taken;           /* work items taken so far */
  int *joined;          /* with several parts: see join_parts */
  float4 *part_sums;    /* of dv and dk that the first part leaves for the second one */
  key_place *place;     /* of each item */
  int queries, keys, columns;
  int items, query_tiles, counts; /* counts: zeroed counters, from `lost` on */
  int parts, heads;               /* items of a block of keys, and heads of each */
  int blocks, pairs, chunk, half; /* without lengths: key_item */
  float exponent;                 /* scores, after the cap, to exponents of 2 */
  float cap_by;                   /* scores to tanh's argument */
  float scale, cap;
  bool hides;           /* some query may not see some key */
  bool ordered, rounds; /* attention_bwd_plan; rounds: false without dq */
};

/** The first of an item's heads. */
__device__ __forceinline__ int first_head(const bwd_job &job, const key_place &x)
{
  return (x.kv_head * job.parts + x.item % job.parts) * job.heads;
}

/** Queries low .. high - 1 see key j of the extent. Neither bound decreases as j increases. */
__device__ __forceinline__ key_span queries_of(key_rule rule, const key_place &x, int j)
{
  key_span s = {0, x.nq};
  if (rule.causal) {
    s.low = max(s.low, j - x.position);
  } else if (rule.window > 0) {
    s.low = max(s.low, j - x.position - rule.window + 1);
  }
  if (rule.window > 0) {
    s.high = min(s.high, j - x.position + rule.window);
  }
  if (j < x.first || j >= x.end) {
    s.high = s.low;
  }
  return s;
}

/** The first block of `keys` keys that a tile of queries sees; the blocks that it sees are
 * adjacent. */
__device__ __forceinline__ int first_block_of(key_rule rule, const key_place &x, int tile,
                                              int queries, int keys)
{
  const int from = rule.window > 0 ? x.position + tile * queries - rule.window + 1 : 0;
  return max(x.first, from) / keys;
}

/** The last block that it sees. */
__device__ __forceinline__ int last_block_of(key_rule rule, const key_place &x, int tile,
                                             int queries, int keys)
{
  const int p = x.position + min((tile + 1) * queries, x.nq) - 1;
  const int to = rule.causal ? p + 1 : rule.window > 0 ? p + rule.window : x.end;
  return (min(x.end, to) - 1) / keys;
}

/** The block of keys of a work item without lengths, `parts` items counted as one. The blocks of a
 * pair (sequence, kv head) are in rising order, pairs in chunks, so that concurrent items share the
 * sums of dq in the second-level cache. With a causal mask the earlier, longer half of all blocks
 * precedes the later half. */
__device__ __forceinline__ void key_item(const bwd_job &job, int item, int *block, int *pair)
{
  int before = 0, n = job.half;
  if (item >= job.pairs * job.half) {
    item -= job.pairs * job.half;
    before = job.half;
    n = job.blocks - job.half;
  }
  const int chunk = item / (job.chunk * n);
  const int width = min(job.chunk, job.pairs - chunk * job.chunk);
  item -= chunk * job.chunk * n;
  *block = before + item / width;
  *pair = chunk * job.chunk + item % width;
}

/** The sequence's first tile of queries. */
__device__ __forceinline__ int first_tile(const bwd_job &job, const tgi_attention_sequence &s)
{
  return (int)(job.c.l.packed_q ? s.q_first / job.queries + s.b
                                : s.b * divide_up(job.c.l.nq, job.queries));
}

__device__ inline key_place place_of_item(const bwd_job &job, int item)
{
  key_place x = {};
  const int kv_heads = (int)job.c.l.kv_heads, keys = item / job.parts;
  int64_t place = keys / kv_heads, number;
  int head = keys % kv_heads;
  if (!job.c.records) {
    int block, pair;
    key_item(job, keys, &block, &pair);
    place = (int64_t)(pair / kv_heads) * job.blocks + block;
    head = pair % kv_heads;
  }
  const tgi_attention_sequence s =
      sequence_at(job.c, sequence_of_place(job.c, true, place, 1, job.keys, &number));
  const int64_t row = number * job.keys, far = 2 * (int64_t)kMostWindow - kMostRows;
  x.state = kNoMore; /* the item does not exist */
  if (row >= s.extent) {
    return x;
  }
  x.item = item;
  x.q_row = (int)s.q_first;
  x.nq = (int)s.nq;
  x.q_index = (int)s.q_index;
  x.q_tile = first_tile(job, s);
  x.k_row = (int)(s.k_first + row);
  x.rows = (int)(s.extent - row);
  x.k_index = (int)s.k_index;
  x.key0 = (int)row;
  x.kv_head = head;
  x.first = (int)s.first;
  x.end = (int)(s.first + s.count);
  x.position = (int)(s.position < -far ? -far : s.position > far ? far : s.position);
  x.state = s.count < 0 ? kOutOfRange : kFine;
  const int from = max(x.key0, x.first), to = min(min(x.key0 + job.keys, x.end), x.key0 + x.rows);
  if (x.state == kFine && to > from) {
    const int low = queries_of(job.rule, x, from).low, high = queries_of(job.rule, x, to - 1).high;
    if (high > low) {
      x.low_tile = low / job.queries;
      x.high_tile = (high + job.queries - 1) / job.queries;
    }
  }
  return x;
}

/* ---- host ---- */

/** Sums of a block of keys that are joined separately: of dv and dk, for each warp group. */
constexpr int kJoined = 4;

/** Zeroed counters: one for each block of keys, `taken`, and those of parts. */
inline int64_t counts_of(const attention_bwd_plan &p)
{
  const int64_t blocks = p.key_tiles * p.l.kv_heads;
  return blocks + 1 + (p.parts > 1 ? kJoined * blocks : 0);
}

inline bwd_job job_of(const tg_attention_bwd_args *a, const attention_bwd_plan &p)
{
  bwd_job job = {};
  char *const memory = static_cast<char *>(a->workspace);
  const int blocks = (int)(p.key_tiles * p.l.kv_heads);
  job.c.l = p.l;
  job.c.records = p.lengths ? static_cast<tgi_attention_sequence *>(a->workspace) : NULL;
  job.c.scale = a->scale;
  job.c.softcap = a->softcap;
  job.rule = {a->causal, p.window};
  job.q = view_of<const uint16_t>(&a->q);
  job.k = view_of<const uint16_t>(&a->k);
  job.v = view_of<const uint16_t>(&a->v);
  job.out = view_of<const uint16_t>(&a->out);
  job.dout = view_of<const uint16_t>(&a->dout);
  job.dq = view_of<uint16_t>(&a->dq);
  job.dk = view_of<uint16_t>(&a->dk);
  job.dv = view_of<uint16_t>(&a->dv);
  job.lse = static_cast<const float *>(a->lse.data);
  job.sums = reinterpret_cast<float *>(memory + p.sums);
  job.minus = reinterpret_cast<float *>(memory + p.minus);
  job.delta = reinterpret_cast<float *>(memory + p.delta);
  job.sink_delta =
      tgi_present(&a->dsinks) ? reinterpret_cast<float *>(memory + p.sink_delta) : NULL;
  job.turns = reinterpret_cast<int *>(memory + p.turns);
  job.lost = reinterpret_cast<int *>(memory + p.counts);
  job.lost_tile = reinterpret_cast<int *>(memory + p.lost_tile);
  job.taken = job.lost + blocks;
  job.joined = job.taken + 1;
  job.part_sums = reinterpret_cast<float4 *>(memory + p.part_sums);
  job.place = reinterpret_cast<key_place *>(memory + p.places);
  job.queries = p.queries;
  job.keys = p.keys;
  job.columns = p.columns;
  job.items = blocks * p.parts;
  job.counts = (int)counts_of(p);
  job.parts = p.parts;
  job.heads = (int)p.l.group / p.parts;
  job.query_tiles = (int)p.query_tiles;
  job.blocks = (int)divide_up(p.l.extent, p.keys);
  job.pairs = (int)(p.l.batch * p.l.kv_heads);
  job.chunk = p.chunk;
  job.half = p.half;
  job.exponent = (a->softcap > 0 ? 1.0f : a->scale) * kLog2E;
  job.cap_by = a->softcap > 0 ? a->scale / a->softcap : 0.0f;
  job.scale = a->scale;
  job.cap = a->softcap;
  job.hides = p.lengths || a->causal || p.window > 0;
  job.ordered = p.ordered;
  job.second_from = (int)p.second_from;
  job.rounds = p.rounds;
  return job;
}

} // namespace

/** Launches the tiles: adds to the sums of dq, and writes dk and dv. One function and file for each
 * range of head sizes, because they compile slowly. */
tg_status run_attention_bwd_64(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p);
tg_status run_attention_bwd_96(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p);
tg_status run_attention_bwd_128(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p);
tg_status run_attention_bwd_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p);
tg_status run_attention_bwd_256(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p);

} // namespace TGI_CUDA_ENTRY

#endif
