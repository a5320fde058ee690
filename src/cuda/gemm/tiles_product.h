/** Dense products on Hopper's tensor cores, as the ops describe them, and the functions that start
 * them, each in a file of its own with its kernels. */
#ifndef TGI_CUDA_TILES_PRODUCT_H
#define TGI_CUDA_TILES_PRODUCT_H

#include "cuda/gemm/dense_product.h"

extern "C" {
#include "core/tuned_products.h"
}

/** A product with its plan. */
struct tiles_call {
  gemm_call product;
  dense_finish finish;
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  tgi_tuned_key key;
  int tuned; /* the candidate that the context's table has for it, or TGI_TUNED_NONE */
};

extern "C" {
/** Runs a call whose plan is taken: NT, NN and TN. NULL in a build without Hopper's entry. */
tg_status tgi_dense_nt_sm90(const tg_context *ctx, const tiles_call *call) __attribute__((weak));
tg_status tgi_dense_nn_sm90(const tg_context *ctx, const tiles_call *call) __attribute__((weak));
tg_status tgi_dense_tn_sm90(const tg_context *ctx, const tiles_call *call) __attribute__((weak));
}

inline namespace TGI_CUDA_ENTRY
{

/** Rows that TMA copies: they begin at multiples of 16 bytes. Of one row, too, the step counts:
 * what multiplies it must not depend on the number of rows. */
inline bool tiles_vectors(const void *data, tg_dtype dtype, int64_t step)
{
  return (uintptr_t)data % 16 == 0 && step * (int64_t)tg_dtype_bytes(dtype) % 16 == 0;
}

/** Rows that threads read and write in pairs; or none. */
inline bool tiles_pairs(const tg_tensor *t)
{
  return !tgi_present(t) ||
         ((uintptr_t)t->data % (2 * tg_dtype_bytes(t->dtype)) == 0 && tgi_stride(t, 0) % 2 == 0);
}

/** An operand [lines, k]; false: contiguous along neither axis. */
inline bool tiles_operand(const gemm_operand &o, int64_t lines, int64_t k, int64_t line_step,
                          int64_t k_step, tgi_gemm_operand *out)
{
  const bool along = k_step == 1 || k == 1;
  out->dtype = o.dtype;
  out->major = along ? TGI_GEMM_ALONG_K : TGI_GEMM_ACROSS_K;
  out->vectors =
      along ? tiles_vectors(o.data, o.dtype, line_step) : tiles_vectors(o.data, o.dtype, k_step);
  return along || line_step == 1 || lines == 1;
}

/** Gives the call the plan of tiles of such a width; false: they do not take it. */
inline bool tiles_take_width(const tg_context *ctx, tiles_call *call, int width)
{
  const tgi_gemm_device device = gemm_device_of(ctx);
  const tgi_gemm_plan plan = tgi_gemm_plan_tiles_sm90(&call->problem, &device, width);
  if (plan.kernel != TGI_GEMM_NOT_TAKEN) {
    call->plan = plan;
  }
  return plan.kernel != TGI_GEMM_NOT_TAKEN;
}

/** What the context's table of measurements says of the call. */
inline void look_up_tiles(const tg_context *ctx, tiles_call *call)
{
  call->tuned = tgi_tuned_find(ctx->device->tuned, &call->key);
  if (call->tuned > TGI_TUNED_LT && !tiles_take_width(ctx, call, call->tuned)) {
    call->tuned = TGI_TUNED_NONE;
  }
}

/** The call on Hopper's tiles. False: not on this device or in this context, or not such a call. */
inline bool tiles_call_of(const tg_context *ctx, const gemm_call &c, const dense_finish &finish,
                          tiles_call *out)
{
  if (TGI_VIRTUAL < 80 || !tgi_dense_nt_sm90 || ctx->chain.length == 0 ||
      strcmp(ctx->chain.entry[0], "sm90") != 0) {
    return false;
  }
  out->product = c;
  out->finish = finish;
  tgi_gemm_problem &p = out->problem;
  p = {};
  p.m = c.m;
  p.n = c.n;
  p.k = c.k;
  p.groups = 1;
  p.c = {c.c_dtype, TGI_GEMM_ACROSS_K, tiles_vectors(c.c, c.c_dtype, c.c_row_step)};
  p.adds = c.accumulate;
  p.finishes = finish.activation != TG_ACTIVATION_NONE || tgi_present(&finish.preactivation);
  p.reads = tgi_present(&finish.add) || (c.accumulate && c.c_dtype != TG_F32);
  if (c.outer * c.inner != 1 || c.alpha != 1 || (c.c_col_step != 1 && c.n != 1) ||
      !tiles_operand(c.a, c.m, c.k, c.a.row_step, c.a.col_step, &p.a) ||
      !tiles_operand(c.b, c.n, c.k, c.b.col_step, c.b.row_step, &p.b) ||
      !tiles_pairs(&finish.preactivation) || !tiles_pairs(&finish.add)) {
    return false;
  }
  const tgi_gemm_device device = gemm_device_of(ctx);
  const int finishes = p.finishes + 2 * p.reads;
  out->key = {p.m, p.n, p.k, p.a.dtype, p.c.dtype, p.a.major, p.b.major, p.adds, finishes};
  out->plan = tgi_gemm_plan_dense_sm90(&p, &device);
  look_up_tiles(ctx, out);
  return out->plan.kernel != TGI_GEMM_NOT_TAKEN;
}

/** Runs it. */
inline tg_status tiles_multiply(const tg_context *ctx, const tiles_call &call)
{
  return call.problem.a.major == TGI_GEMM_ACROSS_K   ? tgi_dense_tn_sm90(ctx, &call)
         : call.problem.b.major == TGI_GEMM_ACROSS_K ? tgi_dense_nn_sm90(ctx, &call)
                                                     : tgi_dense_nt_sm90(ctx, &call);
}

} // namespace TGI_CUDA_ENTRY

#endif
