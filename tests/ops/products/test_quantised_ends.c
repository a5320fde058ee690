/* Products with quantised weights by rows of the identity: every code of a format, with zero points
 * at their ends and scales that are 0, denormal, 1 and 65504, comes out to the bit, on every entry
 * of the CPU and, if there is one, on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/values/half.h"
#include "quantised_calls.h"

enum { kColumns = 256, kScales = 4, kZeros = 3, kOut = kScales * kZeros };

static const float kScale[kScales] = {0, 0x1p-140f, 1, 65504};
static const float kScaleF16[kScales] = {0, 0x1p-24f, 1, 65504};

typedef struct ends_data {
  uint8_t weight[kOut * kColumns], packed[16384];
  float scale[kOut * kColumns / 32], one[kColumns], x[kColumns * kColumns], want[kColumns * kOut];
  float y[kColumns * kOut];
  uint16_t scale_f16[kOut * kColumns / 32], x_bf16[kColumns * kColumns];
  uint8_t zero[kOut * kColumns / 32], codes[kColumns * kColumns];
} ends_data;

static float scale_of(int o)
{
  return kScale[o % kScales];
}

static ends_data *make_data(void)
{
  ends_data *d = calloc(1, sizeof *d);
  for (int i = 0; i < kColumns; i++) {
    d->one[i] = 1;
    d->x[i * kColumns + i] = 1;
    d->x_bf16[i * kColumns + i] = 0x3f80;
    d->codes[i * kColumns + i] = 0x38;
  }
  return d;
}

static void must_be_wanted(tg_context *ctx, const char *what, const ends_data *d)
{
  for (int i = 0; i < kColumns * kOut; i++) {
    if (d->y[i] != d->want[i]) {
      fail_msg("%s: %s: column %d of W, row %d: expected %a, got %a", tg_context_entry(ctx), what,
               i / kOut, i % kOut, (double)d->want[i], (double)d->y[i]);
    }
  }
}

/* Both dtypes of x, which go to different kernels on a GPU. `call` runs the op. */
typedef void call_op(tg_context *ctx, tg_tensor x, tg_tensor weight, tg_tensor y);

static void multiply(tg_context *ctx, const char *what, ends_data *d, int64_t packed_bytes,
                     call_op *call)
{
  void *weight = upload(ctx, d->packed, (size_t)packed_bytes);
  void *x[2] = {upload(ctx, d->x, sizeof d->x), upload(ctx, d->x_bf16, sizeof d->x_bf16)};
  void *y = upload(ctx, d->want, sizeof d->want);
  for (int i = 0; i < 2; i++) {
    memset(d->y, 0xff, sizeof d->y);
    must_run(ctx, tg_memory_copy(ctx, y, sizeof d->y, d->y, sizeof d->y, sizeof d->y, 1));
    call(ctx, tg_tensor_2d(x[i], i ? TG_BF16 : TG_F32, kColumns, kColumns),
         tg_tensor_1d(weight, TG_U8, packed_bytes), tg_tensor_2d(y, TG_F32, kColumns, kOut));
    must_run(ctx, tg_memory_copy(ctx, d->y, sizeof d->y, y, sizeof d->y, sizeof d->y, 1));
    must_be_wanted(ctx, what, d);
    tg_memory_free(ctx, x[i]);
  }
  tg_memory_free(ctx, weight);
  tg_memory_free(ctx, y);
}

/* ---- int8: 256 codes, zero points -128, 0 and 127 ---- */

static void call_int8(tg_context *ctx, tg_tensor x, tg_tensor weight, tg_tensor y)
{
  tg_linear_int8_fwd_args a = {.x = x, .weight = weight, .y = y, .mode = TG_INT8_WEIGHT_ONLY};
  run_int8(ctx, &a);
}

static void check_int8(tg_context *ctx)
{
  static const int kZero[kZeros] = {-128, 0, 127};
  ends_data *d = make_data();
  int8_t zero[kOut];
  tg_error error;
  for (int o = 0; o < kOut; o++) {
    zero[o] = (int8_t)kZero[o / kScales];
    d->scale[o] = scale_of(o);
    for (int k = 0; k < kColumns; k++) {
      const int code = (k + 37 * o) % 256 - 128;
      d->weight[o * kColumns + k] = (uint8_t)code;
      d->want[k * kOut + o] = (float)(code - zero[o]) * scale_of(o);
    }
  }
  const tg_linear_int8_pack_source a = {
      .weight = tg_tensor_2d(d->weight, TG_I8, kOut, kColumns),
      .scale = tg_tensor_1d(d->scale, TG_F32, kOut),
      .zero_point = tg_tensor_1d(zero, TG_I8, kOut),
      .packed = tg_tensor_1d(d->packed, TG_U8, tg_linear_int8_packed_bytes(kOut, kColumns))};
  assert_true(a.packed.shape[0] <= (int64_t)sizeof d->packed);
  EXPECT_OK(tg_linear_int8_pack(&a, &error), error);
  multiply(ctx, "int8", d, a.packed.shape[0], call_int8);
  free(d);
}

/* ---- int4: 16 codes, zero points 0, 8 and 15, scales of both dtypes ---- */

static void call_int4(tg_context *ctx, tg_tensor x, tg_tensor weight, tg_tensor y)
{
  tg_linear_int4_fwd_args a = {.x = x, .weight = weight, .y = y};
  run_int4(ctx, &a);
}

static void check_int4(tg_context *ctx, int group_size, bool f16)
{
  static const int kZero[kZeros] = {0, 8, 15};
  const int groups = kColumns / group_size;
  ends_data *d = make_data();
  tg_error error;
  for (int o = 0; o < kOut; o++) {
    for (int k = 0; k < kColumns; k++) {
      const int at = o * groups + k / group_size,
                which = o + k / group_size; /* they change places */
      const int code = (k + 5 * o) % 16, zero = kZero[which / kScales % kZeros];
      const float scale = f16 ? kScaleF16[which % kScales] : kScale[which % kScales];
      d->scale[at] = scale;
      d->scale_f16[at] = tgi_f32_to_f16(scale);
      d->zero[at] = (uint8_t)zero;
      d->weight[(o * kColumns + k) / 2] |= (uint8_t)(k % 2 ? code << 4 : code);
      d->want[k * kOut + o] = (float)(code - zero) * scale;
    }
  }
  tg_linear_int4_pack_source a = {.weight = tg_tensor_2d(d->weight, TG_U8, kOut, kColumns / 2),
                                  .scale =
                                      tg_tensor_2d(f16 ? (void *)d->scale_f16 : (void *)d->scale,
                                                   f16 ? TG_F16 : TG_F32, kOut, groups),
                                  .zero_point = tg_tensor_2d(d->zero, TG_U8, kOut, groups),
                                  .in = kColumns,
                                  .group_size = group_size};
  a.packed = tg_tensor_1d(d->packed, TG_U8, tg_linear_int4_packed_bytes(&a));
  assert_true(a.packed.shape[0] <= (int64_t)sizeof d->packed);
  EXPECT_OK(tg_linear_int4_pack(&a, &error), error);
  multiply(ctx, f16 ? "int4, scales in f16" : "int4", d, a.packed.shape[0], call_int4);
  free(d);
}

/* ---- e4m3: every code but NaN ---- */

static void fill_codes(ends_data *d)
{
  for (int o = 0; o < kOut; o++) {
    d->scale[o] = scale_of(o);
    for (int k = 0; k < kColumns; k++) {
      const int code = (k + 37 * o) % 256;
      d->weight[o * kColumns + k] = (uint8_t)((code & 0x7f) == 0x7f ? 0 : code);
      d->want[k * kOut + o] = tgi_f8_e4m3_to_f32(d->weight[o * kColumns + k]) * scale_of(o);
    }
  }
}

static void call_fp8(tg_context *ctx, tg_tensor x, tg_tensor weight, tg_tensor y)
{
  tg_linear_fp8_fwd_args a = {.x = x, .weight = weight, .y = y};
  run_fp8(ctx, &a);
}

static void check_fp8(tg_context *ctx)
{
  ends_data *d = make_data();
  tg_error error;
  fill_codes(d);
  const tg_linear_fp8_pack_source a = {
      .weight = tg_tensor_2d(d->weight, TG_F8_E4M3, kOut, kColumns),
      .scale = tg_tensor_2d(d->scale, TG_F32, kOut, 1),
      .packed = tg_tensor_1d(d->packed, TG_U8, tg_linear_fp8_packed_bytes(kOut, kColumns))};
  assert_true(a.packed.shape[0] <= (int64_t)sizeof d->packed);
  EXPECT_OK(tg_linear_fp8_pack(&a, &error), error);
  multiply(ctx, "fp8", d, a.packed.shape[0], call_fp8);
  free(d);
}

/* Rows of x as codes with scale 1; of 64 rows and of all. */
static void check_fp8_fp8(tg_context *ctx)
{
  ends_data *d = make_data();
  fill_codes(d);
  void *weight = upload(ctx, d->weight, sizeof d->weight), *y = upload(ctx, d->y, sizeof d->y);
  void *scale = upload(ctx, d->scale, sizeof d->scale), *one = upload(ctx, d->one, sizeof d->one);
  uint8_t *x = upload(ctx, d->codes, sizeof d->codes);
  for (int few = 0; few < 2; few++) {
    const int64_t rows = few ? 64 : kColumns;
    for (int64_t first = 0; first < kColumns; first += rows) {
      tg_linear_fp8_fp8_fwd_args a = {
          .x = tg_tensor_2d(x + first * kColumns, TG_F8_E4M3, rows, kColumns),
          .x_scale = tg_tensor_1d(one, TG_F32, rows),
          .weight = tg_tensor_2d(weight, TG_F8_E4M3, kOut, kColumns),
          .weight_scale = tg_tensor_1d(scale, TG_F32, kOut),
          .y = tg_tensor_2d((float *)y + first * kOut, TG_F32, rows, kOut)};
      run_fp8_fp8(ctx, &a);
    }
    must_run(ctx, tg_memory_copy(ctx, d->y, sizeof d->y, y, sizeof d->y, sizeof d->y, 1));
    must_be_wanted(ctx, few ? "fp8 by fp8, few rows" : "fp8 by fp8", d);
  }
  tg_memory_free(ctx, weight);
  tg_memory_free(ctx, scale);
  tg_memory_free(ctx, one);
  tg_memory_free(ctx, x);
  tg_memory_free(ctx, y);
  free(d);
}

static void check_all(tg_context *ctx)
{
  check_int8(ctx);
  for (int group_size = 32; group_size <= 128; group_size *= 2) {
    check_int4(ctx, group_size, false);
    check_int4(ctx, group_size, true);
  }
  check_fp8(ctx);
  check_fp8_fp8(ctx);
}

static void test_ends_on_the_cpu(void **state)
{
  const every_entry *e = *state;
  for (int k = 0; k < e->count; k++) {
    check_all(e->ctx[k]);
  }
}

static void test_ends_on_a_gpu(void **state)
{
  static const char *const kEntries[] = {"any", "sm80", "sm90"};
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  for (size_t i = 0; i < sizeof kEntries / sizeof kEntries[0]; i++) {
    const tg_context_options o = {.backend = TG_BACKEND_CUDA, .entry = kEntries[i]};
    tg_context *ctx = NULL;
    if (tg_context_create(&o, &ctx, NULL) == TG_OK) { /* the GPU, and the build, have the entry */
      check_all(ctx);
      tg_context_destroy(ctx);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends_on_the_cpu),
                                     cmocka_unit_test(test_ends_on_a_gpu)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
