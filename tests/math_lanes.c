/* One table of math_lanes.h; compiled once per instruction set with TGI_ENTRY set to its name. */
#include "math_lanes.h"

#include "cpu/gelu_math.h"
#include "cpu/tanh.h"

#define NAME_(entry) #entry
#define NAME(entry) NAME_(entry)
#define TABLE_(entry) math_lanes_##entry
#define TABLE(entry) TABLE_(entry)

#define MAP(function)                                                                              \
  static void function##_map(const float *x, float *y, int64_t n)                                  \
  {                                                                                                \
    for (int64_t i = 0; i < n; i += TGI_LANES) {                                                   \
      vf_store_f32(y + i, function(vf_load_f32(x + i)));                                           \
    }                                                                                              \
  }

MAP(vf_exp)
MAP(vf_tanh)
MAP(vf_gelu_tanh)
MAP(vf_gelu_tanh_grad)
MAP(vf_gelu_erf)
MAP(vf_gelu_erf_grad)

static void load(int dtype, const uint16_t *x, float *y, int64_t n)
{
  for (int64_t i = 0; i < n; i += TGI_LANES) {
    vf_store_f32(y + i, vf_load(x, dtype, i));
  }
}

static void store(int dtype, const float *x, uint16_t *y, int64_t n)
{
  for (int64_t i = 0; i < n; i += TGI_LANES) {
    vf_store(y, dtype, i, vf_load_f32(x + i));
  }
}

static void round_to(int dtype, const float *x, float *y, int64_t n)
{
  for (int64_t i = 0; i < n; i += TGI_LANES) {
    vf_store_f32(y + i, vf_round(dtype, vf_load_f32(x + i)));
  }
}

const math_lanes TABLE(TGI_ENTRY) = {
    .entry = NAME(TGI_ENTRY),
    .map = {[MATH_EXP] = vf_exp_map,
            [MATH_TANH] = vf_tanh_map,
            [MATH_GELU_TANH] = vf_gelu_tanh_map,
            [MATH_GELU_TANH_GRAD] = vf_gelu_tanh_grad_map,
            [MATH_GELU_ERF] = vf_gelu_erf_map,
            [MATH_GELU_ERF_GRAD] = vf_gelu_erf_grad_map},
    .load = load,
    .store = store,
    .round = round_to,
};
