/* Register tiles of the product: MR rows by one or two vectors of columns, all sums in registers.
 *
 * A step of k loads NV vectors of B and broadcasts one unit per row of A. With AVX-512 that is 12
 * rows and 24 sums: 14 loads for 24 multiply-adds, and four times as many independent sums as the
 * longest latency needs. Each number of rows has a function of its own, so edges waste nothing. */
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_unit.h"
#include "cpu/unroll.h"
#include <string.h>

enum { kRowsApart = 3 }; /* rows that share a pointer: 0, 1 and 2 strides are one address each */

TGI_INLINE float unit_at(const char *p)
{
  float unit;
  memcpy(&unit, p, sizeof unit);
  return unit;
}

/* What a tile reads. Pointers to the rows that share one, or the panel's. */
typedef struct tile_operands {
  const char *rows[(TGI_GEMM_MR + kRowsApart - 1) / kRowsApart];
  int64_t next_row, next_k; /* bytes */
  const float *b;
} tile_operands;

/* One chain: sum[i][j] from zero, `steps` steps of k. */
TGI_INLINE void add_chain(const int mr, const int nv, const bool along_k, int64_t steps,
                          tile_operands *t, vf sum[TGI_GEMM_MR][2])
{
  const int pointers = along_k ? (mr + kRowsApart - 1) / kRowsApart : 1;
  TGI_UNROLLED(i, mr)
  {
    TGI_UNROLLED(j, nv)
    {
      sum[i][j] = vf_zero();
    }
  }
  for (int64_t p = 0; p < steps; p++) {
    vf row[2];
    TGI_UNROLLED(j, nv)
    {
      row[j] = vf_load_f32(t->b + j * TGI_LANES);
    }
    TGI_UNROLLED(i, mr)
    {
      const char *from = along_k ? t->rows[i / kRowsApart] + i % kRowsApart * t->next_row
                                 : t->rows[0] + i * t->next_row;
      const vf unit = vf_set1(unit_at(from));
      TGI_UNROLLED(j, nv)
      {
        sum[i][j] = unit_fma(unit, row[j], sum[i][j]);
      }
    }
    TGI_UNROLLED(i, pointers)
    {
      t->rows[i] += t->next_k;
    }
    t->b += nv * TGI_LANES;
  }
}

TGI_INLINE void multiply(const int mr, const int nv, const bool along_k, int64_t k, const void *a,
                         int64_t a_stride, const float *b, float *c, int64_t stride, bool add)
{
  _Alignas(64) float kept[TGI_GEMM_MR * TGI_GEMM_NR]; /* sum of the chains before */
  tile_operands t = {
      .next_row = along_k ? a_stride : 4, .next_k = along_k ? 4 : 4 * TGI_GEMM_MR, .b = b};
  vf sum[TGI_GEMM_MR][2];
  const float *line = c;
  TGI_UNROLLED(i, mr)
  {
    if (i % kRowsApart == 0) {
      t.rows[i / kRowsApart] = (const char *)a + i * t.next_row;
    }
    __builtin_prefetch(line, 1);
    __builtin_prefetch(line + nv * TGI_LANES - 1, 1);
    line += stride;
  }
  for (int64_t k0 = 0;; k0 += TGI_CHAIN) {
    add_chain(mr, nv, along_k, tgi_min_i64(TGI_CHAIN, k - k0), &t, sum);
    if (k0 > 0) {
      TGI_UNROLLED(i, mr)
      {
        TGI_UNROLLED(j, nv)
        {
          sum[i][j] = vf_load_f32(kept + (i * 2 + j) * TGI_LANES) + sum[i][j];
        }
      }
    }
    if (k0 + TGI_CHAIN >= k) {
      break;
    }
    TGI_UNROLLED(i, mr)
    {
      TGI_UNROLLED(j, nv)
      {
        vf_store_f32(kept + (i * 2 + j) * TGI_LANES, sum[i][j]);
      }
    }
  }
  if (add) {
    TGI_UNROLLED(i, mr)
    {
      TGI_UNROLLED(j, nv)
      {
        vf_store_f32(c + j * TGI_LANES, vf_load_f32(c + j * TGI_LANES) + sum[i][j]);
      }
      c += stride;
    }
  } else {
    TGI_UNROLLED(i, mr)
    {
      TGI_UNROLLED(j, nv)
      {
        vf_store_f32(c + j * TGI_LANES, sum[i][j]);
      }
      c += stride;
    }
  }
}

#define MICRO(mr, nv, name, along_k)                                                               \
  static void micro_##mr##x##nv##_##name(int64_t k, const void *a, int64_t a_stride,               \
                                         const float *b, float *c, int64_t stride, bool add)       \
  {                                                                                                \
    multiply(mr, nv, along_k, k, a, a_stride, b, c, stride, add);                                  \
  }
#define MICROS(mr)                                                                                 \
  MICRO(mr, 1, along, true)                                                                        \
  MICRO(mr, 2, along, true) MICRO(mr, 1, across, false) MICRO(mr, 2, across, false)
#define ENTRIES(mr)                                                                                \
  {{micro_##mr##x1_across, micro_##mr##x1_along}, {micro_##mr##x2_across, micro_##mr##x2_along}},

/* X of every number of rows that this instruction set's tile may have. */
#if TGI_LANES == 16
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif TGI_LANES == 8
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define EACH_HEIGHT(X) X(1) X(2) X(3) X(4)
#endif

EACH_HEIGHT(MICROS)

static tgi_gemm_micro *const micros[TGI_GEMM_MR][2][2] = {EACH_HEIGHT(ENTRIES)};

tgi_gemm_micro *tgi_gemm_micro_at(int64_t mr, int64_t nv, bool along_k)
{
  return micros[mr - 1][nv - 1][along_k];
}
