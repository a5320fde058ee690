/* Quantisation to 8 bits on CUDA.
 *
 * Method     Per row: bounds, then the row once more, out of the caches. Per tensor and per column:
 *            bounds of parts in the workspace; united, with scales; then all rows. Bounds do not
 *            depend on the order in which they are united, so the bits are the contract's.
 * Work       A warp or a block for a row; parts of the rows by 256 columns, or pieces of rows.
 * Bound      Memory: x is read once, or twice; q is written.
 */
#include "ops/kernels.cuh"
#include "ops/quantize_int8/quantize_int8_lanes.cuh"

namespace
{

constexpr int kThreads = 256, kParts = 64;
constexpr int kTensorParts = 1024;
constexpr int64_t kWarpCols = 1024; /* rows up to which a warp has one */

struct quantize_task {
  const void *x;
  int8_t *q;
  float *scale;
  void *zero_point;  /* NULL: symmetric */
  float *low, *high; /* of parts */
  int64_t rows, cols, x_step, q_step, parts, part_rows;
  tg_dtype zero_point_dtype;
  bool aligned; /* x to 16 bytes and q to as many elements */
  bool by_column;
};

__device__ __forceinline__ quant choose(const quantize_task &p, quant_bounds b)
{
  return int8_quant(b, p.zero_point != nullptr);
}

__device__ __forceinline__ void put_quant(const quantize_task &p, int64_t group, quant g)
{
  p.scale[group] = g.scale;
  if (p.zero_point && p.zero_point_dtype == TG_I8) {
    static_cast<int8_t *>(p.zero_point)[group] = (int8_t)g.zero_point;
  } else if (p.zero_point) {
    static_cast<int32_t *>(p.zero_point)[group] = g.zero_point;
  }
}

__device__ __forceinline__ quant get_quant(const quantize_task &p, int64_t group)
{
  const int zero_point = !p.zero_point ? 0
                         : p.zero_point_dtype == TG_I8
                             ? static_cast<const int8_t *>(p.zero_point)[group]
                             : static_cast<const int32_t *>(p.zero_point)[group];
  return {p.scale[group], zero_point};
}

/* Bounds of what thread `t` of `threads` reads of columns [begin, end) of a row. */
template <typename T>
__device__ __forceinline__ void widen_by_row(const quantize_task &p, int64_t row, int64_t begin,
                                             int64_t end, int t, int threads, quant_bounds *b)
{
  constexpr int kN = kLanes<T>;
  const T *x = static_cast<const T *>(p.x) + row * p.x_step;
  int64_t j = begin;
  if (p.aligned) {
#pragma unroll 2
    for (; j + (int64_t)kN * (t + 1) <= end; j += (int64_t)threads * kN) {
      float v[kN];
      load(v, x + j + t * kN);
#pragma unroll
      for (int i = 0; i < kN; i++) {
        b->widen(v[i]);
      }
    }
    j = begin + (end - begin) / kN * kN;
  }
  for (j += t; j < end; j += threads) {
    b->widen(to_f32(x[j]));
  }
}

/* The integers of columns [j, j + kN) of a row, as far as they exist. */
template <typename T>
__device__ __forceinline__ void put_vector(const quantize_task &p, int64_t row, int64_t j, quant g)
{
  constexpr int kN = kLanes<T>;
  const T *x = static_cast<const T *>(p.x) + row * p.x_step + j;
  int8_t *q = p.q + row * p.q_step + j;
  const int least = p.zero_point ? -128 : -127;
  pack<int8_t, kN> n;
  float v[kN];
  load(v, x);
#pragma unroll
  for (int i = 0; i < kN; i++) {
    n.e[i] = (int8_t)int8_of(v[i], p.by_column ? get_quant(p, j + i) : g, least);
  }
  *reinterpret_cast<pack<int8_t, kN> *>(q) = n;
}

template <typename T>
__device__ __forceinline__ void put_element(const quantize_task &p, int64_t row, int64_t j, quant g)
{
  const float x = to_f32(static_cast<const T *>(p.x)[row * p.x_step + j]);
  p.q[row * p.q_step + j] =
      (int8_t)int8_of(x, p.by_column ? get_quant(p, j) : g, p.zero_point ? -128 : -127);
}

/* Per row; kGroup threads have one: a warp or a block. */
template <typename T, int kGroup>
__global__ void __launch_bounds__(kThreads, 4) quantize_int8_fwd_rows_kernel(const quantize_task p)
{
  constexpr int kN = kLanes<T>, kRows = kThreads / kGroup;
  __shared__ float scratch[2 * kWarp];
  const int t = threadIdx.x % kGroup;
  const int64_t blocks = divide_up(p.rows, kRows);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t row = block * kRows + threadIdx.x / kGroup;
    const bool exists = row < p.rows; /* the same for a group */
    quant_bounds b = {0, 0};
    if (exists) {
      widen_by_row<T>(p, row, 0, p.cols, t, kGroup, &b);
    }
    b = kGroup == kWarp ? unite_lanes(b, kWarp) : unite_block(b, scratch);
    if (exists) {
      const quant g = choose(p, b);
      if (t == 0) {
        put_quant(p, row, g);
      }
      int64_t whole = 0;
      if (p.aligned) {
        whole = p.cols / kN * kN;
        for (int64_t j = (int64_t)t * kN; j < whole; j += (int64_t)kGroup * kN) {
          put_vector<T>(p, row, j, g);
        }
      }
      for (int64_t j = whole + t; j < p.cols; j += kGroup) {
        put_element<T>(p, row, j, g);
      }
    }
    if (kGroup != kWarp) {
      __syncthreads();
    }
  }
}

/* low, high [parts][cols]: of 256 columns and the rows of a part. */
template <typename T>
__global__ void __launch_bounds__(kThreads) quantize_int8_fwd_columns_kernel(const quantize_task p)
{
  const int64_t pieces = divide_up(p.cols, kThreads), blocks = pieces * p.parts;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t part = block / pieces;
    const int64_t j = (block - part * pieces) * kThreads + threadIdx.x;
    if (j >= p.cols) {
      continue;
    }
    const int64_t first = part * p.part_rows;
    const int64_t last = first + p.part_rows < p.rows ? first + p.part_rows : p.rows;
    const T *x = static_cast<const T *>(p.x) + j;
    quant_bounds b = {0, 0};
#pragma unroll 8
    for (int64_t i = first; i < last; i++) {
      b.widen(to_f32(x[i * p.x_step]));
    }
    p.low[part * p.cols + j] = b.low;
    p.high[part * p.cols + j] = b.high;
  }
}

/* low, high [parts]: of the rows of a part, whole. */
template <typename T>
__global__ void __launch_bounds__(kThreads) quantize_int8_fwd_parts_kernel(const quantize_task p)
{
  __shared__ float scratch[2 * kWarp];
  for (int64_t part = blockIdx.x; part < p.parts; part += gridDim.x) {
    const int64_t first = part * p.part_rows;
    const int64_t last = first + p.part_rows < p.rows ? first + p.part_rows : p.rows;
    quant_bounds b = {0, 0};
    for (int64_t i = first; i < last; i++) {
      widen_by_row<T>(p, i, 0, p.cols, threadIdx.x, kThreads, &b);
    }
    b = unite_block(b, scratch);
    if (threadIdx.x == 0) {
      p.low[part] = b.low;
      p.high[part] = b.high;
    }
    __syncthreads();
  }
}

/* Unites parts: a thread for a column. */
__global__ void __launch_bounds__(kThreads)
    quantize_int8_fwd_unite_columns_kernel(const quantize_task p)
{
  for (int64_t j = (int64_t)blockIdx.x * kThreads + threadIdx.x; j < p.cols;
       j += (int64_t)gridDim.x * kThreads) {
    quant_bounds b = {0, 0};
#pragma unroll 8
    for (int64_t part = 0; part < p.parts; part++) {
      b.unite({p.low[part * p.cols + j], p.high[part * p.cols + j]});
    }
    put_quant(p, j, choose(p, b));
  }
}

/* Unites parts: one block for the whole tensor. */
__global__ void __launch_bounds__(kThreads) quantize_int8_fwd_unite_kernel(const quantize_task p)
{
  __shared__ float scratch[2 * kWarp];
  quant_bounds b = {0, 0};
  for (int64_t part = threadIdx.x; part < p.parts; part += kThreads) {
    b.unite({p.low[part], p.high[part]});
  }
  b = unite_block(b, scratch);
  if (threadIdx.x == 0) {
    put_quant(p, 0, choose(p, b));
  }
}

/* The integers, with scales that are there. */
template <typename T>
__global__ void __launch_bounds__(kThreads) quantize_int8_fwd_integers_kernel(const quantize_task p)
{
  constexpr int kN = kLanes<T>, kPiece = kThreads * kN;
  const int64_t pieces = divide_up(p.cols, kPiece);
  const quant g = p.by_column ? quant{1, 0} : get_quant(p, 0);
  for (int64_t block = blockIdx.x; block < p.rows * pieces; block += gridDim.x) {
    const int64_t row = block / pieces, first = (block - row * pieces) * kPiece;
    const int64_t j = first + threadIdx.x * kN;
    if (p.aligned && j + kN <= p.cols) {
      put_vector<T>(p, row, j, g);
      continue;
    }
    const int64_t start = p.aligned ? j : first + threadIdx.x, step = p.aligned ? 1 : kThreads;
    for (int i = 0; i < kN; i++) {
      if (start + i * step < p.cols) {
        put_element<T>(p, row, start + i * step, g);
      }
    }
  }
}

/* Parts that have bounds of their own; 0 per row. */
int64_t most_parts(const tg_quantize_int8_fwd_args *a)
{
  return a->granularity == TG_QUANT_PER_ROW      ? 0
         : a->granularity == TG_QUANT_PER_COLUMN ? kParts
                                                 : kTensorParts;
}

quantize_task task_of(const tg_quantize_int8_fwd_args *a)
{
  const int lanes = 16 / (int)tg_dtype_bytes(a->x.dtype);
  const int64_t most = most_parts(a);
  quantize_task p = {};
  p.x = a->x.data;
  p.q = static_cast<int8_t *>(a->q.data);
  p.scale = static_cast<float *>(a->scale.data);
  p.rows = a->x.shape[0];
  p.cols = a->x.shape[1];
  p.x_step = tgi_stride(&a->x, 0);
  p.q_step = tgi_stride(&a->q, 0);
  p.by_column = a->granularity == TG_QUANT_PER_COLUMN;
  p.aligned = rows_aligned(&a->x, 16) && rows_aligned(&a->q, lanes);
  if (tgi_present(&a->zero_point)) {
    p.zero_point = a->zero_point.data;
    p.zero_point_dtype = a->zero_point.dtype;
  }
  if (most) {
    p.part_rows = p.rows ? divide_up(p.rows, most) : 1;
    p.parts = divide_up(p.rows, p.part_rows);
    p.low = static_cast<float *>(a->workspace);
    p.high = p.low + most * (p.by_column ? p.cols : 1);
  }
  return p;
}

template <typename T> tg_status run(const tg_context *ctx, const quantize_task &p, bool by_row)
{
  if (by_row) {
    return p.cols <= kWarpCols
               ? launch(ctx, quantize_int8_fwd_rows_kernel<T, kWarp>,
                        grid_of(divide_up(p.rows, kThreads / kWarp)), kThreads, 0, p)
               : launch(ctx, quantize_int8_fwd_rows_kernel<T, kThreads>, grid_of(p.rows), kThreads,
                        0, p);
  }
  const int64_t across = divide_up(p.cols, kThreads);
  tg_status status = p.by_column ? launch(ctx, quantize_int8_fwd_columns_kernel<T>,
                                          grid_of(across * p.parts), kThreads, 0, p)
                                 : launch(ctx, quantize_int8_fwd_parts_kernel<T>, grid_of(p.parts),
                                          kThreads, 0, p);
  if (status == TG_OK) {
    status = p.by_column ? launch(ctx, quantize_int8_fwd_unite_columns_kernel, grid_of(across),
                                  kThreads, 0, p)
                         : launch(ctx, quantize_int8_fwd_unite_kernel, dim3(1), kThreads, 0, p);
  }
  const int64_t pieces = divide_up(p.cols, kThreads * kLanes<T>);
  return status == TG_OK ? launch(ctx, quantize_int8_fwd_integers_kernel<T>,
                                  grid_of(p.rows * pieces), kThreads, 0, p)
                         : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(quantize_int8_fwd)(const tg_context *,
                                                   const tg_quantize_int8_fwd_args *a)
{
  const int64_t width = a->granularity == TG_QUANT_PER_COLUMN ? a->x.shape[1] : 1;
  return (size_t)(2 * most_parts(a) * width) * sizeof(float);
}

extern "C" tg_status TGI_KERNEL(quantize_int8_fwd)(const tg_context *ctx,
                                                   const tg_quantize_int8_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = run<T>(ctx, task_of(a), a->granularity == TG_QUANT_PER_ROW));
  return status;
}

extern "C" void TGI_PLAN(quantize_int8_fwd)(const tg_context *, const tg_quantize_int8_fwd_args *a,
                                            char *text, size_t bytes)
{
  if (a->granularity == TG_QUANT_PER_ROW) {
    snprintf(text, bytes, "row by row, a %s each", a->x.shape[1] <= kWarpCols ? "warp" : "block");
  } else {
    const quantize_task p = task_of(a);
    snprintf(text, bytes, "bounds of %lld parts first, then the integers", (long long)p.parts);
  }
}
