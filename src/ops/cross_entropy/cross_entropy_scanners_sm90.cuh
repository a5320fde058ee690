/** Cross-entropy on Hopper (cross_entropy_sm90.cu): the loader of a block, and its scanners. */
#ifndef TGI_OPS_CROSS_ENTROPY_SCANNERS_SM90_CUH
#define TGI_OPS_CROSS_ENTROPY_SCANNERS_SM90_CUH

#include "ops/cross_entropy/cross_entropy_ring.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/* kPlain, below: neither label_smoothing nor z_loss, whose terms are then 1 and 0: the same bits
 * with fewer operations. */
template <typename T> struct both_job {
  loss_job<T> forward;
  dlogits_job<T> backward;
  loss_ring_row row;
};

/* ---- loader ---- */

template <int kBlocks, typename T>
__device__ __forceinline__ void load_rows(const both_job<T> &job, loss_ring *m, unsigned rank)
{
  using team = loss_ring_team<kBlocks>;
  loss_ring_place s = {};
  for (row_walk w(job.forward.rule, kBlocks); w.more(); w.advance()) {
    if (!w.counts()) {
      continue;
    }
    const uint4 *from =
        reinterpret_cast<const uint4 *>(job.forward.logits + w.row * job.forward.step) +
        (int)rank * team::kScanners;
#pragma unroll 1
    for (int stage = 0; stage < job.row.stages; stage++, s.advance()) {
      int count[team::kSteps], all = 0;
#pragma unroll
      for (int u = 0; u < team::kSteps; u++) {
        count[u] = job.row.of_step(stage * team::kSteps + u, rank, team::kScanners);
        all += count[u];
      }
      wait_for(&m->empty[s.at], s.parity ^ 1);
      arrive_expecting(&m->full[s.at], (unsigned)all * 16);
#pragma unroll
      for (int u = 0; u < team::kSteps; u++) {
        if (count[u] > 0) {
          bulk_load(&m->stage[s.at][u * team::kScanners],
                    from + (stage * team::kSteps + u) * kRowThreads, (unsigned)count[u] * 16,
                    &m->full[s.at]);
        }
      }
    }
  }
}

/* ---- scanners ---- */

/* A vector of elements that change no maximum and no sum of exponentials. */
template <typename T> __device__ __forceinline__ uint4 nothing()
{
  float v[kLanes<T>];
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    v[i] = -CUDART_INF_F;
  }
  return narrow<T>(v);
}

/* `absorb` of cross_entropy_fwd_rows.cuh, for N vectors at once; from the n-th on they are
 * nothing. */
template <bool kSmoothed, typename T, int N>
__device__ __forceinline__ void absorb_vectors(row_sums *r, const uint4 (&bits)[N], int n)
{
  constexpr int kN = kLanes<T>;
  float shift[N + 1], total[N];
  shift[0] = r->x;
#pragma unroll
  for (int u = 0; u < N; u++) {
    float v[kN];
    widen<T>(v, bits[u]);
#pragma unroll
    for (int half = kN / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; i++) {
        v[i] = fmaxf(v[i], v[i + half]);
      }
    }
    shift[u + 1] = fmaxf(shift[u], v[0]); /* not NaN */
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
  if (kSmoothed) {
#pragma unroll
    for (int u = 0; u < N; u++) {
      float v[kN];
      widen<T>(v, bits[u]);
#pragma unroll
      for (int i = 0; i < kN; i++) {
        r->z += u < n ? v[i] : 0.0f;
      }
    }
  }
}

template <int kBlocks, bool kPlain, typename T>
__device__ __forceinline__ void scan_rows(const both_job<T> &job, loss_ring *m, unsigned rank)
{
  using team = loss_ring_team<kBlocks>;
  constexpr int kSteps = team::kSteps;
  const loss_job<T> &f = job.forward;
  const int t = threadIdx.x;
  const bool leads = t % kWarp == 0; /* its warp */
  loss_ring_place s = {};
  unsigned parity = 0;
  for (row_walk w(f.rule, kBlocks); w.more(); w.advance()) {
    if (!w.counts()) {
      continue;
    }
    row_sums r = make_float4(-FLT_MAX, 0.0f, 0.0f, 0.0f);
    const int steps = /* of this thread */
        (job.row.vectors - (int)rank * team::kScanners - t + kRowThreads - 1) / kRowThreads;
#pragma unroll 1
    for (int stage = 0; stage < job.row.stages; stage++, s.advance()) {
      const uint4 *from = m->stage[s.at] + t;
      const int n = steps - stage * kSteps;
      uint4 bits[kSteps];
      wait_for(&m->full[s.at], s.parity);
      if (stage + 1 < job.row.stages) {
#pragma unroll
        for (int u = 0; u < kSteps; u++) {
          bits[u] = from[u * team::kScanners];
        }
      } else {
#pragma unroll
        for (int u = 0; u < kSteps; u++) {
          bits[u] = u < n ? from[u * team::kScanners] : nothing<T>();
        }
      }
      __syncwarp();
      if (leads) {
        arrive(&m->empty[s.at]);
      }
      absorb_vectors<!kPlain, T>(&r, bits, n);
    }
    wait_for_cluster(&m->finished, parity ^ 1);
#pragma unroll
    for (int block = 0; block < kBlocks; block++) {
      store_counted(&m->sums[rank * team::kScanners + t], &m->summed, block, r);
    }
    parity ^= 1;
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
