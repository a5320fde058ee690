/* Products of one matrix and another on tensor cores, for linear layers: see dense_product.h.
 *
 * Method     gemm_sm80.cuh; bias, activation, saved pre-activation and residual are made while a
 *            tile is written.
 * Work       A tile of 128 x 128 for a block; of 64 x 64 where these are too few for the device, or
 *            of 16 x 32 for up to 16 rows. An element's bits are the same whichever.
 * Bound      Tensor cores; few rows: memory.
 */
#include "cuda/gemm/dense_product.h"
#include "cuda/gemm/gemm_dense_sm80.cuh"

#include <limits.h>

namespace
{

/* What a call is to the kernels. */
struct dense_form {
  bool taken, a_turned, b_turned;
  mma_operand a, b;
};

/* `lines` x k; of rows or columns, whichever are contiguous. */
bool operand_of(const gemm_operand &o, bool is_a, int64_t lines, int64_t k, mma_operand *to,
                bool *turned)
{
  const int64_t line_step = is_a ? o.row_step : o.col_step, k_step = is_a ? o.col_step : o.row_step;
  const bool along = k_step == 1 || k == 1;
  if (!along && line_step != 1 && lines != 1) {
    return false;
  }
  const int64_t step = along ? line_step : k_step, rows = along ? lines : k;
  *turned = !along;
  to->data = static_cast<const char *>(o.data);
  to->row_bytes = rows == 1 ? 0 : (uint32_t)(2 * step); /* of one row nobody's business */
  to->vectors = (uintptr_t)o.data % 16 == 0 && to->row_bytes % 16 == 0;
  to->whole = lines % kMmaChunk == 0;
  return rows == 1 || (step >= 0 && step < INT_MAX);
}

dense_form form_of(const gemm_call &c)
{
  dense_form f = {};
  f.taken = c.outer * c.inner == 1 && c.alpha == 1 && c.a.dtype == c.b.dtype &&
            c.a.dtype != TG_F32 && (c.c_col_step == 1 || c.n == 1) && c.m < INT_MAX / 2 &&
            c.n < INT_MAX / 2 && c.k < INT_MAX / 2 &&
            operand_of(c.a, true, c.m, c.k, &f.a, &f.a_turned) &&
            operand_of(c.b, false, c.n, c.k, &f.b, &f.b_turned) && (!f.a_turned || f.b_turned) &&
            (c.c_dtype == TG_F32 || c.c_dtype == c.a.dtype);
  return f;
}

mma_result result_of(void *data, tg_dtype dtype, int64_t step)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(dtype);
  mma_result r = {};
  r.data = data;
  r.dtype = dtype;
  r.step = step;
  r.vectors = (uintptr_t)data % 16 == 0 && step * bytes % 16 == 0;
  return r;
}

enum dense_shape { kLarge, kMiddle, kFew };

dense_shape shape_of(const tg_context *ctx, const gemm_call &c, const dense_form &f)
{
  const int64_t tiles = divide_up(c.m, mma_large::kM) * divide_up(c.n, mma_large::kN);
  if (c.m <= mma_few::kM && !f.a_turned) {
    return kFew;
  }
  return c.m > mma_middle::kM && tiles >= ctx->device->multiprocessors && mma_fits<mma_large>(ctx)
             ? kLarge
             : kMiddle;
}

template <typename T, typename Shape, bool kATurned, bool kBTurned>
tg_status run(const tg_context *ctx, const gemm_call &c, const dense_form &f,
              const dense_finish &finish)
{
  dense_job<T> j = {};
  j.a = f.a;
  j.b = f.b;
  j.c = result_of(c.c, c.c_dtype, c.c_row_step);
  if (tgi_present(&finish.preactivation)) {
    j.z = mma_result_of(&finish.preactivation);
  }
  if (c.accumulate) {
    j.add = j.c;
  } else if (tgi_present(&finish.add)) {
    j.add = mma_result_of(&finish.add);
  }
  j.bias = c.bias;
  j.bias_dtype = c.bias_dtype;
  j.activation = finish.activation;
  j.m = c.m;
  j.n = c.n;
  j.steps = (int)c.k;
  j.row_tiles = (int)divide_up(c.m, Shape::kM);
  j.column_tiles = (int)divide_up(c.n, Shape::kN);
  return gemm_mma_launch<T, Shape, kATurned, kBTurned>(ctx, j,
                                                       (int64_t)j.row_tiles * j.column_tiles);
}

template <typename T, bool kATurned, bool kBTurned>
tg_status run_shape(const tg_context *ctx, const gemm_call &c, const dense_form &f,
                    const dense_finish &finish)
{
  switch (shape_of(ctx, c, f)) {
  case kLarge:
    return run<T, mma_large, kATurned, kBTurned>(ctx, c, f, finish);
  case kMiddle:
    return run<T, mma_middle, kATurned, kBTurned>(ctx, c, f, finish);
  default:
    if constexpr (kATurned) {
      return TG_UNSUPPORTED; /* shape_of says so to none */
    } else {
      return run<T, mma_few, kATurned, kBTurned>(ctx, c, f, finish);
    }
  }
}

template <typename T>
tg_status run_form(const tg_context *ctx, const gemm_call &c, const dense_form &f,
                   const dense_finish &finish)
{
  return f.a_turned   ? run_shape<T, true, true>(ctx, c, f, finish)
         : f.b_turned ? run_shape<T, false, true>(ctx, c, f, finish)
                      : run_shape<T, false, false>(ctx, c, f, finish);
}

} // namespace

extern "C" tg_status tgi_dense_product(const tg_context *ctx, const gemm_call *call,
                                       const dense_finish *finish)
{
  const dense_form f = form_of(*call);
  if (!f.taken) {
    return TG_UNSUPPORTED;
  }
  if (call->m == 0 || call->n == 0) {
    return TG_OK;
  }
  return call->a.dtype == TG_F16 ? run_form<f16>(ctx, *call, f, *finish)
                                 : run_form<bf16>(ctx, *call, f, *finish);
}

extern "C" bool tgi_dense_product_plan(const tg_context *ctx, const gemm_call *call, char *text,
                                       size_t bytes)
{
  static const char *const shapes[] = {"128 x 128", "64 x 64", "16 x 32"};
  const dense_form f = form_of(*call);
  if (f.taken) {
    snprintf(text, bytes, "mma.sync, %s, tiles of %s",
             f.a_turned   ? "TN"
             : f.b_turned ? "NN"
                          : "NT",
             shapes[shape_of(ctx, *call, f)]);
  }
  return f.taken;
}
