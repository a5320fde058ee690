/** How the ops run products with packed quantised weights on tensor cores: which block takes how
 * many rows, and from how many rows on the weight is widened once. */
#ifndef TGI_CUDA_QUANTISED_PRODUCT_CUH
#define TGI_CUDA_QUANTISED_PRODUCT_CUH

#include "cuda/gemm/product.cuh"
#include "cuda/gemm/quantised/quantised_widen.cuh"

#include <type_traits>

inline namespace TGI_CUDA_ENTRY
{

/** From how many rows on reading a widened weight costs less than widening it for each strip. */
constexpr int64_t kWidenRows = 193;

/** The fields that the three ops' calls share. */
template <typename Args>
quantised_product quantised_product_of(const Args *a, const packed_weight &w, int64_t panel_bytes,
                                       int stage_bytes)
{
  quantised_product p = {};
  p.x = a->x.data;
  p.rows = a->x.shape[0];
  p.x_step = tgi_stride(&a->x, 0);
  p.w = w;
  p.panel_bytes = panel_bytes;
  p.stage_bytes = stage_bytes;
  p.y = a->y.data;
  p.y_dtype = a->y.dtype;
  p.y_step = tgi_stride(&a->y, 0);
  if (tgi_present(&a->bias)) {
    p.bias = a->bias.data;
    p.bias_dtype = a->bias.dtype;
  }
  return p;
}

constexpr int kStripRows = 32; /* at most, of x in a block */

/** Rows of x in a block. */
inline int strip_of(int64_t rows)
{
  return rows <= 8 ? 8 : rows <= 16 ? 16 : kStripRows;
}

constexpr int64_t kSliceRows = 65535 * 8; /* that a grid takes in strips of any size */

/** Whether the kernels take the weight. */
template <typename Args> bool takes_packed(const Args *a)
{
  const int64_t chunks = divide_up(a->x.shape[1], (int64_t)kChunk);
  const int64_t panels = divide_up(a->y.shape[1], (int64_t)TGI_PANEL_ROWS);
  return chunks > 0 && panels <= INT32_MAX / chunks && (uintptr_t)a->weight.data % 16 == 0;
}

/** Whether they take x as it is: rows of whole vectors. The step counts of one row, too, or it
 * would have other bits than among others. */
template <typename Args> bool takes_quantised(const Args *a)
{
  return a->x.dtype != TG_F32 && a->x.shape[1] % 8 == 0 && rows_aligned(&a->x, 16) &&
         tgi_stride(&a->x, 0) % 8 == 0 && takes_packed(a);
}

/** Whether a call of that many rows is the widened weight's. f16 is not: its range is less than
 * that of weights. */
template <typename Args> bool widens_quantised(const tg_context *ctx, const Args *a)
{
  return a->x.shape[0] >= kWidenRows && a->x.dtype == TG_BF16 && a->y.dtype == TG_BF16 &&
         tgi_lt_ready(ctx);
}

template <typename Args> size_t widened_bytes(const tg_context *ctx, const Args *a)
{
  return widens_quantised(ctx, a) ? (size_t)(a->y.shape[1] * widened_step(a->x.shape[1])) * 2 : 0;
}

template <typename Operand, typename B>
bool has_room(const tg_context *ctx, const quantised_product &p)
{
  constexpr int kTile = Operand::template rows<B::kTiles>::kTileBytes;
  return B::shared_bytes(p, kTile) <= (size_t)ctx->device->shared_bytes;
}

/** A kernel, what a block takes, and its shared memory. */
struct strips_choice {
  void (*kernel)(quantised_product);
  int panels, rows, threads;
  size_t shared;
};

/** Starts the kernel. One function for all: its code would be as large for each of them. */
__attribute__((noinline)) inline tg_status
start_strips(const tg_context *ctx, const quantised_product &p, const strips_choice &c)
{
  const int64_t panels = divide_up(p.w.out, TGI_PANEL_ROWS);
  const dim3 grid((unsigned)divide_up(panels, (int64_t)c.panels),
                  (unsigned)divide_up(p.rows, (int64_t)c.rows));
  /* Where a multiprocessor has room for two, the next call's blocks would gather on some. */
  const size_t alone = (size_t)ctx->device->shared_bytes / 2 + 1024;
  const bool pads = may_overlap(ctx) && c.shared < alone &&
                    (int64_t)grid.x * grid.y <= ctx->device->multiprocessors;
  return launch_overlapping(ctx, c.kernel, grid, c.threads, pads ? alone : c.shared, p);
}

/** In blocks of the first of these that the GPU has the shared memory for: a data centre's has 163
 * KiB at least, others have 99. */
template <typename Operand, typename T, typename First, typename... Others>
tg_status launch_quantised(const tg_context *ctx, const quantised_product &p)
{
  if constexpr (sizeof...(Others) > 0) {
    if (!has_room<Operand, First>(ctx, p)) {
      return launch_quantised<Operand, T, Others...>(ctx, p);
    }
  }
  constexpr int kTile = Operand::template rows<First::kTiles>::kTileBytes;
  return start_strips(ctx, p,
                      {quantised_product_kernel<Operand, T, First>, First::kPanels, First::kRows,
                       First::kThreads, First::shared_bytes(p, kTile)});
}

constexpr int64_t kFewRows = 16;

/** Up to kFewRows rows, in blocks of one, two or four panels: where there are more panels than the
 * GPU has multiprocessors x is read less often, and of more than twice as many blocks of four are
 * done in fewer waves. */
template <typename Operand, typename T>
tg_status multiply_few(const tg_context *ctx, const quantised_product &p)
{
  using one8 = quantised_block<1, 1, 1, 2>;
  using one16 = quantised_block<1, 1, 2, 2>;
  const int64_t panels = divide_up(p.w.out, TGI_PANEL_ROWS);
  const int64_t places = ctx->device->multiprocessors;
  using quads = typename Operand::quads;
  if constexpr (!std::is_void<quads>::value) {
    using four8 = quantised_block<4, 2, 1, 2>;
    using four16 = quantised_block<4, 4, 2, 2>;
    const bool many = panels > 2 * places && quads::takes(p);
    if (many && p.rows <= 8 && has_room<quads, four8>(ctx, p)) {
      return launch_quantised<quads, T, four8>(ctx, p);
    }
    if (many && p.rows > 8 && has_room<quads, four16>(ctx, p)) {
      return launch_quantised<quads, T, four16>(ctx, p);
    }
  }
  if (p.rows > 8) {
    return panels > places
               ? launch_quantised<Operand, T, quantised_block<2, 2, 2, 2>, one16, one8>(ctx, p)
               : launch_quantised<Operand, T, one16, one8>(ctx, p);
  }
  if (panels > 2 * places) {
    return launch_quantised<Operand, T, one8>(ctx, p);
  }
  return panels > places ? launch_quantised<Operand, T, quantised_block<2, 1, 1, 2>, one8>(ctx, p)
                         : launch_quantised<Operand, T, quantised_block<1, 1, 1, 3>, one8>(ctx, p);
}

template <typename Operand, typename T>
tg_status multiply_strips(const tg_context *ctx, const quantised_product &p)
{
  using one8 = quantised_block<1, 1, 1, 2>;
  using one16 = quantised_block<1, 1, 2, 2>;
  return p.rows <= kFewRows
             ? multiply_few<Operand, T>(ctx, p)
             : launch_quantised<Operand, T, quantised_block<1, 1, 4, 2>, one16, one8>(ctx, p);
}

template <typename Operand>
tg_status multiply_widened(const tg_context *ctx, const quantised_product &p, void *workspace)
{
  bf16 *widened = static_cast<bf16 *>(workspace);
  const tg_status status = widen_weight<Operand>(ctx, p, widened);
  gemm_call c = {};
  c.m = p.rows;
  c.n = p.w.out;
  c.k = p.w.in;
  c.a.data = p.x;
  c.a.dtype = c.b.dtype = TG_BF16;
  c.a.row_step = p.x_step;
  c.b.data = widened;
  c.b.row_step = 1;
  c.b.col_step = widened_step(p.w.in);
  c.c = p.y;
  c.c_dtype = p.y_dtype;
  c.c_row_step = p.y_step;
  c.bias = p.bias;
  c.bias_dtype = p.bias_dtype;
  return status ? status : product(ctx, c);
}

/** In slices of rows, of x that is not digits: a row's bits are the same in any. */
template <typename Operand, typename T>
tg_status multiply_slices(const tg_context *ctx, const quantised_product &p)
{
  const int64_t y_bytes = p.y_step * (int64_t)tg_dtype_bytes(p.y_dtype);
  tg_status status = TG_OK;
  for (int64_t first = 0; first < p.rows && status == TG_OK; first += kSliceRows) {
    quantised_product slice = p;
    slice.x = static_cast<const T *>(p.x) + first * p.x_step;
    slice.y = static_cast<char *>(p.y) + first * y_bytes;
    slice.rows = p.rows - first < kSliceRows ? p.rows - first : kSliceRows;
    status = multiply_strips<Operand, T>(ctx, slice);
  }
  return status;
}

template <typename Operand, typename Args>
tg_status multiply_quantised(const tg_context *ctx, const Args *a, const quantised_product &p)
{
  if (widens_quantised(ctx, a)) {
    return multiply_widened<Operand>(ctx, p, a->workspace);
  }
  return a->x.dtype == TG_BF16 ? multiply_slices<Operand, bf16>(ctx, p)
                               : multiply_slices<Operand, f16>(ctx, p);
}

template <typename Args>
void tell_quantised(const tg_context *ctx, const Args *a, char *text, size_t bytes)
{
  if (widens_quantised(ctx, a)) {
    snprintf(text, bytes, "weight widened to bf16, then cublasLt");
  } else {
    snprintf(text, bytes, "tensor cores, weight widened in registers, strips of %d rows",
             strip_of(a->x.shape[0]));
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
