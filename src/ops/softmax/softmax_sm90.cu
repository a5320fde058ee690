/* Softmax on Hopper, forward and backward, of long rows.
 *
 * Method     As softmax.cu and softmax_bwd.cu, but memory never waits for a pass: a thread asks for
 *            its vectors of the next rows, in order, into a ring of places in shared memory, as
 *            soon as one is free. A place is free when its vector has gone to a register (the first
 *            128 KiB of a block's part of a row) or has been written as a result (the rest).
 * Work       A block of 1024 threads on each multiprocessor, or a cluster of two blocks for rows
 *            of more than 128 KiB; each takes every n-th row. Vectors of a row lie round its
 *            threads, so blocks of a cluster have halves; they hand each other the sums of their
 *            warps through distributed shared memory, one cluster barrier a row.
 * Bound      Memory: each input is read once up to 512 KiB a row.
 * Takes      Rows of 96 to 512 KiB (of all inputs), of any alignment and dtype: what is taken, and
 *            so the order of sums, depends on the width and the dtype alone.
 */
#include "ops/kernels.cuh"
#include "ops/softmax/softmax_exp.cuh"
#include "ops/softmax/softmax_ring.cuh"

namespace
{

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads, 1) softmax_fwd_ring_kernel(const ring_rows<T, 1> r)
{
  using ring_type = ring<T, 1, kVectors>;
  constexpr int kKept = ring_type::kKept, kSteps = ring_type::kSteps, kRing = ring_type::kRing;
  extern __shared__ uint4 memory[];
  ring_memory *const m = reinterpret_cast<ring_memory *>(memory);
  const unsigned rank = cluster_rank(), blocks = cluster_blocks();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  ring_type g = start_ring<T, 1, kVectors>(r, m->places, rank, blocks, -CUDART_INF_F);
  cluster_barrier(blocks); /* the other block is there */
  for (int turn = 0; g.row < r.rows; turn ^= 1, g.next_row()) {
    g.forget();
    uint4 kept[kKept];
    each<0, kKept>([&](auto i) {
      constexpr int v = decltype(i)::value;
      wait_for_copies<kRing - 1>();
      kept[v] = *g.at(v, 0);
      g.ask(v, (v + kRing) / kSteps, (v + kRing) % kSteps);
    });
    g.ask_rests(0, kKept);
    softmax_sum<T> s;
    add_vectors<kKept, false>(r.by, &s, [&](int k) { return kept[k]; });
    wait_for_copies<kRing + kKept - kSteps>();
#pragma unroll 1
    for (int v = kKept; v < kSteps; v += 2) {
      const uint4 pair[2] = {*g.at(v, 0), *g.at(v + 1, 0)};
      add_vectors<2, false>(r.by, &s, [&](int k) { return pair[k]; });
    }
    const float top = warp_max(s.top);
    s.sum = warp_sum(s.sum * exponential<T>(r.by, s.top - top));
    if (lane < (int)blocks) {
      store_part(&m->parts[turn][rank * kWarp + warp], lane, {(double)s.sum, top});
    }
    cluster_barrier(blocks);
    const warp_part a = m->parts[turn][lane];
    const warp_part b = blocks > 1 ? m->parts[turn][kWarp + lane] : warp_part{0.0, -FLT_MAX};
    s.top = warp_max(fmaxf(a.top, b.top));
    s.sum = a.sum * exponential<T>(r.by, a.top - s.top);
    s.sum += b.sum * exponential<T>(r.by, b.top - s.top);
    s.sum = warp_sum(s.sum);
    const float divisor = softmax_divisor(s);
    g.forget();
    each<0, kKept>([&](auto i) {
      constexpr int v = decltype(i)::value;
      float results[kLanes<T>];
      softmax_results<T>(r.by, results, kept[v], s.top, divisor);
      g.put_results(v, results);
    });
#pragma unroll 1
    for (int v = kKept; v < kSteps; v++) {
      float results[kLanes<T>];
      softmax_results<T>(r.by, results, *g.at(v, 0), s.top, divisor);
      g.ask(v, (v + kRing) / kSteps, (v + kRing) % kSteps);
      g.put_results(v, results);
    }
    g.ask_rests(kKept, kSteps);
  }
}

/* dy times y, added to two sums. */
template <typename T>
__device__ __forceinline__ void add_products(float (&sum)[2], const uint4 (&raw)[2])
{
  float dy[kLanes<T>], y[kLanes<T>];
  widen(dy, raw[0], T());
  widen(y, raw[1], T());
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    sum[i % 2] = fmaf(dy[i], y[i], sum[i % 2]);
  }
}

template <typename T>
__device__ __forceinline__ void gradients(float (&dx)[kLanes<T>], const uint4 (&raw)[2],
                                          float scale, float dot)
{
  float y[kLanes<T>];
  widen(dx, raw[0], T());
  widen(y, raw[1], T());
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    dx[i] = y[i] * scale * (dx[i] - dot);
  }
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads, 1) softmax_bwd_ring_kernel(const ring_rows<T, 2> r)
{
  using ring_type = ring<T, 2, kVectors>;
  constexpr int kKept = ring_type::kKept, kSteps = ring_type::kSteps, kRing = ring_type::kRing;
  extern __shared__ uint4 memory[];
  ring_memory *const m = reinterpret_cast<ring_memory *>(memory);
  const unsigned rank = cluster_rank(), blocks = cluster_blocks();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  ring_type g = start_ring<T, 2, kVectors>(r, m->places, rank, blocks, 0.0f);
  cluster_barrier(blocks); /* the other block is there */
  for (int turn = 0; g.row < r.rows; turn ^= 1, g.next_row()) {
    g.forget();
    uint4 kept[kKept][2];
    float part[2] = {0.0f, 0.0f};
    each<0, kKept>([&](auto i) {
      constexpr int v = decltype(i)::value;
      wait_for_copies<kRing - 1>();
      kept[v][0] = *g.at(v, 0);
      kept[v][1] = *g.at(v, 1);
      g.ask(v, (v + kRing) / kSteps, (v + kRing) % kSteps);
      add_products<T>(part, kept[v]);
    });
    g.ask_rests(0, kKept);
    wait_for_copies<kRing + kKept - kSteps>();
    g.forget();
#pragma unroll 1
    for (int v = kKept; v < kSteps; v++) {
      const uint4 both[2] = {*g.at(v, 0), *g.at(v, 1)};
      add_products<T>(part, both);
    }
    const double sum = warp_sum((double)part[0] + (double)part[1]);
    if (lane < (int)blocks) {
      store_part(&m->parts[turn][rank * kWarp + warp], lane, {sum, 0.0f});
    }
    cluster_barrier(blocks);
    const double other = blocks > 1 ? m->parts[turn][kWarp + lane].sum : 0.0;
    const float dot = (float)warp_sum(m->parts[turn][lane].sum + other);
    g.forget();
    each<0, kKept>([&](auto i) {
      constexpr int v = decltype(i)::value;
      float dx[kLanes<T>];
      gradients<T>(dx, kept[v], r.scale, dot);
      g.put_results(v, dx);
    });
    g.forget();
#pragma unroll 1
    for (int v = kKept; v < kSteps; v++) {
      const uint4 both[2] = {*g.at(v, 0), *g.at(v, 1)};
      float dx[kLanes<T>];
      gradients<T>(dx, both, r.scale, dot);
      g.ask(v, (v + kRing) / kSteps, (v + kRing) % kSteps);
      g.put_results(v, dx);
    }
    g.ask_rests(kKept, kSteps);
  }
}

/* ---- host ---- */

ring_plan plan_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  return plan_ring(ctx, &a->x, 1, rows_aligned(&a->x, 16) && rows_aligned(&a->y, 16));
}

ring_plan plan_bwd(const tg_context *ctx, const tg_softmax_bwd_args *a)
{
  return plan_ring(ctx, &a->y, 2,
                   rows_aligned(&a->dy, 16) && rows_aligned(&a->y, 16) && rows_aligned(&a->dx, 16));
}

template <typename T>
tg_status run_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a, const ring_plan &p)
{
  ring_rows<T, 1> r = {};
  r.in[0] = (const T *)a->x.data;
  r.in_step[0] = tgi_stride(&a->x, 0);
  r.out = (T *)a->y.data;
  r.out_step = tgi_stride(&a->y, 0);
  r.rows = (int)a->x.shape[0];
  r.cols = (int)a->x.shape[1];
  r.aligned = p.aligned;
  r.by = softmax_factors_of(a->scale);
  return launch_ring(ctx,
                     p.vectors == 4    ? softmax_fwd_ring_kernel<T, 4>
                     : p.vectors == 8  ? softmax_fwd_ring_kernel<T, 8>
                     : p.vectors == 12 ? softmax_fwd_ring_kernel<T, 12>
                                       : softmax_fwd_ring_kernel<T, 16>,
                     p, r);
}

template <typename T>
tg_status run_bwd(const tg_context *ctx, const tg_softmax_bwd_args *a, const ring_plan &p)
{
  ring_rows<T, 2> r = {};
  r.in[0] = (const T *)a->dy.data;
  r.in[1] = (const T *)a->y.data;
  r.in_step[0] = tgi_stride(&a->dy, 0);
  r.in_step[1] = tgi_stride(&a->y, 0);
  r.out = (T *)a->dx.data;
  r.out_step = tgi_stride(&a->dx, 0);
  r.rows = (int)a->y.shape[0];
  r.cols = (int)a->y.shape[1];
  r.aligned = p.aligned;
  r.scale = a->scale;
  return launch_ring(ctx,
                     p.vectors == 4    ? softmax_bwd_ring_kernel<T, 4>
                     : p.vectors == 8  ? softmax_bwd_ring_kernel<T, 8>
                     : p.vectors == 12 ? softmax_bwd_ring_kernel<T, 12>
                                       : softmax_bwd_ring_kernel<T, 16>,
                     p, r);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(softmax_fwd)(const tg_context *, const tg_softmax_fwd_args *)
{
  return 0;
}

extern "C" tg_status TGI_KERNEL(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  const ring_plan p = plan_fwd(ctx, a);
  tg_status status = TG_UNSUPPORTED;
  if (p.taken) {
    SWITCH_FLOAT(a->x.dtype, T, status = run_fwd<T>(ctx, a, p));
  }
  return status;
}

extern "C" tg_status TGI_KERNEL(softmax_bwd)(const tg_context *ctx, const tg_softmax_bwd_args *a)
{
  const ring_plan p = plan_bwd(ctx, a);
  tg_status status = TG_UNSUPPORTED;
  if (p.taken) {
    SWITCH_FLOAT(a->y.dtype, T, status = run_bwd<T>(ctx, a, p));
  }
  return status;
}

/* For other rows these are the words of the next entry. */
extern "C" void TGI_PLAN(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a,
                                      char *text, size_t bytes)
{
  const ring_plan p = plan_fwd(ctx, a);
  const softmax_plan next = plan_softmax(ctx, &a->x, 1, p.aligned);
  if (p.taken) {
    describe_ring(p, text, bytes);
  } else {
    describe_softmax(&next, text, bytes);
  }
}

extern "C" void TGI_PLAN(softmax_bwd)(const tg_context *ctx, const tg_softmax_bwd_args *a,
                                      char *text, size_t bytes)
{
  const ring_plan p = plan_bwd(ctx, a);
  const softmax_plan next = plan_softmax(ctx, &a->y, 2, p.aligned);
  if (p.taken) {
    describe_ring(p, text, bytes);
  } else {
    describe_softmax(&next, text, bytes);
  }
}
