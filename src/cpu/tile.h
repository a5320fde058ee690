/**
 * Products of small dense f32 matrices that lie in the caches: the inner loops of attention.
 *
 *   C[rows, width] = start + A[rows, n] B[n, width]
 *
 * Element (r, s) of A is a[r * a_row + s * a_step]: both a matrix and its transpose serve. B and C
 * have rows of whole vectors; rows is a multiple of TGI_TILE_ROWS. A block of TGI_TILE_ROWS x
 * TGI_TILE_VECTORS sums stays in registers; each step loads one row of B and one element of A a
 * row. The sums begin at 0 and meet C at the end, so that the chain of an element of C grows by one
 * addition a product, and rounding errors with it.
 */
#ifndef TGI_CPU_TILE_H
#define TGI_CPU_TILE_H

#include "cpu/simd.h"

enum {
  TGI_TILE_ROWS = 4,
  TGI_TILE_VECTORS = TGI_LANES == 16 ? 4 : 3, /* 16 of 32 registers, or 12 of 16, hold sums */
};

/** What C starts from: 0, its content, or its content times one factor a column. */
typedef enum tgi_tile_start { TGI_TILE_ZERO, TGI_TILE_ADD, TGI_TILE_SCALE } tgi_tile_start;

typedef struct tgi_tile_product {
  const float *a;
  int64_t a_row, a_step;
  const float *b;
  int64_t b_step;
  float *c;
  int64_t c_row;
  int64_t rows, n;
  tgi_tile_start start;
  const float *factor; /* of TGI_TILE_SCALE */
} tgi_tile_product;

/* Named members, not arrays: compilers keep them in registers. */
typedef struct tgi_tile_row {
  vf v0, v1, v2, v3;
} tgi_tile_row;

TGI_INLINE tgi_tile_row tile_load(const float *p, int vectors)
{
  tgi_tile_row r = {vf_load_f32(p), vf_zero(), vf_zero(), vf_zero()};
  if (vectors > 1) {
    r.v1 = vf_load_f32(p + TGI_LANES);
  }
  if (vectors > 2) {
    r.v2 = vf_load_f32(p + 2 * TGI_LANES);
  }
  if (vectors > 3) {
    r.v3 = vf_load_f32(p + 3 * TGI_LANES);
  }
  return r;
}

TGI_INLINE void tile_store(float *p, tgi_tile_row r, int vectors)
{
  vf_store_f32(p, r.v0);
  if (vectors > 1) {
    vf_store_f32(p + TGI_LANES, r.v1);
  }
  if (vectors > 2) {
    vf_store_f32(p + 2 * TGI_LANES, r.v2);
  }
  if (vectors > 3) {
    vf_store_f32(p + 3 * TGI_LANES, r.v3);
  }
}

TGI_INLINE void tile_add(tgi_tile_row *r, float x, const tgi_tile_row *b, int vectors)
{
  const vf a = vf_set1(x);
  r->v0 = vf_fma(a, b->v0, r->v0);
  if (vectors > 1) {
    r->v1 = vf_fma(a, b->v1, r->v1);
  }
  if (vectors > 2) {
    r->v2 = vf_fma(a, b->v2, r->v2);
  }
  if (vectors > 3) {
    r->v3 = vf_fma(a, b->v3, r->v3);
  }
}

TGI_INLINE void tile_finish(const tgi_tile_product *t, float *c, tgi_tile_row r, int vectors)
{
  if (t->start != TGI_TILE_ZERO) {
    const tgi_tile_row old = tile_load(c, vectors);
    tgi_tile_row f = {vf_set1(1.0f), vf_set1(1.0f), vf_set1(1.0f), vf_set1(1.0f)};
    if (t->start == TGI_TILE_SCALE) {
      f = tile_load(t->factor, vectors);
    }
    r = (tgi_tile_row){vf_fma(old.v0, f.v0, r.v0), vf_fma(old.v1, f.v1, r.v1),
                       vf_fma(old.v2, f.v2, r.v2), vf_fma(old.v3, f.v3, r.v3)};
  }
  tile_store(c, r, vectors);
}

/** The product, `vectors` vectors wide: 1 to TGI_TILE_VECTORS, a constant. */
TGI_INLINE void tile_multiply_as(const tgi_tile_product *t, int vectors)
{
  for (int64_t i = 0; i < t->rows; i += TGI_TILE_ROWS) {
    const float *a0 = t->a + i * t->a_row, *a1 = a0 + t->a_row;
    const float *a2 = a1 + t->a_row, *a3 = a2 + t->a_row;
    float *c = t->c + i * t->c_row;
    tgi_tile_row r0 = {vf_zero(), vf_zero(), vf_zero(), vf_zero()}, r1 = r0, r2 = r0, r3 = r0;
    const float *b = t->b;
    const int64_t step = t->a_step, b_step = t->b_step;
    for (int64_t s = 0, at_a = 0; s < t->n; s++, at_a += step, b += b_step) {
      const tgi_tile_row x = tile_load(b, vectors);
      tile_add(&r0, a0[at_a], &x, vectors);
      tile_add(&r1, a1[at_a], &x, vectors);
      tile_add(&r2, a2[at_a], &x, vectors);
      tile_add(&r3, a3[at_a], &x, vectors);
    }
    tile_finish(t, c, r0, vectors);
    tile_finish(t, c + t->c_row, r1, vectors);
    tile_finish(t, c + 2 * t->c_row, r2, vectors);
    tile_finish(t, c + 3 * t->c_row, r3, vectors);
  }
}

/** The product of any width: `vectors` >= 1. */
static __attribute__((noinline, unused)) void tgi_tile_multiply(tgi_tile_product t, int64_t vectors)
{
  while (vectors > 0) {
    const int64_t now = vectors < TGI_TILE_VECTORS ? vectors : TGI_TILE_VECTORS;
    switch (now) {
    case 1:
      tile_multiply_as(&t, 1);
      break;
    case 2:
      tile_multiply_as(&t, 2);
      break;
    case 3:
      tile_multiply_as(&t, 3);
      break;
    default:
      tile_multiply_as(&t, TGI_TILE_VECTORS);
      break;
    }
    vectors -= now;
    t.b += now * TGI_LANES;
    t.c += now * TGI_LANES;
    if (t.factor) {
      t.factor += now * TGI_LANES;
    }
  }
}

#endif
