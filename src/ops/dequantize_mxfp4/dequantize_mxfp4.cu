/* Values of MXFP4 on CUDA.
 *
 * Method     One pass.
 * Work       Eight columns for a thread, 256 threads for a piece of the groups of all rows.
 * Bound      Memory: blocks are read, x is written.
 */
#include "cuda/quantize_math.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kThreads = 256, kEach = 8;

struct mxfp4_task {
  const uint8_t *blocks, *scales;
  void *x;
  int64_t words, words_of_row, x_step; /* a word holds eight codes */
  bool x_aligned, blocks_aligned;      /* x to 16 bytes, blocks to 4 */
};

/* 2^(scale - 128), from its bits; the first two are denormal. f32 has no 2^128, so a factor of two
 * goes to the codes. */
__device__ float half_scale_of(uint32_t scale)
{
  return __uint_as_float(scale >= 2 ? (scale - 1) << 23 : 0x200000u << scale);
}

/* fp4[code] * 2^(scale - 127): twice the magnitude is a maximum of three lines. */
__device__ float value_of(uint32_t code, float half_scale)
{
  const float m = (float)(code & 7u);
  const float twice = fmaxf(m, fmaxf(2.0f * m - 4.0f, 4.0f * m - 16.0f));
  return (code & 8u ? -twice : twice) * half_scale;
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 4) dequantize_mxfp4_fwd_kernel(const mxfp4_task p)
{
  constexpr int kN = kLanes<T> < kEach ? kLanes<T> : kEach;
  const int64_t step = (int64_t)gridDim.x * kThreads;
  for (int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x; i < p.words; i += step) {
    const int64_t row = i / p.words_of_row, j = (i - row * p.words_of_row) * kEach;
    uint32_t word = 0;
    if (p.blocks_aligned) {
      word = reinterpret_cast<const uint32_t *>(p.blocks)[i];
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++) {
        word |= (uint32_t)p.blocks[4 * i + k] << 8 * k;
      }
    }
    const float scale = half_scale_of(p.scales[i / 4]);
    float v[kEach];
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      v[k] = value_of(word >> 4 * k & 15u, scale);
    }
    T *x = static_cast<T *>(p.x) + row * p.x_step + j;
    if (p.x_aligned) {
#pragma unroll
      for (int k = 0; k < kEach; k += kN) {
        float part[kN];
#pragma unroll
        for (int n = 0; n < kN; n++) {
          part[n] = v[k + n];
        }
        store(x + k, part);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kEach; k++) {
        x[k] = from_f32<T>(v[k]);
      }
    }
  }
}

template <typename T> tg_status run(const tg_context *ctx, const tg_dequantize_mxfp4_fwd_args *a)
{
  mxfp4_task p = {};
  p.blocks = static_cast<const uint8_t *>(a->blocks.data);
  p.scales = static_cast<const uint8_t *>(a->scales.data);
  p.x = a->x.data;
  p.words_of_row = a->x.shape[1] / kEach;
  p.words = a->x.shape[0] * p.words_of_row;
  p.x_step = tgi_stride(&a->x, 0);
  p.x_aligned = rows_aligned(&a->x, 16);
  p.blocks_aligned = (uintptr_t)p.blocks % 4 == 0;
  return launch(ctx, dequantize_mxfp4_fwd_kernel<T>, grid_of(divide_up(p.words, kThreads)),
                kThreads, 0, p);
}

} // namespace

extern "C" tg_status TGI_KERNEL(dequantize_mxfp4_fwd)(const tg_context *ctx,
                                                      const tg_dequantize_mxfp4_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = run<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(dequantize_mxfp4_fwd)(const tg_context *,
                                               const tg_dequantize_mxfp4_fwd_args *, char *text,
                                               size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, %d columns a thread", kThreads, kEach);
}
