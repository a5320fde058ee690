/**
 * Rows of x as integers in signed digits of 8 bits: X = d[0] + 256 d[1] + 65536 d[2], or fewer. A
 * product with integer weights is then one of bytes for each digit, and sums are exact.
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
  int planes;         /* digits: 3 or 2, fixed point; 1, quantised */
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

/**
 * Describes digits of x for strips of at most `lines` lines and, unless it is NULL, lays them out
 * in 64-byte aligned memory. Returns the bytes that they take.
 */
static inline size_t tgi_digits_lay_out(tgi_digits *d, const tg_tensor *x, int planes, int lines,
                                        int64_t steps, char *memory)
{
  const int64_t rows = x->shape[0], strips = tgi_digits_bytes(rows, planes, steps);
  const int64_t scales = rows * (int64_t)sizeof *d->scale;
  const int64_t sums = rows * tgi_digits_blocks(x->shape[1]) * (int64_t)sizeof *d->sums;
  const int64_t scale_at = (strips + 63) / 64 * 64, sums_at = (scale_at + scales + 63) / 64 * 64;
  *d = (tgi_digits){.x = x, .planes = planes, .strip_rows = lines / planes, .steps = steps};
  if (memory) {
    d->strips = (int8_t *)memory;
    d->scale = (double *)(void *)(memory + scale_at);
    d->sums = (int32_t *)(void *)(memory + sums_at);
  }
  return (size_t)(sums_at + sums + 63) / 64 * 64;
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
