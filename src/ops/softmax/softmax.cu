/* Softmax on CUDA, forward.
 *
 * Method     Two passes over a row that is read once. The first finds the largest element and the
 *            sum of the exponentials less the largest so far (Milakov & Gimelshein 2018,
 *            arXiv:1805.02867), four vectors at a time in a thread, then over the row's threads;
 *            the second makes the exponentials again, from where softmax_rows.cuh keeps the row.
 * Work       A warp for a row of up to 512 bytes, a block of 64 to 1024 threads for a longer one: a
 *            vector or two of a thread up to 16 KiB, for few rows last as long as one takes. Rows
 *            that are no whole vectors take the path of unaligned ones.
 * Bound      Memory: reads x, writes y. Rows past what registers and shared memory hold (bf16 on an
 *            H200: 147456 columns) are read again beyond that, twice.
 */
#include "ops/softmax/softmax_exp.cuh"

namespace
{

constexpr int kGroup = kMostKept; /* vectors that are added with the same largest element */

constexpr int kFewWarps = 8; /* whose sums a thread takes one after the other */

/* A launch has its arguments in memory that no multiprocessor has in its cache. What short rows
 * need comes first: it is a line of that cache, which holds 48 bytes of arguments. */
template <typename T> struct fwd_rows {
  const T *x;
  T *y;
  int64_t x_step, y_step, rows;
  int32_t short_cols; /* of rows of whole vectors */
  float high;         /* by.high */
  softmax_factors by;
  int threads, block_rows, shared;
  int64_t vectors, cols;
};

/* How rows lie on a block. */
enum fwd_block { kWarpRows, kOneRow, kAsPlanned };

template <fwd_block kBlock, typename T>
__device__ __forceinline__ int threads_of(const fwd_rows<T> &r)
{
  return kBlock == kWarpRows ? kWarp : kBlock == kOneRow ? (int)blockDim.x : r.threads;
}

template <typename T> struct fwd_scratch {
  typename sum_of<T>::type sum[kWarp];
  float top[kWarp];
};

static_assert(sizeof(fwd_scratch<float>) <= kScratchBytes, "the scratch of a block");

/* The largest of a warp's; none is NaN. */
__device__ __forceinline__ float warp_top(float v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto ordered = [](int i) { return i ^ (i >> 31 & INT32_MAX); }; /* as the floats are */
  return __int_as_float(ordered(__reduce_max_sync(kAllLanes, ordered(__float_as_int(v)))));
#else
  return warp_max(v);
#endif
}

/* Over the `threads` of a row with kKept vectors of a thread in registers. */
template <typename T, int kKept>
__device__ __forceinline__ softmax_sum<T> join(const softmax_factors &by, softmax_sum<T> s,
                                               int threads, fwd_scratch<T> *scratch)
{
  constexpr bool kAlwaysMany = kKept == kMostKept, kAlwaysFew = kKept == 1; /* as planned */
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = threads / kWarp;
  const float top = warp_top(s.top);
  s.sum = warp_sum(s.sum * exponential<T>(by, s.top - top));
  s.top = top;
  if (warps == 1) {
    return s;
  }
  if (lane == 0) {
    scratch->top[warp] = top;
    scratch->sum[warp] = s.sum;
  }
  __syncthreads();
  if (kAlwaysMany || (!kAlwaysFew && warps > kFewWarps)) {
    const float other = lane < warps ? scratch->top[lane] : -FLT_MAX;
    s.sum = lane < warps ? scratch->sum[lane] : 0;
    s.top = warp_max(other); /* a register less than warp_top */
    s.sum = warp_sum(s.sum * exponential<T>(by, other - s.top));
    return s;
  }
  const int w = lane % kFewWarps; /* each of these lanes' parts of a warp finds the same */
  const float other = w < warps ? scratch->top[w] : -FLT_MAX;
  s.sum = w < warps ? scratch->sum[w] : 0;
  s.top = warp_top(other);
  s.sum *= exponential<T>(by, other - s.top);
#pragma unroll
  for (int step = kFewWarps / 2; step > 0; step /= 2) {
    s.sum += __shfl_xor_sync(kAllLanes, s.sum, step);
  }
  return s;
}

/* A vector after the end of a row. */
template <typename T> __device__ __forceinline__ uint4 after_end()
{
  const uint32_t v = to_bits<T>(-CUDART_INF_F) * (sizeof(T) == 2 ? 0x10001u : 1u);
  return {v, v, v, v};
}

/* As those of softmax_rows.cuh, where kAligned means whole vectors too: the way around costs
 * registers that a row needs. */
template <bool kAligned, typename T>
__device__ __forceinline__ uint4 fetch_vector(const T *x, index_of<kAligned> j,
                                              index_of<kAligned> cols)
{
  if constexpr (kAligned) {
    return j < cols ? *reinterpret_cast<const uint4 *>(x + j) : after_end<T>();
  } else {
    return fetch<false>(x, j, cols, -CUDART_INF_F);
  }
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
  if constexpr (kAligned) {
    if (j < cols) {
      store_vector(y + j, v);
    }
  } else {
    put<false, T>(y, j, cols, v);
  }
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
__device__ __forceinline__ void softmax_row(const fwd_rows<T> &r, int64_t row, int threads,
                                            uint4 *held, fwd_scratch<T> *scratch)
{
  using index = index_of<kAligned>;
  const T *const x = r.x + row * r.x_step;
  T *const y = r.y + row * r.y_step;
  index first = (threadIdx.x & (threads - 1)) * kLanes<T>;
  const index step = (index)threads * kLanes<T>;
  const index cols = kAligned ? (index)r.short_cols : (index)r.cols;
  const int shared = kShares<kKept> ? r.shared : 0, stride = blockDim.x;
  uint4 kept[kKept + (kKept == 0)];
  const softmax_factors by = {kShares<kKept> ? r.by.high : r.high, r.by.low, r.by.floor};
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
  if (kShares<kKept>) {
    hold_wait();
#pragma unroll 1
    for (index v = kKept; v < r.vectors; v += kGroup) {
      add_vectors<kGroup, true>(by, &s, [&](int i) {
        if (v + i < kKept + shared) {
          return held[((int)v - kKept + i) * stride];
        }
        return kReadsTwice ? fetch_vector<kAligned>(x, first + (v + i) * step, cols)
                           : after_end<T>();
      });
    }
  }
  s = join<T, kKept>(by, s, threads, scratch);
  const float divisor = softmax_divisor(s);
  forget(first);
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    write_vector<kAligned>(by, y, first + v * step, cols, kept[v], s.top, divisor);
  }
  if (kShares<kKept>) {
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
}

/** A loop only where there are more rows than a grid has places for. */
template <typename T, int kKept, bool kAligned, fwd_block kBlock, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) softmax_fwd_kernel(const fwd_rows<T> r)
{
  extern __shared__ uint4 memory[];
  fwd_scratch<T> *const scratch = reinterpret_cast<fwd_scratch<T> *>(memory);
  uint4 *const held = memory + kScratchBytes / sizeof *memory;
  const int threads = threads_of<kBlock>(r);
  const int rows = kBlock == kWarpRows ? (int)blockDim.x / kWarp
                   : kBlock == kOneRow ? 1
                                       : r.block_rows;
  for (int64_t first = (int64_t)blockIdx.x * rows; first < r.rows;) {
    const int64_t row = first + (kBlock == kOneRow ? 0 : threadIdx.x / (unsigned)threads);
    if (row < r.rows) {
      softmax_row<T, kKept, kAligned, kThreads == kLongThreads>(r, row, threads, held, scratch);
    }
    first += (int64_t)gridDim.x * rows;
    if (kShares<kKept> || first < r.rows) { /* the latter costs registers */
      __syncthreads();                      /* the scratch is free again */
    }
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

template <typename T> tg_status run_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  const softmax_plan p = plan_fwd(ctx, a);
  fwd_rows<T> r = {};
  r.x = (const T *)a->x.data;
  r.y = (T *)a->y.data;
  r.x_step = tgi_stride(&a->x, 0);
  r.y_step = tgi_stride(&a->y, 0);
  r.rows = a->x.shape[0];
  r.cols = a->x.shape[1];
  r.short_cols = (int32_t)(r.cols < kMostCols ? r.cols : kMostCols);
  r.vectors = p.vectors;
  r.threads = p.threads;
  r.block_rows = p.rows;
  r.shared = p.shared;
  r.by = softmax_factors_of(a->scale);
  r.high = r.by.high;
  constexpr int kShort = kShortThreads, kLong = kLongThreads;
  return launch(ctx,
                p.kept == 0   ? softmax_fwd_kernel<T, 0, false, kAsPlanned, kLong, 1>
                : p.rows > 1  ? softmax_fwd_kernel<T, 1, true, kWarpRows, 256, 8>
                : p.kept == 1 ? softmax_fwd_kernel<T, 1, true, kOneRow, 256, 8>
                : p.kept == 2 ? softmax_fwd_kernel<T, 2, true, kOneRow, kShort, 3>
                : p.threads <= kShort && p.vectors <= p.kept + p.shared
                    ? softmax_fwd_kernel<T, 4, true, kAsPlanned, kShort, kShortBlocks<T>>
                    : softmax_fwd_kernel<T, 4, true, kOneRow, kLong, 1>,
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
