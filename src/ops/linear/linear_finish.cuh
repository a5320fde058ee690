/** What becomes of a linear layer's sums in the forward. Included by files with kernels; in each
 * the type is its own. */
#ifndef TGI_OPS_LINEAR_FINISH_CUH
#define TGI_OPS_LINEAR_FINISH_CUH

#include "cuda/gelu_math.cuh"
#include "cuda/gemm/gemm_loader.cuh"
#include "ops/kernels.cuh"

namespace
{

/** z to y. */
struct finish_forward {
  const void *residual; /* NULL: none */
  void *preactivation;  /* NULL: none */
  int64_t residual_step, preactivation_step;
  tg_dtype dtype; /* of y, residual and preactivation */
  tg_activation activation;

  __device__ float operator()(float z, int64_t, int64_t row, int64_t col) const
  {
    if (preactivation) {
      store_any(preactivation, dtype, row * preactivation_step + col, z);
    }
    float y = activation == TG_ACTIVATION_NONE        ? z
              : activation == TG_ACTIVATION_GELU_TANH ? gelu_tanh(z)
                                                      : gelu_erf(z);
    if (residual) {
      y = y + load_any(residual, dtype, row * residual_step + col);
    }
    return y;
  }
};

finish_forward finish_of(const tg_linear_fwd_args *a)
{
  finish_forward f = {};
  f.dtype = a->y.dtype;
  f.activation = a->activation;
  if (tgi_present(&a->residual)) {
    f.residual = a->residual.data;
    f.residual_step = tgi_stride(&a->residual, 0);
  }
  if (tgi_present(&a->preactivation)) {
    f.preactivation = a->preactivation.data;
    f.preactivation_step = tgi_stride(&a->preactivation, 0);
  }
  return f;
}

} // namespace

#endif
