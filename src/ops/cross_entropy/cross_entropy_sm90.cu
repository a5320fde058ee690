/* Cross-entropy on Hopper: forward and backward in one kernel, the logits read once.
 *
 * Method     A row stays on the chip from its reading to its gradient: in a cluster of 2 blocks, or
 *            of 4 where 2 have no room for it, each of which has a ring of 216 KiB in shared memory
 *            and 48 KiB of registers behind it. 151936 columns in 16 bits are 148 KiB for a block
 *            of 2, so 112 KiB more of the stream can be on their way. Memory works all the time,
 * for the warps of a block have a part each and wait for each other only through barriers in shared
 * memory (loader and scanners: cross_entropy_scanners_sm90.cuh): loader    one thread; fills each
 * stage of the ring (8 KiB) that is empty by bulk copies, of this row, the next, and so on scanners
 * 8 warps, of 4 blocks 4; read a stage as it comes, keep a running maximum and a sum of
 * exponentials each, and send them to all blocks of the cluster at the end of the row; then go on
 * with the next one finisher  a warp; puts the row's 512 sums together, has its lse, and tells the
 *                        writers; that of the target's block writes the row's results
 *              writers   8 warps; take the row's first 6 stages into registers before its lse is
 *                        known, so that they can be filled again; then turn these and the others
 *                        into gradients, which go to memory
 *            While writers are at a row, scanners are at the next one, and the loader ahead.
 * Bits       Those of cross_entropy.cu and cross_entropy_bwd.cu, so that a call's bits do not
 *            depend on what this kernel takes. Their blocks have 512 threads for such rows, and a
 *            thread adds every 512th vector: scanner t of block r is thread 256 r + t, of 4 blocks
 *            128 r + t. Its running maximum has no branch here: where nothing is raised, the factor
 *            is 2^0 = 1. Sums are put together in the order of block_sum.
 * Work       As many clusters as run at once: of 2 blocks on all 132 multiprocessors, of 4 on 120;
 *            each takes every n-th row.
 * Bound      Memory: reads and writes the logits once. For 16 bits at 4.2 TB/s a multiprocessor
 *            has 4.6 elements a clock, and so 28 lane instructions for each, of which the scan
 *            takes 8 and the gradient 7, and 16 exponentials for all, of which both take 9.8.
 * Takes      Rows of 80 to 960 KiB whose logits and dlogits are 16-byte vectors; no softcap, and
 *            no argmax, which would be looked for in the stages once more.
 */
#include "ops/cross_entropy/cross_entropy_scanners_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

/* ---- finisher ---- */

/* The sum over the row's 512 threads as block_sum has it; of: what this lane of the first warp
 * has. */
template <typename F> __device__ __forceinline__ double sum_of_warps(const row_sums *of, F value)
{
  const int lane = threadIdx.x % kWarp;
  double of_warp = 0.0;
#pragma unroll 8 /* as registers go */
  for (int k = 0; k < kRowThreads / kWarp; k++) {
    const double sum = warp_sum(value(of[k * kWarp]));
    of_warp = lane == k ? sum : of_warp;
  }
  return warp_sum(of_warp);
}

template <int kBlocks, typename T>
__device__ __forceinline__ void finish_rows(const both_job<T> &job, loss_ring *m, unsigned rank,
                                            double n)
{
  using team = loss_ring_team<kBlocks>;
  const loss_job<T> &f = job.forward;
  const int lane = threadIdx.x % kWarp;
  unsigned parity = 0;
  for (row_walk w(f.rule, kBlocks); w.more(); w.advance()) {
    if (!w.counts()) {
      if (rank == 0 && lane == 0) {
        put_skipped(f, w.row, w.target);
      }
      continue;
    }
    const float upstream = upstream_of(job.backward, w.row, n);
    /* The target's block alone may read it: its writers wait for what comes of it. */
    const int place = (int)w.target / kLanes<T> % kRowThreads;
    const bool has_target = place / team::kScanners == (int)rank;
    const T logit = has_target ? f.logits[w.row * f.step + w.target] : from_f32<T>(0.0f);
    if (lane == 0) {
      arrive_expecting(&m->summed, sizeof m->sums);
    }
    wait_for_cluster(&m->summed, parity);
    const row_sums *const of = m->sums + lane;
    float shift = -FLT_MAX;
#pragma unroll
    for (int k = 0; k < kRowThreads / kWarp; k++) {
      shift = fmaxf(shift, of[k * kWarp].x);
    }
    shift = warp_max(shift);
    double sums[2] = {0.0, 0.0};
    sums[0] = sum_of_warps(of, [shift](const row_sums &r) {
      return (double)(r.y * exp2_flushed((r.x - shift) * kLog2E));
    });
    if (f.label_smoothing > 0) {
      sums[1] = sum_of_warps(of, [](const row_sums &r) { return (double)r.z; });
    }
    __syncwarp();
    if (lane < kBlocks) {
      arrive_in(&m->finished, lane);
    }
    const float hit = to_f32(logit);
    const row_result result = finish_row(f, shift, sums, hit);
    const row_facts facts = facts_of(job.backward, result.lse, upstream);
    wait_for(&m->taken, parity ^ 1);
    if (lane == 0) {
      m->facts = {facts, gradient<false>(hit, facts, facts.hit)};
      arrive(&m->known);
      if (has_target) {
        put_row(f, w.row, result, -1);
      }
    }
    parity ^= 1;
  }
}

/* ---- writers ---- */

constexpr int kMine = kStageVectors / kWriters; /* vectors of a writer in a stage */

/* A writer's vectors of a stage; the stage may be filled again once the scanners have read it. */
__device__ __forceinline__ void take_stage(uint4 (&bits)[kMine], loss_ring *m, loss_ring_place *s,
                                           int t)
{
  wait_for(&m->full[s->at], s->parity);
#pragma unroll
  for (int u = 0; u < kMine; u++) {
    bits[u] = m->stage[s->at][u * kWriters + t]; /* behind the row's end: what was there */
  }
  __syncwarp();
  if (t % kWarp == 0) {
    arrive(&m->empty[s->at]);
  }
  s->advance();
}

/* The gradients of a vector, but of the target. */
template <bool kPlain, typename T>
__device__ __forceinline__ uint4 gradients(uint4 bits, const row_facts &f)
{
  float v[kLanes<T>];
  widen<T>(v, bits);
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    v[i] = kPlain ? exp2_flushed((v[i] - f.lse) * kLog2E) * f.upstream
                  : gradient<false>(v[i], f, 0.0f);
  }
  return narrow<T>(v);
}

/* Where a writer's next gradients go, and behind the row. */
struct row_place {
  uint4 *next, *end;
};

/* kWhole: nothing of the stage lies behind the row's end. */
template <int kBlocks, bool kPlain, bool kWhole, typename T>
__device__ __forceinline__ void put_stage(row_place *to, const uint4 (&bits)[kMine],
                                          const row_facts &f)
{
#pragma unroll
  for (int u = 0; u < kMine; u++, to->next += loss_ring_team<kBlocks>::kApart) {
    if (kWhole || to->next < to->end) {
      *to->next = gradients<kPlain, T>(bits[u], f);
    }
  }
}

/* The gradient of a row that does not count: 0, or NaN where its target is none. The cluster's
 * writers share it. */
template <typename T>
__device__ __forceinline__ void put_nothing(T *row, int vectors, float value, int first, int apart)
{
  float v[kLanes<T>];
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    v[i] = value;
  }
  const uint4 bits = narrow<T>(v);
  for (int k = first; k < vectors; k += apart) {
    reinterpret_cast<uint4 *>(row)[k] = bits;
  }
}

template <int kBlocks, bool kPlain, typename T>
__device__ __forceinline__ void write_rows(const both_job<T> &job, loss_ring *m, unsigned rank)
{
  using team = loss_ring_team<kBlocks>;
  /* With four blocks a row waits for their few scanners, and writers that look where the row ends
   * leave them more of the multiprocessor: 4 to 8 % less time. */
  constexpr bool kWhole = kBlocks == 2;
  const target_rule &rule = job.forward.rule;
  const int t = threadIdx.x - team::kFirstWriter * kWarp, whole = job.row.stages - 1;
  const int first = t / team::kScanners * kRowThreads + (int)rank * team::kScanners +
                    t % team::kScanners; /* vector of the row */
  loss_ring_place s = {};
  unsigned parity = 0;
  for (row_walk w(rule, kBlocks); w.more(); w.advance()) {
    T *const row = job.backward.dlogits + w.row * job.backward.dstep;
    if (!w.counts()) {
      put_nothing(row, job.row.vectors, is_ignored(rule, w.target) ? 0.0f : CUDART_NAN_F,
                  (int)rank * kWriters + t, kBlocks * kWriters);
      continue;
    }
    uint4 held[kHeld][kMine], bits[kMine]; /* held while lse is not known: room for the next row */
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
      if (h < whole) {
        take_stage(held[h], m, &s, t);
      }
    }
    wait_for(&m->known, parity);
    const loss_ring_facts f = m->facts;
    __syncwarp();
    if (t % kWarp == 0) {
      arrive(&m->taken);
    }
    parity ^= 1;
    uint4 *const vectors = reinterpret_cast<uint4 *>(row);
    row_place to = {vectors + first, vectors + job.row.vectors};
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
      if (h < whole) {
        put_stage<kBlocks, kPlain, kWhole, T>(&to, held[h], f.row);
      }
    }
#pragma unroll 1
    for (int stage = kHeld; stage < whole; stage++) {
      take_stage(bits, m, &s, t);
      put_stage<kBlocks, kPlain, kWhole, T>(&to, bits, f.row);
    }
    take_stage(bits, m, &s, t);
    put_stage<kBlocks, kPlain, false, T>(&to, bits, f.row);
    if (((int)w.target / kLanes<T> - first) % team::kApart == 0) { /* over what it wrote itself */
      row[w.target] = from_f32<T>(f.target);
    }
  }
}

/* ---- the kernel ---- */

template <int kBlocks, bool kPlain, typename T>
__global__ void __launch_bounds__(loss_ring_team<kBlocks>::kThreads, 1)
    cross_entropy_fwdbwd_ring_kernel(const __grid_constant__ both_job<T> job)
{
  using team = loss_ring_team<kBlocks>;
  extern __shared__ uint4 memory[];
  loss_ring *const m = reinterpret_cast<loss_ring *>(memory);
  const unsigned rank = cluster_rank();
  const int warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) {
    init_loss_ring<kBlocks>(m);
  }
  const double n = count_items(job.forward.rule, m->counts);
  cluster_barrier(kBlocks); /* the other blocks are there, and their barriers */
  if (warp < team::kFinisher) {
    scan_rows<kBlocks, kPlain>(job, m, rank);
  } else if (warp == team::kFinisher) {
    finish_rows<kBlocks>(job, m, rank, n);
  } else if (warp == team::kLoader) {
    if (threadIdx.x % kWarp == 0) {
      load_rows<kBlocks>(job, m, rank);
    }
  } else {
    write_rows<kBlocks, kPlain>(job, m, rank);
  }
  cluster_barrier(kBlocks); /* nobody reaches into a block that is gone */
}

template <int kBlocks, typename T>
tg_status launch_ring(const tg_context *ctx, const both_job<T> &job)
{
  const bool plain = job.forward.label_smoothing == 0 && job.forward.z_loss == 0;
  void (*const kernel)(both_job<T>) = plain ? cross_entropy_fwdbwd_ring_kernel<kBlocks, true, T>
                                            : cross_entropy_fwdbwd_ring_kernel<kBlocks, false, T>;
  const int64_t rows = job.forward.rule.rows;
  cluster_launch l;
  const cudaError_t e = prepare_clusters(ctx, (const void *)kernel, kBlocks,
                                         loss_ring_team<kBlocks>::kThreads, sizeof(loss_ring), &l);
  const int64_t places = ctx->device->multiprocessors / kBlocks;
  int64_t clusters = e == cudaSuccess ? clusters_at_once((const void *)kernel, l) : 1;
  if (clusters == 0) {
    return TG_UNSUPPORTED;
  }
  clusters = clusters < places ? clusters : places;
  clusters = clusters < rows ? clusters : rows;
  return rows > 0 ? launch_clusters(ctx, e, kernel, &l, (int)clusters, job) : TG_OK;
}

template <typename T>
tg_status both(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a,
               const loss_ring_plan &p)
{
  const target_rule rule = TARGET_RULE(ctx, cross_entropy_fwdbwd, a);
  const both_job<T> job = {loss_job_of<T>(a, rule), dlogits_job_of<T>(a, rule), p.row};
  const tg_status status = p.blocks == 2 ? launch_ring<2>(ctx, job) : launch_ring<4>(ctx, job);
  return status == TG_OK ? reduce_losses(ctx, a, job.forward) : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(cross_entropy_fwdbwd)(const tg_context *,
                                                      const tg_cross_entropy_fwdbwd_args *a)
{
  return loss_bytes(a);
}

extern "C" tg_status TGI_KERNEL(cross_entropy_fwdbwd)(const tg_context *ctx,
                                                      const tg_cross_entropy_fwdbwd_args *a)
{
  const loss_ring_plan p = plan_loss_ring(ctx, a);
  tg_status status = TG_UNSUPPORTED;
  if (p.blocks > 0) {
    SWITCH_FLOAT(a->logits.dtype, T, status = both<T>(ctx, a, p));
  }
  return status;
}

/* For other rows these are the words of the next entry. */
extern "C" void TGI_PLAN(cross_entropy_fwdbwd)(const tg_context *ctx,
                                               const tg_cross_entropy_fwdbwd_args *a, char *text,
                                               size_t bytes)
{
  const loss_ring_plan p = plan_loss_ring(ctx, a);
  if (p.blocks > 0) {
    snprintf(text, bytes,
             "rows through a ring in shared memory, read once; %d blocks of %d threads a row, %d "
             "stages of a ring of %d",
             p.blocks, p.blocks == 2 ? loss_ring_team<2>::kThreads : loss_ring_team<4>::kThreads,
             p.row.stages, kStages);
  } else {
    describe_both(ctx, a, text, bytes);
  }
}
