/* Values of packed 4-bit integers on CUDA.
 *
 * Method     One pass.
 * Work       Eight columns for a thread, 256 threads for a piece of a row.
 * Bound      Memory: q is read, x is written.
 */
#include "cuda/quantize_math.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kThreads = 256, kEach = 8, kPiece = kThreads * kEach;

struct dequantize_task {
  const uint8_t *q, *zero_point; /* zero_point NULL: 8 */
  const void *scale;
  void *x;
  int64_t rows, cols, groups, q_step, x_step;
  int group_size;
  bool half_scale, x_aligned, q_aligned; /* x to 16 bytes, q to 4 */
};

template <typename T>
__global__ void __launch_bounds__(kThreads, 4) dequantize_int4_fwd_kernel(const dequantize_task p)
{
  constexpr int kN = kLanes<T> < kEach ? kLanes<T> : kEach;
  const int64_t pieces = divide_up(p.cols, kPiece);
  for (int64_t block = blockIdx.x; block < p.rows * pieces; block += gridDim.x) {
    const int64_t row = block / pieces;
    const int64_t j = (block - row * pieces) * kPiece + threadIdx.x * kEach;
    if (j >= p.cols) {
      continue;
    }
    const int count = p.cols - j >= kEach ? kEach : (int)(p.cols - j);
    const uint8_t *q = p.q + row * p.q_step + j / 2;
    const int64_t group = row * p.groups + j / p.group_size;
    const float scale = p.half_scale ? to_f32(static_cast<const f16 *>(p.scale)[group])
                                     : static_cast<const float *>(p.scale)[group];
    const int zero_point = p.zero_point ? p.zero_point[group] : 8;
    uint32_t word = 0;
    if (p.q_aligned && count == kEach) {
      word = *reinterpret_cast<const uint32_t *>(q);
    } else {
#pragma unroll
      for (int i = 0; i < kEach / 2; i++) {
        word |= 2 * i < count ? (uint32_t)q[i] << 8 * i : 0u;
      }
    }
    float v[kEach];
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      v[i] = saturated<T>((float)((int)(word >> 4 * i & 15u) - zero_point) * scale);
    }
    T *x = static_cast<T *>(p.x) + row * p.x_step + j;
    if (p.x_aligned && count == kEach) {
#pragma unroll
      for (int i = 0; i < kEach; i += kN) {
        float part[kN];
#pragma unroll
        for (int k = 0; k < kN; k++) {
          part[k] = v[i + k];
        }
        store(x + i, part);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kEach; i++) {
        if (i < count) {
          x[i] = from_f32<T>(v[i]);
        }
      }
    }
  }
}

template <typename T> tg_status run(const tg_context *ctx, const tg_dequantize_int4_fwd_args *a)
{
  dequantize_task p = {};
  p.q = static_cast<const uint8_t *>(a->q.data);
  p.scale = a->scale.data;
  p.half_scale = a->scale.dtype == TG_F16;
  p.x = a->x.data;
  p.rows = a->x.shape[0];
  p.cols = a->x.shape[1];
  p.groups = divide_up(p.cols, a->group_size);
  p.group_size = (int)a->group_size;
  p.q_step = tgi_stride(&a->q, 0);
  p.x_step = tgi_stride(&a->x, 0);
  p.x_aligned = rows_aligned(&a->x, 16);
  p.q_aligned = rows_aligned(&a->q, 4);
  if (tgi_present(&a->zero_point)) {
    p.zero_point = static_cast<const uint8_t *>(a->zero_point.data);
  }
  return launch(ctx, dequantize_int4_fwd_kernel<T>, grid_of(p.rows * divide_up(p.cols, kPiece)),
                kThreads, 0, p);
}

} // namespace

extern "C" tg_status TGI_KERNEL(dequantize_int4_fwd)(const tg_context *ctx,
                                                     const tg_dequantize_int4_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = run<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(dequantize_int4_fwd)(const tg_context *,
                                              const tg_dequantize_int4_fwd_args *, char *text,
                                              size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, %d columns a thread", kThreads, kEach);
}
