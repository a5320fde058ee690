/* One table of math_lanes.h; compiled once per instruction set with TGI_ENTRY set to its name. */
#include "math_lanes.h"

#include "cpu/gelu_math.h"
#include "cpu/silu_math.h"
#include "cpu/tanh.h"

#define NAME_(entry) #entry
#define NAME(entry) NAME_(entry)
#define TABLE_(entry) math_lanes_##entry
#define TABLE(entry) TABLE_(entry)

TGI_INLINE vf silu_grad_f32(vf x)
{
  return vf_silu_grad(x, TG_F32);
}

TGI_INLINE vf silu_grad_bf16(vf x)
{
  return vf_silu_grad(x, TG_BF16);
}

TGI_INLINE vf silu_beside_grad(vf x)
{
  vf value;
  vf_silu_both(x, TG_F32, &value);
  return value;
}

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
MAP(vf_swap_neighbours)
MAP(vf_silu)
MAP(vf_logistic)
MAP(silu_grad_f32)
MAP(silu_grad_bf16)
MAP(silu_beside_grad)

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

static void load_two(int dtype, const void *x, float *y, int64_t n)
{
  for (int64_t i = 0; i < n; i += 2 * TGI_LANES) {
    vf v[2];
    vf_load_two(x, dtype, i, v);
    vf_store_f32(y + i, v[0]);
    vf_store_f32(y + i + TGI_LANES, v[1]);
  }
}

static void store_two(int dtype, const float *x, void *y, int64_t n, bool stream)
{
  for (int64_t i = 0; i < n; i += 2 * TGI_LANES) {
    const vf v[2] = {vf_load_f32(x + i), vf_load_f32(x + i + TGI_LANES)};
    vf_put_two(y, dtype, i, v, stream);
  }
  vf_stream_fence();
}

static void load_pairs(int dtype, const void *x, float *even, float *odd, int64_t n)
{
  vf e, o;
  int64_t i = 0;
  for (; i + TGI_LANES <= n; i += TGI_LANES) {
    vf_load_pairs(x, dtype, i, &e, &o);
    vf_store_f32(even + i, e);
    vf_store_f32(odd + i, o);
  }
  if (i < n) {
    vf_load_pairs_part(x, dtype, i, n - i, &e, &o);
    vf_store_part_f32(even + i, n - i, e);
    vf_store_part_f32(odd + i, n - i, o);
  }
}

static void store_pairs(int dtype, const float *even, const float *odd, void *y, int64_t n,
                        bool stream)
{
  int64_t i = 0;
  for (; i + TGI_LANES <= n; i += TGI_LANES) {
    vf_put_pairs(y, dtype, i, vf_load_f32(even + i), vf_load_f32(odd + i), stream);
  }
  if (i < n) {
    vf_store_pairs_part(y, dtype, i, n - i, vf_load_part_f32(even + i, n - i),
                        vf_load_part_f32(odd + i, n - i));
  }
  vf_stream_fence();
}

const math_lanes TABLE(TGI_ENTRY) = {
    .entry = NAME(TGI_ENTRY),
    .map = {[MATH_EXP] = vf_exp_map,
            [MATH_TANH] = vf_tanh_map,
            [MATH_GELU_TANH] = vf_gelu_tanh_map,
            [MATH_GELU_TANH_GRAD] = vf_gelu_tanh_grad_map,
            [MATH_GELU_ERF] = vf_gelu_erf_map,
            [MATH_GELU_ERF_GRAD] = vf_gelu_erf_grad_map,
            [MATH_SILU] = vf_silu_map,
            [MATH_SILU_GRAD] = silu_grad_f32_map,
            [MATH_SILU_GRAD_BF16] = silu_grad_bf16_map,
            [MATH_SILU_BESIDE_GRAD] = silu_beside_grad_map,
            [MATH_LOGISTIC] = vf_logistic_map},
    .load = load,
    .store = store,
    .round = round_to,
    .swap_neighbours = vf_swap_neighbours_map,
    .load_two = load_two,
    .store_two = store_two,
    .load_pairs = load_pairs,
    .store_pairs = store_pairs,
};
