/* Cross-entropy on Hopper: forward and backward in one kernel, the logits read once.
 *
 * Method     A row stays on the chip from its reading to its gradient: in the shared memory of a
 *            cluster of 4 blocks, each of which has a ring of 208 KiB. 151936 columns in 16 bits
 *            are 76 KiB for a block, so 128 KiB more of the stream can be on their way. Memory
 *            works all the time, for the warps of a block have a part each and wait for each other
 *            only through barriers in shared memory:
 *              loader    one thread; fills each stage of the ring (8 KiB) that is empty by bulk
 *                        copies, of this row, the next, and so on
 *              scanners  4 warps; read a stage as it comes, keep a running maximum and a sum of
 *                        exponentials each, and send them to all blocks of the cluster at the end
 *                        of the row; then go on with the next one
 *              finisher  a warp; puts the row's 512 sums together, has its lse, and tells the
 *                        writers; block 0's writes the row's results
 *              writers   8 warps; turn stages into gradients, which go to memory, and free them
 *            While writers are at a row, scanners are at the next one, and the loader ahead.
 * Bits       Those of cross_entropy.cu and cross_entropy_bwd.cu, so that a call's bits do not
 *            depend on what this kernel takes. Their blocks have 512 threads for such rows, and a
 *            thread adds every 512th vector: scanner t of block r is thread 128 r + t. Its running
 *            maximum has no branch here: where nothing is raised, the factor is 2^0 = 1. Sums are
 *            put together in the order of block_sum.
 * Work       As many clusters as run at once, on 128 or 132 of 132 multiprocessors; each takes
 *            every n-th row.
 * Bound      Memory: reads and writes the logits once. For 16 bits at 4.2 TB/s a multiprocessor
 *            has 4.6 elements a clock, and so 28 lane instructions for each, of which the scan
 *            takes 8 and the gradient 11, and 16 exponentials for all, of which both take 9.8.
 * Takes      Rows of 64 to 768 KiB whose logits and dlogits are 16-byte vectors; no softcap, and
 *            no argmax, which would be looked for in the stages once more.
 */
#include "ops/cross_entropy/cross_entropy_ring.cuh"

namespace
{

using stage_place = loss_ring_place<kStages>;
using turn_place = loss_ring_place<kTurns>;

template <typename T> struct both_job {
  loss_job<T> forward;
  dlogits_job<T> backward;
  loss_ring_row row;
};

/* ---- loader ---- */

template <typename T>
__device__ __forceinline__ void load_rows(const both_job<T> &job, loss_ring *m, unsigned rank)
{
  stage_place s = {};
  for (row_walk w(job.forward.rule); w.more(); w.advance()) {
    if (!w.counts()) {
      continue;
    }
    const uint4 *from =
        reinterpret_cast<const uint4 *>(job.forward.logits + w.row * job.forward.step);
#pragma unroll 1
    for (int stage = 0; stage < job.row.stages; stage++, s.advance()) {
      int count[kSteps], all = 0;
#pragma unroll
      for (int u = 0; u < kSteps; u++) {
        count[u] = job.row.of_step(stage * kSteps + u, rank);
        all += count[u];
      }
      wait_for(&m->empty[s.at], s.parity ^ 1);
      arrive_expecting(&m->full[s.at], (unsigned)all * 16);
#pragma unroll
      for (int u = 0; u < kSteps; u++) {
        if (count[u] > 0) {
          bulk_load(&m->stage[s.at][u * kScanners],
                    from + (stage * kSteps + u) * kRowThreads + (int)rank * kScanners,
                    (unsigned)count[u] * 16, &m->full[s.at]);
        }
      }
    }
  }
}

/* ---- scanners ---- */

/* `absorb` of cross_entropy_fwd_rows.cuh, for N whole vectors at once. */
template <typename T, int N>
__device__ __forceinline__ void absorb_vectors(row_sums *r, const uint4 (&bits)[N], bool smoothed)
{
  constexpr int kN = kLanes<T>;
  float shift[N + 1], total[N];
  shift[0] = r->x;
#pragma unroll
  for (int u = 0; u < N; u++) {
    float v[kN];
    widen<T>(v, bits[u]);
    float most = v[0];
#pragma unroll
    for (int i = 1; i < kN; i++) {
      most = fmaxf(v[i], most);
    }
    shift[u + 1] = fmaxf(shift[u], most); /* not NaN */
  }
#pragma unroll
  for (int u = 0; u < N; u++) {
    float v[kN];
    widen<T>(v, bits[u]);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      v[i] = exp2_flushed((v[i] - shift[u + 1]) * kLog2E);
    }
#pragma unroll
    for (int half = kN / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; i++) {
        v[i] += v[i + half];
      }
    }
    total[u] = v[0];
  }
#pragma unroll
  for (int u = 0; u < N; u++) {
    r->y *= exp2_flushed((shift[u] - shift[u + 1]) * kLog2E);
    r->y += total[u];
  }
  r->x = shift[N];
  if (smoothed) {
#pragma unroll
    for (int u = 0; u < N; u++) {
      float v[kN];
      widen<T>(v, bits[u]);
#pragma unroll
      for (int i = 0; i < kN; i++) {
        r->z += v[i];
      }
    }
  }
}

template <typename T>
__device__ __forceinline__ void scan_rows(const both_job<T> &job, loss_ring *m, unsigned rank)
{
  const loss_job<T> &f = job.forward;
  const int t = threadIdx.x;
  const bool smoothed = f.label_smoothing > 0;
  stage_place s = {};
  turn_place turn = {};
  for (row_walk w(f.rule); w.more(); w.advance()) {
    if (!w.counts()) {
      continue;
    }
    row_sums r = make_float4(-FLT_MAX, 0.0f, 0.0f, 0.0f);
    if (rank == 0 && t == 0) { /* before a gradient takes its place: that waits for these sums */
      r.w = to_f32(f.logits[w.row * f.step + w.target]);
    }
#pragma unroll 1
    for (int stage = 0; stage < job.row.stages; stage++, s.advance()) {
      const uint4 *from = m->stage[s.at] + t;
      wait_for(&m->full[s.at], s.parity);
      if (job.row.of_step(stage * kSteps + kSteps - 1, rank) == kScanners) {
        uint4 bits[kSteps];
#pragma unroll
        for (int u = 0; u < kSteps; u++) {
          bits[u] = from[u * kScanners];
        }
        absorb_vectors<T>(&r, bits, smoothed);
      } else {
#pragma unroll 1
        for (int u = 0; u < kSteps; u++) {
          if (t < job.row.of_step(stage * kSteps + u, rank)) {
            const uint4 bits[1] = {from[u * kScanners]};
            absorb_vectors<T>(&r, bits, smoothed);
          }
        }
      }
    }
    wait_for_cluster(&m->finished[turn.at], turn.parity ^ 1);
#pragma unroll
    for (int block = 0; block < kBlocks; block++) {
      store_counted(&m->sums[turn.at][rank * kScanners + t], &m->summed[turn.at], block, r);
    }
    turn.advance();
  }
}

/* ---- finisher ---- */

/* The sum over the row's 512 threads as block_sum has it; mine[k]: that of thread `lane` of the
 * k-th warp. */
template <int kWarps> __device__ __forceinline__ double sum_of_warps(const double (&mine)[kWarps])
{
  const int lane = threadIdx.x % kWarp;
  double of_warp = 0.0;
#pragma unroll
  for (int k = 0; k < kWarps; k++) {
    const double sum = warp_sum(mine[k]);
    of_warp = lane == k ? sum : of_warp;
  }
  return warp_sum(of_warp);
}

template <typename T>
__device__ __forceinline__ void finish_rows(const both_job<T> &job, loss_ring *m, unsigned rank,
                                            double n)
{
  constexpr int kWarps = kRowThreads / kWarp;
  const loss_job<T> &f = job.forward;
  const int lane = threadIdx.x % kWarp;
  turn_place turn = {};
  for (row_walk w(f.rule); w.more(); w.advance()) {
    if (!w.counts()) {
      if (rank == 0 && lane == 0) {
        put_skipped(f, w.row, w.target);
      }
      continue;
    }
    const float upstream = upstream_of(job.backward, w.row, n);
    if (lane == 0) {
      arrive_expecting(&m->summed[turn.at], sizeof m->sums[0]);
    }
    wait_for_cluster(&m->summed[turn.at], turn.parity);
    row_sums r[kWarps];
    float shift = -FLT_MAX;
#pragma unroll
    for (int k = 0; k < kWarps; k++) {
      r[k] = m->sums[turn.at][k * kWarp + lane];
      shift = fmaxf(shift, r[k].x);
    }
    __syncwarp();
    if (lane < kBlocks) {
      arrive_in(&m->finished[turn.at], lane);
    }
    shift = warp_max(shift);
    double mine[kWarps], sums[2] = {0.0, 0.0};
#pragma unroll
    for (int k = 0; k < kWarps; k++) {
      mine[k] = (double)(r[k].y * exp2_flushed((r[k].x - shift) * kLog2E));
    }
    sums[0] = sum_of_warps(mine);
    if (f.label_smoothing > 0) {
#pragma unroll
      for (int k = 0; k < kWarps; k++) {
        mine[k] = (double)r[k].z;
      }
      sums[1] = sum_of_warps(mine);
    }
    const float hit = __shfl_sync(kAllLanes, r[0].w, 0);
    const row_result result = finish_row(f, shift, sums, hit);
    wait_for(&m->taken[turn.at], turn.parity ^ 1);
    if (lane == 0) {
      m->facts[turn.at] = facts_of(job.backward, result.lse, upstream);
      arrive(&m->known[turn.at]);
      if (rank == 0) {
        put_row(f, w.row, result, -1);
      }
    }
    turn.advance();
  }
}

/* ---- writers ---- */

/* The gradients of a vector; `hit`: the target's element in it, or outside. */
template <typename T>
__device__ __forceinline__ uint4 gradients(uint4 bits, const row_facts &f, int hit)
{
  constexpr int kN = kLanes<T>;
  float v[kN], g[kN];
  widen<T>(v, bits);
  if (f.p_scale == 1.0f && f.spread == 0.0f) { /* the same bits with three operations fewer */
#pragma unroll
    for (int i = 0; i < kN; i++) {
      g[i] = exp2_flushed((v[i] - f.lse) * kLog2E) * f.upstream;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; i++) {
      g[i] = gradient<false>(v[i], f, 0.0f);
    }
  }
  if (hit >= 0 && hit < kN) {
    float x = v[0];
#pragma unroll
    for (int i = 1; i < kN; i++) {
      x = i == hit ? v[i] : x;
    }
    x = gradient<false>(x, f, f.hit);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      g[i] = i == hit ? x : g[i];
    }
  }
  return narrow<T>(g);
}

template <typename T>
__device__ __forceinline__ void write_rows(const both_job<T> &job, loss_ring *m, unsigned rank)
{
  constexpr int kN = kLanes<T>, kMine = kSteps * kScanners / kWriters;
  constexpr int kStepsAtOnce = kWriters / kScanners;
  const target_rule &rule = job.forward.rule;
  const int t = threadIdx.x - kFirstWriter * kWarp;
  const bool leads = t % kWarp == 0; /* its warp */
  stage_place s = {};
  turn_place turn = {};
  for (row_walk w(rule); w.more(); w.advance()) {
    uint4 *const to = reinterpret_cast<uint4 *>(job.backward.dlogits + w.row * job.backward.dstep);
    if (!w.counts()) { /* the cluster's writers share the row */
      float v[kN];
#pragma unroll
      for (int i = 0; i < kN; i++) {
        v[i] = is_ignored(rule, w.target) ? 0.0f : CUDART_NAN_F;
      }
      const uint4 bits = narrow<T>(v);
      for (int k = (int)rank * kWriters + t; k < job.row.vectors; k += kBlocks * kWriters) {
        to[k] = bits;
      }
      continue;
    }
    wait_for(&m->known[turn.at], turn.parity);
    const row_facts f = m->facts[turn.at];
    __syncwarp();
    if (leads) {
      arrive(&m->taken[turn.at]);
    }
    turn.advance();
    const int target = (int)w.target;
    int vector = t / kScanners * kRowThreads + (int)rank * kScanners + t % kScanners;
#pragma unroll 1
    for (int stage = 0; stage < job.row.stages; stage++, s.advance()) {
      uint4 bits[kMine];
      wait_for(&m->full[s.at], s.parity);
#pragma unroll
      for (int u = 0; u < kMine; u++) {
        bits[u] = m->stage[s.at][u * kWriters + t]; /* behind the row's end: what was there */
      }
      __syncwarp();
      if (leads) {
        arrive(&m->empty[s.at]);
      }
#pragma unroll
      for (int u = 0; u < kMine; u++, vector += kStepsAtOnce * kRowThreads) {
        if (vector < job.row.vectors) {
          to[vector] = gradients<T>(bits[u], f, target - vector * kN);
        }
      }
    }
  }
}

/* ---- the kernel ---- */

template <typename T>
__global__ void __launch_bounds__(kRingThreads, 1)
    cross_entropy_fwdbwd_ring_kernel(const __grid_constant__ both_job<T> job)
{
  extern __shared__ uint4 memory[];
  loss_ring *const m = reinterpret_cast<loss_ring *>(memory);
  const unsigned rank = cluster_rank();
  const int warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) {
    init_loss_ring(m);
  }
  const double n = count_items(job.forward.rule, m->counts);
  cluster_barrier(kBlocks); /* the other blocks are there, and their barriers */
  if (warp < kFinisher) {
    scan_rows(job, m, rank);
  } else if (warp == kFinisher) {
    finish_rows(job, m, rank, n);
  } else if (warp == kLoader) {
    if (threadIdx.x % kWarp == 0) {
      load_rows(job, m, rank);
    }
  } else {
    write_rows(job, m, rank);
  }
  cluster_barrier(kBlocks); /* nobody reaches into a block that is gone */
}

template <typename T>
tg_status both(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a,
               const loss_ring_plan &p)
{
  void (*const kernel)(both_job<T>) = cross_entropy_fwdbwd_ring_kernel<T>;
  const target_rule rule = TARGET_RULE(ctx, cross_entropy_fwdbwd, a);
  const both_job<T> job = {loss_job_of<T>(a, rule), dlogits_job_of<T>(a, rule), p.row};
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)kernel, kBlocks, kRingThreads, sizeof(loss_ring), &l);
  const int64_t places = ctx->device->multiprocessors / kBlocks;
  int64_t clusters = e == cudaSuccess ? clusters_at_once((const void *)kernel, l) : 1;
  if (clusters == 0) {
    return TG_UNSUPPORTED;
  }
  clusters = clusters < places ? clusters : places;
  clusters = clusters < rule.rows ? clusters : rule.rows;
  const tg_status status =
      rule.rows > 0 ? launch_clusters(ctx, e, kernel, &l, (int)clusters, job) : TG_OK;
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
  if (p.taken) {
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
  if (p.taken) {
    snprintf(
        text, bytes,
        "rows through a ring in shared memory, read once; %d blocks of %d threads a row, %d of "
        "%d stages of a ring",
        kBlocks, kRingThreads, p.row.stages, kStages);
  } else {
    describe_both(ctx, a, text, bytes);
  }
}
