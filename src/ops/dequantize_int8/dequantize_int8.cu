/* Values of 8-bit integers on CUDA.
 *
 * Method     One pass.
 * Work       16 bytes of x for a thread, 256 threads for a piece of a row.
 * Bound      Memory: q is read, x is written.
 */
#include "cuda/quantize_math.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kThreads = 256;

struct dequantize_task {
  const int8_t *q;
  const float *scale;
  const void *zero_point; /* NULL: 0 */
  void *x;
  int64_t rows, cols, q_step, x_step;
  tg_dtype zero_point_dtype;
  tg_quant_granularity granularity;
  bool aligned;
};

struct divisor {
  float scale, zero_point;
};

__device__ __forceinline__ divisor divisor_of(const dequantize_task &p, int64_t group)
{
  float zero_point = 0;
  if (p.zero_point) {
    zero_point = p.zero_point_dtype == TG_I8
                     ? (float)static_cast<const int8_t *>(p.zero_point)[group]
                     : (float)static_cast<const int32_t *>(p.zero_point)[group];
  }
  return {p.scale[group], zero_point};
}

template <typename T> __device__ __forceinline__ float value_of(int8_t q, divisor d)
{
  return saturated<T>(((float)q - d.zero_point) * d.scale);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) dequantize_int8_fwd_kernel(const dequantize_task p)
{
  constexpr int kN = kLanes<T>, kPiece = kThreads * kN;
  const int64_t pieces = divide_up(p.cols, kPiece);
  const bool by_column = p.granularity == TG_QUANT_PER_COLUMN;
  for (int64_t block = blockIdx.x; block < p.rows * pieces; block += gridDim.x) {
    const int64_t row = block / pieces, first = (block - row * pieces) * kPiece;
    const int64_t j = first + threadIdx.x * kN;
    const int8_t *q = p.q + row * p.q_step;
    T *x = static_cast<T *>(p.x) + row * p.x_step;
    divisor one = {};
    if (!by_column) {
      one = divisor_of(p, p.granularity == TG_QUANT_PER_ROW ? row : 0);
    }
    if (p.aligned && j + kN <= p.cols) {
      const pack<int8_t, kN> n = *reinterpret_cast<const pack<int8_t, kN> *>(q + j);
      float v[kN];
#pragma unroll
      for (int i = 0; i < kN; i++) {
        v[i] = value_of<T>(n.e[i], by_column ? divisor_of(p, j + i) : one);
      }
      store(x + j, v);
      continue;
    }
    const int64_t start = p.aligned ? j : first + threadIdx.x, step = p.aligned ? 1 : kThreads;
    for (int i = 0; i < kN; i++) {
      const int64_t at = start + i * step;
      if (at < p.cols) {
        x[at] = from_f32<T>(value_of<T>(q[at], by_column ? divisor_of(p, at) : one));
      }
    }
  }
}

template <typename T> tg_status run(const tg_context *ctx, const tg_dequantize_int8_fwd_args *a)
{
  dequantize_task p = {};
  p.q = static_cast<const int8_t *>(a->q.data);
  p.scale = static_cast<const float *>(a->scale.data);
  p.x = a->x.data;
  p.rows = a->q.shape[0];
  p.cols = a->q.shape[1];
  p.q_step = tgi_stride(&a->q, 0);
  p.x_step = tgi_stride(&a->x, 0);
  p.granularity = a->granularity;
  p.aligned = rows_aligned(&a->x, 16) && rows_aligned(&a->q, kLanes<T>);
  if (tgi_present(&a->zero_point)) {
    p.zero_point = a->zero_point.data;
    p.zero_point_dtype = a->zero_point.dtype;
  }
  return launch(ctx, dequantize_int8_fwd_kernel<T>,
                grid_of(p.rows * divide_up(p.cols, kThreads * kLanes<T>)), kThreads, 0, p);
}

} // namespace

extern "C" tg_status TGI_KERNEL(dequantize_int8_fwd)(const tg_context *ctx,
                                                     const tg_dequantize_int8_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = run<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(dequantize_int8_fwd)(const tg_context *,
                                              const tg_dequantize_int8_fwd_args *, char *text,
                                              size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, 16 bytes a thread", kThreads);
}
