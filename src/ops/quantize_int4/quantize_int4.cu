/* Quantisation to 4 bits on CUDA.
 *
 * Method     A thread has eight columns of a row in registers; the 4, 8 or 16 neighbours that hold
 *            a group unite their bounds by shuffles. All operations are the contract's, once each.
 * Work       2048 columns of a row for a block.
 * Bound      Memory: x is read once, q is written.
 */
#include "cuda/quantize_math.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kThreads = 256, kEach = 8, kPiece = kThreads * kEach;

struct quantize_task {
  const void *x;
  uint8_t *q;
  void *scale;
  uint8_t *zero_point; /* NULL: symmetric */
  int64_t rows, cols, groups, x_step, q_step;
  int group_size;
  bool half_scale, x_aligned, q_aligned; /* x to 16 bytes, q to 4 */
};

__device__ __forceinline__ quant int4_quant(quant_bounds b, bool asymmetric, bool half)
{
  if (!b.finite()) {
    return {CUDART_NAN_F, 8};
  }
  if (!asymmetric) {
    const float up = b.high / 7.5f, down = -b.low / 8.5f;
    return {b.low < b.high ? scale_up_to(half, up > down ? up : down) : 1.0f, 8};
  }
  const float scale = b.low < b.high ? scale_up_to(half, b.high / 15.0f - b.low / 15.0f) : 1.0f;
  return {scale, isnan(scale) ? 8 : -(int)rintf(b.low / scale)};
}

__device__ __forceinline__ unsigned int4_of(float x, quant g)
{
  if (isnan(g.scale)) {
    return (unsigned)g.zero_point;
  }
  const float n = rintf(x / g.scale) + (float)g.zero_point;
  return n < 0 ? 0u : n > 15 ? 15u : (unsigned)n;
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 4) quantize_int4_fwd_kernel(const quantize_task p)
{
  constexpr int kN = kLanes<T> < kEach ? kLanes<T> : kEach;
  const int lanes = p.group_size / kEach;
  const int64_t pieces = divide_up(p.cols, kPiece);
  for (int64_t block = blockIdx.x; block < p.rows * pieces; block += gridDim.x) {
    const int64_t row = block / pieces;
    const int64_t j = (block - row * pieces) * kPiece + threadIdx.x * kEach;
    const T *x = static_cast<const T *>(p.x) + row * p.x_step + j;
    const int count = p.cols - j >= kEach ? kEach : p.cols > j ? (int)(p.cols - j) : 0;
    float v[kEach];
    if (p.x_aligned && count == kEach) {
#pragma unroll
      for (int i = 0; i < kEach; i += kN) {
        float part[kN];
        load(part, x + i);
#pragma unroll
        for (int k = 0; k < kN; k++) {
          v[i + k] = part[k];
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kEach; i++) {
        v[i] = i < count ? to_f32(x[i]) : 0.0f;
      }
    }
    quant_bounds b = {0, 0};
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      b.widen(v[i]);
    }
    const quant g = int4_quant(unite_lanes(b, lanes), p.zero_point != nullptr, p.half_scale);
    if (count > 0 && threadIdx.x % lanes == 0) {
      const int64_t group = row * p.groups + j / p.group_size;
      if (p.half_scale) {
        static_cast<f16 *>(p.scale)[group] = from_f32<f16>(g.scale);
      } else {
        static_cast<float *>(p.scale)[group] = g.scale;
      }
      if (p.zero_point) {
        p.zero_point[group] = (uint8_t)g.zero_point;
      }
    }
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      word |= i < count ? int4_of(v[i], g) << 4 * i : 0u;
    }
    uint8_t *q = p.q + row * p.q_step + j / 2;
    if (p.q_aligned && count == kEach) {
      *reinterpret_cast<uint32_t *>(q) = word;
    } else {
#pragma unroll
      for (int i = 0; i < kEach / 2; i++) {
        if (2 * i < count) {
          q[i] = (uint8_t)(word >> 8 * i);
        }
      }
    }
  }
}

template <typename T> tg_status run(const tg_context *ctx, const tg_quantize_int4_fwd_args *a)
{
  quantize_task p = {};
  p.x = a->x.data;
  p.q = static_cast<uint8_t *>(a->q.data);
  p.scale = a->scale.data;
  p.half_scale = a->scale.dtype == TG_F16;
  p.rows = a->x.shape[0];
  p.cols = a->x.shape[1];
  p.groups = divide_up(p.cols, a->group_size);
  p.group_size = (int)a->group_size;
  p.x_step = tgi_stride(&a->x, 0);
  p.q_step = tgi_stride(&a->q, 0);
  p.x_aligned = rows_aligned(&a->x, 16);
  p.q_aligned = rows_aligned(&a->q, 4);
  if (tgi_present(&a->zero_point)) {
    p.zero_point = static_cast<uint8_t *>(a->zero_point.data);
  }
  return launch(ctx, quantize_int4_fwd_kernel<T>, grid_of(p.rows * divide_up(p.cols, kPiece)),
                kThreads, 0, p);
}

} // namespace

extern "C" tg_status TGI_KERNEL(quantize_int4_fwd)(const tg_context *ctx,
                                                   const tg_quantize_int4_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = run<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(quantize_int4_fwd)(const tg_context *, const tg_quantize_int4_fwd_args *,
                                            char *text, size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, %d columns a thread", kThreads, kEach);
}
