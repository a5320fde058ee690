/* Softmax on CUDA, forward.
 *
 * Method     Two passes over a row that is read once. The first finds the largest element and the
 *            sum of the exponentials less the largest so far (Milakov & Gimelshein 2018,
 *            arXiv:1805.02867), first in each thread, then over the row's threads; the second makes
 *            the exponentials again, from where softmax_rows.cuh keeps the row.
 * Work       A warp for a row of up to 2 KiB, a block of up to 1024 threads for a longer one.
 * Bound      Memory: reads x, writes y. Rows past what registers and shared memory hold (bf16 on an
 *            H200: 147456 columns) are read again beyond that.
 */
#include "cuda/exp2.cuh"
#include "ops/softmax/softmax_rows.cuh"

namespace
{

template <typename T> struct fwd_rows {
  const T *x;
  T *y;
  int64_t x_step, y_step, rows, cols, vectors;
  int threads, block_rows, shared;
  float high, low; /* scale * log2(e) in two parts */
  float floor;     /* where the exponential has vanished */
};

struct fwd_scratch {
  float top[kWarp];
  double sum[kWarp];
};

static_assert(sizeof(fwd_scratch) <= kScratchBytes, "the scratch of a block");

/* The largest element, and the sum of exponentials less it. */
struct fwd_sum {
  float top;
  double sum;
};

/* e^(scale * d) for d <= 0, or NaN. */
template <typename T> __device__ __forceinline__ float exponential(const fwd_rows<T> &r, float d)
{
  if (sizeof(T) > 2) { /* one step finer than 16-bit results can tell */
    const float z = d < r.floor ? r.floor : d;
    return exp2_flushed(fmaf(z, r.low, z * r.high));
  }
  return exp2_flushed(d * r.high);
}

/* NaN counts in the sum, not in the largest element. */
template <typename T>
__device__ __forceinline__ void add_vector(const fwd_rows<T> &r, fwd_sum *s, uint4 raw)
{
  float v[kLanes<T>], most = s->top, part = 0.0f;
  widen(v, raw, T());
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    most = fmaxf(most, v[i]);
  }
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    part += exponential(r, v[i] - most);
  }
  s->sum = s->sum * (double)exponential(r, s->top - most) + (double)part;
  s->top = most;
}

/* Over the threads of a row. */
template <typename T>
__device__ __forceinline__ fwd_sum join(const fwd_rows<T> &r, fwd_sum s, fwd_scratch *scratch)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = r.threads / kWarp;
  float top = warp_max(s.top);
  double sum = warp_sum(s.sum * (double)exponential(r, s.top - top));
  if (warps > 1) {
    if (lane == 0) {
      scratch->top[warp] = top;
      scratch->sum[warp] = sum;
    }
    __syncthreads();
    const float other = lane < warps ? scratch->top[lane] : -FLT_MAX;
    const double others = lane < warps ? scratch->sum[lane] : 0.0;
    top = warp_max(other);
    sum = warp_sum(others * (double)exponential(r, other - top));
  }
  return {top, sum};
}

template <bool kAligned, typename T>
__device__ __forceinline__ void write_vector(const fwd_rows<T> &r, T *y, index_of<kAligned> j,
                                             uint4 raw, float top, float by)
{
  float v[kLanes<T>];
  widen(v, raw, T());
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    v[i] = exponential(r, v[i] - top) * by;
  }
  put<kAligned, T>(y, j, (index_of<kAligned>)r.cols, v);
}

template <typename T, int kKept, bool kAligned>
__device__ __forceinline__ void softmax_row(const fwd_rows<T> &r, int64_t row, uint4 *held,
                                            fwd_scratch *scratch)
{
  using index = index_of<kAligned>;
  const T *const x = r.x + row * r.x_step;
  T *const y = r.y + row * r.y_step;
  const index first = (threadIdx.x & (r.threads - 1)) * kLanes<T>;
  const index step = (index)r.threads * kLanes<T>, cols = (index)r.cols;
  const int shared = kShares<kKept> ? r.shared : 0;
  uint4 kept[kKept + 1];
  held += threadIdx.x;
#pragma unroll 1
  for (int v = 0; v < shared; v++) {
    hold<kAligned>(held + v * blockDim.x, x, first + (kKept + v) * step, cols, -CUDART_INF_F);
  }
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    kept[v] = fetch<kAligned>(x, first + v * step, cols, -CUDART_INF_F);
  }
  /* Finite, as a row may be -infinity alone: its sum is 0 then, and its results NaN. */
  fwd_sum s = {-FLT_MAX, 0.0};
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    add_vector(r, &s, kept[v]);
  }
  if (kShares<kKept>) {
    hold_wait();
#pragma unroll 1
    for (int v = 0; v < shared; v++) {
      add_vector(r, &s, held[v * blockDim.x]);
    }
#pragma unroll 1
    for (index v = kKept + shared; v < r.vectors; v++) {
      add_vector(r, &s, fetch<kAligned>(x, first + v * step, cols, -CUDART_INF_F));
    }
  }
  s = join(r, s, scratch);
  const float by = 1.0f / (float)s.sum;
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    write_vector<kAligned>(r, y, first + v * step, kept[v], s.top, by);
  }
  if (kShares<kKept>) {
#pragma unroll 1
    for (int v = 0; v < shared; v++) {
      write_vector<kAligned>(r, y, first + (kKept + v) * step, held[v * blockDim.x], s.top, by);
    }
#pragma unroll 1
    for (index v = kKept + shared; v < r.vectors; v++) {
      const index j = first + v * step;
      write_vector<kAligned>(r, y, j, fetch<kAligned>(x, j, cols, -CUDART_INF_F), s.top, by);
    }
  }
}

/** A loop only where there are more rows than a grid has places for. */
template <typename T, int kKept, bool kAligned, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) softmax_fwd_kernel(const fwd_rows<T> r)
{
  extern __shared__ uint4 memory[];
  fwd_scratch *const scratch = reinterpret_cast<fwd_scratch *>(memory);
  uint4 *const held = memory + kScratchBytes / sizeof *memory;
  for (int64_t first = (int64_t)blockIdx.x * r.block_rows; first < r.rows;
       first += (int64_t)gridDim.x * r.block_rows) {
    const int64_t row = first + threadIdx.x / (unsigned)r.threads;
    if (row < r.rows) {
      softmax_row<T, kKept, kAligned>(r, row, held, scratch);
    }
    __syncthreads(); /* the scratch is free again */
  }
}

softmax_plan plan_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  return plan_softmax(ctx, &a->x, 1, rows_aligned(&a->x, 16) && rows_aligned(&a->y, 16));
}

/* Blocks of kShortThreads on a multiprocessor; f32 takes a few registers more. */
template <typename T> constexpr int kShortBlocks = sizeof(T) == 4 ? 2 : 3;

template <typename T> tg_status run_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  const double factor = (double)a->scale * 1.44269504088896340736;
  const softmax_plan p = plan_fwd(ctx, a);
  fwd_rows<T> r = {};
  r.x = (const T *)a->x.data;
  r.y = (T *)a->y.data;
  r.x_step = tgi_stride(&a->x, 0);
  r.y_step = tgi_stride(&a->y, 0);
  r.rows = a->x.shape[0];
  r.cols = a->x.shape[1];
  r.vectors = p.vectors;
  r.threads = p.threads;
  r.block_rows = p.rows;
  r.shared = p.shared;
  r.high = (float)(factor < FLT_MAX ? factor : FLT_MAX);
  r.low = (float)(factor - (double)r.high);
  r.floor = -105.0f / a->scale;
  return launch(ctx,
                p.kept == 0   ? softmax_fwd_kernel<T, 0, false, kLongThreads, 1>
                : p.kept == 1 ? softmax_fwd_kernel<T, 1, true, 256, 8>
                : p.kept == 2 ? softmax_fwd_kernel<T, 2, true, 256, 6>
                : p.threads <= kShortThreads
                    ? softmax_fwd_kernel<T, 4, true, kShortThreads, kShortBlocks<T>>
                    : softmax_fwd_kernel<T, 4, true, kLongThreads, 1>,
                grid_of(divide_up(r.rows, p.rows)), p.threads * p.rows, p.shared_bytes, r);
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
