/** Products of the ops: by cublasLt where the entry may (sm80 and later) and the context has it and
 * an algorithm for the form, else on tensor cores by dense_product.h, else by gemm_tile.cuh. */
#ifndef TGI_CUDA_PRODUCT_CUH
#define TGI_CUDA_PRODUCT_CUH

#include "cuda/gemm/dense_product.h"
#include "cuda/gemm/gemm_tile.cuh"

extern "C" {
#include "cuda/cublaslt/cublaslt.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** A matrix [rows, cols] that is contiguous along one of its axes. */
inline bool lt_matrix_of(const gemm_operand &o, int64_t rows, int64_t cols, tgi_lt_matrix *out)
{
  const bool by_rows = o.col_step == 1 || cols == 1;
  if (!by_rows && o.row_step != 1 && rows != 1) {
    return false;
  }
  const int64_t length = by_rows ? cols : rows, step = by_rows ? o.row_step : o.col_step;
  out->data = o.data;
  out->dtype = o.dtype;
  out->step = step < length ? length : step; /* of one run the step is nobody's business */
  out->turned = !by_rows;
  return true;
}

/** The call as cublasLt takes it. False: not in this entry or context, or not such a call. */
inline bool lt_product_of(const tg_context *ctx, const gemm_call &c, tgi_lt_product *out)
{
  *out = {};
  if (TGI_VIRTUAL < 80 || !tgi_lt_ready(ctx) || c.outer * c.inner != 1 || c.alpha != 1 ||
      (c.c_col_step != 1 && c.n != 1) || !lt_matrix_of(c.a, c.m, c.k, &out->a) ||
      !lt_matrix_of(c.b, c.k, c.n, &out->b)) {
    return false;
  }
  out->m = c.m;
  out->n = c.n;
  out->k = c.k;
  out->c = c.c;
  out->c_dtype = c.c_dtype;
  out->c_step = c.c_row_step < c.n ? c.n : c.c_row_step;
  out->add = c.accumulate ? c.c : nullptr;
  out->add_step = out->c_step;
  out->bias = c.bias;
  out->bias_dtype = c.bias_dtype;
  return true;
}

inline tg_status product(const tg_context *ctx, const gemm_call &c)
{
  tgi_lt_product p;
  const tg_status status = lt_product_of(ctx, c, &p) ? tgi_lt_multiply(ctx, &p) : TG_UNSUPPORTED;
  return status == TG_UNSUPPORTED ? plain_product(ctx, c) : status;
}

/** How product would run it. */
inline void product_plan(const tg_context *ctx, const gemm_call &c, char *text, size_t bytes)
{
  tgi_lt_product p;
  if (lt_product_of(ctx, c, &p) && tgi_lt_plan(ctx, &p)) {
    snprintf(text, bytes, "cublasLt [%lld, %lld] x [%lld, %lld]", (long long)c.m, (long long)c.k,
             (long long)c.k, (long long)c.n);
  } else if (!dense_product_plan(ctx, c, text, bytes)) {
    gemm_tile_plan(ctx, c, text, bytes);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
