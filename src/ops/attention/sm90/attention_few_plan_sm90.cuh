/** Attention forward of one query a sequence on Hopper: the plan, a pure host function. Which calls
 * are taken, and the chunks of keys and their units, follow from a sequence's shape alone: its bits
 * are the same in any batch. Which warp has which of them follows from the batch and the GPU, and
 * changes no bit. */
#ifndef TGI_OPS_ATTENTION_FEW_PLAN_SM90_CUH
#define TGI_OPS_ATTENTION_FEW_PLAN_SM90_CUH

#include "ops/attention/cuda/attention_fwd_plan.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

struct few_cluster_plan {
  bool taken;
  tgi_attention_layout l;
  int window;        /* 0: masks nothing */
  bool lengths;      /* some are on the device */
  int keys, units;   /* keys of a unit, whose sums are made in registers; units of a chunk */
  bool folds;        /* a warp has whole chunks and folds their units; else single units */
  int entries, run;  /* entries (chunks or units): of a sequence, at most; of a warp */
  int warps, blocks; /* of a block; of a cluster, which has all keys of a kv head */
  int each;          /* groups of four elements that a block adds */
  size_t shared;
};

tg_status run_few_clusters(const tg_context *ctx, const tg_attention_fwd_args *a,
                           const few_cluster_plan &p);

namespace
{

constexpr int kClusterRows = 8;    /* heads of a group: columns of a product */
constexpr int kClusterKeys = 16;   /* that a warp multiplies at a time */
constexpr int kChunks = 16;        /* of a sequence, at most */
constexpr int kMostUnits = 8;      /* of a chunk; a power of two */
constexpr int kClusterWarps = 16;  /* of a multiprocessor, as registers allow, and so of a block */
constexpr int kFewestWarps = 4;    /* of a block, where a multiprocessor has several */
constexpr int kClusterBlocks = 8;  /* of a cluster, at most */
constexpr int kStaticBytes = 8192; /* more than a block's static shared memory */
constexpr int kMostGrid = 65535;   /* of a grid's second and third axes */

/** The most elements of a kv head's keys. With more, a small batch is slower than the next entry's
 * kernel: 1 x 2048 of 128 elements 10.6 us, not 9.3. */
constexpr int64_t kClusterElements = 512 * 128;

/** Bytes of shared memory of a block of p.warps warps: lines of its own, and those that others
 * send. */
inline size_t cluster_shared(const few_cluster_plan &p)
{
  const size_t ends = (size_t)p.l.group * sizeof(float2);
  const size_t line = (size_t)(p.l.group * p.l.v_dim) * sizeof(float) + ends;
  const size_t own = (size_t)(p.warps * p.run) * line + sizeof(float2);
  const size_t come =
      p.blocks > 1 ? (size_t)p.entries * ((size_t)p.each * sizeof(float4) + ends) : 0;
  return own + come + (p.folds ? 0 : (size_t)p.entries * ends);
}

/** Distributes a kv head over `count` warps in `blocks` blocks. */
inline void share_out(few_cluster_plan &p, bool folds, int count, int blocks)
{
  const int64_t keys = folds ? (int64_t)p.keys * p.units : p.keys;
  const int64_t reach = (int64_t)p.entries * p.keys; /* entries are units until here */
  p.folds = folds || p.units == 1;
  p.entries = (int)divide_up(reach, keys);
  p.run = (int)divide_up(p.entries, count);
  p.blocks = blocks;
  p.warps = count / blocks;
  p.each = (int)divide_up(p.l.group * p.l.v_dim / 4, p.blocks);
  p.shared = cluster_shared(p);
}

/** Chooses as many warps for a kv head as the GPU can run at once. Up to 16 have whole chunks. More
 * warps share them, where a cluster can hold them and three quarters of the GPU suffice: beyond
 * that some clusters would wait for multiprocessors. Blocks of fewer warps allow more blocks at
 * once. */
inline void set_cluster(const tg_context *ctx, few_cluster_plan &p)
{
  const int64_t tiles = p.l.batch * p.l.kv_heads, n = ctx->device->multiprocessors;
  const int64_t room = n * kClusterWarps / tiles;
  int count = kFewestWarps, blocks = 1;
  while (count < p.entries && (count < kChunks ? 2 * count <= room : 8 * count <= 3 * room)) {
    count *= 2;
  }
  while (count / blocks > kFewestWarps && blocks < kClusterBlocks && 2 * blocks * tiles <= n) {
    blocks *= 2;
  }
  const few_cluster_plan units = p;
  const bool folds = count <= kChunks || count / blocks > kClusterWarps;
  share_out(p, folds, folds && count > kChunks ? kChunks : count, blocks);
  if (p.shared >
      (size_t)ctx->device->shared_bytes - kStaticBytes) { /* the lines exceed shared memory */
    p = units;
    share_out(p, true, kChunks, blocks < 4 ? blocks : 4);
  }
}

inline few_cluster_plan plan_few_clusters(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  few_cluster_plan p = {};
  p.l = tgi_attention_fwd_layout(a);
  p.window = a->window < kMostWindow ? a->window : 0;
  int64_t reach = p.l.extent;
  if (p.window > 0) {
    const int64_t seen = a->causal ? p.window : 2 * (int64_t)p.window - 1;
    reach = seen < reach ? seen : reach;
  }
  const bool whole = p.l.head_dim == p.l.v_dim && (p.l.head_dim == 64 || p.l.head_dim == 128);
  p.taken = !p.l.packed_q && !p.l.packed_k && !p.l.has_table && p.l.nq == 1 && whole &&
            p.l.group <= kClusterRows && p.l.extent > 0 &&
            reach * p.l.head_dim <= kClusterElements && p.l.kv_heads <= kMostGrid &&
            has_counters(a, p.l) && has_vectors(&a->q) && has_vectors(&a->k) &&
            has_vectors(&a->v) && has_vectors(&a->out) && 2 * tgi_stride(&a->k, 1) <= INT32_MAX &&
            2 * tgi_stride(&a->v, 1) <= INT32_MAX;
  if (!p.taken) {
    return p;
  }
  p.lengths = has_lengths(p.l, &a->key_start, &a->key_count, &a->query_start);
  const int64_t chunk = divide_up(reach, kChunks);
  p.units = 1;
  while (p.units < kMostUnits && p.units * kClusterKeys < chunk) {
    p.units *= 2;
  }
  p.keys = (int)divide_up(chunk, p.units * kClusterKeys) * kClusterKeys;
  p.entries = (int)divide_up(reach, p.keys);
  set_cluster(ctx, p);
  return p;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
