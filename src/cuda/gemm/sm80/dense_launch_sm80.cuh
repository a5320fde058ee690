/** How a product of dense_product.h starts its kernels; their instances stand in the files that
 * include this. */
#ifndef TGI_CUDA_GEMM_DENSE_LAUNCH_SM80_CUH
#define TGI_CUDA_GEMM_DENSE_LAUNCH_SM80_CUH

#include "cuda/gemm/dense_product.h"
#include "cuda/gemm/sm80/gemm_dense_sm80.cuh"

/** What a call is to the kernels. */
struct dense_form {
  tgi_gemm_problem problem;
  tgi_gemm_plan plan;
  mma_operand a, b;
};

/** Runs a call of f32 operands whose plan is taken. */
extern "C" tg_status tgi_dense_product_tf32(const tg_context *ctx, const gemm_call *call,
                                            const dense_form *form, const dense_finish *finish);

inline namespace TGI_CUDA_ENTRY
{

inline mma_result result_of(void *data, tg_dtype dtype, int64_t step)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(dtype);
  mma_result r = {};
  r.data = data;
  r.dtype = dtype;
  r.step = step;
  r.vectors = (uintptr_t)data % 16 == 0 && step * bytes % 16 == 0;
  return r;
}

template <typename T, typename Shape, bool kATurned, bool kBTurned>
tg_status run(const tg_context *ctx, const gemm_call &c, const dense_form &f,
              const dense_finish &finish)
{
  static_assert(Shape::kBytes + sizeof(mma_lists<Shape>) <= TGI_GEMM_MMA_LARGE_BYTES ||
                    Shape::kM != TGI_GEMM_MMA_LARGE,
                "large tiles have the memory that the plan asks for");
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
  j.row_tiles = (int)f.plan.row_tiles;
  j.column_tiles = (int)f.plan.column_tiles;
  return gemm_mma_launch<T, Shape, kATurned, kBTurned>(ctx, j, f.plan.tiles);
}

template <typename T, bool kATurned, bool kBTurned>
tg_status run_shape(const tg_context *ctx, const gemm_call &c, const dense_form &f,
                    const dense_finish &finish)
{
  switch (f.plan.tile_m) {
  case TGI_GEMM_MMA_LARGE:
    return run<T, mma_large_of<T>, kATurned, kBTurned>(ctx, c, f, finish);
  case TGI_GEMM_MMA_MIDDLE:
    return run<T, mma_middle_of<T>, kATurned, kBTurned>(ctx, c, f, finish);
  default:
    if constexpr (kATurned) {
      return TG_UNSUPPORTED; /* the plan says so to none */
    } else {
      return run<T, mma_few_of<T>, kATurned, kBTurned>(ctx, c, f, finish);
    }
  }
}

template <typename T>
tg_status run_form(const tg_context *ctx, const gemm_call &c, const dense_form &f,
                   const dense_finish &finish)
{
  return f.problem.a.major == TGI_GEMM_ACROSS_K   ? run_shape<T, true, true>(ctx, c, f, finish)
         : f.problem.b.major == TGI_GEMM_ACROSS_K ? run_shape<T, false, true>(ctx, c, f, finish)
                                                  : run_shape<T, false, false>(ctx, c, f, finish);
}

} // namespace TGI_CUDA_ENTRY

#endif
