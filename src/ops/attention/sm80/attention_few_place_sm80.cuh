/**
 * Attention forward of few queries by mma.sync: which keys a block has, and how they are copied to
 * shared memory.
 *
 * A tile has up to 64 rows of a kv head's group (attention_sequences.cuh). Its splits count from
 * the first stage of keys that it sees; splits after the last key that it sees are empty. Each
 * block reads everything itself: lengths at its start, entries of a block table four stages before
 * their keys are copied.
 */
#ifndef TGI_OPS_ATTENTION_FEW_PLACE_SM80_CUH
#define TGI_OPS_ATTENTION_FEW_PLACE_SM80_CUH

#include "cuda/rows/row_tile.cuh"
#include "ops/attention/cuda/attention_hidden.cuh"
#include "ops/attention/sm80/attention_few_plan_sm80.cuh"
#include "ops/kernels.cuh"

#include <limits.h>

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** n / divisor for 0 <= n < 2^29, by a multiplication. */
struct few_quotient {
  int divisor, shift;
  uint32_t factor;

  __device__ __forceinline__ int quotient(int n) const
  {
    return (int)((uint64_t)(uint32_t)n * factor >> shift);
  }
};

struct few_job {
  tgi_attention_layout l;
  attention_sites sites;
  key_rule rule;
  fwd_operands from;
  heads_view<uint16_t> out;
  float *lse; /* NULL: not wanted */
  any_vector sinks;
  float exponent; /* scores, after the cap, to exponents of 2 */
  float cap_by;   /* scores to tanh's argument */
  bool lengths;
  int rows, tiles, row_warps, lines, splits, run, stages; /* as planned */
  few_quotient keys, group, block_size;
  uint32_t blocks;                         /* valid entries of the block table */
  uint32_t k_block, k_row, v_block, v_row; /* bytes of a block, and of a row */
  int first;                               /* sequence of the launch */
  float *sums;                             /* [tile of the launch][splits][rows][v_dim] */
  float2 *ends;     /* of each row: the maximum of its exponents, and the sum of its powers */
  uint32_t *counts; /* counters: splits of a tile that have written their sums */
};

/** A block's tile of rows, and its splits of the tile's keys. */
struct few_place {
  query_place all; /* the sequence's queries, and the range of its keys; the kv head's first head */
  int b, kv_head;
  int64_t tile; /* of the launch */
  int row0, rows;
  int begin, end;  /* keys that the tile sees */
  int part, parts; /* the block's first split, and the tile's splits: 1 even if there are no keys */
  int low, high;   /* keys of the block's splits */
  bool reports;    /* one tile of a sequence reports faults */
};

/** Reads the lengths of a sequence; false: out of range. In 32 bits, as in memory. */
__device__ __forceinline__ bool put_lengths(const few_job &job, int b, bool reports, query_place &x)
{
  const tgi_attention_layout &l = job.l;
  const int extent = (int)l.extent;
  const int first = l.key_start ? l.key_start[b] : 0;
  const bool start = first < 0 || first > extent;
  const int most = start ? extent : extent - first;
  const int count = l.key_count ? l.key_count[b] : most, value = start ? first : count;
  const int position = l.query_start ? l.query_start[b] : first + count - (int)l.nq;
  const bool bad = start || value < 0 || value > most;
  if (bad && reports) {
    record_fault(start ? job.sites.key_start : job.sites.key_count, b, value, 0, most);
  }
  x.rows = (int)l.nq;
  x.first = first;
  x.end = first + (bad ? 0 : count);
  x.position = near_position(position);
  x.state = bad ? kOutOfRange : kFine;
  return !bad;
}

/** Written by one thread. part >= parts: nothing to do. */
__device__ __forceinline__ void put_few_place(const few_job &job, few_place &x)
{
  const int b = job.first + (int)blockIdx.z, heads = (int)job.l.kv_heads;
  const int tile = job.tiles == 1 ? 0 : (int)blockIdx.x / heads;
  const int kv_head = (int)blockIdx.x - tile * heads, row0 = tile * kTileRows;
  const int rows = min((int)job.l.nq * job.group.divisor - row0, kTileRows);
  const bool reports = blockIdx.x == 0;
  query_place all;
  const bool fine = put_lengths(job, b, reports && blockIdx.y == 0, all);
  int begin = span_of(job.rule, all, job.group.quotient(row0)).low;
  int end = span_of(job.rule, all, job.group.quotient(row0 + rows - 1)).high;
  if (!fine || end <= begin) {
    begin = end = 0;
  }
  const int from = begin / kStageKeys * kStageKeys, keys = job.keys.divisor;
  const int part = (int)blockIdx.y * job.run, split = from + part * keys;
  x.low = max(begin, split);
  x.high = min(end, split + job.run * keys);
  x.part = part;
  x.parts = max(1, job.keys.quotient(end - from + keys - 1));
  x.b = b;
  x.kv_head = kv_head;
  x.tile = (int64_t)blockIdx.z * gridDim.x + blockIdx.x;
  x.row0 = row0;
  x.rows = rows;
  x.begin = begin;
  x.end = end;
  x.reports = reports;
  x.all.q_row = x.all.k_row = 0;
  x.all.q_index = x.all.k_index = b;
  x.all.rows = all.rows;
  x.all.head = kv_head * job.group.divisor;
  x.all.first = all.first;
  x.all.end = all.end;
  x.all.position = all.position;
  x.all.state = all.state;
}

/* ---- block tables ---- */

/** The lane's key: lane % 16 of the warp's 16. */
__device__ __forceinline__ int key_of_lane(int stage)
{
  return stage * kStageKeys + (int)(threadIdx.x / kWarp * kWarpKeys + threadIdx.x % kWarpKeys);
}

/** The block table's entry of the lane's key, not yet checked; 0 without a table. */
__device__ __forceinline__ int read_entry(const few_job &job, const few_place &x, int stage)
{
  const int key = key_of_lane(stage);
  return key >= x.low && key < x.high
             ? job.l.block_table[x.b * job.l.max_blocks + job.block_size.quotient(key)]
             : 0;
}

/** The location of a key: its block and the row in it, or without a table its row of the sequence.
 * `row` below 0: none. */
struct key_row {
  uint32_t block;
  int row;
};

/** The location of the lane's key; its entry, loaded earlier, is checked here. `lost`: the lowest
 * index of an entry out of range. */
__device__ __forceinline__ key_row find_row(const few_job &job, const few_place &x, int stage,
                                            int entry, int &lost)
{
  const int key = key_of_lane(stage);
  key_row r = {0, key < x.low || key >= x.high ? -1 : key};
  if (job.l.has_table && r.row >= 0) {
    const int i = job.block_size.quotient(key);
    r.block = (uint32_t)entry;
    r.row = key - i * job.block_size.divisor;
    if (r.block >= job.blocks) {
      r = {0, -1};
      lost = min(lost, i);
    }
  }
  return r;
}

/** Checks the entries of keys that the tile does not see, in the block of its first split. */
__device__ __forceinline__ void check_other_blocks(const few_job &job, const few_place &x,
                                                   int &lost)
{
  if (x.all.state != kFine || x.all.end <= x.all.first) {
    return;
  }
  const bool none = x.end <= x.begin;
  const int from = none ? INT_MAX : job.block_size.quotient(x.begin);
  const int to = none ? INT_MAX : job.block_size.quotient(x.end - 1);
  const int last = job.block_size.quotient(x.all.end - 1);
  for (int i = job.block_size.quotient(x.all.first) + (int)threadIdx.x; i <= last;
       i += kFewWarps * kWarp) {
    if ((i < from || i > to) &&
        (uint32_t)job.l.block_table[x.b * job.l.max_blocks + i] >= job.blocks) {
      lost = min(lost, i);
    }
  }
}

/* ---- copies ---- */

/** Copies the tile's rows of q, 16 for each of `row_warps`; missing rows become zeros. */
template <int kCols>
__device__ __forceinline__ void copy_queries(uint32_t to, const few_job &job, const few_place &x)
{
  using tile = row_tile<kCols>;
  const heads_view<const uint16_t> &q = job.from.q;
#pragma unroll 1
  for (int e = threadIdx.x; e < 16 * job.row_warps * tile::kChunks; e += kFewWarps * kWarp) {
    const int r = e / tile::kChunks, chunk = e % tile::kChunks;
    const int row = x.row0 + min(r, x.rows - 1), query = job.group.quotient(row);
    const bool exists = r < x.rows && chunk * 8 < job.from.head_dim;
    const int64_t at = q.at(x.all.q_index, query, x.all.head + row - query * job.group.divisor);
    copy_chunk(to + tile::at(r, chunk), q.data + at + (exists ? chunk * 8 : 0), exists);
  }
}

/** A lane's part of keys and values: 16 bytes of each row, and their place in a stage. */
struct few_lane {
  const char *key, *value;
  uint32_t at;
};

template <int kCols> struct few_copy {
  using tile = row_tile<kCols>;
  static constexpr int kWide = tile::kChunks % 16 == 0 ? 16 : tile::kGroup; /* lanes for a row */

  static __device__ __forceinline__ few_lane lane_of(const few_job &job, const few_place &x)
  {
    const int lane = threadIdx.x % kWarp, column = lane % kWide;
    const int64_t b = job.l.has_table ? 0 : x.b;
    return {reinterpret_cast<const char *>(job.from.k.data + job.from.k.at(b, 0, x.kv_head)),
            reinterpret_cast<const char *>(job.from.v.data + job.from.v.at(b, 0, x.kv_head)),
            tile::at((int)threadIdx.x / kWarp * kWarpKeys + lane / kWide, column)};
  }

  /** Copies the warp's 16 rows of a stage: keys to `to`, values `apart` bytes behind. All exist,
   * have kCols elements and are adjacent, from `row` of the sequence on. */
  static __device__ __forceinline__ void whole_rows(uint32_t to, uint32_t apart, const few_job &job,
                                                    const few_lane &mine, int row)
  {
    const int lane = threadIdx.x % kWarp;
    const uint32_t first = (uint32_t)(row + lane / kWide), column = lane % kWide * 16;
    const char *key = mine.key + (uint64_t)first * job.k_row + column;
    const char *value = mine.value + (uint64_t)first * job.v_row + column;
#pragma unroll
    for (int p = 0; p < kWarpKeys; p += kWarp / kWide) {
      const uint32_t place = to + tile::down(mine.at, p);
#pragma unroll
      for (int g = 0; g < tile::kChunks / kWide; g++) {
        copy_chunk(place + g * kWide * 16, key + g * kWide * 16, true);
        copy_chunk(place + apart + g * kWide * 16, value + g * kWide * 16, true);
      }
      key += (uint64_t)(kWarp / kWide) * job.k_row;
      value += (uint64_t)(kWarp / kWide) * job.v_row;
    }
  }

  /** The same of rows at any location. `row`: that of the lane's key. */
  static __device__ __forceinline__ void rows(uint32_t to, uint32_t apart, const few_job &job,
                                              const few_lane &mine, key_row row)
  {
    const int lane = threadIdx.x % kWarp, column = lane % kWide * 8;
#pragma unroll
    for (int p = 0; p < kWarpKeys; p += kWarp / kWide) {
      const uint32_t block = __shfl_sync(kAllLanes, row.block, lane / kWide + p);
      const int found = __shfl_sync(kAllLanes, row.row, lane / kWide + p);
      const uint32_t inside = (uint32_t)max(found, 0);
      const char *const key =
          mine.key + (uint64_t)block * job.k_block + (uint64_t)inside * job.k_row;
      const char *const value =
          mine.value + (uint64_t)block * job.v_block + (uint64_t)inside * job.v_row;
      const uint32_t place = to + tile::down(mine.at, p);
#pragma unroll
      for (int g = 0; g < tile::kChunks / kWide; g++) {
        const int c = column + g * kWide * 8;
        const bool in_key = c < job.from.head_dim, in_value = c < job.from.v_dim;
        copy_chunk(place + g * kWide * 16, key + (in_key ? 2 * c : 0), found >= 0 && in_key);
        copy_chunk(place + apart + g * kWide * 16, value + (in_value ? 2 * c : 0),
                   found >= 0 && in_value);
      }
    }
  }
};

/* ---- host ---- */

inline few_quotient quotient_by(int64_t divisor)
{
  few_quotient q = {(int)divisor, 29, 0};
  while ((int64_t)1 << (q.shift - 29) < divisor) {
    q.shift++;
  }
  q.factor = (uint32_t)((((uint64_t)1 << q.shift) + (uint64_t)divisor - 1) / (uint64_t)divisor);
  return q;
}

inline few_job few_job_of(const tg_context *ctx, const tg_attention_fwd_args *a,
                          const attention_few_plan &p)
{
  few_job job = {};
  job.l = p.l;
  job.sites = {FAULT_SITE(ctx, attention_fwd, cu_seqlens_q),
               FAULT_SITE(ctx, attention_fwd, cu_seqlens_k),
               FAULT_SITE(ctx, attention_fwd, key_start), FAULT_SITE(ctx, attention_fwd, key_count),
               FAULT_SITE(ctx, attention_fwd, block_table)};
  job.rule = {a->causal, p.window};
  set_tensors(job, a, p.l);
  job.lengths = p.lengths;
  job.rows = p.rows;
  job.tiles = p.tiles;
  job.row_warps = p.row_warps;
  job.keys = quotient_by(p.keys);
  job.group = quotient_by(p.l.group);
  job.block_size = quotient_by(p.l.has_table ? p.l.block_size : 1);
  job.blocks = (uint32_t)p.l.num_blocks;
  job.k_block = (uint32_t)(2 * job.from.k.step[0]);
  job.k_row = (uint32_t)(2 * job.from.k.step[1]);
  job.v_block = (uint32_t)(2 * job.from.v.step[0]);
  job.v_row = (uint32_t)(2 * job.from.v.step[1]);
  job.lines = exchange_lines(p);
  job.splits = p.splits;
  job.run = p.run;
  job.stages = p.stages;
  job.sums = static_cast<float *>(a->workspace);
  job.ends = reinterpret_cast<float2 *>(static_cast<char *>(a->workspace) + p.sums);
  job.counts = ctx->device->counts;
  return job;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
