/* The end of a product, tile by tile. Each step is a pass over a tile in the first-level cache, so
 * that dtypes and options multiply into no more than one loop each. */
#include "cpu/gemm/gemm_finish.h"

#include "cpu/gelu_math.h"

TGI_INLINE int64_t in_vector(int64_t n, int64_t v)
{
  return tgi_min_i64(TGI_LANES, n - v);
}

TGI_INLINE void add_rows(float *tile, const void *rows, int t, int64_t stride, int64_t m, int64_t n)
{
  for (int64_t i = 0; i < m; i++) {
    for (int64_t v = 0; v < n; v += TGI_LANES) {
      float *to = tile + i * TGI_GEMM_NR + v;
      vf_store_f32(to, vf_load_part(rows, t, i * stride + v, in_vector(n, v)) + vf_load_f32(to));
    }
  }
}

TGI_INLINE void store_rows(const float *tile, void *rows, int t, int64_t stride, int64_t m,
                           int64_t n)
{
  for (int64_t i = 0; i < m; i++) {
    for (int64_t v = 0; v < n; v += TGI_LANES) {
      vf_store_part(rows, t, i * stride + v, in_vector(n, v),
                    vf_load_f32(tile + i * TGI_GEMM_NR + v));
    }
  }
}

static void activate(float *tile, tgi_gemm_activation activation, int64_t m, int64_t n)
{
  for (int64_t i = 0; i < m; i++) {
    for (int64_t v = 0; v < n; v += TGI_LANES) {
      float *to = tile + i * TGI_GEMM_NR + v;
      const vf x = vf_load_f32(to);
      vf_store_f32(to, activation == TGI_GEMM_GELU_TANH ? vf_gelu_tanh(x) : vf_gelu_erf(x));
    }
  }
}

static void *element(const void *base, tg_dtype dtype, int64_t index)
{
  return (char *)(uintptr_t)base + index * (int64_t)(dtype == TG_F32 ? 4 : 2);
}

void tgi_gemm_finish(const tgi_gemm_result *c, float *tile, const float *before,
                     int64_t before_stride, int64_t i0, int64_t j0, int64_t m, int64_t n)
{
  if (before) {
    add_rows(tile, before, TG_F32, before_stride, m, n);
  }
  if (c->bias) {
    const void *bias = element(c->bias, c->bias_dtype, j0);
    TGI_SWITCH_FLOAT(c->bias_dtype, T, add_rows(tile, bias, T, 0, m, n));
  }
  if (c->preactivation) {
    void *rows = element(c->preactivation, c->dtype, i0 * c->preactivation_stride + j0);
    TGI_SWITCH_FLOAT(c->dtype, T, store_rows(tile, rows, T, c->preactivation_stride, m, n));
  }
  if (c->activation != TGI_GEMM_NO_ACTIVATION) {
    activate(tile, c->activation, m, n);
  }
  if (c->residual) {
    const void *rows = element(c->residual, c->dtype, i0 * c->residual_stride + j0);
    TGI_SWITCH_FLOAT(c->dtype, T, add_rows(tile, rows, T, c->residual_stride, m, n));
  }
  void *rows = element(c->y, c->dtype, i0 * c->stride + j0);
  TGI_SWITCH_FLOAT(c->dtype, T, store_rows(tile, rows, T, c->stride, m, n));
}
