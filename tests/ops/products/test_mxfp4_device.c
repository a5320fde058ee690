/* Weights of experts in MXFP4 on a GPU, in 16 bits: blocks of several panels give the bits of
 * blocks of one, every value of a weight is exact at the ends of the scales, and errors in data
 * that kernels alone see are told, in calls of few rows and of many. */
#include "core/context_state.h"
#include "core/values/packed_weight.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "open_context.h"
#include "quantised_calls.h"

enum {
  kExperts = 3,
  kIn = 96,
  kGroups = kIn / 32,
  kOut = 704, /* 22 panels */
  kPanels = kOut / 32,
  kFew = 9,
  kMany = 70, /* more than a call of few rows has */
  kScales = kExperts * kOut * kGroups,
  kVersionAt = offsetof(tgi_packed_header, version)
};

/* A call's memory, here and on the device. */
typedef struct memory {
  _Alignas(16) uint8_t packed[64 + kExperts * kPanels * kGroups * 544];
  _Alignas(16) uint16_t x[kMany * kIn];
  uint16_t y[kMany * kOut];
  int32_t offsets[kExperts + 1], slot[kMany];
} memory;

static memory g_host;

/* The GPU, or nothing where there is none. */
typedef struct gpu {
  tg_context *ctx;
  memory *there;
} gpu;

static int open_gpu(void **state)
{
  static gpu on;
  *state = &on;
  if (tg_device_count() > 0) {
    on.ctx = open_context(TG_BACKEND_CUDA);
    on.there = upload(on.ctx, &g_host, sizeof g_host);
  }
  return 0;
}

static int close_gpu(void **state)
{
  gpu *on = *state;
  if (on->ctx) {
    tg_memory_free(on->ctx, on->there);
    tg_context_destroy(on->ctx);
  }
  return 0;
}

static uint8_t g_blocks[16 * kScales], g_scales[kScales];

/* Random codes, scales of `least` and the next three, x of 0.5 to 2 (bf16; f16: of 1.75 to 2) in
 * size. */
static void fill(int64_t rows, int least)
{
  uint8_t *const blocks = g_blocks, *const scales = g_scales;
  uint64_t state = 7;
  for (int i = 0; i < 16 * kScales; i++) {
    blocks[i] = (uint8_t)next_bits(&state);
  }
  for (int i = 0; i < kScales; i++) {
    scales[i] = (uint8_t)(least + (int)(next_bits(&state) % 4));
  }
  const tg_grouped_linear_mxfp4_pack_source a = {
      .blocks = {.data = blocks, .dtype = TG_U8, .ndim = 4, .shape = {kExperts, kOut, kGroups, 16}},
      .scales = {.data = scales, .dtype = TG_U8, .ndim = 3, .shape = {kExperts, kOut, kGroups}},
      .packed = tg_tensor_1d(g_host.packed, TG_U8, sizeof g_host.packed)};
  tg_error error;
  EXPECT_OK(tg_grouped_linear_mxfp4_pack(&a, &error), error);
  for (int i = 0; i < kMany * kIn; i++) {
    const uint64_t z = next_bits(&state);
    g_host.x[i] = (uint16_t)(0x3f00u + (z & 0xff) + ((z >> 8 & 1) << 15));
  }
  for (int i = 0; i < kMany; i++) {
    g_host.slot[i] = i;
  }
  const int32_t offsets[kExperts + 1] = {0, (int32_t)rows / 2, (int32_t)rows / 2, (int32_t)rows};
  memcpy(g_host.offsets, offsets, sizeof offsets);
}

/* y of what g_host holds. */
static void multiply(tg_context *ctx, memory *there, tg_dtype dtype, int64_t rows)
{
  must_run(ctx,
           tg_memory_copy(ctx, there, sizeof g_host, &g_host, sizeof g_host, sizeof g_host, 1));
  tg_grouped_linear_mxfp4_fwd_args a = {
      .x = tg_tensor_2d(there->x, dtype, rows, kIn),
      .weight = tg_tensor_1d(there->packed, TG_U8, sizeof g_host.packed),
      .offsets = tg_tensor_1d(there->offsets, TG_I32, kExperts + 1),
      .slot = tg_tensor_1d(there->slot, TG_I32, rows),
      .y = tg_tensor_2d(there->y, dtype, rows, kOut),
      .slots_per_row = 1};
  run(ctx, "grouped_linear_mxfp4_fwd", &a, &a.workspace, &a.workspace_bytes);
  must_run(ctx, tg_memory_copy(ctx, g_host.y, sizeof g_host.y, there->y, sizeof g_host.y,
                               sizeof g_host.y, 1));
}

static void test_panels_of_a_block(void **state)
{
  gpu *on = *state;
  if (!on->ctx) {
    skip();
  }
  tg_context *ctx = on->ctx;
  memory *there = on->there;
  static uint16_t one[kFew * kOut];
  const int multiprocessors = ctx->device->multiprocessors;
  fill(kFew, 123);
  for (int i = 0; i < 2; i++) {
    const tg_dtype dtype = i ? TG_F16 : TG_BF16;
    ctx->device->multiprocessors = multiprocessors;
    multiply(ctx, there, dtype, kFew);
    memcpy(one, g_host.y, sizeof one);
    memset(g_host.y, 0xff, sizeof g_host.y);
    ctx->device->multiprocessors = 1; /* where waves are small, four panels a block */
    multiply(ctx, there, dtype, kFew);
    assert_memory_equal(one, g_host.y, sizeof one);
    assert_true(one[0] != one[1] && one[kFew * kOut - 2] != one[kFew * kOut - 1]);
  }
  ctx->device->multiprocessors = multiprocessors;
}

/* W[e, o, i]: codes of low halves come first. */
static double weight_at(int e, int o, int i)
{
  static const double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int64_t group = ((int64_t)e * kOut + o) * kGroups + i / 32;
  const int code = g_blocks[16 * group + i % 32 / 2] >> 4 * (i % 2) & 15;
  return ldexp(code & 8 ? -kValues[code & 7] : kValues[code & 7], g_scales[group] - 127);
}

static uint16_t bf16_of(double exact)
{
  const float v = (float)exact;
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static void must_be(uint16_t got, double exact)
{
  assert_int_equal(exact == 0 ? got & 0x7fff : got, exact == 0 ? 0 : bf16_of(exact));
}

/* Rows with a single element, a power of 2: what they are multiplied to are single values of W. */
static void check_values(tg_context *ctx, memory *there, int rows, int least, int power)
{
  fill(rows, least);
  memset(g_host.x, 0, sizeof g_host.x);
  for (int r = 0; r < rows; r++) {
    g_host.x[r * kIn + r * 37 % kIn] = bf16_of(ldexp(1, power));
  }
  multiply(ctx, there, TG_BF16, rows);
  for (int i = 0; i < rows * kOut; i++) {
    const int r = i / kOut, e = r < g_host.offsets[1] ? 0 : 2;
    must_be(g_host.y[i], ldexp(weight_at(e, i % kOut, r * 37 % kIn), power));
  }
  memset(g_host.y, 0, sizeof g_host.y); /* backward: y is dy, x is dx */
  for (int r = 0; r < rows; r++) {
    g_host.y[r * kOut + r * 67 % kOut] = bf16_of(ldexp(1, power));
  }
  must_run(ctx,
           tg_memory_copy(ctx, there, sizeof g_host, &g_host, sizeof g_host, sizeof g_host, 1));
  tg_grouped_linear_mxfp4_bwd_args a = {
      .dy = tg_tensor_2d(there->y, TG_BF16, rows, kOut),
      .weight = tg_tensor_1d(there->packed, TG_U8, sizeof g_host.packed),
      .offsets = tg_tensor_1d(there->offsets, TG_I32, kExperts + 1),
      .dx = tg_tensor_2d(there->x, TG_BF16, rows, kIn)};
  run(ctx, "grouped_linear_mxfp4_bwd", &a, &a.workspace, &a.workspace_bytes);
  must_run(ctx, tg_memory_copy(ctx, g_host.x, sizeof g_host.x, there->x, sizeof g_host.x,
                               sizeof g_host.x, 1));
  for (int i = 0; i < rows * kIn; i++) {
    const int r = i / kIn, e = r < g_host.offsets[1] ? 0 : 2;
    must_be(g_host.x[i], ldexp(weight_at(e, r * 67 % kOut, i % kIn), power));
  }
}

static void test_values(void **state)
{
  gpu *on = *state;
  if (!on->ctx) {
    skip();
  }
  tg_context *ctx = on->ctx;
  memory *there = on->there;
  const int rows[] = {kFew, kMany};
  for (int i = 0; i < 2; i++) {
    check_values(ctx, there, rows[i], 0, 110);
    check_values(ctx, there, rows[i], 123, 0);
    check_values(ctx, there, rows[i], 249, -110);
  }
}

/* The error that the check after a call gives; row: which alone is NaN, or -1: all. */
static void must_tell(tg_context *ctx, memory *there, int64_t rows, const char *message, int row)
{
  multiply(ctx, there, TG_BF16, rows);
  must_fail(ctx, tg_context_check(ctx), TG_BAD_ARGUMENT, message);
  assert_int_equal(tg_context_check(ctx), TG_OK);
  for (int64_t i = 0; i < rows * kOut; i++) {
    const bool nan = (g_host.y[i] & 0x7fff) > 0x7f80;
    assert_int_equal(nan, row < 0 || i / kOut == row);
  }
}

static void errors_of(tg_context *ctx, memory *there, int32_t rows)
{
  char message[128];
  fill(rows, 123);
  g_host.packed[kVersionAt] = 2;
  must_tell(ctx, there, rows, "grouped_linear_mxfp4_fwd: weight[0]: expected 1 to 1, got 2", -1);
  fill(rows, 123);
  g_host.offsets[1] = 3;
  g_host.offsets[2] = 2;
  snprintf(message, sizeof message, "grouped_linear_mxfp4_fwd: offsets[2]: expected 3 to %d, got 2",
           rows);
  must_tell(ctx, there, rows, message, -1);
  fill(rows, 123);
  g_host.offsets[kExperts] = rows + 1;
  snprintf(message, sizeof message,
           "grouped_linear_mxfp4_fwd: offsets[3]: expected %d to %d, got %d", rows / 2, rows,
           rows + 1);
  must_tell(ctx, there, rows, message, -1);
  fill(rows, 123);
  g_host.slot[rows - 1] = -1;
  snprintf(message, sizeof message, "grouped_linear_mxfp4_fwd: slot[%d]: expected 0 to %d, got -1",
           rows - 1, rows - 1);
  must_tell(ctx, there, rows, message, rows - 1);
}

static void test_errors_in_data(void **state)
{
  gpu *on = *state;
  if (!on->ctx) {
    skip();
  }
  tg_context *ctx = on->ctx;
  memory *there = on->there;
  errors_of(ctx, there, kFew);
  errors_of(ctx, there, kMany);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_panels_of_a_block),
                                     cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_errors_in_data)};
  return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
