/**
 * The activations by name, for loops that serve all of them: `a` is a constant in every caller.
 */
#ifndef TGI_CPU_ACTIVATION_H
#define TGI_CPU_ACTIVATION_H

#include "cpu/gelu_math.h"
#include "cpu/silu_math.h"

typedef enum tgi_activation { TGI_SILU, TGI_GELU_TANH, TGI_GELU_ERF } tgi_activation;

TGI_INLINE vf vf_activate(tgi_activation a, vf x)
{
  return a == TGI_SILU ? vf_silu(x) : a == TGI_GELU_TANH ? vf_gelu_tanh(x) : vf_gelu_erf(x);
}

/** `t`, here and below: the dtype that results are rounded to in the end. */
TGI_INLINE vf vf_activate_grad(tgi_activation a, vf x, int t)
{
  return a == TGI_SILU        ? vf_silu_grad(x, t)
         : a == TGI_GELU_TANH ? vf_gelu_tanh_grad(x)
                              : vf_gelu_erf_grad(x);
}

/** The derivative, and the value as *value. */
TGI_INLINE vf vf_activate_both(tgi_activation a, vf x, int t, vf *value)
{
  if (a == TGI_GELU_ERF) {
    *value = vf_gelu_erf(x);
    return vf_gelu_erf_grad(x);
  }
  return a == TGI_SILU ? vf_silu_both(x, t, value) : vf_gelu_tanh_both(x, value);
}

#endif
