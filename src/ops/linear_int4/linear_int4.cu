/* Linear layers with int4 weights on CUDA.
 *
 * Method     Rows of x become integers of two or three 8-bit digits in the workspace
 *            (cuda/digits.cuh). DP4A multiplies them with the weights' 4 bits as bytes; per group
 *            the digits' sums make one exact integer, less 8 sum_k X, which is scaled and added in
 *            f32. Blocks of 128 columns go to the 16 warps in turns; a warp adds its groups in
 *            order, then the warps are added in order: an order that `in` alone decides.
 * Work       A panel of 32 rows of W by a strip of 1, 4 or 8 rows of x for a block; a lane has a
 *            row of W.
 * Bound      One reading of W for few rows, DP4A for many.
 */
#include "cuda/digits.cuh"
#include "cuda/gemm/gemm_tile.cuh"
#include "cuda/packed_weight.cuh"
#include "ops/linear_int4/linear_int4_plain.cuh"

extern "C" {
#include "ops/linear_int4/linear_int4_packed.h"
}

namespace
{

constexpr int kWarps = 16;
constexpr int kChunk = 128;                           /* columns: whole groups */
constexpr int kChunkLines = kChunk / TGI_INT4_LINE_K; /* 128 bytes each */
constexpr int kParts = kChunk / TGI_INT4_LEAST_GROUP, kPartLines = kChunkLines / kParts;

struct product_task {
  digit_strips x;
  packed_weight w;
  int64_t panels;
  const void *bias;
  void *y;
  int64_t y_step;
  tg_dtype bias_dtype, y_dtype;
};

/* How the weight is packed: from its header. */
struct layout {
  int64_t panel_bytes;
  int group_bytes, group_size, head_bytes, scale_bytes;
  bool zero_points;
};

/* False, and recorded, if no such weight has the bytes that there are. */
__device__ bool read_layout(const packed_weight &w, bool recorder, layout *l)
{
  if (!packed_header_fits(w, recorder)) {
    return false;
  }
  const uint8_t *h = w.data;
  const int64_t group_size = packed_long(h + offsetof(tgi_packed_header, group_size), w.aligned);
  const int scale = (int)packed_word(h + offsetof(tgi_packed_header, scale_dtype), w.aligned);
  l->zero_points = packed_word(h + offsetof(tgi_packed_header, zero_points), w.aligned) != 0;
  if (group_size != 32 && group_size != 64 && group_size != 128) {
    if (recorder) {
      record_fault(w.site, 0, group_size, 32, 128);
    }
    return false;
  }
  if (scale != TG_F32 && scale != TG_F16) {
    if (recorder) {
      record_fault(w.site, 0, scale, TG_F32, TG_F16);
    }
    return false;
  }
  l->group_size = (int)group_size;
  l->scale_bytes = scale == TG_F16 ? 2 : 4;
  l->head_bytes = TGI_PANEL_ROWS * (l->scale_bytes + (l->zero_points ? 1 : 0));
  l->group_bytes = l->head_bytes + l->group_size / TGI_INT4_LINE_K * TGI_INT4_LINE_BYTES;
  l->panel_bytes = divide_up(w.in, group_size) * l->head_bytes +
                   divide_up(w.in, TGI_INT4_LINE_K) * TGI_INT4_LINE_BYTES;
  const int64_t bytes = TGI_PACKED_HEADER_BYTES + divide_up(w.out, TGI_PANEL_ROWS) * l->panel_bytes;
  if (bytes != w.bytes && recorder) {
    record_fault(w.site, 0, bytes, w.bytes, w.bytes);
  }
  return bytes == w.bytes;
}

__device__ __forceinline__ float group_scale(const uint8_t *group, int lane, int bytes,
                                             bool aligned)
{
  if (bytes == 4) {
    return packed_float(group + 4 * lane, aligned);
  }
  const uint8_t *at = group + 2 * lane;
  const unsigned short half = aligned ? *reinterpret_cast<const unsigned short *>(at)
                                      : (unsigned short)(at[0] | at[1] << 8);
  return to_f32(__ushort_as_half(half));
}

/* total[r] += scale * sum_k X (W - z) of a group, whose digits' sums become 0. */
template <int kPlanes, int kRows>
__device__ __forceinline__ void add_group(int (&sums)[kPlanes * kRows], const int *x_sums,
                                          int blocks, float scale, float zero_shift,
                                          float (&total)[kRows])
{
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    int64_t x_sum = 0, n = 0;
    for (int b = 0; b < blocks; b++) {
      x_sum += x_sums[b * kRows + r];
    }
#pragma unroll
    for (int d = kPlanes - 1; d >= 0; d--) {
      n = 256 * n + sums[r * kPlanes + d];
      sums[r * kPlanes + d] = 0;
    }
    const float value = fmaf(zero_shift, (float)x_sum, (float)(n - 8 * x_sum));
    total[r] = fmaf(scale, value, total[r]);
  }
}

template <int kPlanes, int kRows>
__global__ void __launch_bounds__(kWarps *kWarp, 1) linear_int4_fwd_kernel(const product_task p)
{
  constexpr int kLine = kPlanes * kRows, kUnitWords = unit_words_of(kPlanes, kRows);
  constexpr int kBatch = kRows == 8 ? 1 : kParts; /* parts whose weights are read together */
  __shared__ float part[kWarps][kRows][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  layout l = {};
  const bool fits = read_layout(p.w, blockIdx.x == 0 && threadIdx.x == 0, &l);
  const int64_t in = fits ? p.w.in : 0;
  const int64_t chunks = divide_up(in, kChunk), lines = divide_up(in, TGI_INT4_LINE_K);
  const int parts_of_group = fits ? l.group_size / TGI_INT4_LEAST_GROUP : 1;

  for (int64_t block = blockIdx.x; block < p.panels * p.x.strips; block += gridDim.x) {
    const int64_t panel = block / p.x.strips, strip = block - panel * p.x.strips;
    const uint8_t *groups = p.w.data + TGI_PACKED_HEADER_BYTES + panel * l.panel_bytes;
    float total[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      total[r] = 0;
    }
    for (int64_t chunk = warp; chunk < chunks; chunk += kWarps) {
      const uint8_t *first = groups + chunk * (kParts / parts_of_group) * l.group_bytes;
      const int exist = lines - chunk * kChunkLines < kChunkLines
                            ? (int)(lines - chunk * kChunkLines)
                            : kChunkLines;
      const uint32_t *unit = p.x.words + (strip * p.x.units + chunk * kChunkLines) * kUnitWords;
      const int *x_sums = p.x.block_sums + (strip * p.x.blocks + chunk * kParts) * kRows;
      int sums[kLine];
#pragma unroll
      for (int i = 0; i < kLine; i++) {
        sums[i] = 0;
      }
#pragma unroll 1
      for (int q0 = 0; q0 < kParts && q0 * kPartLines < exist; q0 += kBatch) {
        uint32_t w[kBatch * kPartLines];
        float scale[kBatch], zero_shift[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
          const int q = q0 + b, g = q / parts_of_group;
          const uint8_t *group = first + g * l.group_bytes;
          const uint8_t *part_lines =
              group + l.head_bytes + (q - g * parts_of_group) * (kPartLines * TGI_INT4_LINE_BYTES);
          scale[b] = zero_shift[b] = 0;
          if (q * kPartLines < exist) {
            scale[b] = group_scale(group, lane, l.scale_bytes, p.w.aligned);
            if (l.zero_points) {
              zero_shift[b] = (float)(8 - (int)group[TGI_PANEL_ROWS * l.scale_bytes + lane]);
            }
          }
#pragma unroll
          for (int j = 0; j < kPartLines; j++) {
            w[b * kPartLines + j] =
                q * kPartLines + j < exist
                    ? packed_word(part_lines + j * TGI_INT4_LINE_BYTES + 4 * lane, p.w.aligned)
                    : 0u;
          }
        }
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
          const int q = q0 + b, begin = q / parts_of_group * parts_of_group;
          if (q * kPartLines >= exist) {
            break;
          }
#pragma unroll
          for (int j = 0; j < kPartLines; j++) {
            const uint32_t word = w[b * kPartLines + j];
            const uint32_t *of_line = unit + (q * kPartLines + j) * kUnitWords;
            add_products<0, kLine>(of_line, (int)(word & 0x0f0f0f0fu), sums);
            add_products<kLine, kLine>(of_line, (int)(word >> 4 & 0x0f0f0f0fu), sums);
          }
          if (q + 1 == begin + parts_of_group || (q + 1) * kPartLines >= exist) {
            add_group<kPlanes, kRows>(sums, x_sums + begin * kRows, q + 1 - begin, scale[b],
                                      zero_shift[b], total);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      part[warp][r][lane] = total[r];
    }
    __syncthreads();
    const int64_t row = strip * kRows + warp, o = panel * TGI_PANEL_ROWS + lane;
    if (warp < kRows && row < p.x.rows && o < p.w.out) {
      float sum = 0;
#pragma unroll
      for (int v = 0; v < kWarps; v++) {
        sum = sum + part[v][warp][lane];
      }
      float y = (float)((double)sum * p.x.scale[row]);
      if (p.bias) {
        y = y + load_any(p.bias, p.bias_dtype, o);
      }
      store_any(p.y, p.y_dtype, row * p.y_step + o, fits ? y : CUDART_NAN_F);
    }
    __syncthreads();
  }
}

template <int kPlanes> tg_status run(const tg_context *ctx, const product_task &p, tg_dtype x_dtype)
{
  const dim3 grid = grid_of(p.panels * p.x.strips);
  const int threads = kWarps * kWarp;
  const tg_status status = make_digits<kPlanes>(ctx, p.x, x_dtype);
  if (status != TG_OK) {
    return status;
  }
  constexpr int kMost = most_strip_rows(kPlanes);
  if (p.x.strip_rows == 1) {
    return launch(ctx, linear_int4_fwd_kernel<kPlanes, 1>, grid, threads, 0, p);
  }
  return p.x.strip_rows == 4
             ? launch(ctx, linear_int4_fwd_kernel<kPlanes, 4>, grid, threads, 0, p)
             : launch(ctx, linear_int4_fwd_kernel<kPlanes, kMost>, grid, threads, 0, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

size_t linear_int4_plain_bytes(const tg_linear_int4_fwd_args *a)
{
  digit_strips d;
  return digits_lay_out(&d, &a->x, digits_for(a->y.dtype), NULL);
}

tg_status linear_int4_plain(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  product_task p = {};
  digits_lay_out(&p.x, &a->x, digits_for(a->y.dtype), a->workspace);
  p.w = packed_weight_of(&a->weight, TGI_INT4_MAGIC, TGI_INT4_VERSION, out, in,
                         FAULT_SITE(ctx, linear_int4_fwd, weight));
  p.panels = tgi_panel_count(out);
  p.y = a->y.data;
  p.y_dtype = a->y.dtype;
  p.y_step = tgi_stride(&a->y, 0);
  if (tgi_present(&a->bias)) {
    p.bias = a->bias.data;
    p.bias_dtype = a->bias.dtype;
  }
  return digits_for(a->y.dtype) == 2 ? run<2>(ctx, p, a->x.dtype) : run<3>(ctx, p, a->x.dtype);
}

void tell_linear_int4_plain(const tg_linear_int4_fwd_args *a, char *text, size_t bytes)
{
  snprintf(text, bytes, "%d digits, blocks of %d rows x %d columns", digits_for(a->y.dtype),
           strip_rows_for(a->x.shape[0], digits_for(a->y.dtype)), TGI_PANEL_ROWS);
}

} // namespace TGI_CUDA_ENTRY

/* From 8.0 on linear_int4_sm80.cu has the entry's functions. */
#if TGI_VIRTUAL < 80
extern "C" size_t TGI_WORKSPACE(linear_int4_fwd)(const tg_context *,
                                                 const tg_linear_int4_fwd_args *a)
{
  return linear_int4_plain_bytes(a);
}

extern "C" tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  return linear_int4_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_int4_fwd)(const tg_context *, const tg_linear_int4_fwd_args *a,
                                          char *text, size_t bytes)
{
  tell_linear_int4_plain(a, text, bytes);
}
#endif
