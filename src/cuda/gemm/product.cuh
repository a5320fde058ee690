/** Products of the ops, from the entry sm80 on: on Hopper by its tiles (dense_product.h) or by
 * cublasLt, whichever is faster; elsewhere by cublasLt. It needs a prepared context and an
 * algorithm for the form. All else: gemm_tile.cuh. */
#ifndef TGI_CUDA_PRODUCT_CUH
#define TGI_CUDA_PRODUCT_CUH

#include "cuda/gemm/gemm_tile.cuh"
#include "cuda/gemm/tiles_product.h"

extern "C" {
#include "cuda/cublaslt/cublaslt.h"
#include "cuda/gemm/gemm_choice.h"
#include "cuda/runtime/measured_products.h"
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
  out->allow_tf32 = c.allow_tf32;
  return true;
}

/** Whether Hopper's tiles run the call, not cublasLt: 1 to 64 rows whatever a table says, else by
 * the context's measurements, else by the table that is built in. */
inline bool tiles_come_first(const tg_context *ctx, const tiles_call &call)
{
  return !tgi_lt_ready(ctx) || tgi_gemm_is_first_class(&call.problem) ||
         (call.tuned != TGI_TUNED_NONE ? call.tuned != TGI_TUNED_LT
                                       : !tgi_gemm_prefers_lt(&call.problem, &call.plan));
}

/** Whether cublasLt is to be tried before our own kernels; `call` counts if it `is_dense`. */
inline bool lt_comes_first(const tg_context *ctx, bool is_dense, const tiles_call &call)
{
  return !is_dense || !tiles_come_first(ctx, call);
}

/** Between tg_tune_begin and tg_tune_end: measures the call's candidates. `by_lt` runs cublasLt's.
 */
template <typename ByLt>
tg_status measure_tiles(const tg_context *ctx, tiles_call *call, const ByLt &by_lt)
{
  struct candidates {
    const tg_context *ctx;
    const tiles_call *call;
    const ByLt *by_lt;
  };
  if (!tgi_tune_wants(ctx, &call->key)) {
    return TG_OK;
  }
  const bool has_lt = tgi_lt_ready(ctx) && !tgi_gemm_is_first_class(&call->problem);
  const int all[TGI_CANDIDATES] = {256, 192, 128, has_lt ? TGI_TUNED_LT : TGI_TUNED_NONE};
  candidates state = {ctx, call, &by_lt};
  const tg_status status = tgi_tune_measure(
      ctx, &call->key, &all,
      [](void *given, int candidate) -> tg_status {
        const candidates *c = static_cast<const candidates *>(given);
        tiles_call one = *c->call;
        if (candidate == TGI_TUNED_LT) {
          return (*c->by_lt)();
        }
        return tiles_take_width(c->ctx, &one, candidate) ? tiles_multiply(c->ctx, one)
                                                         : TG_UNSUPPORTED;
      },
      &state);
  look_up_tiles(ctx, call);
  return status;
}

inline tg_status product(const tg_context *ctx, const gemm_call &c)
{
  tiles_call dense;
  const auto by_lt = [&] {
    tgi_lt_product p;
    return lt_product_of(ctx, c, &p) ? tgi_lt_multiply(ctx, &p) : TG_UNSUPPORTED;
  };
  const bool is_dense = tiles_call_of(ctx, c, {}, &dense);
  tg_status status = is_dense ? measure_tiles(ctx, &dense, by_lt) : TG_OK;
  if (status != TG_OK) {
    return status;
  }
  status = lt_comes_first(ctx, is_dense, dense) ? by_lt() : TG_UNSUPPORTED;
  if (status != TG_UNSUPPORTED) {
    return status;
  }
  return is_dense ? tiles_multiply(ctx, dense) : plain_product(ctx, c);
}

inline void lt_plan_text(const gemm_call &c, char *text, size_t bytes)
{
  const bool rounds = c.allow_tf32 && c.a.dtype == TG_F32;
  snprintf(text, bytes, "cublasLt%s [%lld, %lld] x [%lld, %lld]", rounds ? ", TF32," : "",
           (long long)c.m, (long long)c.k, (long long)c.k, (long long)c.n);
}

/** How product would run it. */
inline void product_plan(const tg_context *ctx, const gemm_call &c, char *text, size_t bytes)
{
  tiles_call dense;
  tgi_lt_product p;
  const bool is_dense = tiles_call_of(ctx, c, {}, &dense);
  if (lt_comes_first(ctx, is_dense, dense) && lt_product_of(ctx, c, &p) && tgi_lt_plan(ctx, &p)) {
    lt_plan_text(c, text, bytes);
  } else if (is_dense) {
    tgi_gemm_plan_text(&dense.problem, &dense.plan, text, bytes);
  } else if (!dense_product_plan(ctx, c, text, bytes)) {
    gemm_tile_plan(ctx, c, text, bytes);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
