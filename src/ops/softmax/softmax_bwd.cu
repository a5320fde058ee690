/* Softmax on CUDA, backward.
 *
 * Method     Two passes over rows of dy and y that are read once: the first takes their dot
 *            product, the second makes the results, from where softmax_rows.cuh keeps the rows.
 * Work       A warp for a row of up to 2 KiB, a block of up to 1024 threads for a longer one.
 * Bound      Memory: reads dy and y, writes dx. Rows past what registers and shared memory hold
 *            (bf16 on an H200: 90112 columns) are read again beyond that.
 */
#include "ops/kernels.cuh"
#include "ops/softmax/softmax_rows.cuh"

namespace
{

template <typename T> struct bwd_rows {
  const T *dy, *y;
  T *dx;
  int64_t dy_step, y_step, dx_step, rows, cols, vectors;
  int threads, block_rows, shared;
  float scale;
};

constexpr int kGroup = kMostKept;

/* dy and y, as they are kept. */
struct both {
  uint4 dy, y;
};

template <bool kAligned, typename T>
__device__ __forceinline__ both fetch_both(const T *dy, const T *y, index_of<kAligned> j,
                                           index_of<kAligned> cols)
{
  return {fetch<kAligned>(dy, j, cols, 0.0f), fetch<kAligned>(y, j, cols, 0.0f)};
}

template <typename T> __device__ __forceinline__ float add_products(float sum, both b)
{
  float dy[kLanes<T>], y[kLanes<T>];
  widen(dy, b.dy, T());
  widen(y, b.y, T());
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    sum = fmaf(dy[i], y[i], sum);
  }
  return sum;
}

/* Products of kGroup vectors are added in f32, their sums in f64. kMostKept of them are a group. */
__device__ __forceinline__ void end_group(int64_t v, float *part, double *sum)
{
  if (v % kGroup == kGroup - 1) {
    *sum += (double)*part;
    *part = 0.0f;
  }
}

/* Over the threads of a row. */
__device__ __forceinline__ double join(double sum, int threads, double *scratch)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = threads / kWarp;
  sum = warp_sum(sum);
  if (warps > 1) {
    if (lane == 0) {
      scratch[warp] = sum;
    }
    __syncthreads();
    sum = warp_sum(lane < warps ? scratch[lane] : 0.0);
  }
  return sum;
}

template <bool kAligned, typename T>
__device__ __forceinline__ void write_vector(const bwd_rows<T> &r, T *dx, index_of<kAligned> j,
                                             both b, float dot)
{
  float dy[kLanes<T>], y[kLanes<T>];
  widen(dy, b.dy, T());
  widen(y, b.y, T());
#pragma unroll
  for (int i = 0; i < kLanes<T>; i++) {
    dy[i] = y[i] * r.scale * (dy[i] - dot);
  }
  put<kAligned, T>(dx, j, (index_of<kAligned>)r.cols, dy);
}

template <typename T, int kKept, bool kAligned>
__device__ __forceinline__ void softmax_row(const bwd_rows<T> &r, int64_t row, uint4 *held,
                                            double *scratch)
{
  using index = index_of<kAligned>;
  const T *const dy = r.dy + row * r.dy_step, *const y = r.y + row * r.y_step;
  T *const dx = r.dx + row * r.dx_step;
  const index first = (threadIdx.x & (r.threads - 1)) * kLanes<T>;
  const index step = (index)r.threads * kLanes<T>, cols = (index)r.cols;
  const int shared = kShares<kKept> ? r.shared : 0, stride = blockDim.x;
  both kept[kKept + 1];
  held += threadIdx.x;
#pragma unroll 1
  for (int v = 0; v < shared; v++) {
    hold<kAligned>(held + 2 * v * stride, dy, first + (kKept + v) * step, cols, 0.0f);
    hold<kAligned>(held + (2 * v + 1) * stride, y, first + (kKept + v) * step, cols, 0.0f);
  }
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    kept[v] = fetch_both<kAligned>(dy, y, first + v * step, cols);
  }
  if (kShares<kKept>) {
#pragma unroll 1
    for (index v = kKept + shared; v < r.vectors; v++) {
      prefetch(dy, first + v * step, cols);
      prefetch(y, first + v * step, cols);
    }
  }
  double sum = 0.0;
  float part = 0.0f;
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    part = add_products<T>(part, kept[v]);
  }
  if (kShares<kKept>) {
    sum = (double)part; /* nothing or a group's */
    part = 0.0f;
    hold_wait();
#pragma unroll 1
    for (int v = 0; v < shared; v++) {
      part = add_products<T>(part, {held[2 * v * stride], held[(2 * v + 1) * stride]});
      end_group(v, &part, &sum);
    }
#pragma unroll 1
    for (index v = shared; v < r.vectors - kKept; v++) {
      part = add_products<T>(part, fetch_both<kAligned>(dy, y, first + (kKept + v) * step, cols));
      end_group(v, &part, &sum);
    }
  }
  sum += (double)part;
  const float dot = (float)join(sum, r.threads, scratch);
#pragma unroll
  for (int v = 0; v < kKept; v++) {
    write_vector<kAligned>(r, dx, first + v * step, kept[v], dot);
  }
  if (kShares<kKept>) {
#pragma unroll 1
    for (int v = 0; v < shared; v++) {
      write_vector<kAligned>(r, dx, first + (kKept + v) * step,
                             {held[2 * v * stride], held[(2 * v + 1) * stride]}, dot);
    }
#pragma unroll 1
    for (index v = kKept + shared; v < r.vectors; v++) {
      write_vector<kAligned>(r, dx, first + v * step,
                             fetch_both<kAligned>(dy, y, first + v * step, cols), dot);
    }
  }
}

/** A loop only where there are more rows than a grid has places for. */
template <typename T, int kKept, bool kAligned, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, resident_blocks(kThreads, kBlocks))
    softmax_bwd_kernel(const bwd_rows<T> r)
{
  extern __shared__ uint4 memory[];
  double *const scratch = reinterpret_cast<double *>(memory); /* one for each warp */
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

softmax_plan plan_bwd(const tg_context *ctx, const tg_softmax_bwd_args *a)
{
  return plan_softmax(ctx, &a->y, 2,
                      rows_aligned(&a->dy, 16) && rows_aligned(&a->y, 16) &&
                          rows_aligned(&a->dx, 16));
}

template <typename T> tg_status run_bwd(const tg_context *ctx, const tg_softmax_bwd_args *a)
{
  const softmax_plan p = plan_bwd(ctx, a);
  bwd_rows<T> r = {};
  r.dy = (const T *)a->dy.data;
  r.y = (const T *)a->y.data;
  r.dx = (T *)a->dx.data;
  r.dy_step = tgi_stride(&a->dy, 0);
  r.y_step = tgi_stride(&a->y, 0);
  r.dx_step = tgi_stride(&a->dx, 0);
  r.rows = a->y.shape[0];
  r.cols = a->y.shape[1];
  r.vectors = p.vectors;
  r.threads = p.threads;
  r.block_rows = p.rows;
  r.shared = p.shared;
  r.scale = a->scale;
  return launch(ctx,
                p.kept == 0                  ? softmax_bwd_kernel<T, 0, false, kLongThreads, 1>
                : p.kept == 1                ? softmax_bwd_kernel<T, 1, true, 256, 6>
                : p.kept == 2                ? softmax_bwd_kernel<T, 2, true, 256, 5>
                : p.threads <= kShortThreads ? softmax_bwd_kernel<T, 4, true, kShortThreads, 2>
                                             : softmax_bwd_kernel<T, 4, true, kLongThreads, 1>,
                grid_of(divide_up(r.rows, p.rows)), p.threads * p.rows, p.shared_bytes, r);
}

} // namespace

extern "C" tg_status TGI_KERNEL(softmax_bwd)(const tg_context *ctx, const tg_softmax_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->y.dtype, T, status = run_bwd<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(softmax_bwd)(const tg_context *ctx, const tg_softmax_bwd_args *a,
                                      char *text, size_t bytes)
{
  const softmax_plan p = plan_bwd(ctx, a);
  describe_softmax(&p, text, bytes);
}
