/* Linear layers with int8 weights on CUDA.
 *
 * Method     Rows of x become integers in the workspace (cuda/digits.cuh): two or three digits of 8
 *            bits, or one in the dynamic mode. A digit is a line of its own in products of bytes
 *            by DP4A; sums are exact, so neither the shares of the warps nor the rows of a strip
 *            change a bit, and the bits are the CPU's.
 * Work       A panel of 32 rows of W by a strip of 1, 4 or 8 rows of x for a block of 16 warps,
 *            which take pieces of 32 or 64 columns in turns; a lane has a row of W.
 * Bound      One reading of W for few rows, DP4A for many.
 */
#include "cuda/digits.cuh"
#include "cuda/gemm/gemm_tile.cuh"
#include "cuda/packed_weight.cuh"
#include "ops/linear_int8/linear_int8_plain.cuh"

extern "C" {
#include "ops/linear_int8/linear_int8_packed.h"
}

namespace
{

constexpr int kWarps = 16;
constexpr int64_t kExactPieces = 1024; /* of a warp before its sums could leave 32 bits */

struct product_task {
  digit_strips x;
  packed_weight w;
  int64_t panels, panel_bytes, lines;
  const void *bias;
  void *y;
  int64_t y_step;
  tg_dtype bias_dtype, y_dtype;
};

template <int kPlanes, int kRows>
__global__ void __launch_bounds__(kWarps *kWarp, 1) linear_int8_fwd_kernel(const product_task p)
{
  constexpr int kLine = kPlanes * kRows, kUnitWords = unit_words_of(kPlanes, kRows);
  constexpr int kPieceLines = kRows == 8 ? 8 : 16, kPieceUnits = kPieceLines / 2;
  __shared__ int64_t part[kWarps][kRows][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const bool fits = packed_header_fits(p.w, blockIdx.x == 0 && threadIdx.x == 0);
  const int64_t pieces = divide_up(p.lines, kPieceLines);

  for (int64_t block = blockIdx.x; block < p.panels * p.x.strips; block += gridDim.x) {
    const int64_t panel = block / p.x.strips, strip = block - panel * p.x.strips;
    const uint8_t *head = p.w.data + TGI_PACKED_HEADER_BYTES + panel * p.panel_bytes;
    const uint8_t *weights = head + TGI_INT8_PANEL_HEAD + lane * TGI_INT8_LINE_K;
    const uint32_t *digits = p.x.words + strip * p.x.units * kUnitWords;
    int64_t n[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      n[r] = 0;
    }
    for (int64_t piece = warp; piece < pieces;) {
      int sums[kLine];
#pragma unroll
      for (int i = 0; i < kLine; i++) {
        sums[i] = 0;
      }
      for (int64_t i = 0; i < kExactPieces && piece < pieces; i++, piece += kWarps) {
        const int64_t first = piece * kPieceLines;
        uint32_t w[kPieceLines];
#pragma unroll
        for (int l = 0; l < kPieceLines; l++) {
          w[l] = first + l < p.lines
                     ? packed_word(weights + (first + l) * TGI_INT8_LINE_BYTES, p.w.aligned)
                     : 0u;
        }
        const uint32_t *unit = digits + piece * kPieceUnits * kUnitWords;
#pragma unroll
        for (int u = 0; u < kPieceUnits; u++, unit += kUnitWords) {
          /* 128 + W as a byte is W with its sign turned. */
          add_products<0, kLine>(unit, (int)(w[2 * u] ^ 0x80808080u), sums);
          add_products<kLine, kLine>(unit, (int)(w[2 * u + 1] ^ 0x80808080u), sums);
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        int64_t value = 0;
#pragma unroll
        for (int d = kPlanes - 1; d >= 0; d--) {
          value = 256 * value + sums[r * kPlanes + d];
        }
        n[r] += value;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      part[warp][r][lane] = n[r];
    }
    __syncthreads();
    const int64_t row = strip * kRows + warp, o = panel * TGI_PANEL_ROWS + lane;
    if (warp < kRows && row < p.x.rows && o < p.w.out) {
      int64_t total = 0;
#pragma unroll
      for (int v = 0; v < kWarps; v++) {
        total += part[v][warp][lane];
      }
      const float scale = packed_float(head + 4 * lane, p.w.aligned);
      const float offset = packed_float(head + 4 * (TGI_PANEL_ROWS + lane), p.w.aligned);
      const double exact = (double)total - ((double)offset - 128.0) * (double)p.x.sums[row];
      float y = (float)(exact * p.x.scale[row]) * scale;
      if (p.bias) {
        y = y + load_any(p.bias, p.bias_dtype, o);
      }
      store_any(p.y, p.y_dtype, row * p.y_step + o, fits ? y : CUDART_NAN_F);
    }
    __syncthreads();
  }
}

int planes_of(const tg_linear_int8_fwd_args *a)
{
  return a->mode == TG_INT8_DYNAMIC ? 1 : digits_for(a->y.dtype);
}

template <int kPlanes> tg_status multiply(const tg_context *ctx, const product_task &p)
{
  const dim3 grid = grid_of(p.panels * p.x.strips);
  const int threads = kWarps * kWarp;
  constexpr int kMost = most_strip_rows(kPlanes);
  if (p.x.strip_rows == 1) {
    return launch(ctx, linear_int8_fwd_kernel<kPlanes, 1>, grid, threads, 0, p);
  }
  return p.x.strip_rows == 4
             ? launch(ctx, linear_int8_fwd_kernel<kPlanes, 4>, grid, threads, 0, p)
             : launch(ctx, linear_int8_fwd_kernel<kPlanes, kMost>, grid, threads, 0, p);
}

template <int kPlanes> tg_status run(const tg_context *ctx, const product_task &p, tg_dtype x_dtype)
{
  const tg_status status = make_digits<kPlanes>(ctx, p.x, x_dtype);
  return status == TG_OK ? multiply<kPlanes>(ctx, p) : status;
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

size_t linear_int8_plain_bytes(const tg_linear_int8_fwd_args *a)
{
  digit_strips d;
  return digits_lay_out(&d, &a->x, planes_of(a), NULL);
}

tg_status linear_int8_plain(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  product_task p = {};
  digits_lay_out(&p.x, &a->x, planes_of(a), a->workspace);
  p.w = packed_weight_of(&a->weight, TGI_INT8_MAGIC, TGI_INT8_VERSION, out, in,
                         FAULT_SITE(ctx, linear_int8_fwd, weight));
  p.panels = tgi_panel_count(out);
  p.panel_bytes = tgi_int8_panel_bytes(in);
  p.lines = tgi_int8_lines(in);
  p.y = a->y.data;
  p.y_dtype = a->y.dtype;
  p.y_step = tgi_stride(&a->y, 0);
  if (tgi_present(&a->bias)) {
    p.bias = a->bias.data;
    p.bias_dtype = a->bias.dtype;
  }
  const int planes = planes_of(a);
  return planes == 1   ? run<1>(ctx, p, a->x.dtype)
         : planes == 2 ? run<2>(ctx, p, a->x.dtype)
                       : run<3>(ctx, p, a->x.dtype);
}

void tell_linear_int8_plain(const tg_linear_int8_fwd_args *a, char *text, size_t bytes)
{
  snprintf(text, bytes, "%d digits, blocks of %d rows x %d columns", planes_of(a),
           strip_rows_for(a->x.shape[0], planes_of(a)), TGI_PANEL_ROWS);
}

} // namespace TGI_CUDA_ENTRY

/* From 8.0 on linear_int8_sm80.cu has the entry's functions. */
#if TGI_VIRTUAL < 80
extern "C" size_t TGI_WORKSPACE(linear_int8_fwd)(const tg_context *,
                                                 const tg_linear_int8_fwd_args *a)
{
  return linear_int8_plain_bytes(a);
}

extern "C" tg_status TGI_KERNEL(linear_int8_fwd)(const tg_context *ctx,
                                                 const tg_linear_int8_fwd_args *a)
{
  return linear_int8_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_int8_fwd)(const tg_context *, const tg_linear_int8_fwd_args *a,
                                          char *text, size_t bytes)
{
  tell_linear_int8_plain(a, text, bytes);
}
#endif
