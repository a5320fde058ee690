/* Packing: the operands of a product in the order in which register tiles read them, widened to
 * 32-bit units.
 *
 * A along k keeps its rows, TGI_GEMM_A_STRIDE apart, so that a tile needs one address and constant
 * distances. A across k becomes panels [k][MR]. B becomes panels [k][NR], the last one a single
 * vector wide if that is enough; B along k is transposed in squares in registers. */
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_unit.h"
#include "cpu/transpose.h"
#include "cpu/unroll.h"

enum {
  kTogether = 8, /* steps of k that go across all panels: a prefetcher's streams */
  kNear = 8,
  kFar = 16 /* rows from here that are fetched: memory is far more than one row away */
};

TGI_INLINE void pack_rows(const tgi_gemm_operand *a, int t, int64_t o0, int64_t m, int64_t k0,
                          int64_t k, int64_t k_end, float *packed)
{
  for (int64_t i = 0; i < m; i++) {
    const int64_t from = tgi_gemm_distance(a, o0 + i);
    float *row = packed + i * TGI_GEMM_A_STRIDE;
    for (int64_t u = 0; u < k; u += TGI_LANES) {
      const int64_t e = (k0 + u) * TGI_UNIT_K;
      __builtin_prefetch(at(a->data, t, from + e + kNear * a->stride), 0, 2);
      vf_store_f32(row + u, unit_load_along(a->data, t, from + e, k_end - e));
    }
  }
}

/* From index e of the strided axis to the one that shares its unit. */
TGI_INLINE int64_t distance_to_next(const tgi_gemm_operand *o, int64_t e, bool both)
{
  return TGI_UNIT_K == 2 && both ? tgi_gemm_distance(o, e + 1) - tgi_gemm_distance(o, e) : 0;
}

TGI_INLINE void pack_row_panels(const tgi_gemm_operand *a, int t, int64_t o0, int64_t m, int64_t k0,
                                int64_t k, int64_t k_end, float *packed)
{
  const int64_t panel_floats = TGI_GEMM_MR * TGI_GEMM_A_STRIDE;
  for (int64_t u = 0; u < k; u++) {
    const int64_t e = (k0 + u) * TGI_UNIT_K, from = tgi_gemm_distance(a, e) + o0;
    const bool both = e + 1 < k_end;
    const int64_t next = distance_to_next(a, e, both);
    float *to = packed + u * TGI_GEMM_MR;
    for (int64_t i = 0; i < m; i += 16) {
      __builtin_prefetch(at(a->data, t, from + i + kNear * a->stride));
    }
    for (int64_t i = 0; i < m; i += TGI_GEMM_MR, to += panel_floats) {
      /* A vector may be longer than the panel's row: the next k, stored later, covers the rest. */
      for (int64_t v = 0; v < TGI_GEMM_MR; v += TGI_LANES) {
        const int64_t width = tgi_min_i64(TGI_GEMM_MR - v, m - i - v);
        if (width > 0) {
          const int64_t n = tgi_min_i64(width, TGI_LANES);
          vf_store_f32(to + v, unit_load_across(a->data, t, from + i + v, next, n, both));
        }
      }
    }
  }
}

void tgi_gemm_pack_a(const tgi_gemm_operand *a, int64_t o0, int64_t m, int64_t k0, int64_t k,
                     int64_t k_end, float *packed)
{
  TGI_SWITCH_UNIT(
      a->dtype, T, if (a->along_k) { pack_rows(a, T, o0, m, k0, k, k_end, packed); } else {
        pack_row_panels(a, T, o0, m, k0, k, k_end, packed);
      });
}

/* Vectors per row of the panel that starts `left` columns before the end. */
TGI_INLINE int64_t panel_vectors(int64_t left)
{
  return left > TGI_LANES ? 2 : 1;
}

/* A square of TGI_LANES columns by TGI_LANES units, of which n columns and `units` exist. */
TGI_INLINE void pack_square(const void *data, int t, int64_t from, int64_t stride, int64_t n,
                            int64_t elements, int64_t units, float *to, int64_t to_stride)
{
  vf r[TGI_LANES];
  TGI_UNROLLED(i, TGI_LANES)
  {
    __builtin_prefetch(at(data, t, from + (i + TGI_LANES) * stride), 0, 2);
    r[i] = i < n ? unit_load_along(data, t, from + i * stride, elements) : vf_zero();
  }
  vf_transpose(r);
  TGI_UNROLLED(i, TGI_LANES)
  {
    if (i < units) {
      vf_store_f32(to + i * to_stride, r[i]);
    }
  }
}

TGI_INLINE void pack_transposed(const tgi_gemm_operand *b, int t, int64_t o0, int64_t n, int64_t k0,
                                int64_t k, int64_t k_end, float *packed)
{
  for (int64_t j = 0; j < n; j += TGI_LANES) {
    const int64_t panel = j / TGI_GEMM_NR * TGI_GEMM_NR, width = panel_vectors(n - panel);
    float *to = packed + panel * k + (j - panel);
    for (int64_t u = 0; u < k; u += TGI_LANES, to += TGI_LANES * width * TGI_LANES) {
      const int64_t e = (k0 + u) * TGI_UNIT_K, from = (o0 + j) * b->stride + e;
      if (n - j >= TGI_LANES && k - u >= TGI_LANES && k_end - e >= TGI_LANES * TGI_UNIT_K) {
        pack_square(b->data, t, from, b->stride, TGI_LANES, TGI_LANES * TGI_UNIT_K, TGI_LANES, to,
                    width * TGI_LANES);
      } else {
        pack_square(b->data, t, from, b->stride, n - j, k_end - e, k - u, to, width * TGI_LANES);
      }
    }
  }
}

TGI_INLINE void pack_columns(const tgi_gemm_operand *b, int t, int64_t o0, int64_t n, int64_t k0,
                             int64_t k, int64_t k_end, float *packed)
{
  for (int64_t u0 = 0; u0 < k; u0 += kTogether) {
    const int64_t u1 = tgi_min_i64(k, u0 + kTogether);
    for (int64_t panel = 0; panel < n; panel += TGI_GEMM_NR) {
      const int64_t width = panel_vectors(n - panel);
      for (int64_t u = u0; u < u1; u++) {
        const int64_t e = (k0 + u) * TGI_UNIT_K, from = tgi_gemm_distance(b, e) + o0 + panel;
        const bool both = e + 1 < k_end;
        const int64_t next = distance_to_next(b, e, both);
        float *to = packed + panel * k + u * width * TGI_LANES;
        for (int64_t v = 0; v < width * TGI_LANES; v += TGI_LANES) {
          __builtin_prefetch(at(b->data, t, from + v + kFar * b->stride), 0, 2);
          const int64_t columns = tgi_min_i64(TGI_LANES, n - panel - v);
          vf_store_f32(to + v, unit_load_across(b->data, t, from + v, next, columns, both));
        }
      }
    }
  }
}

void tgi_gemm_pack_b(const tgi_gemm_operand *b, int64_t o0, int64_t n, int64_t k0, int64_t k,
                     int64_t k_end, float *packed)
{
  TGI_SWITCH_UNIT(
      b->dtype, T, if (b->along_k) { pack_transposed(b, T, o0, n, k0, k, k_end, packed); } else {
        pack_columns(b, T, o0, n, k0, k, k_end, packed);
      });
}
