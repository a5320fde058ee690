/**
 * Attention forward on Hopper: what a consumer warp group does at the pipelines of keys and values,
 * and which blocks of keys of a tile it computes.
 *
 * The producer thread fills a stage and the stage's `full` barrier counts the bytes; a warp group
 * waits for it, multiplies, and arrives at `empty`. Positions count on from tile to tile: the stage
 * is the position modulo kStages, the barrier's parity follows from the quotient.
 */
#ifndef TGI_OPS_ATTENTION_FWD_PIPELINE_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_PIPELINE_SM90_CUH

#include "ops/attention/sm90/attention_fwd_results_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A thread of a consumer warp group, for as long as the kernel runs. */
template <typename S> struct fwd_consumer {
  fwd_shared<S> &sh;
  const fwd_job &job;
  int group, thread; /* warp group; the thread in it */
  int row0, col0;    /* the thread's first row and column of an accumulator */
  int first;         /* the warp group's first row of a tile */
  key_rule rule;
  unsigned n; /* position in both pipelines: blocks of keys so far */
};

template <typename S>
__device__ __forceinline__ fwd_consumer<S> consumer_of(fwd_shared<S> &sh, const fwd_job &job,
                                                       int group)
{
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const key_rule rule = job.work.rule;
  return {sh, job, group, thread, 16 * warp + lane / 4, 2 * (lane % 4), 64 * group, rule, 0};
}

template <typename S>
__device__ __forceinline__ void await_stage(const fwd_consumer<S> &, mbarrier *ring, unsigned i)
{
  wait_for(&ring[i % S::kStages], i / S::kStages & 1);
}

template <typename S>
__device__ __forceinline__ void release_stage(const fwd_consumer<S> &c, mbarrier *ring, unsigned i)
{
  if (c.thread == 0) {
    arrive(&ring[i % S::kStages]);
  }
}

/** The stage of keys as operand; its depth lies along the elements of a head. */
template <typename S>
__device__ __forceinline__ uint64_t keys_at(const fwd_consumer<S> &c, unsigned i)
{
  return page_operand(shared_address(c.sh.k[i % S::kStages]));
}

/** The stage of values as operand; its depth lies along the keys. */
template <typename S>
__device__ __forceinline__ uint64_t values_at(const fwd_consumer<S> &c, unsigned i)
{
  return page_operand(shared_address(c.sh.v[i % S::kStages]), S::kKeyPage);
}

/** Ping-pong: waits until the warp group before has issued its products. */
template <typename S> __device__ __forceinline__ void await_turn(const fwd_consumer<S> &c)
{
  if (S::kPingPong) {
    sync_some(1 + c.group, 2 * kWarpgroup);
  }
}

/** Lets the next warp group issue its products. */
template <typename S> __device__ __forceinline__ void pass_turn(const fwd_consumer<S> &c)
{
  if (S::kPingPong) {
    arrive_some(1 + (c.group + 1) % S::kWarpGroups, 2 * kWarpgroup);
  }
}

/** Releases the buffer of queries of the tile before, once TMA has read its results from there. */
template <typename S>
__device__ __forceinline__ void release_queries(const fwd_consumer<S> &c, int tile)
{
  if (S::kQueryStages > 1 && tile > 0 && c.thread == 0) {
    wait_for_store_reads();
    arrive(&c.sh.q_empty[(tile - 1) % S::kQueryStages][c.group]);
  }
}

/** A tile's blocks of keys, low_block .. high_block - 1, and those of them that a warp group
 * computes, below .. above - 1. */
struct fwd_blocks {
  int low_block, high_block, below, above;
  key_span top, bottom; /* keys that the warp group's first and last row see */
};

template <typename S>
__device__ __forceinline__ fwd_blocks blocks_of(const fwd_consumer<S> &c, const query_place &x)
{
  fwd_blocks b;
  b.low_block = uniform(x.low_block);
  b.high_block = uniform(x.high_block);
  const int rows = min(uniform(x.rows) - c.first, 64);
  b.top = span_of(c.rule, x, c.first);
  b.bottom = span_of(c.rule, x, c.first + rows - 1);
  b.below = uniform(b.top.low / S::kKeys);
  b.above = uniform((b.bottom.high + S::kKeys - 1) / S::kKeys);
  if (S::kSplitKeys) {
    b.below = max(b.below, b.low_block);
    b.above = min(b.above, b.high_block);
  }
  if (rows <= 0 || b.above <= b.below || b.high_block <= b.low_block) {
    b.below = b.above = b.low_block;
  }
  return b;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
