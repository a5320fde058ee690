/* GELU on CUDA.
 *
 * Method     One pass (cuda/element_map.cuh); cuda/gelu_math.cuh has the formulas.
 * Work       32 bytes of the output for a thread, backward 16.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx.
 */
#include "cuda/element_map.cuh"
#include "cuda/gelu_math.cuh"
#include "ops/kernels.cuh"

namespace
{

template <bool kErf, typename T> struct forward {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const
  {
    out[0] = kErf ? gelu_erf<T>(in[0]) : gelu_tanh<T>(in[0]);
  }
};

template <bool kErf, typename T> struct backward {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const
  {
    float value;
    out[0] = in[0] * (kErf ? gelu_erf_slope<T>(in[1]) : gelu_tanh_slope<T>(in[1], &value));
  }
};

template <bool kErf> tg_status run_fwd(const tg_context *ctx, const tg_gelu_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T,
               status = (element_map<T, 1, 1>(ctx, {&a->x}, {&a->y}, forward<kErf, T>())));
  return status;
}

template <bool kErf> tg_status run_bwd(const tg_context *ctx, const tg_gelu_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T,
               status =
                   (element_map<T, 2, 1>(ctx, {&a->dy, &a->x}, {&a->dx}, backward<kErf, T>())));
  return status;
}

} // namespace

extern "C" tg_status TGI_KERNEL(gelu_fwd)(const tg_context *ctx, const tg_gelu_fwd_args *a)
{
  return a->approximation == TG_GELU_ERF ? run_fwd<true>(ctx, a) : run_fwd<false>(ctx, a);
}

extern "C" tg_status TGI_KERNEL(gelu_bwd)(const tg_context *ctx, const tg_gelu_bwd_args *a)
{
  return a->approximation == TG_GELU_ERF ? run_bwd<true>(ctx, a) : run_bwd<false>(ctx, a);
}

extern "C" void TGI_PLAN(gelu_fwd)(const tg_context *, const tg_gelu_fwd_args *, char *text,
                                   size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, 32 bytes a thread", kMapThreads);
}

extern "C" void TGI_PLAN(gelu_bwd)(const tg_context *, const tg_gelu_bwd_args *, char *text,
                                   size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, 16 bytes a thread", kMapThreads);
}
