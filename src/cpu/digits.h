/**
 * Rows of x as integers in signed digits of 8 bits: X = d[0] + 256 d[1] + 65536 d[2], or d[0]
 * alone. A product with integer weights is then one of bytes for each digit, and sums are exact.
 *
 * A strip holds the digits of a few rows as lines side by side: line row * planes + p is digit p of
 * a row. For every four neighbours in k, a step, the strip has four bytes of each of its lines.
 */
#ifndef TGI_CPU_DIGITS_H
#define TGI_CPU_DIGITS_H

#include "cpu/simd.h"

enum {
  TGI_DIGITS_STEP = 4,   /* values of k */
  TGI_DIGITS_BLOCK = 32, /* values of k that are summed together */
  TGI_DIGITS_MAX = 3,    /* digits of a value */
};

typedef struct tgi_digits {
  const tg_tensor *x; /* [rows, in] */
  int planes;         /* 3: fixed point, 24 bits; 1: quantised, 8 bits */
  int64_t strip_rows; /* rows of x in a strip; the last may have fewer */
  int64_t steps;      /* enough for `in`; what is past it is 0 */
  int8_t *strips;     /* tgi_digits_bytes */
  double *scale;      /* [rows]: x = X * scale, about; NaN if the row is not finite */
  int32_t *sums;      /* [rows][tgi_digits_blocks]: of X over each block */
} tgi_digits;

static inline int64_t tgi_digits_blocks(int64_t in)
{
  return (in + TGI_DIGITS_BLOCK - 1) / TGI_DIGITS_BLOCK;
}

static inline int64_t tgi_digits_bytes(int64_t rows, int planes, int64_t steps)
{
  return rows * planes * steps * TGI_DIGITS_STEP;
}

/** First byte of the strip that begins with row i. */
static inline int8_t *tgi_digits_strip(const tgi_digits *d, int64_t i)
{
  return d->strips + tgi_digits_bytes(i, d->planes, d->steps);
}

/** Makes the digits, the scale and the sums of row i. */
#define TGI_DIGITS_JOIN_(name, entry) tgi_##name##_##entry
#define TGI_DIGITS_JOIN(name, entry) TGI_DIGITS_JOIN_(name, entry)
#define tgi_digits_row TGI_DIGITS_JOIN(digits_row, TGI_ENTRY)
void tgi_digits_row(const tgi_digits *d, int64_t i);

#endif
