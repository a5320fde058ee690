/* Linear layers with int8 weights on Hopper's tensor cores.
 *
 * Method     Weight-only mode: as in linear_int4_sm90.cu. Dynamic mode, many rows: x becomes rows
 *            of int8, and so does the packed weight (int8_rows_sm90.cuh), in the workspace; their
 *            product is one of the tiles of cuda/gemm/sm90/gemm_in_step_sm90.cuh. Sums are exact,
 * zero points and scales follow as in linear_int8_sm80.cu, so the bits are the CPU's. Work Dynamic
 * mode: 128 rows by 256 or 128 columns of y for a block. Bound      Dynamic mode: tensor cores;
 * memory for x and W, which are read and written once more.
 */
#include "cuda/gemm/quantised/quantised_product_sm90.cuh"
#include "cuda/gemm/sm90/tiles_product_sm90.cuh"
#include "ops/kernels.cuh"
#include "ops/linear_int8/int8_product.cuh"
#include "ops/linear_int8/int8_rows_sm90.cuh"

extern "C" {
#include "ops/linear_int8/linear_int8_refusals.h"
}

static_assert(kWideOutputs == TGI_WIDE_OUTPUTS && kFewRows == TGI_FEW_ROWS,
              "as the refusals count them");

namespace
{

tgi_gemm_problem problem_of(const tg_linear_int8_fwd_args *a)
{
  tgi_gemm_problem p = {};
  p.m = a->x.shape[0];
  p.n = a->y.shape[1];
  p.k = a->x.shape[1];
  p.groups = 1;
  p.a = p.b = {TG_I8, TGI_GEMM_ALONG_K, true}; /* rows of the workspace */
  p.c = {a->y.dtype, TGI_GEMM_ACROSS_K, true}; /* else refused */
  return p;
}

bool takes(const tg_context *ctx, const tg_linear_int8_fwd_args *a, tgi_gemm_problem *problem,
           tgi_gemm_plan *plan)
{
  if (tgi_linear_int8_fwd_tiles_refused(a)) {
    return false;
  }
  const tgi_gemm_device device = gemm_device_of(ctx);
  *problem = problem_of(a);
  *plan = tgi_gemm_plan_bytes_sm90(problem, &device);
  return plan->kernel != TGI_GEMM_NOT_TAKEN;
}

/* Without memory: the extents alone. */
size_t rows_of(const tg_context *ctx, const tg_linear_int8_fwd_args *a, void *memory, int8_rows *r)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  *r = {};
  r->x = a->x.data;
  r->w = packed_weight_of(&a->weight, TGI_INT8_MAGIC, TGI_INT8_VERSION, out, in,
                          FAULT_SITE(ctx, linear_int8_fwd, weight));
  r->rows = a->x.shape[0];
  r->in = in;
  r->out = out;
  r->x_step = tgi_stride(&a->x, 0);
  r->step = divide_up(in, 16) * 16;
  r->panels = tgi_panel_count(out);
  r->panel_bytes = tgi_int8_panel_bytes(in);
  r->lines = tgi_int8_lines(in);
  r->pieces = divide_up(r->lines, kInt8Lines);
  r->aligned = rows_aligned(&a->x, 16);
  return int8_rows_lay_out(r, memory);
}

tg_tensor matrix_of(int8_t *data, int64_t lines, const int8_rows &r)
{
  tg_tensor t = tg_tensor_2d(data, TG_I8, lines, r.in);
  t.stride[0] = r.step;
  t.stride[1] = 1;
  return pages_of(&t);
}

gemm_in_step_job job_of(const tg_linear_int8_fwd_args *a, const tgi_gemm_plan &plan,
                        const int8_rows &r)
{
  gemm_in_step_job j = {};
  j.tiles.m = (int)r.rows;
  j.tiles.k = (int)divide_up(r.in, 2);
  j.tiles.row_tiles = (int)plan.row_tiles;
  j.tiles.column_tiles = (int)plan.column_tiles;
  j.n = (int)r.out;
  j.is_f32 = a->y.dtype == TG_F32;
  if (j.n * (int64_t)tg_dtype_bytes(a->y.dtype) % 16 != 0) {
    j.c = a->y.data;
    j.c_step = tgi_stride(&a->y, 0);
  }
  j.row_scale = r.row_scale;
  j.row_sum = r.row_sum;
  j.column_scale = r.column_scale;
  j.column_zero = r.zero;
  if (tgi_present(&a->bias)) {
    j.bias = a->bias.data;
    j.bias_dtype = a->bias.dtype;
  }
  return j;
}

template <typename Result, int kColumns>
tg_status multiply_tiles(const tg_context *ctx, const tg_linear_int8_fwd_args *a,
                         const tgi_gemm_plan &plan, const int8_rows &r)
{
  using way = gemm_in_step_way<int8_t, Result, false, true>;
  using form = gemm_form<false, false, kColumns, true, 1>;
  const gemm_matrices m = {matrix_of(r.codes, r.rows, r), matrix_of(r.weights, r.out, r),
                           pages_of(&a->y)};
  return gemm_launch_in_step_sm90<way, form>(ctx, plan, m, job_of(a, plan, r));
}

template <typename Result>
tg_status multiply_as(const tg_context *ctx, const tg_linear_int8_fwd_args *a,
                      const tgi_gemm_plan &plan, const int8_rows &r)
{
  return plan.tile_n == 256 ? multiply_tiles<Result, 256>(ctx, a, plan, r)
                            : multiply_tiles<Result, 128>(ctx, a, plan, r);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_int8_fwd)(const tg_context *ctx,
                                                 const tg_linear_int8_fwd_args *a)
{
  int8_rows r;
  return !tgi_linear_int8_fwd_weight_only_elsewhere(a) ? tiles_bytes(ctx, a)
         : tgi_linear_int8_fwd_is_small_or_other(a)    ? 0
                                                       : rows_of(ctx, a, nullptr, &r);
}

extern "C" tg_status TGI_KERNEL(linear_int8_fwd)(const tg_context *ctx,
                                                 const tg_linear_int8_fwd_args *a)
{
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  if (!tgi_linear_int8_fwd_weight_only_refused(a)) {
    return multiply_on_hopper<int8_operand>(ctx, a, int8_product_of(ctx, a));
  }
  if (!takes(ctx, a, &problem, &plan)) {
    return TG_UNSUPPORTED;
  }
  int8_rows r;
  rows_of(ctx, a, a->workspace, &r);
  const tg_status status = make_int8_rows(ctx, r, a->x.dtype);
  return status != TG_OK        ? status
         : a->y.dtype == TG_F16 ? multiply_as<f16>(ctx, a, plan, r)
                                : multiply_as<bf16>(ctx, a, plan, r);
}

extern "C" void TGI_PLAN(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a,
                                          char *text, size_t bytes)
{
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  if (!tgi_linear_int8_fwd_weight_only_refused(a)) {
    tell_on_hopper(ctx, a, text, bytes);
  } else if (takes(ctx, a, &problem, &plan)) {
    const int used = snprintf(text, bytes, "x and W as rows of 8-bit integers, ");
    if (used > 0 && (size_t)used < bytes) {
      tgi_gemm_plan_text(&problem, &plan, text + used, bytes - (size_t)used);
    }
  }
}
