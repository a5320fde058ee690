/* e4m3: every code and the rounding of every f16 value (and of f32 values around each tie) against
 * the definition in the OCP 8-bit Floating Point Specification 1.0, and vectors against scalars. */
#include "core/values/half.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quantised_calls.h"

/* The value of a finite code; 0x7f would be 480 if it were not NaN. */
static double value_of(int code)
{
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

static void test_codes(void **state)
{
  (void)state;
  for (int code = 0; code < 256; code++) {
    const float got = tgi_f8_e4m3_to_f32((uint8_t)code);
    const double want = value_of(code);
    const bool nan = (code & 0x7f) == 0x7f;
    if (nan ? !isnan(got) : (double)got != want || (signbit(got) != 0) != (code >> 7 != 0)) {
      fail_msg("code 0x%02x: expected %g, got %g", code, nan ? (double)NAN : want, (double)got);
    }
    if (!nan) {
      assert_int_equal(tgi_f32_to_f8_e4m3(got), code);
    }
  }
  assert_true(tgi_f8_e4m3_to_f32(0x7e) == 448 && tgi_f8_e4m3_to_f32(0x01) == 0x1p-9f);
}

/* The nearest magnitude, the even code where two are as near; NaN where that is 480 or more. */
static uint8_t nearest(double v)
{
  int best = 0;
  for (int code = 1; code <= 0x7f; code++) {
    const double now = fabs(fabs(v) - value_of(code)), before = fabs(fabs(v) - value_of(best));
    if (now < before || (now == before && code % 2 == 0)) {
      best = code;
    }
  }
  return (uint8_t)((fabs(v) < 480 ? best : 0x7f) | (signbit(v) ? 0x80 : 0));
}

static void must_round(float v)
{
  const uint8_t want = nearest((double)v), got = tgi_f32_to_f8_e4m3(v);
  if (want != got) {
    fail_msg("%a: expected 0x%02x, got 0x%02x", (double)v, want, got);
  }
}

static void test_rounding_of_f16(void **state)
{
  (void)state;
  for (int bits = 0; bits < 65536; bits++) {
    must_round(tgi_f16_to_f32((uint16_t)bits));
  }
}

static void test_rounding_at_ties(void **state)
{
  (void)state;
  for (int code = 0; code < 0x7f; code++) {
    const float tie = (float)((value_of(code) + value_of(code + 1)) / 2);
    for (int sign = -1; sign <= 1; sign += 2) {
      must_round((float)sign * tie);
      must_round((float)sign * nextafterf(tie, 0));
      must_round((float)sign * nextafterf(tie, INFINITY));
    }
  }
  must_round(0x1p-149f);
  must_round(FLT_MAX);
}

/* Through linear_fp8: a product with 1. */
static void test_fp8_codes(void **state)
{
  const every_entry *e = *state;
  const float one = 1;
  uint8_t code[256], packed[64 + 8 * (128 + 32)];
  float y[256];
  tg_error error;
  for (int i = 0; i < 256; i++) {
    code[i] = (uint8_t)i;
  }
  const tg_linear_fp8_pack_source pack = {
      .weight = tg_tensor_2d(code, TG_F8_E4M3, 256, 1),
      .scale = tg_tensor_2d((void *)(uintptr_t)&one, TG_F32, 1, 1),
      .packed = tg_tensor_1d(packed, TG_U8, tg_linear_fp8_packed_bytes(256, 1))};
  assert_int_equal(pack.packed.shape[0], sizeof packed);
  EXPECT_OK(tg_linear_fp8_pack(&pack, &error), error);
  tg_linear_fp8_fwd_args a = {.x = tg_tensor_2d((void *)(uintptr_t)&one, TG_F32, 1, 1),
                              .weight = pack.packed,
                              .y = tg_tensor_2d(y, TG_F32, 1, 256)};
  for (int k = 0; k < e->count; k++) {
    run_fp8(e->ctx[k], &a);
    for (int i = 0; i < 256; i++) {
      const float want = tgi_f8_e4m3_to_f32((uint8_t)i);
      if (isnan(want) ? !isnan(y[i]) : want != y[i]) {
        fail_msg("%s: code 0x%02x: expected %a, got %a", tg_context_entry(e->ctx[k]), i,
                 (double)want, (double)y[i]);
      }
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_codes),
      cmocka_unit_test(test_rounding_of_f16),
      cmocka_unit_test(test_rounding_at_ties),
      cmocka_unit_test(test_fp8_codes),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
