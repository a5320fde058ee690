/* Linear layers of e4m3 by e4m3 on Hopper's tensor cores.
 *
 * Method     Up to 64 rows: cuda/gemm/sm90/gemm_few_rows_sm90.cuh. More: the tiles of
 *            cuda/gemm/sm90/gemm_in_step_sm90.cuh with operands of one byte; sums of 128 columns
 * are added up outside of the tensor core, unless the call allows otherwise. Scales and bias are
 * applied before y is rounded. Work       128 rows by 256 or 128 columns of y for a block. Bound
 * Tensor cores; few rows: one reading of W.
 */
#include "cuda/gemm/sm90/gemm_few_rows_sm90.cuh"
#include "cuda/gemm/sm90/tiles_product_sm90.cuh"
#include "ops/linear_fp8_fp8/fp8_rows.cuh"

extern "C" {
#include "ops/linear_fp8_fp8/linear_fp8_fp8_refusals.h"
}

namespace
{

tgi_gemm_problem problem_of(const tg_linear_fp8_fp8_fwd_args *a)
{
  tgi_gemm_problem p = {};
  p.m = a->x.shape[0];
  p.n = a->y.shape[1];
  p.k = a->x.shape[1];
  p.groups = 1;
  p.a = p.b = {TG_F8_E4M3, TGI_GEMM_ALONG_K, true}; /* else refused */
  p.c = {a->y.dtype, TGI_GEMM_ACROSS_K, true};
  return p;
}

tgi_gemm_plan plan_of(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a,
                      const tgi_gemm_problem &p)
{
  const tgi_gemm_device device = gemm_device_of(ctx);
  return p.m <= TGI_GEMM_FEW_ROWS ? tgi_gemm_plan_few_sm90(&p)
                                  : tgi_gemm_plan_bytes_sm90(&p, &device);
}

bool takes(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a, tgi_gemm_problem *problem,
           tgi_gemm_plan *plan)
{
  if (tgi_linear_fp8_fp8_fwd_refused(a)) {
    return false;
  }
  *problem = problem_of(a);
  *plan = plan_of(ctx, a, *problem);
  return plan->kernel != TGI_GEMM_NOT_TAKEN;
}

tg_tensor codes_of(const tg_linear_fp8_fp8_fwd_args *a, const fp8_rows &x)
{
  tg_tensor t =
      tg_tensor_2d(const_cast<uint8_t *>(x.codes), TG_F8_E4M3, a->x.shape[0], a->x.shape[1]);
  t.stride[0] = x.step;
  t.stride[1] = 1;
  return pages_of(&t);
}

/* Scales, then the bias. */
struct scale_few {
  const float *row_scale, *column_scale;
  bool one_column_scale;
  const void *bias;
  tg_dtype bias_dtype;

  __device__ __forceinline__ float operator()(float sum, int, int row, int column) const
  {
    float v = sum * row_scale[row];
    v = v * column_scale[one_column_scale ? 0 : column];
    return bias ? v + load_any(bias, bias_dtype, column) : v;
  }
};

tg_status multiply_few(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a,
                       const tgi_gemm_plan &plan, const fp8_rows &x)
{
  const tg_tensor weight = pages_of(&a->weight), codes = codes_of(a, x);
  few_rows_job j = {};
  j.y = a->y.data;
  j.y_dtype = a->y.dtype;
  j.y_step = tgi_stride(&a->y, 0);
  j.rows = (int)a->x.shape[0];
  j.outputs = (int)a->y.shape[1];
  j.steps = (int)divide_up(a->x.shape[1], plan.tile_k);
  j.parts = plan.parts;
  scale_few f = {};
  f.row_scale = x.scale;
  f.column_scale = static_cast<const float *>(a->weight_scale.data);
  f.one_column_scale = a->weight_scale.shape[0] == 1;
  if (tgi_present(&a->bias)) {
    f.bias = a->bias.data;
    f.bias_dtype = a->bias.dtype;
  }
  return few_rows_sm90<e4m3>(ctx, plan, &weight, &codes, j, f);
}

gemm_in_step_job job_of(const tg_linear_fp8_fp8_fwd_args *a, const tgi_gemm_plan &plan,
                        const fp8_rows &x)
{
  gemm_in_step_job j = {};
  j.tiles.m = (int)a->x.shape[0];
  j.tiles.k = (int)divide_up(a->x.shape[1], 2);
  j.tiles.row_tiles = (int)plan.row_tiles;
  j.tiles.column_tiles = (int)plan.column_tiles;
  j.n = (int)a->y.shape[1];
  j.is_f32 = a->y.dtype == TG_F32;
  if (j.n * (int64_t)tg_dtype_bytes(a->y.dtype) % 16 != 0) {
    j.c = a->y.data;
    j.c_step = tgi_stride(&a->y, 0);
  }
  j.row_scale = x.scale;
  j.column_scale = static_cast<const float *>(a->weight_scale.data);
  j.one_column_scale = a->weight_scale.shape[0] == 1;
  if (tgi_present(&a->bias)) {
    j.bias = a->bias.data;
    j.bias_dtype = a->bias.dtype;
  }
  return j;
}

template <typename Result, int kColumns, bool kApart>
tg_status multiply_tiles(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a,
                         const tgi_gemm_plan &plan, const fp8_rows &x)
{
  using way = gemm_in_step_way<e4m3, Result, false, true, kApart>;
  using form = gemm_form<false, false, kColumns, true, 1>;
  const gemm_matrices m = {codes_of(a, x), pages_of(&a->weight), pages_of(&a->y)};
  return gemm_launch_in_step_sm90<way, form>(ctx, plan, m, job_of(a, plan, x));
}

template <typename Result>
tg_status multiply_as(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a,
                      const tgi_gemm_plan &plan, const fp8_rows &x)
{
  if (a->allow_fast_accum) {
    return plan.tile_n == 256 ? multiply_tiles<Result, 256, false>(ctx, a, plan, x)
                              : multiply_tiles<Result, 128, false>(ctx, a, plan, x);
  }
  return plan.tile_n == 256 ? multiply_tiles<Result, 256, true>(ctx, a, plan, x)
                            : multiply_tiles<Result, 128, true>(ctx, a, plan, x);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_fp8_fp8_fwd)(const tg_context *,
                                                    const tg_linear_fp8_fp8_fwd_args *a)
{
  return (size_t)fp8_rows_bytes(a);
}

extern "C" tg_status TGI_KERNEL(linear_fp8_fp8_fwd)(const tg_context *ctx,
                                                    const tg_linear_fp8_fp8_fwd_args *a)
{
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  if (!takes(ctx, a, &problem, &plan)) {
    return TG_UNSUPPORTED;
  }
  const fp8_rows x = fp8_rows_of(a);
  const tg_status status = a->x.dtype == TG_F8_E4M3 ? TG_OK : make_fp8_rows(ctx, a);
  return status != TG_OK                    ? status
         : plan.kernel == TGI_GEMM_SM90_FEW ? multiply_few(ctx, a, plan, x)
         : a->y.dtype == TG_F16             ? multiply_as<f16>(ctx, a, plan, x)
                                            : multiply_as<bf16>(ctx, a, plan, x);
}

extern "C" void TGI_PLAN(linear_fp8_fp8_fwd)(const tg_context *ctx,
                                             const tg_linear_fp8_fp8_fwd_args *a, char *text,
                                             size_t bytes)
{
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  if (takes(ctx, a, &problem, &plan)) {
    tgi_gemm_plan_text(&problem, &plan, text, bytes);
  }
}
