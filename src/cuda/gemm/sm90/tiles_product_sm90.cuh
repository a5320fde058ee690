/** A dense call as kernels of gemm_sm90.cuh and gemm_in_step_sm90.cuh. */
#ifndef TGI_CUDA_TILES_PRODUCT_SM90_CUH
#define TGI_CUDA_TILES_PRODUCT_SM90_CUH

#include "cuda/gemm/sm90/gemm_in_step_sm90.cuh"
#include "cuda/gemm/tiles_product.h"

inline namespace TGI_CUDA_ENTRY
{

/** Rows as they lie in memory: of the operand, or of its transpose. */
inline tg_tensor dense_rows(const gemm_operand &o, bool across, int64_t rows, int64_t cols)
{
  tg_tensor t = across ? tg_tensor_2d(const_cast<void *>(o.data), o.dtype, cols, rows)
                       : tg_tensor_2d(const_cast<void *>(o.data), o.dtype, rows, cols);
  t.stride[0] = across ? o.col_step : o.row_step;
  t.stride[1] = 1;
  return pages_of(&t);
}

/** The maps' tensors: A [m, k]; B as [n, k], or [k, n] across k; C. */
inline gemm_matrices dense_matrices(const tiles_call &call)
{
  const gemm_call &p = call.product;
  const bool across_a = call.problem.a.major == TGI_GEMM_ACROSS_K;
  const bool across_b = call.problem.b.major == TGI_GEMM_ACROSS_K;
  gemm_operand c;
  c.data = p.c;
  c.dtype = p.c_dtype;
  c.row_step = p.c_row_step;
  gemm_operand b = p.b; /* [k, n]: its lines are columns */
  b.row_step = p.b.col_step;
  b.col_step = p.b.row_step;
  return {dense_rows(p.a, across_a, p.m, p.k), dense_rows(b, across_b, p.n, p.k),
          dense_rows(c, false, p.m, p.n)};
}

inline gemm_dense_tiles dense_tiles(const tiles_call &call)
{
  return {{},
          (int)call.problem.m,
          (int)call.problem.k,
          (int)call.plan.row_tiles,
          (int)call.plan.column_tiles};
}

inline gemm_in_step_job in_step_job(const tiles_call &call)
{
  const gemm_call &p = call.product;
  gemm_in_step_job j = {};
  j.tiles = dense_tiles(call);
  j.n = (int)p.n;
  j.is_f32 = p.c_dtype == TG_F32;
  j.loose = !call.problem.c.vectors;
  if (j.loose || p.n * (int64_t)tg_dtype_bytes(p.c_dtype) % 16 != 0) {
    j.c = p.c;
    j.c_step = p.c_row_step;
  }
  j.adds = p.accumulate && j.is_f32 && !j.c;
  j.bias = p.bias;
  j.bias_dtype = p.bias_dtype;
  if (tgi_present(&call.finish.add)) {
    j.add = call.finish.add.data;
    j.add_step = tgi_stride(&call.finish.add, 0);
  }
  if (p.accumulate && !j.adds) {
    j.add = p.c;
    j.add_step = p.c_row_step;
  }
  if (tgi_present(&call.finish.preactivation)) {
    j.z = call.finish.preactivation.data;
    j.z_step = tgi_stride(&call.finish.preactivation, 0);
  }
  j.activation = call.finish.activation;
  return j;
}

/** No activation. */
struct dense_act {
  __device__ __forceinline__ float operator()(float, float up) const
  {
    return up;
  }
};

/** Tiles of 192 columns, stored beside the next one's products. */
template <typename T, bool kAcrossA, bool kAcrossB>
tg_status dense_beside(const tg_context *ctx, const tiles_call &call)
{
  using form = gemm_form<kAcrossA, kAcrossB, 192>;
  const gemm_call &p = call.product;
  gemm_rows_epilogue<T, dense_act> e = {};
  e.n = (int)p.n;
  e.run = form::kN / 2;
  e.bias = p.bias;
  e.bias_dtype = p.bias_dtype;
  e.z = static_cast<T *>(p.c);
  e.z_step = p.c_row_step;
  return gemm_launch_sm90<T, form>(ctx, call.plan, dense_matrices(call), dense_tiles(call), e);
}

/** kForward: there may be an activation and saved values. */
template <typename T, bool kAcrossA, bool kAcrossB, bool kForward>
tg_status dense_run(const tg_context *ctx, const tiles_call &call)
{
  if (call.plan.kernel == TGI_GEMM_SM90_TILES) {
    return dense_beside<T, kAcrossA, kAcrossB>(ctx, call);
  }
  using way = gemm_in_step_way<T, T, kForward>;
  const gemm_matrices m = dense_matrices(call);
  const gemm_in_step_job job = in_step_job(call);
  if (call.plan.tile_n == 128) {
    using form = gemm_form<kAcrossA, kAcrossB, 128, true>;
    if constexpr (kAcrossA) {
      if (call.plan.parts > 0) {
        using in_parts = gemm_in_step_way<T, T, kForward, false, false, true>;
        return gemm_launch_in_step_sm90<in_parts, form>(ctx, call.plan, m, job);
      }
    }
    return gemm_launch_in_step_sm90<way, form>(ctx, call.plan, m, job);
  }
  using form = gemm_form<kAcrossA, kAcrossB, 256, true>;
  if constexpr (!kAcrossA && kAcrossB) {
    if (call.plan.parts > 0) {
      using in_parts = gemm_in_step_way<T, T, kForward, false, false, true>;
      return gemm_launch_in_step_sm90<in_parts, form>(ctx, call.plan, m, job);
    }
  }
  return gemm_launch_in_step_sm90<way, form>(ctx, call.plan, m, job);
}

template <bool kAcrossA, bool kAcrossB, bool kForward>
tg_status dense_run_as(const tg_context *ctx, const tiles_call &call)
{
  return call.problem.a.dtype == TG_F16 ? dense_run<f16, kAcrossA, kAcrossB, kForward>(ctx, call)
                                        : dense_run<bf16, kAcrossA, kAcrossB, kForward>(ctx, call);
}

} // namespace TGI_CUDA_ENTRY

#endif
