/* Softmax on CUDA, forward.
 *
 * Method     Rows of up to 16 KiB: softmax_short.cuh. Longer ones: two passes over a row that is
 *            read once. The first finds the largest element and the sum of the exponentials less
 *            the largest so far (Milakov & Gimelshein 2018, arXiv:1805.02867), four vectors at a
 *            time in a thread, then over the row's threads; the second makes the exponentials
 *            again, from where softmax_rows.cuh keeps the row.
 * Work       A warp for a row of up to 1 KiB, a block of 128 to 512 threads with a vector or two
 *            each up to 16 KiB, of 512 or 1024 for a longer one. Rows that are no whole vectors
 *            take the path of unaligned ones.
 * Bound      Memory: reads x, writes y. Rows past what registers and shared memory hold (bf16 on
 *            an H200: 147456 columns) are read again beyond that, twice.
 */
#include "ops/kernels.cuh"
#include "ops/softmax/softmax_short.cuh"

namespace
{

constexpr int kGroup = kMostKept; /* vectors that are added with the same largest element */

template <typename T> struct fwd_rows {
  const T *x;
  T *y;
  int64_t x_step, y_step, rows, cols;
  softmax_factors by;
  int threads; /* of a block: blockDim.x takes registers */
  int shared;
  int64_t vectors;
};

template <typename T> struct fwd_scratch {
  typename sum_of<T>::type sum[kWarp];
  float top[kWarp];
};

static_assert(sizeof(fwd_scratch<float>) <= kScratchBytes, "the scratch of a block");

/* Over a block. */
template <typename T>
__device__ __forceinline__ softmax_sum<T> join(const softmax_factors &by, softmax_sum<T> s,
                                               fwd_scratch<T> *scratch)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const float top = warp_top(s.top);
  s.sum = warp_sum(s.sum * exponential<T>(by, s.top - top));
  if (lane == 0) {
    scratch->top[warp] = top;
    scratch->sum[warp] = s.sum;
  }
  __syncthreads();
  const float other = lane < warps ? scratch->top[lane] : -FLT_MAX;
  s.sum = lane < warps ? scratch->sum[lane] : 0;
  s.top = warp_max(other); /* a register less than warp_top */
  s.sum = warp_sum(s.sum * exponential<T>(by, other - s.top));
  return s;
}

template <bool kAligned, typename T>
__device__ __forceinline__ void hold_vector(uint4 *place, const T *x, index_of<kAligned> j,
                                            index_of<kAligned> cols)
{
  if (kAligned && j < cols) {
    hold<kAligned>(place, x, j, j + kLanes<T>, -CUDART_INF_F);
  } else {
    *place = fetch_vector<kAligned>(x, j, cols);
  }
}

template <bool kAligned, typename T>
__device__ __forceinline__ void write_vector(const softmax_factors &by, T *y, index_of<kAligned> j,
                                             index_of<kAligned> cols, uint4 raw, float top,
                                             float divisor)
{
  float v[kLanes<T>];
  softmax_results<T>(by, v, raw, top, divisor);
  put_vector<kAligned>(y, j, cols, v);
}

/* Hides where a value is from: what the compiler would keep from before takes registers. */
__device__ __forceinline__ void forget(int32_t &v)
{
  asm volatile("" : "+r"(v));
}

__device__ __forceinline__ void forget(int64_t &v)
{
  asm volatile("" : "+l"(v));
}

template <typename T, int kKept, bool kAligned, bool kReadsTwice>
__device__ __forceinline__ void softmax_row(const fwd_rows<T> &r, int64_t row, uint4 *held,
                                            fwd_scratch<T> *scratch)
{
  using index = index_of<kAligned>;
  const T *const x = r.x + row * r.x_step;
  T *const y = r.y + row * r.y_step;
  index first = (threadIdx.x & (r.threads - 1)) * kLanes<T>;
  const index step = (index)r.threads * kLanes<T>;
  const index cols = (index)r.cols;
  const int shared = r.shared, stride = blockDim.x;
  uint4 kept[kKept + (kKept == 0)];
  const softmax_factors by = r.by;
  held += threadIdx.x;
#pragma unroll 1
  for (int v = 0; v < shared; v++) {
    hold_vector<kAligned>(held + v * stride, x, first + (kKept + v) * step, cols);
  }
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    kept[v] = fetch_vector<kAligned>(x, first + v * step, cols);
  }
  softmax_sum<T> s;
  if constexpr (kKept > 0) {
    add_vectors<kKept, false>(by, &s, [&](int i) { return kept[i]; });
  }
  forget(first);
  hold_wait();
#pragma unroll 1
  for (index v = kKept; v < r.vectors; v += kGroup) {
    add_vectors<kGroup, true>(by, &s, [&](int i) {
      if (v + i < kKept + shared) {
        return held[((int)v - kKept + i) * stride];
      }
      return kReadsTwice ? fetch_vector<kAligned>(x, first + (v + i) * step, cols) : after_end<T>();
    });
  }
  s = join<T>(by, s, scratch);
  const float divisor = softmax_divisor(s);
  forget(first);
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    write_vector<kAligned>(by, y, first + v * step, cols, kept[v], s.top, divisor);
  }
#pragma unroll 1
  for (int v = 0; v < shared; v++) {
    write_vector<kAligned>(by, y, first + (kKept + v) * step, cols, held[v * stride], s.top,
                           divisor);
  }
#pragma unroll 1
  for (index v = kKept + shared; kReadsTwice && v < r.vectors; v++) {
    const index j = first + v * step;
    write_vector<kAligned>(by, y, j, cols, fetch_vector<kAligned>(x, j, cols), s.top, divisor);
  }
}

/** A loop only where there are more rows than a grid has places for. */
template <typename T, int kKept, bool kAligned, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, resident_blocks(kThreads, kBlocks))
    softmax_fwd_kernel(const fwd_rows<T> r)
{
  extern __shared__ uint4 memory[];
  fwd_scratch<T> *const scratch = reinterpret_cast<fwd_scratch<T> *>(memory);
  uint4 *const held = memory + kScratchBytes / sizeof *memory;
  for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x) {
    softmax_row<T, kKept, kAligned, kThreads == kLongThreads>(r, row, held, scratch);
    __syncthreads(); /* the scratch is free again */
  }
}

softmax_plan plan_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  const bool whole = a->x.shape[1] * (int64_t)tg_dtype_bytes(a->x.dtype) % 16 == 0;
  return plan_softmax(ctx, &a->x, 1, whole && rows_aligned(&a->x, 16) && rows_aligned(&a->y, 16));
}

/* Blocks of kShortThreads on a multiprocessor, that keep all a thread has; f32 takes a few
 * registers more, and so do conversions without instructions for them. */
template <typename T> constexpr int kShortBlocks = sizeof(T) == 4 || TGI_VIRTUAL < 80 ? 2 : 3;

template <typename T>
tg_status run_long(const tg_context *ctx, const tg_softmax_fwd_args *a, const softmax_plan &p)
{
  fwd_rows<T> r = {};
  r.x = (const T *)a->x.data;
  r.y = (T *)a->y.data;
  r.x_step = tgi_stride(&a->x, 0);
  r.y_step = tgi_stride(&a->y, 0);
  r.rows = a->x.shape[0];
  r.cols = a->x.shape[1];
  r.vectors = p.vectors;
  r.threads = p.threads;
  r.shared = p.shared;
  r.by = softmax_factors_of(a->scale);
  constexpr int kShort = kShortThreads, kLong = kLongThreads;
  return launch(ctx,
                p.kept == 0 ? softmax_fwd_kernel<T, 0, false, kLong, 1>
                : p.threads <= kShort && p.vectors <= p.kept + p.shared
                    ? softmax_fwd_kernel<T, 4, true, kShort, kShortBlocks<T>>
                    : softmax_fwd_kernel<T, 4, true, kLong, 1>,
                grid_of(r.rows), p.threads, p.shared_bytes, r);
}

template <typename T, int kVectors, bool kAligned>
tg_status launch_short(const tg_context *ctx, const softmax_plan &p, const short_rows<T> &r)
{
  return launch(ctx,
                p.threads == kWarp ? softmax_fwd_short_kernel<T, kVectors, kAligned, true>
                                   : softmax_fwd_short_kernel<T, kVectors, kAligned, false>,
                grid_of(divide_up(r.rows, p.rows)), p.threads * p.rows, 0, r);
}

template <typename T>
tg_status run_short(const tg_context *ctx, const tg_softmax_fwd_args *a, const softmax_plan &p)
{
  short_rows<T> r = {};
  r.x = (const T *)a->x.data;
  r.y = (T *)a->y.data;
  r.x_step = tgi_stride(&a->x, 0);
  r.y_step = tgi_stride(&a->y, 0);
  r.rows = a->x.shape[0];
  r.cols = (int32_t)a->x.shape[1];
  r.by = softmax_factors_of(a->scale);
  r.high = r.by.high;
  if (p.vectors == 1) {
    return p.aligned ? launch_short<T, 1, true>(ctx, p, r) : launch_short<T, 1, false>(ctx, p, r);
  }
  return p.aligned ? launch_short<T, 2, true>(ctx, p, r) : launch_short<T, 2, false>(ctx, p, r);
}

template <typename T> tg_status run_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  const softmax_plan p = plan_fwd(ctx, a);
  return p.vectors <= kShortVectors ? run_short<T>(ctx, a, p) : run_long<T>(ctx, a, p);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(softmax_fwd)(const tg_context *, const tg_softmax_fwd_args *)
{
  return 0;
}

extern "C" tg_status TGI_KERNEL(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = run_fwd<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a,
                                      char *text, size_t bytes)
{
  const softmax_plan p = plan_fwd(ctx, a);
  describe_softmax(&p, text, bytes);
}
