/* What theory says of products with quantised weights: the size of their errors, and of the
 * weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quantised_calls.h"

enum { kIn = 1024, kOut = 256 };

/* Root mean square of y - x W^T over the outputs, in units of the given step. */
static double error_in_steps(const float *x, const float *w, const float *y, const double *step)
{
  double sum = 0;
  for (int o = 0; o < kOut; o++) {
    double exact = 0;
    for (int k = 0; k < kIn; k++) {
      exact += (double)x[k] * (double)w[o * kIn + k];
    }
    sum += pow(((double)y[o] - exact) / step[o], 2);
  }
  return sqrt(sum / kOut);
}

typedef struct theory_data {
  float x[kIn], w[kOut * kIn], y[kOut];
  double step[kOut]; /* what a weight is rounded to, root mean square over a row */
  double size;       /* root mean square of x */
} theory_data;

static theory_data *make_theory(void)
{
  theory_data *d = malloc(sizeof *d);
  uint64_t s = 11;
  double sum = 0;
  for (int k = 0; k < kIn; k++) {
    d->x[k] = (float)next_normal(&s);
    sum += (double)d->x[k] * (double)d->x[k];
  }
  for (int i = 0; i < kOut * kIn; i++) {
    d->w[i] = (float)next_normal(&s);
  }
  d->size = sqrt(sum / kIn);
  return d;
}

/* A sum of K products whose weights are off by a uniform error of +-step / 2 is off by about
 * step * sqrt(K / 12), times the size of x. 256 outputs estimate it to about 5 %. */
static void must_match_theory(const char *what, const theory_data *d, double factor)
{
  const double theory = d->size * sqrt(kIn / 12.0) * factor;
  const double got = error_in_steps(d->x, d->w, d->y, d->step);
  if (!(got > 0.8 * theory && got < 1.2 * theory)) {
    fail_msg("%s: expected an error of about %.3g steps, got %.3g", what, theory, got);
  }
}

static void test_int8_error(void **state)
{
  const every_entry *e = *state;
  theory_data *d = make_theory();
  const int64_t bytes = tg_linear_int8_packed_bytes(kOut, kIn);
  int8_t *q = malloc(kOut * kIn);
  uint8_t *packed = malloc((size_t)bytes);
  float scale[kOut];
  tg_error error;
  for (int o = 0; o < kOut; o++) {
    float most = 0;
    for (int k = 0; k < kIn; k++) {
      most = fmaxf(most, fabsf(d->w[o * kIn + k]));
    }
    scale[o] = most / 127;
    d->step[o] = (double)scale[o];
    for (int k = 0; k < kIn; k++) {
      q[o * kIn + k] = (int8_t)lrintf(d->w[o * kIn + k] / scale[o]);
    }
  }
  const tg_linear_int8_pack_source pack = {.weight = tg_tensor_2d(q, TG_I8, kOut, kIn),
                                           .scale = tg_tensor_1d(scale, TG_F32, kOut),
                                           .packed = tg_tensor_1d(packed, TG_U8, bytes)};
  EXPECT_OK(tg_linear_int8_pack(&pack, &error), error);
  assert_true((double)bytes < 0.51 * 2 * kOut * kIn); /* of f16's bytes */
  tg_linear_int8_fwd_args a = {.x = tg_tensor_2d(d->x, TG_F32, 1, kIn),
                               .weight = pack.packed,
                               .y = tg_tensor_2d(d->y, TG_F32, 1, kOut),
                               .mode = TG_INT8_WEIGHT_ONLY};
  for (int k = 0; k < e->count; k++) {
    run_int8(e->ctx[k], &a);
    must_match_theory("int8", d, 1);
  }
  /* With x in steps as well, of its own largest magnitude / 127, errors add in squares. */
  a.mode = TG_INT8_DYNAMIC;
  float most = 0;
  for (int k = 0; k < kIn; k++) {
    most = fmaxf(most, fabsf(d->x[k]));
  }
  const double of_x = (double)most / 127 / d->size / (d->step[0] / 1);
  for (int k = 0; k < e->count; k++) {
    run_int8(e->ctx[k], &a);
    must_match_theory("int8, dynamic", d, sqrt(1 + of_x * of_x));
  }
  free(q);
  free(packed);
  free(d);
}

static void quantise_group(const float *w, float *scale, uint8_t *zero_point, bool symmetric,
                           int group_size, uint8_t *n)
{
  float low = 0, high = 0;
  for (int k = 0; k < group_size; k++) {
    low = fminf(low, w[k]);
    high = fmaxf(high, w[k]);
  }
  *scale = symmetric ? fmaxf(high / 7, -low / 8) : (high - low) / 15;
  *zero_point = symmetric ? 8 : (uint8_t)lrintf(-low / *scale);
  for (int k = 0; k < group_size; k++) {
    const float v = rintf(w[k] / *scale) + *zero_point;
    n[k] = (uint8_t)fmaxf(0, fminf(15, v));
  }
}

static void check_int4_error(const every_entry *e, theory_data *d, int group_size, bool symmetric)
{
  const int groups = kIn / group_size;
  uint8_t *q = calloc(kOut, kIn / 2), *zero_point = malloc((size_t)(kOut * groups));
  float *scale = malloc((size_t)(kOut * groups) * sizeof *scale);
  for (int o = 0; o < kOut; o++) {
    double sum = 0;
    for (int g = 0; g < groups; g++) {
      uint8_t n[128];
      const int at = o * groups + g, first = g * group_size;
      quantise_group(d->w + o * kIn + first, &scale[at], &zero_point[at], symmetric, group_size, n);
      for (int k = 0; k < group_size; k++) {
        q[(o * kIn + first + k) / 2] |= (uint8_t)(k % 2 ? n[k] << 4 : n[k]);
      }
      sum += (double)scale[at] * (double)scale[at];
    }
    d->step[o] = sqrt(sum / groups);
  }
  tg_error error;
  tg_linear_int4_pack_source pack = {.weight = tg_tensor_2d(q, TG_U8, kOut, kIn / 2),
                                     .scale = tg_tensor_2d(scale, TG_F32, kOut, groups),
                                     .in = kIn,
                                     .group_size = group_size};
  if (!symmetric) {
    pack.zero_point = tg_tensor_2d(zero_point, TG_U8, kOut, groups);
  }
  const int64_t bytes = tg_linear_int4_packed_bytes(&pack);
  uint8_t *packed = malloc((size_t)bytes);
  pack.packed = tg_tensor_1d(packed, TG_U8, bytes);
  EXPECT_OK(tg_linear_int4_pack(&pack, &error), error);
  tg_linear_int4_fwd_args a = {.x = tg_tensor_2d(d->x, TG_F32, 1, kIn),
                               .weight = pack.packed,
                               .y = tg_tensor_2d(d->y, TG_F32, 1, kOut)};
  for (int k = 0; k < e->count; k++) {
    run_int4(e->ctx[k], &a);
    must_match_theory(symmetric ? "int4" : "int4, zero points", d, 1);
  }
  free(q);
  free(zero_point);
  free(scale);
  free(packed);
}

static void test_int4_error(void **state)
{
  theory_data *d = make_theory();
  for (int group_size = 32; group_size <= 128; group_size *= 2) {
    check_int4_error(*state, d, group_size, true);
    check_int4_error(*state, d, group_size, false);
  }
  free(d);
}

/* Bytes beside those of f16: with scales in f16 as the contract says. */
static void test_int4_bytes(void **state)
{
  static const struct {
    int64_t group_size;
    bool zero_points;
    double bits;
  } cases[] = {{32, false, 4.5}, {64, false, 4.25}, {128, false, 4.125},
               {32, true, 4.75}, {64, true, 4.375}, {128, true, 4.1875}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tg_linear_int4_pack_source a = {.weight = tg_tensor_2d(NULL, TG_U8, 4096, 2048),
                                    .in = 4096,
                                    .group_size = cases[i].group_size};
    a.scale.dtype = TG_F16;
    a.zero_point.dtype = cases[i].zero_points ? TG_U8 : TG_DTYPE_NONE;
    const double bytes = (double)tg_linear_int4_packed_bytes(&a);
    assert_true(bytes == 64 + 4096.0 * 4096 * cases[i].bits / 8);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int8_error),
      cmocka_unit_test(test_int4_error),
      cmocka_unit_test(test_int4_bytes),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
