/* Quantisation by theory, on every entry: the round trip is within half a step of the stored scale
 * (in exact arithmetic), scales are positive, integers in their range, a product's error is that of
 * uniform noise, memory shrinks as the contract says. */
#include "core/values/half.h"
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_entries.h"
#include "expect_op.h"

enum { kRows = 23, kCols = 203, kNumel = kRows * kCols, kKinds = 12 };

static uint64_t next(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 11;
}

static double uniform(uint64_t *state) /* in [-1, 1) */
{
  return (double)next(state) * 0x1p-52 - 1;
}

/* Fills x with one kind of values, as far as the dtype has them. */
static void fill(void *x, tg_dtype dtype, int kind)
{
  const double most = (double)tgi_largest_finite(dtype),
               least = dtype == TG_F16 ? 0x1p-24 : 0x1p-149;
  uint64_t state = (uint64_t)kind + 1;
  for (int64_t i = 0; i < kNumel; i++) {
    const double u = uniform(&state);
    const double step = (double)(int)(u * 260); /* halves of integers: ties of a scale of 1 */
    const double values[kKinds] = {
        u,
        u * u * u * 100,
        5, /* constant */
        -7.25,
        0,
        u + 1.5, /* one sign */
        u - 1.5,
        most * u, /* huge */
        i % 2 ? most : -most,
        least * (double)(int)(u * 300), /* denormal */
        i % kCols ? step / 2 : 127,
        i % 50 == 7 ? u : 0, /* mostly zeros, some groups all */
    };
    tgi_store(x, dtype, i, values[kind]);
  }
}

typedef struct trip {
  tg_dtype dtype;
  double x[kNumel], y[kNumel]; /* room for any dtype */
  float scale[kNumel];
  int8_t q8[kNumel];
  uint8_t q4[kNumel];
  int32_t zero_point[kNumel];
  _Alignas(64) unsigned char workspace[1 << 18];
} trip;

/* One element, in exact arithmetic: a step of `levels` times a 15-bit scale has 23 bits. */
static void check_element(const trip *t, int64_t i, int level, double scale)
{
  const double x = tgi_load(t->x, t->dtype, i), error = fabs(x - level * scale);
  const double most = (double)tgi_largest_finite(t->dtype);
  if (!(scale > 0) || isinf(scale)) {
    fail_msg("element %lld: expected a finite scale > 0, got %g", (long long)i, scale);
  }
  if (!(error <= scale / 2)) {
    fail_msg("element %lld: expected %.9g within %.9g, got %.9g", (long long)i, x, scale / 2,
             level * scale);
  }
  const double product = level * scale;
  const double kept = product > most ? most : product < -most ? -most : product;
  const double got = tgi_load(t->y, t->dtype, i), want = tgi_round(t->dtype, kept);
  if (got != want) {
    fail_msg("element %lld comes back: expected %.9g, got %.9g", (long long)i, want, got);
  }
}

static void int8_trip(tg_context *ctx, trip *t, tg_quant_granularity g, bool asymmetric)
{
  const int64_t groups = g == TG_QUANT_PER_TENSOR ? 1 : g == TG_QUANT_PER_ROW ? kRows : kCols;
  tg_quantize_int8_fwd_args a = {.x = tg_tensor_2d(t->x, t->dtype, kRows, kCols),
                                 .q = tg_tensor_2d(t->q8, TG_I8, kRows, kCols),
                                 .scale = tg_tensor_1d(t->scale, TG_F32, groups),
                                 .granularity = g,
                                 .workspace = t->workspace,
                                 .workspace_bytes = sizeof t->workspace};
  if (asymmetric) {
    a.zero_point = tg_tensor_1d(t->zero_point, TG_I32, groups);
  }
  must_run(ctx, tg_quantize_int8_fwd(ctx, &a));
  const tg_dequantize_int8_fwd_args b = {.q = a.q,
                                         .scale = a.scale,
                                         .zero_point = a.zero_point,
                                         .x = tg_tensor_2d(t->y, t->dtype, kRows, kCols),
                                         .granularity = g};
  must_run(ctx, tg_dequantize_int8_fwd(ctx, &b));
  for (int64_t i = 0; i < kNumel; i++) {
    const int64_t k = g == TG_QUANT_PER_TENSOR ? 0 : g == TG_QUANT_PER_ROW ? i / kCols : i % kCols;
    const int zero_point = asymmetric ? t->zero_point[k] : 0;
    assert_in_range(zero_point + 128, 0, 255);
    assert_true(asymmetric || t->q8[i] >= -127);
    check_element(t, i, t->q8[i] - zero_point, (double)t->scale[k]);
  }
}

static void test_int8(void **state)
{
  static trip t;
  cpu_entries e = open_cpu_entries(2);
  (void)state;
  for (int k = 0; k < e.count * kKinds * 3 * 3 * 2; k++) {
    const int kind = k / e.count % kKinds, rest = k / e.count / kKinds;
    t.dtype = (tg_dtype)(TG_F32 + rest % 3);
    fill(t.x, t.dtype, kind);
    int8_trip(e.ctx[k % e.count], &t, (tg_quant_granularity)(1 + rest / 3 % 3), rest / 9 % 2);
  }
  close_cpu_entries(&e);
}

static void int4_trip(tg_context *ctx, trip *t, int64_t group_size, tg_dtype scale, bool asymmetric)
{
  const int64_t groups = (kCols + group_size - 1) / group_size, bytes = (kCols + 1) / 2;
  uint8_t zero_point[kNumel];
  tg_quantize_int4_fwd_args a = {.x = tg_tensor_2d(t->x, t->dtype, kRows, kCols),
                                 .q = tg_tensor_2d(t->q4, TG_U8, kRows, bytes),
                                 .scale = tg_tensor_2d(t->scale, scale, kRows, groups),
                                 .group_size = group_size};
  if (asymmetric) {
    a.zero_point = tg_tensor_2d(zero_point, TG_U8, kRows, groups);
  }
  must_run(ctx, tg_quantize_int4_fwd(ctx, &a));
  const tg_dequantize_int4_fwd_args b = {.q = a.q,
                                         .scale = a.scale,
                                         .zero_point = a.zero_point,
                                         .x = tg_tensor_2d(t->y, t->dtype, kRows, kCols),
                                         .group_size = group_size};
  must_run(ctx, tg_dequantize_int4_fwd(ctx, &b));
  for (int64_t i = 0; i < kNumel; i++) {
    const int64_t row = i / kCols, col = i % kCols, k = row * groups + col / group_size;
    const int byte = t->q4[row * bytes + col / 2], zero = asymmetric ? zero_point[k] : 8;
    assert_in_range(zero, 0, 15);
    check_element(t, i, (col % 2 ? byte >> 4 : byte & 15) - zero, tgi_load(t->scale, scale, k));
    assert_true(col < kCols - 1 || byte >> 4 == 0); /* an odd row's last half */
  }
}

static void test_int4(void **state)
{
  static trip t;
  cpu_entries e = open_cpu_entries(2);
  (void)state;
  for (int k = 0; k < e.count * kKinds * 3 * 3 * 2 * 2; k++) {
    const int kind = k / e.count % kKinds, rest = k / e.count / kKinds;
    const tg_dtype scale = rest / 18 ? TG_F16 : TG_F32;
    t.dtype = (tg_dtype)(TG_F32 + rest % 3);
    const bool huge = kind == 7 || kind == 8; /* beyond what f16 scales reach */
    if (!(huge && scale == TG_F16 && t.dtype != TG_F16)) {
      fill(t.x, t.dtype, kind);
      int4_trip(e.ctx[k % e.count], &t, 32 << rest / 3 % 3, scale, rest / 9 % 2);
    }
  }
  close_cpu_entries(&e);
}

/* Quotients halfway between integers go to the even one; the ends do not wrap. */
static void test_ties(void **state)
{
  cpu_entries e = open_cpu_entries(1);
  float x[8] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, -127}, scale, probe = 127;
  int8_t q[8], unit;
  (void)state;
  for (int k = 0; k < e.count; k++) {
    tg_quantize_int8_fwd_args a = {.x = tg_tensor_2d(&probe, TG_F32, 1, 1),
                                   .q = tg_tensor_2d(&unit, TG_I8, 1, 1),
                                   .scale = tg_tensor_1d(&scale, TG_F32, 1),
                                   .granularity = TG_QUANT_PER_ROW};
    must_run(e.ctx[k], tg_quantize_int8_fwd(e.ctx[k], &a));
    assert_true(scale >= 1 && scale <= 1 + 0x1p-14f); /* up(127 / 127) */
    assert_true(fmodf(scale, 0x1p-14f) == 0);         /* of 15 significant bits */
    float scaled[8];
    for (int i = 0; i < 8; i++) {
      scaled[i] = x[i] * scale; /* exact; only the ends move */
    }
    scaled[0] = 127;
    scaled[7] = -127;
    a.x = tg_tensor_2d(scaled, TG_F32, 1, 8);
    a.q = tg_tensor_2d(q, TG_I8, 1, 8);
    must_run(e.ctx[k], tg_quantize_int8_fwd(e.ctx[k], &a));
    const int8_t want[8] = {127, 0, 2, 2, 0, -2, -2, -127};
    assert_memory_equal(q, want, sizeof want);
  }
  close_cpu_entries(&e);
}

/* A group that is not finite comes back as NaN, and alone. */
static void test_not_finite(void **state)
{
  cpu_entries e = open_cpu_entries(1);
  const float bad[3] = {NAN, INFINITY, -INFINITY};
  (void)state;
  for (int k = 0; k < e.count * 3 * 2; k++) {
    float x[3 * 32], y[3 * 32], scale[3];
    uint8_t q4[48], zero4[3];
    int8_t q8[96], zero8[3];
    const bool asymmetric = k % 2;
    tg_context *ctx = e.ctx[k / 6];
    for (int i = 0; i < 96; i++) {
      x[i] = (float)(i % 5) - 2;
    }
    x[32 + k] = bad[k / 2 % 3];
    tg_quantize_int4_fwd_args a4 = {.x = tg_tensor_2d(x, TG_F32, 1, 96),
                                    .q = tg_tensor_2d(q4, TG_U8, 1, 48),
                                    .scale = tg_tensor_2d(scale, TG_F32, 1, 3),
                                    .group_size = 32};
    a4.zero_point = asymmetric ? tg_tensor_2d(zero4, TG_U8, 1, 3) : a4.zero_point;
    must_run(ctx, tg_quantize_int4_fwd(ctx, &a4));
    const tg_dequantize_int4_fwd_args b4 = {a4.q, a4.scale, a4.zero_point,
                                            tg_tensor_2d(y, TG_F32, 1, 96), 32};
    must_run(ctx, tg_dequantize_int4_fwd(ctx, &b4));
    for (int i = 0; i < 96; i++) {
      assert_true(isnan(y[i]) == (i / 32 == 1));
      assert_true(i / 32 != 1 || (q4[i / 2] == 0x88 && (!asymmetric || zero4[1] == 8)));
    }
    tg_quantize_int8_fwd_args a8 = {.x = tg_tensor_2d(x, TG_F32, 3, 32),
                                    .q = tg_tensor_2d(q8, TG_I8, 3, 32),
                                    .scale = tg_tensor_1d(scale, TG_F32, 3),
                                    .granularity = TG_QUANT_PER_ROW};
    a8.zero_point = asymmetric ? tg_tensor_1d(zero8, TG_I8, 3) : a8.zero_point;
    must_run(ctx, tg_quantize_int8_fwd(ctx, &a8));
    for (int i = 0; i < 96; i++) {
      assert_true(isnan(scale[i / 32]) == (i / 32 == 1));
      assert_true(i / 32 != 1 || (q8[i] == 0 && (!asymmetric || zero8[1] == 0)));
    }
  }
  close_cpu_entries(&e);
}

/* Scales beyond f16 are no scales. */
static void test_scale_overflow(void **state)
{
  cpu_entries e = open_cpu_entries(1);
  float x[64] = {0};
  uint16_t scale[2];
  uint8_t q[32];
  (void)state;
  x[3] = 65504 * 7.5f;
  x[40] = 65000 * 7.5f;
  for (int k = 0; k < e.count; k++) {
    const tg_quantize_int4_fwd_args a = {.x = tg_tensor_2d(x, TG_F32, 1, 64),
                                         .q = tg_tensor_2d(q, TG_U8, 1, 32),
                                         .scale = tg_tensor_2d(scale, TG_F16, 1, 2),
                                         .group_size = 32};
    must_run(e.ctx[k], tg_quantize_int4_fwd(e.ctx[k], &a));
    assert_true(isnan(tgi_f16_to_f32(scale[0])));
    assert_true(tgi_f16_to_f32(scale[1]) == 65024);
    assert_int_equal(q[1], 0x88);
    assert_int_equal(q[20], 0x8f);
  }
  close_cpu_entries(&e);
}

/* Errors of quantised weights are uniform within a step, so that of a product with K unit normal
 * numbers has a deviation of scale * sqrt(K / 12). */
static void test_product_error(void **state)
{
  enum { kK = 4096, kOut = 64 };
  float *w = malloc(sizeof(float) * kK * kOut), *back = malloc(sizeof(float) * kK * kOut);
  int8_t *q = malloc(kK * kOut);
  float scale[kOut];
  double sum = 0;
  uint64_t s = 5;
  tg_context *ctx = NULL;
  const tg_context_options o = {.backend = TG_BACKEND_CPU};
  (void)state;
  assert_int_equal(tg_context_create(&o, &ctx, NULL), TG_OK);
  for (int i = 0; i < kK * kOut; i++) {
    w[i] = (float)(uniform(&s) + uniform(&s) + uniform(&s));
  }
  const tg_quantize_int8_fwd_args a = {.x = tg_tensor_2d(w, TG_F32, kOut, kK),
                                       .q = tg_tensor_2d(q, TG_I8, kOut, kK),
                                       .scale = tg_tensor_1d(scale, TG_F32, kOut),
                                       .granularity = TG_QUANT_PER_ROW};
  must_run(ctx, tg_quantize_int8_fwd(ctx, &a));
  const tg_dequantize_int8_fwd_args b = {.q = a.q,
                                         .scale = a.scale,
                                         .x = tg_tensor_2d(back, TG_F32, kOut, kK),
                                         .granularity = TG_QUANT_PER_ROW};
  must_run(ctx, tg_dequantize_int8_fwd(ctx, &b));
  for (int row = 0; row < kOut; row++) {
    double error = 0;
    for (int j = 0; j < kK; j++) {
      const double u = uniform(&s) * 1.7320508075688772; /* of deviation 1 */
      error += u * ((double)w[row * kK + j] - (double)back[row * kK + j]);
    }
    const double unit = (double)scale[row] * sqrt(kK / 12.0);
    sum += error / unit * (error / unit);
  }
  /* chi-square with 64 degrees: within 4.5 deviations, 0.177 each, of 1 */
  assert_true(fabs(sum / kOut - 1) < 0.8);
  tg_context_destroy(ctx);
  free(w);
  free(back);
  free(q);
}

static double bytes_of(const tg_tensor *t)
{
  return (double)(t->shape[0] * t->shape[1]) * (double)tg_dtype_bytes(t->dtype);
}

/* What a weight [4096, 4096] takes beside f16, in the views that the ops accept. */
static void test_memory(void **state)
{
  static const double want[3][2] = {{3.556, 3.368}, {3.765, 3.657}, {3.879, 3.821}};
  const int64_t n = 4096;
  tg_context *ctx = NULL;
  const tg_context_options o = {.backend = TG_BACKEND_CPU};
  size_t bytes;
  (void)state;
  assert_int_equal(tg_context_create(&o, &ctx, NULL), TG_OK);
  for (int k = 0; k < 6; k++) {
    const int64_t group = 32 << k / 2;
    tg_quantize_int4_fwd_args a = {.x = tg_tensor_2d(NULL, TG_F16, n, n),
                                   .q = tg_tensor_2d(NULL, TG_U8, n, n / 2),
                                   .scale = tg_tensor_2d(NULL, TG_F16, n, n / group),
                                   .group_size = group};
    if (k % 2) {
      a.zero_point = tg_tensor_2d(NULL, TG_U8, n, n / group);
    }
    must_run(ctx, tg_quantize_int4_fwd_workspace(ctx, &a, &bytes));
    const double packed = bytes_of(&a.q) + bytes_of(&a.scale) + bytes_of(&a.zero_point);
    assert_true(fabs(bytes_of(&a.x) / packed - want[k / 2][k % 2]) < 1e-3);
  }
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int8),           cmocka_unit_test(test_int4),
      cmocka_unit_test(test_ties),           cmocka_unit_test(test_not_finite),
      cmocka_unit_test(test_scale_overflow), cmocka_unit_test(test_product_error),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
