/* Linear layers of e4m3 by e4m3 on CUDA.
 *
 * Method     Codes of x, and of up to 2048 rows of W at a time, become bf16 in the workspace, which
 *            holds them exactly. Their product (cuda/gemm/plain_product.h: tensor cores from
 * compute capability 8.0 on) leaves f32 sums; scales and bias follow. Work       Eight codes, or an
 * element of y, for a thread. Bound      The product; for few rows the widening of W.
 */
#include "cuda/gemm/gemm_loader.cuh"
#include "ops/linear_fp8_fp8/fp8_rows.cuh"

namespace
{

constexpr int kUnit = 8;           /* codes of a thread */
constexpr int64_t kOutputs = 2048; /* rows of W together */

/* Parts of the workspace behind codes and scales of x. */
struct wide_parts {
  int64_t step; /* elements from row to row of x and W */
  bf16 *x, *w;
  float *sums; /* of y that is not f32 */
  int64_t bytes;
};

wide_parts wide_parts_of(const tg_linear_fp8_fp8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0];
  const int64_t out = a->y.shape[1] < kOutputs ? a->y.shape[1] : kOutputs;
  char *memory = static_cast<char *>(a->workspace);
  wide_parts p = {};
  p.step = divide_up(a->x.shape[1], kUnit) * kUnit;
  const int64_t x = fp8_rows_bytes(a), w = x + fp8_aligned(2 * rows * p.step);
  const int64_t sums = w + fp8_aligned(2 * out * p.step);
  if (memory) {
    p.x = reinterpret_cast<bf16 *>(memory + x);
    p.w = reinterpret_cast<bf16 *>(memory + w);
    p.sums = reinterpret_cast<float *>(memory + sums);
  }
  p.bytes = sums + (a->y.dtype == TG_F32 ? 0 : fp8_aligned(4 * rows * out));
  return p;
}

struct widen_task {
  const uint8_t *codes;
  bf16 *to;
  int64_t rows, in, from_step, to_step;
  bool aligned; /* codes, to units */
};

/* As f16 a code's bits have an exponent that is smaller by 8; NaN would be 480. */
__device__ __forceinline__ float widen_code(uint32_t code)
{
  const uint32_t half = (code & 0x80u) << 8 | (code & 0x7fu) << 7;
  const float v = 256.0f * __half2float(__ushort_as_half((unsigned short)half));
  return (code & 0x7fu) == 0x7fu ? CUDART_NAN_F : v;
}

__global__ void __launch_bounds__(kFp8Threads) linear_fp8_fp8_fwd_widen_kernel(const widen_task p)
{
  const int64_t units = p.to_step / kUnit, all = p.rows * units;
  for (int64_t i = (int64_t)blockIdx.x * kFp8Threads + threadIdx.x; i < all;
       i += (int64_t)gridDim.x * kFp8Threads) {
    const int64_t row = i / units, k = (i - row * units) * kUnit;
    const uint8_t *from = p.codes + row * p.from_step + k;
    pack<uint8_t, kUnit> codes = {};
    if (p.aligned && k + kUnit <= p.in) {
      codes = *reinterpret_cast<const pack<uint8_t, kUnit> *>(from);
    } else {
      for (int j = 0; j < kUnit && k + j < p.in; j++) {
        codes.e[j] = from[j];
      }
    }
    float v[kUnit];
#pragma unroll
    for (int j = 0; j < kUnit; j++) {
      v[j] = widen_code(codes.e[j]);
    }
    store(p.to + row * p.to_step + k, v);
  }
}

tg_status widen(const tg_context *ctx, const uint8_t *codes, int64_t from_step, int64_t rows,
                int64_t in, bf16 *to, int64_t to_step)
{
  widen_task p = {};
  p.codes = codes;
  p.to = to;
  p.rows = rows;
  p.in = in;
  p.from_step = from_step;
  p.to_step = to_step;
  p.aligned = (uintptr_t)codes % kUnit == 0 && from_step % kUnit == 0;
  return launch(ctx, linear_fp8_fp8_fwd_widen_kernel,
                grid_of(divide_up(rows * (to_step / kUnit), kFp8Threads)), kFp8Threads, 0, p);
}

struct finish_task {
  const float *sums, *row_scale, *column_scale;
  int64_t sums_step, y_step, rows, first, out; /* columns of y, from the first on */
  bool one_column_scale;
  const void *bias;
  void *y; /* may be the sums */
  tg_dtype bias_dtype, y_dtype;
};

__global__ void __launch_bounds__(kFp8Threads) linear_fp8_fp8_fwd_finish_kernel(const finish_task p)
{
  for (int64_t i = (int64_t)blockIdx.x * kFp8Threads + threadIdx.x; i < p.rows * p.out;
       i += (int64_t)gridDim.x * kFp8Threads) {
    const int64_t row = i / p.out, column = i - row * p.out, o = p.first + column;
    float v = p.sums[row * p.sums_step + column] * p.row_scale[row];
    v = v * p.column_scale[p.one_column_scale ? 0 : o];
    if (p.bias) {
      v = v + load_any(p.bias, p.bias_dtype, o);
    }
    store_any(p.y, p.y_dtype, row * p.y_step + o, v);
  }
}

/* Of the rows of W from `first` on. */
gemm_call product_of(const tg_linear_fp8_fp8_fwd_args *a, const wide_parts &parts, int64_t first)
{
  const int64_t left = a->y.shape[1] - first;
  gemm_call c;
  c.m = a->x.shape[0];
  c.n = left < kOutputs ? left : kOutputs;
  c.k = a->x.shape[1];
  c.a.data = parts.x;
  c.b.data = parts.w;
  c.a.dtype = c.b.dtype = TG_BF16;
  c.a.row_step = c.b.col_step = parts.step;
  c.a.col_step = c.b.row_step = 1;
  c.c = a->y.dtype == TG_F32 ? static_cast<float *>(a->y.data) + first : parts.sums;
  c.c_row_step = a->y.dtype == TG_F32 ? tgi_stride(&a->y, 0) : c.n;
  return c;
}

tg_status finish(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a, const gemm_call &c,
                 int64_t first, const float *row_scale)
{
  finish_task p = {};
  p.sums = static_cast<const float *>(c.c);
  p.sums_step = c.c_row_step;
  p.row_scale = row_scale;
  p.column_scale = static_cast<const float *>(a->weight_scale.data);
  p.one_column_scale = a->weight_scale.shape[0] == 1;
  p.rows = c.m;
  p.first = first;
  p.out = c.n;
  if (tgi_present(&a->bias)) {
    p.bias = a->bias.data;
    p.bias_dtype = a->bias.dtype;
  }
  p.y = a->y.data;
  p.y_dtype = a->y.dtype;
  p.y_step = tgi_stride(&a->y, 0);
  return launch(ctx, linear_fp8_fp8_fwd_finish_kernel, grid_of(divide_up(c.m * c.n, kFp8Threads)),
                kFp8Threads, 0, p);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_fp8_fp8_fwd)(const tg_context *,
                                                    const tg_linear_fp8_fp8_fwd_args *a)
{
  return (size_t)wide_parts_of(a).bytes;
}

extern "C" tg_status TGI_KERNEL(linear_fp8_fp8_fwd)(const tg_context *ctx,
                                                    const tg_linear_fp8_fp8_fwd_args *a)
{
  const wide_parts parts = wide_parts_of(a);
  const fp8_rows x = fp8_rows_of(a);
  const int64_t w_step = tgi_stride(&a->weight, 0);
  const uint8_t *w = static_cast<const uint8_t *>(a->weight.data);
  tg_status status = a->x.dtype == TG_F8_E4M3 ? TG_OK : make_fp8_rows(ctx, a);
  if (status == TG_OK) {
    status = widen(ctx, x.codes, x.step, a->x.shape[0], a->x.shape[1], parts.x, parts.step);
  }
  for (int64_t first = 0; first < a->y.shape[1] && status == TG_OK; first += kOutputs) {
    const gemm_call c = product_of(a, parts, first);
    status = widen(ctx, w + first * w_step, w_step, c.n, c.k, parts.w, parts.step);
    status = status == TG_OK ? plain_product(ctx, c) : status;
    status = status == TG_OK ? finish(ctx, a, c, first, x.scale) : status;
  }
  return status;
}

extern "C" void TGI_PLAN(linear_fp8_fp8_fwd)(const tg_context *,
                                             const tg_linear_fp8_fp8_fwd_args *a, char *text,
                                             size_t bytes)
{
  snprintf(text, bytes, "codes%s as bf16, a product of these, scales behind it",
           a->x.dtype == TG_F8_E4M3 ? "" : " made of x, and");
}
