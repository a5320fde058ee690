/** Attention forward of few queries by mma.sync: the plan, a pure host function. Rows, tiles and
 * splits follow from a sequence's shape alone: its bits are the same in any batch. The splits of a
 * block and the stages of the ring follow from the batch and the GPU, and change no bit. */
#ifndef TGI_OPS_ATTENTION_FEW_PLAN_SM80_CUH
#define TGI_OPS_ATTENTION_FEW_PLAN_SM80_CUH

#include "ops/attention/cuda/attention_fwd_plan.cuh"
#include "ops/attention/sm80/attention_plan_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

struct attention_few_plan {
  bool taken;
  tgi_attention_layout l;
  int window;          /* 0: masks nothing */
  int elements;        /* of a head that products cover */
  bool lengths;        /* some are on the device */
  int rows, tiles;     /* of a kv head's group; rows are those of a tile */
  int row_warps;       /* warps that share keys, each with 16 rows of the tile */
  int keys, splits;    /* keys of a split; splits that a tile may have */
  int run;             /* splits of a block, one after the other */
  int stages;          /* stages of the ring */
  int64_t sequences;   /* of a launch: each split tile has a counter */
  size_t shared, sums; /* bytes of shared memory; of a launch's sums, without maxima */
  size_t bytes;
};

/** One function and file for each range of head sizes, because they compile slowly. */
tg_status run_attention_few_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_few_plan &p);
tg_status run_attention_few_96(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_few_plan &p);
tg_status run_attention_few_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_few_plan &p);
tg_status run_attention_few_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_few_plan &p);
tg_status run_attention_few_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_few_plan &p);

namespace
{

constexpr int kTileRows = 64;  /* rows of a tile, at most */
constexpr int kFewWarps = 4;   /* of a block */
constexpr int kWarpKeys = 16;  /* that a warp copies at a time, and multiplies */
constexpr int kStageKeys = 64; /* of a stage: 16 for each warp */
constexpr int kMostStages = 4; /* more would not be in flight at once */
constexpr int kSplitBytes =
    64 << 10; /* bytes of keys and values: a shorter split costs less than its sums */
constexpr int kMostSequences = 65535;                  /* of a grid's third axis */
constexpr int kFillingBlocks = 128, kMostBlocks = 256; /* of a sequence */

/** Occupancy in blocks, as registers allow: while one block begins or ends, others keep memory
 * busy. */
constexpr int few_residents(int elements)
{
  return elements <= 128 ? 3 : 2;
}

/** Floats of a line in which warps exchange sums; exchange_lines: such lines of a warp. */
constexpr int exchange_pitch(int elements)
{
  return elements + 8;
}

inline int exchange_lines(const attention_few_plan &p)
{
  return p.rows < 16 ? p.rows : 16;
}

/** Keys of a split, where a tile sees at most `reach`. */
inline int64_t split_keys(const attention_few_plan &p, int64_t reach)
{
  const int64_t bytes = 4 * (int64_t)p.elements;
  const int64_t least = divide_up(kSplitBytes / bytes, kStageKeys) * kStageKeys;
  if (reach <= 2 * least) {
    return divide_up(reach, kStageKeys) * kStageKeys;
  }
  /* The last block of a tile adds all splits: with many rows there are fewer of them. */
  const int64_t tiles = p.l.kv_heads * p.tiles * (p.rows > kTileRows / 2 ? 2 : 1);
  int64_t keys = divide_up(reach * tiles, kFillingBlocks);
  keys = keys < 2 * least ? keys : 2 * least;
  const int64_t most = divide_up(reach * tiles, kMostBlocks);
  keys = keys > most ? keys : most;
  keys = keys > least ? keys : least;
  return divide_up(keys, kStageKeys) * kStageKeys;
}

/** Chooses the splits of a block, one after the other, and the stages of the ring. As many splits
 * as leave two blocks for each multiprocessor and fill nine tenths of the last wave; one where
 * lengths are on the device, so that a long sequence among short ones does not wait for one block.
 * The ring has as many stages as shared memory allows at the occupancy that the grid needs; that
 * occupancy is reduced until there are two stages. */
inline void set_run(const tg_context *ctx, attention_few_plan &p)
{
  constexpr int64_t kBeside =
      1024; /* static shared memory, and what the system reserves for a block */
  const int64_t stage = (int64_t)kStageKeys * p.elements * 4, all = ctx->device->shared_bytes;
  const int64_t queries = (int64_t)16 * p.row_warps * p.elements * 2;
  const int64_t lines = (int64_t)exchange_lines(p) * kFewWarps * exchange_pitch(p.elements) * 4;
  const int64_t tiles = p.sequences * p.l.kv_heads * p.tiles, n = ctx->device->multiprocessors;
  auto blocks = [&]() { return tiles * divide_up(p.splits, p.run); };
  auto fills = [&]() {
    return 10 * blocks() >= 18 * n && 10 * blocks() >= 9 * n * divide_up(blocks(), n);
  };
  p.run = !p.lengths && 2 * stage + queries + lines + 2 * kBeside <= all ? p.splits : 1;
  while (p.run > 1 && !fills()) {
    p.run = (p.run + 1) / 2;
  }
  const int64_t rest = queries + (p.run > 1 ? lines : 0), needed = divide_up(blocks(), n);
  const int64_t most =
      p.run * p.keys / kStageKeys < kMostStages ? p.run * p.keys / kStageKeys : kMostStages;
  int64_t beside = needed < few_residents(p.elements) ? needed : few_residents(p.elements);
  int64_t stages = 0;
  for (; stages < 2 && beside > 0; beside--) {
    stages = ((all - (beside + 1) * kBeside) / beside - rest) / stage;
  }
  stages = stages < most ? stages : most;
  p.stages = stages > 1 ? (int)stages : 1;
  const int64_t shared = p.stages * stage + rest;
  p.shared = (size_t)(shared > lines ? shared : lines);
}

/** True if strides between rows, and between the blocks of a table, fit in 32 bits. */
inline bool has_steps(const tg_tensor *t, bool paged)
{
  return (!paged || 2 * tgi_stride(t, 0) <= UINT32_MAX) && 2 * tgi_stride(t, 1) <= UINT32_MAX;
}

inline attention_few_plan plan_few(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  attention_few_plan p = {};
  p.l = tgi_attention_fwd_layout(a);
  p.elements = elements_of(p.l);
  const int64_t rows = p.l.nq * p.l.group, tiles = divide_up(rows, kTileRows);
  p.taken = !p.l.packed_q && !p.l.packed_k && (p.l.has_table || has_few_queries(p.l)) &&
            has_counters(a, p.l) && p.elements > 0 && p.l.extent > 0 && has_vectors(&a->q) &&
            has_vectors(&a->k) && has_vectors(&a->v) && has_vectors(&a->out) &&
            has_steps(&a->k, p.l.has_table) && has_steps(&a->v, p.l.has_table) &&
            rows < kMostRows && p.l.batch * p.l.kv_heads * tiles < INT32_MAX / 2;
  if (!p.taken) {
    return p;
  }
  p.window = a->window < kMostWindow ? a->window : 0;
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  p.tiles = (int)tiles;
  p.rows = (int)(rows < kTileRows ? rows : kTileRows);
  p.row_warps = p.rows <= 16 ? 1 : p.rows <= 32 ? 2 : 4;
  int64_t reach = p.l.extent;
  if (p.window > 0) { /* counted from the start of the stage of the first visible key */
    const int64_t seen = (int64_t)p.window * (a->causal ? 1 : 2) + p.l.nq + kStageKeys;
    reach = seen < reach ? seen : reach;
  }
  const int64_t keys = split_keys(p, reach), tiles_of_all = p.l.kv_heads * tiles;
  p.keys = (int)keys;
  p.splits = (int)divide_up(reach, keys);
  p.sequences = p.l.batch < kMostSequences ? p.l.batch : kMostSequences;
  if (p.splits > 1) {
    const int64_t most = TGI_COUNTS / tiles_of_all;
    p.sequences = p.sequences < most ? p.sequences : most;
    const size_t sums = (size_t)(p.sequences * tiles_of_all * p.splits * p.rows);
    p.sums = sums * (size_t)p.l.v_dim * sizeof(float);
    p.bytes = p.sums + sums * sizeof(float2);
  }
  set_run(ctx, p);
  return p;
}

inline tg_status run_few(const tg_context *ctx, const tg_attention_fwd_args *a,
                         const attention_few_plan &p)
{
  switch (p.elements) {
  case 64:
    return run_attention_few_64(ctx, a, p);
  case 96:
    return run_attention_few_96(ctx, a, p);
  case 128:
    return run_attention_few_128(ctx, a, p);
  case 192:
    return run_attention_few_192(ctx, a, p);
  default:
    return run_attention_few_256(ctx, a, p);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
