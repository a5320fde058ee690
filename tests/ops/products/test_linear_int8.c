/* linear_int8 bit for bit: integers and their sums by plain code, on every entry, with and without
 * VPDPBUSD, at 1, 2 and 3 threads. */
#include "core/values/quantize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quantised_calls.h"

enum { kMaxRows = 29, kMaxIn = 301, kMaxOut = 71 };

typedef struct int8_case {
  int64_t rows, in, out;
  tg_dtype x, y;
  bool zero_points, bias;
} int8_case;

typedef struct int8_data {
  float x[kMaxRows * kMaxIn], scale[kMaxOut], bias[kMaxOut]; /* x: room for any dtype */
  int8_t weight[kMaxOut * kMaxIn], zero_point[kMaxOut];
  uint8_t packed[64 + 3 * (256 + 76 * 128) + 64];
} int8_data;

static void make_int8(const int8_case *c, int8_data *d)
{
  uint64_t s = (uint64_t)(c->rows * 1000000 + c->in * 1000 + c->out);
  for (int64_t i = 0; i < c->rows * c->in; i++) {
    tgi_store(d->x, c->x, i, next_normal(&s) * (i % 37 == 5 ? 40 : 1));
  }
  for (int64_t i = 0; i < c->out * c->in; i++) {
    d->weight[i] = (int8_t)next_bits(&s);
  }
  for (int64_t o = 0; o < c->out; o++) {
    d->zero_point[o] = (int8_t)next_bits(&s);
    d->scale[o] = (float)(0.001 + 0.001 * (double)(next_bits(&s) % 1000));
    d->bias[o] = (float)next_normal(&s);
  }
  tg_error error;
  tg_linear_int8_pack_source a = {
      .weight = tg_tensor_2d(d->weight, TG_I8, c->out, c->in),
      .scale = tg_tensor_1d(d->scale, TG_F32, c->out),
      .packed = tg_tensor_1d(d->packed, TG_U8, tg_linear_int8_packed_bytes(c->out, c->in))};
  assert_true(a.packed.shape[0] > 64 && a.packed.shape[0] <= (int64_t)sizeof d->packed);
  if (c->zero_points) {
    a.zero_point = tg_tensor_1d(d->zero_point, TG_I8, c->out);
  }
  EXPECT_OK(tg_linear_int8_pack(&a, &error), error);
}

/* The integers of row i, and their scale, as the contract words them. */
static double row_integers(const int8_case *c, const int8_data *d, tg_int8_mode mode, int64_t i,
                           double *X)
{
  float most = 0;
  for (int64_t k = 0; k < c->in; k++) {
    const float v = fabsf((float)tgi_load(d->x, c->x, i * c->in + k));
    most = v > most ? v : most;
  }
  int e = 40;
  while (ldexp((double)most, e) > (c->y == TG_F32 ? 127 * 65536 : 127 * 256)) {
    e--;
  }
  const float scale = tgi_int8_symmetric(-most, most).scale;
  for (int64_t k = 0; k < c->in; k++) {
    const float v = (float)tgi_load(d->x, c->x, i * c->in + k);
    X[k] = mode == TG_INT8_DYNAMIC ? (double)rintf(v / scale) : rint(ldexp((double)v, e));
  }
  return mode == TG_INT8_DYNAMIC ? (double)scale : ldexp(1, -e);
}

static void expect_int8(const int8_case *c, const int8_data *d, tg_int8_mode mode, float *y)
{
  double X[kMaxIn];
  for (int64_t i = 0; i < c->rows; i++) {
    const double t = row_integers(c, d, mode, i, X);
    for (int64_t o = 0; o < c->out; o++) {
      int64_t n = 0;
      for (int64_t k = 0; k < c->in; k++) {
        const int zero_point = c->zero_points ? d->zero_point[o] : 0;
        n += (int64_t)X[k] * (d->weight[o * c->in + k] - zero_point);
      }
      float v = (float)((double)n * t);
      v = v * d->scale[o];
      if (c->bias) {
        v = v + d->bias[o];
      }
      y[i * c->out + o] = (float)tgi_round(c->y, v);
    }
  }
}

static void check_int8(const every_entry *e, const int8_case *c, tg_int8_mode mode)
{
  static int8_data d;
  static float want[kMaxRows * kMaxOut], got[kMaxRows * kMaxOut];
  make_int8(c, &d);
  expect_int8(c, &d, mode, want);
  tg_linear_int8_fwd_args a = {
      .x = tg_tensor_2d(d.x, c->x, c->rows, c->in),
      .weight = tg_tensor_1d(d.packed, TG_U8, tg_linear_int8_packed_bytes(c->out, c->in)),
      .y = tg_tensor_2d(got, c->y, c->rows, c->out),
      .mode = mode};
  if (c->bias) {
    a.bias = tg_tensor_1d(d.bias, TG_F32, c->out);
  }
  for (int k = 0; k < e->count; k++) {
    memset(got, 0xff, sizeof got);
    run_int8(e->ctx[k], &a);
    for (int64_t i = 0; i < c->rows * c->out; i++) {
      const float v = (float)tgi_load(got, c->y, i);
      if (tgi_float_bits(v) != tgi_float_bits(want[i])) {
        fail_msg("%s%s, %d threads, %lldx%lldx%lld, mode %d, [%lld]: expected %a, got %a",
                 tg_context_entry(e->ctx[k]), e->ctx[k]->processor.avx512_vnni ? "" : " no vnni",
                 e->ctx[k]->num_threads, (long long)c->rows, (long long)c->in, (long long)c->out,
                 (int)mode, (long long)i, (double)want[i], (double)v);
      }
    }
  }
}

static void test_int8_bits(void **state)
{
  static const int8_case cases[] = {
      {1, 1, 1, TG_F32, TG_F32, false, false},    {1, 3, 31, TG_F32, TG_F32, true, true},
      {3, 15, 33, TG_BF16, TG_BF16, false, true}, {15, 17, 17, TG_F16, TG_F16, true, false},
      {17, 31, 71, TG_F32, TG_F32, true, true},   {29, 33, 65, TG_BF16, TG_BF16, true, false},
      {12, 127, 32, TG_F16, TG_F16, false, true}, {13, 129, 70, TG_F32, TG_F32, true, true},
      {5, 301, 64, TG_F32, TG_F32, false, false}, {1, 300, 71, TG_BF16, TG_BF16, true, true},
  };
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    int8_case c = cases[k];
    check_int8(*state, &c, TG_INT8_WEIGHT_ONLY);
    check_int8(*state, &c, TG_INT8_DYNAMIC);
    c.y = TG_F32;
    check_int8(*state, &c, TG_INT8_WEIGHT_ONLY);
  }
}

/* The largest magnitude of a row just at, below and above where the exponent changes, and at the
 * ends of f32. */
static void test_int8_row_scales(void **state)
{
  static const float most[] = {0x1p0f,        0x1.fbfffep0f, 0x1.fcp0f,     0x1.fc0002p0f,
                               0x1.fffffep0f, 0x1p-149f,     0x1p-126f,     0x1p-100f,
                               0x1.8p100f,    0x1p127f,      0x1.fffffp127f};
  const every_entry *e = *state;
  const int8_t weight[3] = {1, 1, 1};
  const float scale = 1;
  uint8_t packed[512];
  tg_error error;
  const tg_linear_int8_pack_source pack = {
      .weight = tg_tensor_2d((void *)(uintptr_t)weight, TG_I8, 1, 3),
      .scale = tg_tensor_1d((void *)(uintptr_t)&scale, TG_F32, 1),
      .packed = tg_tensor_1d(packed, TG_U8, tg_linear_int8_packed_bytes(1, 3))};
  assert_true(pack.packed.shape[0] <= (int64_t)sizeof packed);
  EXPECT_OK(tg_linear_int8_pack(&pack, &error), error);
  for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
    for (int k = 0; k < e->count; k++) {
      float x[3] = {most[i], -most[i], -most[i]}, y;
      tg_linear_int8_fwd_args a = {.x = tg_tensor_2d(x, TG_F32, 1, 3),
                                   .weight = pack.packed,
                                   .y = tg_tensor_2d(&y, TG_F32, 1, 1),
                                   .mode = TG_INT8_WEIGHT_ONLY};
      run_int8(e->ctx[k], &a);
      if (!(fabsf(y + most[i]) <= most[i] * 0x1p-22f)) {
        fail_msg("%s: expected %a, got %a", tg_context_entry(e->ctx[k]), (double)-most[i],
                 (double)y);
      }
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int8_bits),
      cmocka_unit_test(test_int8_row_scales),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
