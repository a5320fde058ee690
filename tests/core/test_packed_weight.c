/* Packed weights: what packing refuses, what the ops refuse, and one arithmetic for a packed int4
 * weight with and without VPDPBUSD. */
#include "core/values/half.h"
#include "core/values/packed_weight.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quantised_calls.h"

static void test_int4_without_vnni(void **state)
{
  enum { kRows = 7, kColumns = 333, kRowBytes = (kColumns + 1) / 2, kGroups = 11, kOutputs = 70 };
  const every_entry *e = *state;
  static uint8_t q[kOutputs * kRowBytes], zero_point[kOutputs * kGroups], packed[1 << 15];
  static float x[kRows * kColumns], scale[kOutputs * kGroups], first[kRows * kOutputs];
  static float y[kRows * kOutputs];
  uint64_t s = 5;
  tg_error error;
  for (int i = 0; i < kRows * kColumns; i++) {
    x[i] = (float)next_normal(&s);
  }
  for (int i = 0; i < kOutputs * kRowBytes; i++) {
    q[i] = (uint8_t)next_bits(&s);
  }
  for (int i = 0; i < kOutputs * kGroups; i++) {
    zero_point[i] = next_bits(&s) & 15;
    scale[i] = (float)(1 + next_bits(&s) % 100);
  }
  tg_linear_int4_pack_source pack = {.weight = tg_tensor_2d(q, TG_U8, kOutputs, kRowBytes),
                                     .scale = tg_tensor_2d(scale, TG_F32, kOutputs, kGroups),
                                     .zero_point =
                                         tg_tensor_2d(zero_point, TG_U8, kOutputs, kGroups),
                                     .in = kColumns,
                                     .group_size = 32};
  const int64_t bytes = tg_linear_int4_packed_bytes(&pack);
  assert_true(bytes <= (int64_t)sizeof packed);
  pack.packed = tg_tensor_1d(packed, TG_U8, bytes);
  EXPECT_OK(tg_linear_int4_pack(&pack, &error), error);
  tg_linear_int4_fwd_args a = {.x = tg_tensor_2d(x, TG_F32, kRows, kColumns),
                               .weight = pack.packed,
                               .y = tg_tensor_2d(y, TG_F32, kRows, kOutputs)};
  int compared = 0;
  for (int k = 0; k < e->count; k++) { /* all but generic have fused multiply-adds */
    if (strcmp(tg_context_entry(e->ctx[k]), "generic") != 0) {
      run_int4(e->ctx[k], &a);
      if (compared++ == 0) {
        memcpy(first, y, sizeof y);
      }
      assert_memory_equal(first, y, sizeof y);
    }
  }
}

/* ---- wrong calls ---- */

static void test_packing_errors(void **state)
{
  int8_t weight[6] = {1, 2, 3, 4, 5, 6};
  float scale[4] = {1, 1, 1, 1};
  int32_t zero_point[3] = {0, -129, 128};
  uint8_t packed[1024];
  tg_error error;
  const tg_linear_int8_pack_source good = {
      .weight = tg_tensor_2d(weight, TG_I8, 2, 3),
      .scale = tg_tensor_1d(scale, TG_F32, 2),
      .packed = tg_tensor_1d(packed, TG_U8, tg_linear_int8_packed_bytes(2, 3))};
  tg_linear_int8_pack_source a = good;
  (void)state;
  EXPECT_OK(tg_linear_int8_pack(&a, &error), error);
  assert_int_equal(error.status, TG_OK);
  assert_int_equal(tg_linear_int8_pack(&a, NULL), TG_OK);
  EXPECT_ERROR(tg_linear_int8_pack(NULL, &error), TG_BAD_ARGUMENT, "linear_int8_pack: args", error);
  a.weight.dtype = TG_U8;
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_DTYPE,
               "linear_int8_pack: weight: expected i8, got u8 [2, 3]", error);
  a = good;
  a.scale.shape[0] = 3;
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_SHAPE,
               "linear_int8_pack: scale: expected f32 [2], got f32 [3]", error);
  a = good;
  a.packed.shape[0]++;
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_SHAPE, "packed: expected u8 [448]", error);
  a = good;
  a.packed.data = weight;
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_ARGUMENT, "packed: expected memory apart",
               error);
  a = good;
  a.zero_point = tg_tensor_1d(zero_point, TG_I32, 2);
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_ARGUMENT,
               "zero_point: expected -128 to 127, got -129", error);
  a.zero_point.data = zero_point + 1;
  a.zero_point.shape[0] = 1;
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_SHAPE, "zero_point: expected i32 [2]",
               error);
  a.scale.shape[0] = 1;
  a.zero_point.data = zero_point + 2;
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_ARGUMENT,
               "zero_point: expected -128 to 127, got 128", error);
  assert_int_equal(tg_linear_int8_packed_bytes(-1, 3), 0);
  assert_int_equal(tg_linear_int8_packed_bytes(3, -1), 0);
  assert_int_equal(tg_linear_int8_packed_bytes(3, INT64_MAX), 0);
  assert_int_equal(tg_linear_int8_packed_bytes(INT64_MAX, 3), 0);
  assert_int_equal(tg_linear_fp8_packed_bytes(3, INT64_MAX), 0);
  assert_int_equal(tg_linear_fp8_packed_bytes(INT64_MAX, 3), 0);
  assert_int_equal(tg_linear_fp8_packed_bytes(-1, 3), 0);
  assert_int_equal(tg_linear_fp8_packed_bytes(3, -1), 0);

  a = good; /* no rows of more columns than a packed weight can have */
  a.weight = tg_tensor_2d(weight, TG_I8, 0, INT64_C(1) << 56);
  a.scale.shape[0] = 1;
  a.packed = tg_tensor_1d(NULL, TG_U8, 0);
  EXPECT_ERROR(tg_linear_int8_pack(&a, &error), TG_BAD_SHAPE,
               "packed: expected extents of less than 2^63 packed bytes", error);
  const tg_linear_fp8_pack_source none = {.weight =
                                              tg_tensor_2d(weight, TG_F8_E4M3, 0, INT64_C(1) << 57),
                                          .scale = tg_tensor_2d(scale, TG_F32, 1, 1),
                                          .packed = tg_tensor_1d(NULL, TG_U8, 0)};
  EXPECT_ERROR(tg_linear_fp8_pack(&none, &error), TG_BAD_SHAPE,
               "packed: expected extents of less than 2^63 packed bytes", error);

  const tg_linear_fp8_pack_source fp8 = {
      .weight = tg_tensor_2d(weight, TG_F8_E4M3, 2, 3),
      .scale = tg_tensor_2d(scale, TG_F32, 1, 2),
      .packed = tg_tensor_1d(packed, TG_U8, tg_linear_fp8_packed_bytes(2, 3))};
  EXPECT_ERROR(tg_linear_fp8_pack(&fp8, &error), TG_BAD_SHAPE,
               "linear_fp8_pack: scale: expected f32 [2, 1], got f32 [1, 2]", error);
}

static void test_int4_packing_errors(void **state)
{
  uint8_t weight[40] = {0}, zero_point[4] = {15, 0, 16, 0}, packed[4096];
  float scale[4] = {1, 1, 1, 1};
  tg_error error;
  tg_linear_int4_pack_source good = {.weight = tg_tensor_2d(weight, TG_U8, 2, 20),
                                     .scale = tg_tensor_2d(scale, TG_F32, 2, 2),
                                     .in = 39,
                                     .group_size = 32};
  (void)state;
  good.packed = tg_tensor_1d(packed, TG_U8, tg_linear_int4_packed_bytes(&good));
  tg_linear_int4_pack_source a = good;
  EXPECT_OK(tg_linear_int4_pack(&a, &error), error);
  a.zero_point = tg_tensor_2d(zero_point, TG_U8, 2, 2);
  a.packed.shape[0] = tg_linear_int4_packed_bytes(&a);
  EXPECT_ERROR(tg_linear_int4_pack(&a, &error), TG_BAD_ARGUMENT,
               "linear_int4_pack: zero_point: expected 0 to 15, got 16", error);
  a = good;
  a.group_size = 48;
  assert_int_equal(tg_linear_int4_packed_bytes(&a), 0);
  EXPECT_ERROR(tg_linear_int4_pack(&a, &error), TG_BAD_ARGUMENT,
               "group_size: expected 32, 64 or 128, got 48", error);
  a = good;
  a.in = 41;
  EXPECT_ERROR(tg_linear_int4_pack(&a, &error), TG_BAD_SHAPE, "weight: expected u8 [2, 21]", error);
  a.in = -1;
  assert_int_equal(tg_linear_int4_packed_bytes(&a), 0);
  EXPECT_ERROR(tg_linear_int4_pack(&a, &error), TG_BAD_ARGUMENT, "in: expected 0 to", error);
  a.in = INT64_MAX;
  assert_int_equal(tg_linear_int4_packed_bytes(&a), 0);
  EXPECT_ERROR(tg_linear_int4_pack(&a, &error), TG_BAD_ARGUMENT, "in: expected 0 to", error);
  a = good;
  a.weight.shape[0] = -1;
  assert_int_equal(tg_linear_int4_packed_bytes(&a), 0);
  a = good;
  a.scale.dtype = TG_BF16;
  assert_int_equal(tg_linear_int4_packed_bytes(&a), 0);
  assert_int_equal(tg_linear_int4_packed_bytes(NULL), 0);
}

/* Bytes that are no packed weight, or another one. */
static void test_foreign_weights(void **state)
{
  const every_entry *e = *state;
  tg_context *ctx = e->ctx[0];
  static uint8_t bytes[64 + 4 * 128 + 8 * 128 + 512];
  float x[39] = {0}, y[2], scale[4] = {1, 1, 1, 1};
  uint8_t weight[40] = {0};
  tg_error error;
  tg_linear_int4_pack_source pack = {.weight = tg_tensor_2d(weight, TG_U8, 2, 20),
                                     .scale = tg_tensor_2d(scale, TG_F32, 2, 2),
                                     .in = 39,
                                     .group_size = 32};
  const int64_t size = tg_linear_int4_packed_bytes(&pack);
  assert_true(size <= (int64_t)sizeof bytes);
  pack.packed = tg_tensor_1d(bytes, TG_U8, size);
  EXPECT_OK(tg_linear_int4_pack(&pack, &error), error);
  tg_linear_int4_fwd_args a = {.x = tg_tensor_2d(x, TG_F32, 1, 39),
                               .weight = pack.packed,
                               .y = tg_tensor_2d(y, TG_F32, 1, 2)};
  run_int4(ctx, &a);
  a.weight.shape[0] = 63;
  must_fail(ctx, tg_linear_int4_fwd(ctx, &a), TG_BAD_SHAPE,
            "linear_int4_fwd: weight: expected the bytes of a packed [2, 39], got 63");
  a.weight.shape[0] = size;
  a.x.shape[1] = 38;
  must_fail(ctx, tg_linear_int4_fwd(ctx, &a), TG_BAD_SHAPE,
            "linear_int4_fwd: weight: expected a packed [2, 38], got [2, 39]");
  a.x.shape[1] = 41; /* a line more */
  assert_int_equal(tg_linear_int4_fwd(ctx, &a), TG_BAD_SHAPE);
  a.x.shape[1] = 39;
  static const char *const others = "linear_int4_fwd: weight: expected a weight packed for this "
                                    "op, got others";
  for (int byte = 0; byte < 32; byte++) { /* magic, then in and out, then the group */
    const uint8_t old = bytes[byte];
    bytes[byte] ^= 0x41;
    const tg_status status = tg_linear_int4_fwd(ctx, &a);
    assert_int_equal(status, byte < 8 || byte >= 24 ? TG_BAD_ARGUMENT : TG_BAD_SHAPE);
    bytes[byte] = old;
  }
  bytes[32] = TG_I8; /* the dtype of scales */
  must_fail(ctx, tg_linear_int4_fwd(ctx, &a), TG_BAD_ARGUMENT, others);
  bytes[32] = TG_F32;
  bytes[36] = 1; /* zero points that there are not */
  assert_int_equal(tg_linear_int4_fwd(ctx, &a), TG_BAD_SHAPE);
  bytes[36] = 0;
  bytes[offsetof(tgi_packed_header, version)] = 2;
  must_fail(ctx, tg_linear_int4_fwd(ctx, &a), TG_BAD_ARGUMENT,
            "linear_int4_fwd: weight: expected version 1 of the layout, got 2");
  bytes[offsetof(tgi_packed_header, version)] = 1;
  run_int4(ctx, &a);
  const tg_linear_fp8_fwd_args fp8 = {
      .x = tg_tensor_2d(x, TG_F32, 1, 6),
      .weight = tg_tensor_1d(bytes, TG_U8, tg_linear_fp8_packed_bytes(2, 6)),
      .y = a.y};
  assert_true(fp8.weight.shape[0] <= (int64_t)sizeof bytes);
  must_fail(ctx, tg_linear_fp8_fwd(ctx, &fp8), TG_BAD_ARGUMENT,
            "linear_fp8_fwd: weight: expected a weight packed for this op, got others");
}

/* Scales of an fp8 weight by whole weight, row and block of 128 columns; NaN stays in its block's
 * row. */
static void test_fp8_scales(void **state)
{
  enum { kIn = 130, kOut = 3 };
  const every_entry *e = *state;
  static uint8_t weight[kOut * kIn], packed[64 + 2 * 128 + 130 * 32];
  static float x[kIn];
  const float scale[kOut * 2] = {0.5F, 2, 4, 0.25F, 8, 1}, ones[kOut] = {0.5F, 2, 4};
  const float want[3][kOut] = {{65, 65, 65}, {65, 260, 520}, {68, 512.5F, 1026}};
  tg_error error;
  memset(weight, 0x38, sizeof weight); /* 1 */
  for (int k = 0; k < kIn; k++) {
    x[k] = 1;
  }
  for (int form = 0; form < 3; form++) {
    const tg_linear_fp8_pack_source pack = {
        .weight = tg_tensor_2d(weight, TG_F8_E4M3, kOut, kIn),
        .scale = tg_tensor_2d((void *)(uintptr_t)(form == 2 ? scale : ones), TG_F32,
                              form == 0 ? 1 : kOut, form == 2 ? 2 : 1),
        .packed = tg_tensor_1d(packed, TG_U8, tg_linear_fp8_packed_bytes(kOut, kIn))};
    assert_int_equal(pack.packed.shape[0], sizeof packed);
    EXPECT_OK(tg_linear_fp8_pack(&pack, &error), error);
    float y[kOut];
    tg_linear_fp8_fwd_args a = {.x = tg_tensor_2d(x, TG_F32, 1, kIn),
                                .weight = pack.packed,
                                .y = tg_tensor_2d(y, TG_F32, 1, kOut)};
    for (int k = 0; k < e->count; k++) {
      run_fp8(e->ctx[k], &a);
      for (int o = 0; o < kOut; o++) {
        assert_true(y[o] == want[form][o]);
      }
    }
    if (form == 2) {
      weight[kIn + 5] = 0xff;
      x[5] = 0;
      EXPECT_OK(tg_linear_fp8_pack(&pack, &error), error);
      run_fp8(e->ctx[0], &a);
      assert_true(y[0] == 67.5F && isnan(y[1]) && y[2] == 1018);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_int4_without_vnni),   cmocka_unit_test(test_packing_errors),
      cmocka_unit_test(test_int4_packing_errors), cmocka_unit_test(test_foreign_weights),
      cmocka_unit_test(test_fp8_scales),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
