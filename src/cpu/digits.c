/* Two passes over a row: its largest magnitude, then the integers, a block at a time. */
#include "cpu/digits.h"

#include "core/tensor_view.h"
#include "core/values/fixed_point.h"
#include "core/values/quantize.h"

/* Largest magnitude; NaN if a value is NaN or infinite. */
TGI_INLINE float largest(const void *row, int t, int64_t in)
{
  vf most = vf_zero(), not_finite = vf_zero();
  for (int64_t k = 0; k < in; k += TGI_LANES) {
    const vf v = vf_load_part(row, t, k, tgi_min_i64(TGI_LANES, in - k));
    most = vf_max(vf_abs(v), most);
    not_finite = not_finite + v * vf_zero();
  }
  return vf_hmax(most) + vf_sum(not_finite);
}

/* Nearest integer, ties to even, for magnitudes up to 2^23. */
TGI_INLINE vf to_integer(vf v)
{
  const vf magic = vf_copysign(vf_set1(0x1p23f), v);
  return (v + magic) - magic;
}

/* How a row is made integers: times 2^exponent, or divided by a scale. */
typedef struct row_rule {
  bool divides;
  float by; /* exponent or scale */
} row_rule;

/* X of a block; 0 past the row's end. Returns their sum. */
TGI_INLINE int32_t make_block(const void *row, int t, int64_t k, int64_t in, row_rule rule,
                              int32_t X[TGI_DIGITS_BLOCK])
{
  float f[TGI_DIGITS_BLOCK];
  int32_t sum = 0;
  for (int64_t j = 0; j < TGI_DIGITS_BLOCK; j += TGI_LANES) {
    const int64_t left = in - k - j, n = left < 0 ? 0 : tgi_min_i64(TGI_LANES, left);
    vf v = vf_load_part(row, t, k + j, n);
    if (rule.divides) {
      v = v / vf_set1(rule.by);
    } else {
      v = vf_scale2(v, vf_set1(rule.by));
    }
    vf_store_f32(f + j, to_integer(v));
  }
  for (int j = 0; j < TGI_DIGITS_BLOCK; j++) {
    X[j] = (int32_t)f[j];
    sum += X[j];
  }
  return sum;
}

/* Digits of a block into the lines of a strip: `line` is the row's first, lines apart a step. */
TGI_INLINE void put_block(const tgi_digits *d, const int32_t X[TGI_DIGITS_BLOCK], int64_t steps,
                          int8_t *line, int64_t lines)
{
  int8_t digit[TGI_DIGITS_MAX][TGI_DIGITS_BLOCK];
  for (int j = 0; j < TGI_DIGITS_BLOCK; j++) {
    const int32_t above = (X[j] - (int8_t)X[j]) >> 8;
    digit[0][j] = (int8_t)X[j];
    digit[1][j] = (int8_t)above;
    digit[2][j] = (int8_t)((above - (int8_t)above) >> 8);
  }
  for (int64_t s = 0; s < steps; s++) {
    for (int p = 0; p < d->planes; p++) {
      memcpy(line + (s * lines + p) * TGI_DIGITS_STEP, digit[p] + s * TGI_DIGITS_STEP,
             TGI_DIGITS_STEP);
    }
  }
}

void tgi_digits_row(const tgi_digits *d, int64_t i)
{
  const tg_tensor *x = d->x;
  const void *row = tgi_row(x, i);
  const int64_t in = x->shape[1], blocks = tgi_digits_blocks(in);
  const int64_t first = i / d->strip_rows * d->strip_rows;
  const int64_t lines = tgi_min_i64(d->strip_rows, x->shape[0] - first) * d->planes;
  const int64_t step_bytes = lines * TGI_DIGITS_STEP;
  int8_t *line = tgi_digits_strip(d, first) + (i - first) * d->planes * TGI_DIGITS_STEP;
  int32_t X[TGI_DIGITS_BLOCK];
  float most = 0;
  TGI_SWITCH_FLOAT(x->dtype, T, most = largest(row, T, in));
  row_rule rule = {.divides = d->planes == 1};
  if (rule.divides) {
    rule.by = tgi_int8_symmetric(-most, most).scale;
    d->scale[i] = (double)rule.by;
  } else {
    const int exponent = isfinite(most) ? tgi_fixed_point_exponent(most, d->planes) : 0;
    rule.by = (float)exponent;
    d->scale[i] = isfinite(most) ? ldexp(1, -exponent) : NAN;
  }
  const int64_t block_steps = TGI_DIGITS_BLOCK / TGI_DIGITS_STEP;
  for (int64_t b = 0; b < blocks; b++) {
    int32_t sum = 0;
    if (isfinite(most)) {
      TGI_SWITCH_FLOAT(x->dtype, T, sum = make_block(row, T, b * TGI_DIGITS_BLOCK, in, rule, X));
    } else {
      memset(X, 0, sizeof X);
    }
    d->sums[i * blocks + b] = sum;
    put_block(d, X, tgi_min_i64(block_steps, d->steps - b * block_steps),
              line + b * block_steps * step_bytes, lines);
  }
}
