/* Linear layers on CUDA, forward.
 *
 * Method     On Hopper's tiles (cuda/gemm/tiles_product.h) or through cublasLt, whichever a table
 *            says is faster, where the context has it: bias and residual within the product, GELU
 *            in a second pass over z. Else, of 16-bit x and weight of one dtype, and of f32 ones
 *            with allow_tf32, from compute capability 8.0 on: tensor cores
 *            (cuda/gemm/dense_product.h). Else, up to 16 rows: linear_few_rows.cuh; more:
 *            cuda/gemm/gemm_tile.cuh, both operands along k.
 *            All but cublasLt make bias, GELU, the saved preactivation and residual while y is
 *            written, and a row has the same bits alone and among others: for one pair of dtypes
 *            all sizes have the same order of sums.
 * Work       32 columns of y, or a tile of it, for a block.
 * Bound      Memory (one reading of W) for few rows, tensor cores or f32 arithmetic for many.
 */
#include "cuda/gemm/product.cuh"
#include "ops/linear/linear_few_rows.cuh"
#include "ops/linear/linear_finish.cuh"

namespace
{

gemm_call product_of(const tg_linear_fwd_args *a)
{
  gemm_call c;
  c.m = a->x.shape[0];
  c.n = a->weight.shape[0];
  c.k = a->x.shape[1];
  c.a.data = a->x.data;
  c.a.dtype = a->x.dtype;
  c.a.row_step = tgi_stride(&a->x, 0);
  c.b.data = a->weight.data; /* [out, in], read as [in, out] */
  c.b.dtype = a->weight.dtype;
  c.b.row_step = 1;
  c.b.col_step = tgi_stride(&a->weight, 0);
  c.c = a->y.data;
  c.c_dtype = a->y.dtype;
  c.c_row_step = tgi_stride(&a->y, 0);
  if (tgi_present(&a->bias)) {
    c.bias = a->bias.data;
    c.bias_dtype = a->bias.dtype;
  }
  c.allow_tf32 = a->allow_tf32;
  return c;
}

const tg_tensor *z_of(const tg_linear_fwd_args *a)
{
  return tgi_present(&a->preactivation) ? &a->preactivation : &a->y;
}

/* z as a product of cublasLt, where y's own memory or the preactivation can hold it. */
bool lt_call_of(const tg_context *ctx, const tg_linear_fwd_args *a, tgi_lt_product *p)
{
  const bool activates = a->activation != TG_ACTIVATION_NONE;
  const bool saves = tgi_present(&a->preactivation), adds = tgi_present(&a->residual);
  if ((activates && adds) || (!activates && saves) || !lt_product_of(ctx, product_of(a), p)) {
    return false;
  }
  const tg_tensor *z = z_of(a);
  p->c = z->data;
  p->c_step = tgi_stride(z, 0) < p->n ? p->n : tgi_stride(z, 0);
  if (adds) {
    p->add = a->residual.data;
    p->add_step = tgi_stride(&a->residual, 0) < p->n ? p->n : tgi_stride(&a->residual, 0);
  }
  return true;
}

/* By cublasLt; an activation follows. */
tg_status run_lt(const tg_context *ctx, const tg_linear_fwd_args *a)
{
  tgi_lt_product p;
  const tg_status status = lt_call_of(ctx, a, &p) ? tgi_lt_multiply(ctx, &p) : TG_UNSUPPORTED;
  if (status != TG_OK || a->activation == TG_ACTIVATION_NONE) {
    return status;
  }
  tg_gelu_fwd_args gelu = {};
  gelu.x = *z_of(a);
  gelu.y = a->y;
  gelu.approximation = a->activation == TG_ACTIVATION_GELU_TANH ? TG_GELU_TANH : TG_GELU_ERF;
  return TGI_KERNEL(gelu_fwd)(ctx, &gelu);
}

/* What follows the sums on tensor cores. */
dense_finish dense_finish_of(const tg_linear_fwd_args *a)
{
  dense_finish f;
  f.activation = a->activation;
  f.preactivation = a->preactivation;
  f.add = a->residual;
  return f;
}

few_rows_task few_rows_of(const tg_linear_fwd_args *a)
{
  few_rows_task p = {};
  p.x = a->x.data;
  p.weight = a->weight.data;
  p.y = a->y.data;
  p.rows = a->x.shape[0];
  p.in = a->x.shape[1];
  p.out = a->weight.shape[0];
  p.x_step = tgi_stride(&a->x, 0);
  p.weight_step = tgi_stride(&a->weight, 0);
  p.y_step = tgi_stride(&a->y, 0);
  p.x_dtype = a->x.dtype;
  p.weight_dtype = a->weight.dtype;
  p.y_dtype = a->y.dtype;
  p.aligned = rows_aligned(&a->weight, 16);
  if (tgi_present(&a->bias)) {
    p.bias = a->bias.data;
    p.bias_dtype = a->bias.dtype;
  }
  return p;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_fwd)(const tg_context *, const tg_linear_fwd_args *)
{
  return 0;
}

extern "C" tg_status TGI_KERNEL(linear_fwd)(const tg_context *ctx, const tg_linear_fwd_args *a)
{
  tiles_call dense;
  const bool is_dense = tiles_call_of(ctx, product_of(a), dense_finish_of(a), &dense);
  const tg_status measured =
      is_dense ? measure_tiles(ctx, &dense, [&] { return run_lt(ctx, a); }) : TG_OK;
  if (measured != TG_OK) {
    return measured;
  }
  if (lt_comes_first(ctx, is_dense, dense)) {
    const tg_status by_lt = run_lt(ctx, a);
    if (by_lt != TG_UNSUPPORTED) {
      return by_lt;
    }
  }
  if (is_dense) {
    return tiles_multiply(ctx, dense);
  }
  const tg_status by_cores = dense_product(ctx, product_of(a), dense_finish_of(a));
  if (by_cores != TG_UNSUPPORTED) {
    return by_cores;
  }
  if (a->x.shape[0] > kFewRowsMost) {
    return gemm_tile(ctx, product_of(a), finish_of(a));
  }
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->weight.dtype, T, status = few_rows_launch<T>(ctx, few_rows_of(a), finish_of(a)));
  return status;
}

/* Goes the way of the function above. */
extern "C" void TGI_PLAN(linear_fwd)(const tg_context *ctx, const tg_linear_fwd_args *a, char *text,
                                     size_t bytes)
{
  tiles_call dense;
  tgi_lt_product lt;
  const gemm_call product = product_of(a);
  const bool is_dense = tiles_call_of(ctx, product, dense_finish_of(a), &dense);
  if (lt_comes_first(ctx, is_dense, dense) && lt_call_of(ctx, a, &lt) && tgi_lt_plan(ctx, &lt)) {
    lt_plan_text(product, text, bytes);
  } else if (is_dense) {
    tgi_gemm_plan_text(&dense.problem, &dense.plan, text, bytes);
  } else if (dense_product_plan(ctx, product, text, bytes)) {
    return;
  } else if (a->x.shape[0] > kFewRowsMost) {
    gemm_tile_plan(ctx, product, text, bytes);
  } else {
    snprintf(text, bytes, "few rows: %d columns a block, blocks of %d products", kFewOuts,
             kSumBlock);
  }
}
