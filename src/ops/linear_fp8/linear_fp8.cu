/* Linear layers with e4m3 weights on CUDA.
 *
 * Method     Blocks of 128 columns go to the 16 warps in turns. In a warp eight lanes have four
 *            rows of W each, and four such groups of lanes a quarter of the block: a quarter is one
 *            chain of fused multiply-adds in the order of k, the quarters are added as
 *            (0 + 1) + (2 + 3), and the block's sum is scaled and added to the warp's. The warps
 *            are added in order. So `in` alone decides the order.
 * Work       A panel of 32 rows of W by 1, 4 or 8 rows of x for a block.
 * Bound      One reading of W for few rows, f32 arithmetic for many.
 */
#include "cuda/gemm/gemm_tile.cuh"
#include "cuda/packed_weight.cuh"
#include "cuda/reduce.cuh"
#include "ops/linear_fp8/linear_fp8_plain.cuh"

extern "C" {
#include "ops/linear_fp8/linear_fp8_packed.h"
}

namespace
{

constexpr int kWarps = 16;
constexpr int kQuarter = TGI_FP8_BLOCK / 4;

struct product_task {
  const void *x, *bias;
  void *y;
  packed_weight w;
  int64_t rows, panels, panel_bytes, x_step, y_step;
  tg_dtype bias_dtype, y_dtype;
  bool aligned; /* rows of x, to four elements */
};

/* Four values. As f16 their bits have an exponent that is smaller by 8; NaN would be 480. */
__device__ __forceinline__ void widen_fp8(float (&v)[4], uint32_t word)
{
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint32_t bytes = word >> 8 * i & 0x00ff00ffu;
    const uint32_t halves = (bytes & 0x00800080u) << 8 | (bytes & 0x007f007fu) << 7;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const unsigned short half = (unsigned short)(halves >> 16 * j);
      const float value = 256.0f * __half2float(__ushort_as_half(half));
      v[2 * j + i] = fabsf(value) == 480.0f ? CUDART_NAN_F : value;
    }
  }
}

/* Elements [k, k + 4) of a row of x; 0 from `end` on. */
template <typename T>
__device__ __forceinline__ void read_x(float (&v)[4], const T *x, int64_t k, int64_t end,
                                       bool whole)
{
  if (whole) {
    load(v, x + k);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[i] = k + i < end ? to_f32(x[k + i]) : 0.0f;
  }
}

template <typename T, int kRows>
__global__ void __launch_bounds__(kWarps *kWarp, 1) linear_fp8_fwd_kernel(const product_task p)
{
  constexpr int kTogether = kRows == 1 ? 16 : kRows == 4 ? 8 : 4; /* columns read together */
  __shared__ float part[kWarps][kRows][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int quarter = lane / 8, o4 = lane % 8 * 4;
  const bool fits = packed_header_fits(p.w, blockIdx.x == 0 && threadIdx.x == 0);
  const int64_t strips = divide_up(p.rows, kRows), blocks = divide_up(p.w.in, TGI_FP8_BLOCK);

  for (int64_t task = blockIdx.x; task < p.panels * strips; task += gridDim.x) {
    const int64_t panel = task / strips, r0 = (task - panel * strips) * kRows;
    const uint8_t *of_panel = p.w.data + TGI_PACKED_HEADER_BYTES + panel * p.panel_bytes;
    const T *x = static_cast<const T *>(p.x) + r0 * p.x_step;
    float total[kRows]; /* of row o4 + quarter of the panel */
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      total[r] = 0;
    }
    for (int64_t b = warp; b < blocks; b += kWarps) {
      const uint8_t *block = of_panel + b * TGI_FP8_BLOCK_BYTES;
      const float scale = packed_float(block + 4 * (o4 + quarter), p.w.aligned);
      const int64_t k0 = b * TGI_FP8_BLOCK + quarter * kQuarter;
      const uint8_t *values = block + TGI_FP8_HEAD_BYTES + quarter * kQuarter * TGI_PANEL_ROWS + o4;
      float sum[kRows][4];
#pragma unroll
      for (int r = 0; r < kRows; r++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          sum[r][j] = 0;
        }
      }
#pragma unroll 1
      for (int s = 0; s < kQuarter; s += kTogether) {
        uint32_t w[kTogether];
#pragma unroll
        for (int k = 0; k < kTogether; k++) {
          w[k] = k0 + s + k < p.w.in ? packed_word(values + (s + k) * TGI_PANEL_ROWS, p.w.aligned)
                                     : 0u;
        }
#pragma unroll
        for (int k = 0; k < kTogether; k += 4) {
          const int64_t at = k0 + s + k;
          const bool whole = p.aligned && at + 4 <= p.w.in;
          float wide[4][4];
#pragma unroll
          for (int i = 0; i < 4; i++) {
            widen_fp8(wide[i], w[k + i]);
          }
#pragma unroll
          for (int r = 0; r < kRows; r++) {
            float v[4];
            /* A row that does not exist is another one; its results are not stored. */
            const T *row = x + (r0 + r < p.rows ? r : 0) * p.x_step;
            read_x(v, row, at, p.w.in, whole);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
              for (int j = 0; j < 4; j++) {
                sum[r][j] = fmaf(v[i], wide[i][j], sum[r][j]);
              }
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; r++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          sum[r][j] += __shfl_xor_sync(kAllLanes, sum[r][j], 8);
          sum[r][j] += __shfl_xor_sync(kAllLanes, sum[r][j], 16);
        }
        const float own = quarter == 0   ? sum[r][0]
                          : quarter == 1 ? sum[r][1]
                          : quarter == 2 ? sum[r][2]
                                         : sum[r][3];
        total[r] = fmaf(scale, own, total[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      part[warp][r][o4 + quarter] = total[r];
    }
    __syncthreads();
    const int64_t row = r0 + warp, o = panel * TGI_PANEL_ROWS + lane;
    if (warp < kRows && row < p.rows && o < p.w.out) {
      float y = 0;
#pragma unroll
      for (int v = 0; v < kWarps; v++) {
        y = y + part[v][warp][lane];
      }
      if (p.bias) {
        y = y + load_any(p.bias, p.bias_dtype, o);
      }
      store_any(p.y, p.y_dtype, row * p.y_step + o, fits ? y : CUDART_NAN_F);
    }
    __syncthreads();
  }
}

/* Rows of x of a block, as many as fit its registers. */
int block_rows(int64_t rows, tg_dtype x_dtype)
{
  return rows == 1 ? 1 : rows <= 4 || x_dtype == TG_F32 ? 4 : 8;
}

template <typename T> tg_status run(const tg_context *ctx, const product_task &p, int rows)
{
  constexpr int kMost = sizeof(T) == 4 ? 4 : 8;
  const dim3 grid = grid_of(p.panels * divide_up(p.rows, rows));
  const int threads = kWarps * kWarp;
  return rows == 1   ? launch(ctx, linear_fp8_fwd_kernel<T, 1>, grid, threads, 0, p)
         : rows == 4 ? launch(ctx, linear_fp8_fwd_kernel<T, 4>, grid, threads, 0, p)
                     : launch(ctx, linear_fp8_fwd_kernel<T, kMost>, grid, threads, 0, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

size_t linear_fp8_plain_bytes(const tg_linear_fp8_fwd_args *)
{
  return 0;
}

tg_status linear_fp8_plain(const tg_context *ctx, const tg_linear_fp8_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  product_task p = {};
  p.x = a->x.data;
  p.rows = a->x.shape[0];
  p.x_step = tgi_stride(&a->x, 0);
  p.aligned = rows_aligned(&a->x, 4 * (int)tg_dtype_bytes(a->x.dtype));
  p.w = packed_weight_of(&a->weight, TGI_FP8_MAGIC, TGI_FP8_VERSION, out, in,
                         FAULT_SITE(ctx, linear_fp8_fwd, weight));
  p.panels = tgi_panel_count(out);
  p.panel_bytes = tgi_fp8_panel_bytes(in);
  p.y = a->y.data;
  p.y_dtype = a->y.dtype;
  p.y_step = tgi_stride(&a->y, 0);
  if (tgi_present(&a->bias)) {
    p.bias = a->bias.data;
    p.bias_dtype = a->bias.dtype;
  }
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = run<T>(ctx, p, block_rows(p.rows, a->x.dtype)));
  return status;
}

void tell_linear_fp8_plain(const tg_linear_fp8_fwd_args *a, char *text, size_t bytes)
{
  snprintf(text, bytes, "weights widened in registers, blocks of %d rows x %d columns",
           block_rows(a->x.shape[0], a->x.dtype), TGI_PANEL_ROWS);
}

} // namespace TGI_CUDA_ENTRY

/* From 8.0 on linear_fp8_sm80.cu has the entry's functions. */
#if TGI_VIRTUAL < 80
extern "C" size_t TGI_WORKSPACE(linear_fp8_fwd)(const tg_context *, const tg_linear_fp8_fwd_args *a)
{
  return linear_fp8_plain_bytes(a);
}

extern "C" tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  return linear_fp8_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_fp8_fwd)(const tg_context *, const tg_linear_fp8_fwd_args *a,
                                         char *text, size_t bytes)
{
  tell_linear_fp8_plain(a, text, bytes);
}
#endif
