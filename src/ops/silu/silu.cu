/* SiLU on CUDA.
 *
 * Method     One pass (cuda/element_map.cuh); cuda/silu_math.cuh has the formulas.
 * Work       32 bytes of the output for a thread, backward 16.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx.
 */
#include "cuda/element_map.cuh"
#include "cuda/silu_math.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T> struct forward {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const
  {
    out[0] = silu<T>(in[0]);
  }
};

template <typename T> struct backward {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const
  {
    float value;
    out[0] = in[0] * silu_slope<T>(in[1], &value);
  }
};

} // namespace

extern "C" tg_status TGI_KERNEL(silu_fwd)(const tg_context *ctx, const tg_silu_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T, status = (element_map<T, 1, 1>(ctx, {&a->x}, {&a->y}, forward<T>())));
  return status;
}

extern "C" tg_status TGI_KERNEL(silu_bwd)(const tg_context *ctx, const tg_silu_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->x.dtype, T,
               status = (element_map<T, 2, 1>(ctx, {&a->dy, &a->x}, {&a->dx}, backward<T>())));
  return status;
}

extern "C" void TGI_PLAN(silu_fwd)(const tg_context *, const tg_silu_fwd_args *, char *text,
                                   size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, 32 bytes a thread", kMapThreads);
}

extern "C" void TGI_PLAN(silu_bwd)(const tg_context *, const tg_silu_bwd_args *, char *text,
                                   size_t bytes)
{
  snprintf(text, bytes, "one pass, %d threads a block, 16 bytes a thread", kMapThreads);
}
