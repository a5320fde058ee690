/* Products of few rows, y = x W^T, bound by reading W once.
 *
 * A task takes a range of W's rows, TGI_LANES of them at a time. It walks along k in squares of
 * TGI_LANES, transposes each in registers, and so keeps the order of sums of gemm.c: a lane is a
 * column of the result, and its multiply-adds follow k. Rows of x that registers have no room for
 * are strips of their own; a strip of five to seven rows has rows of zeros besides. */
#include "cpu/gemm/gemv.h"

#include "cpu/gemm/gemm_finish.h"
#include "cpu/gemm/gemm_unit.h"
#include "cpu/transpose.h"
#include "cpu/unroll.h"

enum { kGrainBytes = 128 << 10 };

bool tgi_gemv_takes(const tgi_gemm_problem *p)
{
  return p->m <= TGI_GEMV_MOST && p->k > 0 && p->a.along_k && p->b.along_k && !p->c.accumulate;
}

int64_t tgi_gemv_grain(const tgi_gemm_problem *p)
{
  const int64_t row_bytes = p->k * (p->b.dtype == TG_F32 ? 4 : 2);
  const int64_t columns = kGrainBytes / row_bytes / TGI_GEMM_NR * TGI_GEMM_NR;
  return columns > TGI_GEMM_NR ? columns : TGI_GEMM_NR;
}

/* Units of one row of x in the workspace. */
static int64_t x_stride(const tgi_gemm_problem *p)
{
  return (tgi_units(p->k) + 15) / 16 * 16;
}

/* Rows of x, with the zeros of the last strip. */
static int64_t x_rows(const tgi_gemm_problem *p)
{
  const int64_t rest = p->m % TGI_GEMV_MAX_M;
  return rest > 4 ? p->m - rest + TGI_GEMV_MAX_M : p->m;
}

size_t tgi_gemv_workspace(const tgi_gemm_problem *p)
{
  return (size_t)(x_rows(p) * x_stride(p)) * sizeof(float);
}

typedef struct gemv {
  const tgi_gemm_problem *p;
  int64_t block_k;
  const float *x; /* units, of a strip */
  int64_t x_stride;
  int64_t i0, rows; /* of the strip */
} gemv;

/* Columns [j, j + n) by units [u, ...) of W: lane c of r[i] is the unit u + i of column j + c. The
 * square that lies TGI_LANES columns further on is fetched: the task comes to it next. */
TGI_INLINE void load_square(const gemv *g, int t, int64_t j, int64_t n, int64_t u, vf r[TGI_LANES])
{
  const tgi_gemm_operand *b = &g->p->b;
  const int64_t e = u * TGI_UNIT_K, left = g->p->k - e;
  TGI_UNROLLED(i, TGI_LANES)
  {
    const int64_t from = (j + i) * b->stride + e;
    __builtin_prefetch(at(b->data, t, from + TGI_LANES * b->stride), 0, 2);
    r[i] = i < n ? unit_load_along(b->data, t, from, left) : vf_zero();
  }
  vf_transpose(r);
}

/* The square whole: every lane and every unit exists. */
TGI_INLINE void multiply_square(const gemv *g, const int m, int t, int64_t j, int64_t u,
                                vf sum[TGI_GEMV_MAX_M])
{
  vf r[TGI_LANES];
  load_square(g, t, j, TGI_LANES, u, r);
  TGI_UNROLLED(k, TGI_LANES)
  {
    TGI_UNROLLED(i, m)
    {
      sum[i] = unit_fma(vf_set1(g->x[i * g->x_stride + u + k]), r[k], sum[i]);
    }
  }
}

/* A square at the edge, of which n columns and `units` units exist: by way of memory, so that the
 * loop over the units need not be unrolled. */
static void multiply_edge(const gemv *g, int64_t j, int64_t n, int64_t u, int64_t units,
                          vf sum[TGI_GEMV_MAX_M])
{
  vf r[TGI_LANES];
  TGI_SWITCH_UNIT(g->p->b.dtype, T, load_square(g, T, j, n, u, r));
  for (int64_t k = 0; k < units; k++) {
    for (int64_t i = 0; i < g->rows; i++) {
      sum[i] = unit_fma(vf_set1(g->x[i * g->x_stride + u + k]), r[k], sum[i]);
    }
  }
}

typedef struct unit_range {
  int64_t begin, end;
} unit_range;

/* Units `k`, one chain, of columns [j, j + n): their sums, from zero. */
TGI_INLINE void multiply_chain(const gemv *g, const int m, int t, int64_t j, int64_t n,
                               unit_range k, vf sum[TGI_GEMV_MAX_M])
{
  const int64_t whole = n < TGI_LANES ? 0 : g->p->k / (TGI_LANES * TGI_UNIT_K) * TGI_LANES;
  int64_t u = k.begin;
  TGI_UNROLLED(i, TGI_GEMV_MAX_M)
  {
    sum[i] = vf_zero();
  }
  for (; u < tgi_min_i64(k.end, whole); u += TGI_LANES) {
    multiply_square(g, m, t, j, u, sum);
  }
  if (u < k.end) {
    vf edge[TGI_GEMV_MAX_M];
    memcpy(edge, sum, sizeof edge);
    for (; u < k.end; u += TGI_LANES) {
      multiply_edge(g, j, n, u, tgi_min_i64(TGI_LANES, k.end - u), edge);
    }
    memcpy(sum, edge, sizeof edge);
  }
}

/* Columns [j, j + n) of every row, n <= TGI_LANES. */
TGI_INLINE void multiply_columns(const gemv *g, const int m, int t, int64_t j, int64_t n)
{
  _Alignas(64) float tile[TGI_GEMV_MAX_M * TGI_GEMM_NR];
  const int64_t units = tgi_units(g->p->k);
  vf total[TGI_GEMV_MAX_M];
  TGI_UNROLLED(i, m)
  {
    total[i] = vf_zero();
  }
  for (int64_t k0 = 0; k0 < units; k0 += g->block_k) {
    const int64_t k1 = tgi_min_i64(units, k0 + g->block_k);
    vf block[TGI_GEMV_MAX_M];
    TGI_UNROLLED(i, m)
    {
      block[i] = vf_zero();
    }
    for (int64_t c0 = k0; c0 < k1; c0 += TGI_CHAIN) {
      vf sum[TGI_GEMV_MAX_M];
      multiply_chain(g, m, t, j, n, (unit_range){c0, tgi_min_i64(k1, c0 + TGI_CHAIN)}, sum);
      TGI_UNROLLED(i, m)
      {
        if (c0 > k0) {
          sum[i] = block[i] + sum[i];
        }
        block[i] = sum[i];
      }
    }
    TGI_UNROLLED(i, m)
    {
      if (k0 > 0) {
        block[i] = total[i] + block[i];
      }
      total[i] = block[i];
    }
  }
  TGI_UNROLLED(i, m)
  {
    vf_store_f32(tile + i * TGI_GEMM_NR, total[i]);
  }
  tgi_gemm_finish(&g->p->c, tile, NULL, 0, g->i0, j, g->rows, n);
}

#define COLUMNS(m)                                                                                 \
  case m:                                                                                          \
    TGI_SWITCH_UNIT(g->p->b.dtype, T, multiply_columns(g, m, T, j, n));                            \
    break

static void run_strip(const gemv *g, int64_t j, int64_t n)
{
  switch (g->rows) {
    COLUMNS(1);
    COLUMNS(2);
    COLUMNS(3);
    COLUMNS(4);
#if TGI_LANES == 16
  default:
    TGI_SWITCH_UNIT(g->p->b.dtype, T, multiply_columns(g, TGI_GEMV_MAX_M, T, j, n));
#endif
  }
}

static void run_columns(void *arg, int64_t begin, int64_t end, int thread)
{
  const gemv *all = arg;
  (void)thread;
  for (int64_t j = begin; j < end; j += TGI_LANES) {
    for (int64_t i = 0; i < all->p->m; i += TGI_GEMV_MAX_M) {
      gemv strip = *all;
      strip.x += i * all->x_stride;
      strip.i0 = i;
      strip.rows = tgi_min_i64(TGI_GEMV_MAX_M, all->p->m - i);
      run_strip(&strip, j, tgi_min_i64(TGI_LANES, end - j));
    }
  }
}

void tgi_gemv(const tg_context *ctx, const tgi_gemm_problem *p, int64_t block_k, void *workspace)
{
  gemv g = {.p = p, .block_k = block_k, .x = workspace, .x_stride = x_stride(p)};
  for (int64_t i = 0; i < p->m; i++) {
    float *row = (float *)workspace + i * g.x_stride;
    const int64_t from = tgi_gemm_distance(&p->a, i);
    for (int64_t e = 0; e < p->k; e += TGI_LANES * TGI_UNIT_K) {
      TGI_SWITCH_UNIT(
          p->a.dtype, T,
          vf_store_f32(row + e / TGI_UNIT_K, unit_load_along(p->a.data, T, from + e, p->k - e)));
    }
  }
  memset((float *)workspace + p->m * g.x_stride, 0,
         (size_t)((x_rows(p) - p->m) * g.x_stride) * sizeof(float));
  tgi_for(ctx, p->n, tgi_gemv_grain(p), run_columns, &g);
}
