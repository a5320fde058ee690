/* linear_swiglu has the bits of two linear layers and swiglu, whether or not gate and up are
 * stored: on the CPU, and on a GPU if there is one, where Hopper runs 65 rows and more, if they
 * have 128 tiles, as one product. */
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect_op.h"
#include "open_context.h"

/* Tiles of 128 rows and 96 columns that end within, and more of them than multiprocessors. */
typedef struct block {
  int64_t rows, in, out;
} block;

static const block kBlocks[] = {{70, 72, 12296}, {1, 264, 72},   {64, 1160, 264},
                                {65, 72, 1000},  {200, 136, 40}, {300, 264, 6408}};

/* Two bytes of each: bf16 of about 1 in size, of either sign. */
static uint16_t element(uint64_t i)
{
  const uint64_t z = (i + 1) * 0x9E3779B97F4A7C15U;
  return (uint16_t)(0x3E00U + (z >> 56) + ((z >> 40 & 1) << 15));
}

static void *allocate(tg_context *ctx, size_t bytes)
{
  void *there = NULL;
  must_run(ctx, tg_memory_allocate(ctx, bytes + 256, &there));
  return there;
}

static tg_tensor matrix(tg_context *ctx, int64_t rows, int64_t cols, uint64_t seed)
{
  const size_t elements = (size_t)(rows * cols), bytes = 2 * elements;
  uint16_t *host = malloc(bytes);
  void *there = allocate(ctx, bytes);
  for (size_t i = 0; i < elements; i++) {
    host[i] = element(seed + i);
  }
  must_run(ctx, tg_memory_copy(ctx, there, bytes, host, bytes, bytes, 1));
  free(host);
  return tg_tensor_2d(there, TG_BF16, rows, cols);
}

static void expect_equal(tg_context *ctx, const char *name, block b, const tg_tensor *expected,
                         const tg_tensor *got)
{
  const size_t elements = (size_t)(b.rows * b.out), bytes = 2 * elements;
  uint16_t *e = malloc(bytes), *g = malloc(bytes);
  must_run(ctx, tg_memory_copy(ctx, e, bytes, expected->data, bytes, bytes, 1));
  must_run(ctx, tg_memory_copy(ctx, g, bytes, got->data, bytes, bytes, 1));
  for (size_t i = 0; i < elements; i++) {
    if (e[i] != g[i]) {
      fail_msg("%s: %lld x %lld x %lld: %s[%zu]: expected 0x%04x, got 0x%04x",
               tg_context_entry(ctx), (long long)b.rows, (long long)b.in, (long long)b.out, name, i,
               e[i], g[i]);
    }
  }
  free(g);
  free(e);
}

static void run_linear(tg_context *ctx, const tg_tensor *x, const tg_tensor *weight,
                       const tg_tensor *y)
{
  tg_linear_fwd_args a = {.x = *x, .weight = *weight, .y = *y};
  must_run(ctx, tg_linear_fwd_workspace(ctx, &a, &a.workspace_bytes));
  a.workspace = allocate(ctx, a.workspace_bytes);
  must_run(ctx, tg_linear_fwd(ctx, &a));
  tg_memory_free(ctx, a.workspace);
}

static void run_both(tg_context *ctx, tg_linear_swiglu_fwd_args a)
{
  must_run(ctx, tg_linear_swiglu_fwd_workspace(ctx, &a, &a.workspace_bytes));
  a.workspace = allocate(ctx, a.workspace_bytes);
  must_run(ctx, tg_linear_swiglu_fwd(ctx, &a));
  tg_memory_free(ctx, a.workspace);
}

static void expect_bits_of_steps(tg_context *ctx, block b, tg_rounding rounding)
{
  tg_tensor t[9];
  t[0] = matrix(ctx, b.rows, b.in, 1);
  t[1] = matrix(ctx, b.out, b.in, 1U << 30);
  t[2] = matrix(ctx, b.out, b.in, 1U << 31);
  for (int i = 3; i < 9; i++) {
    t[i] = matrix(ctx, b.rows, b.out, 2);
  }
  run_linear(ctx, &t[0], &t[1], &t[3]);
  run_linear(ctx, &t[0], &t[2], &t[4]);
  const tg_swiglu_fwd_args act = {.gate = t[3], .up = t[4], .y = t[5], .rounding = rounding};
  must_run(ctx, tg_swiglu_fwd(ctx, &act));
  tg_linear_swiglu_fwd_args a = {
      .x = t[0], .gate_weight = t[1], .up_weight = t[2], .y = t[8], .rounding = rounding};
  run_both(ctx, a);
  expect_equal(ctx, "y", b, &t[5], &t[8]);
  a.gate = t[6];
  a.up = t[7];
  run_both(ctx, a);
  expect_equal(ctx, "y beside gate and up", b, &t[5], &t[8]);
  expect_equal(ctx, "gate", b, &t[3], &t[6]);
  expect_equal(ctx, "up", b, &t[4], &t[7]);
  for (int i = 0; i < 9; i++) {
    tg_memory_free(ctx, t[i].data);
  }
}

static void expect_all(tg_context *ctx)
{
  for (size_t i = 0; i < sizeof kBlocks / sizeof kBlocks[0]; i++) {
    expect_bits_of_steps(ctx, kBlocks[i], i % 2 ? TG_ROUNDING_ONCE : TG_ROUNDING_HF);
  }
}

static void test_on_the_cpu(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  expect_all(ctx);
  tg_context_destroy(ctx);
}

/* Not prepared: cublasLt adds in another order. */
static void test_on_a_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  expect_all(ctx);
  tg_context_destroy(ctx);
}

static void test_gate_without_up(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  float data[4][4] = {{0}};
  const tg_tensor x = tg_tensor_2d(data[0], TG_F32, 2, 2), w = tg_tensor_2d(data[1], TG_F32, 2, 2);
  const tg_tensor y = tg_tensor_2d(data[2], TG_F32, 2, 2), z = tg_tensor_2d(data[3], TG_F32, 2, 2);
  tg_linear_swiglu_fwd_args a = {
      .x = x, .gate_weight = w, .up_weight = w, .y = y, .gate = z, .rounding = TG_ROUNDING_HF};
  must_fail(ctx, tg_linear_swiglu_fwd(ctx, &a), TG_BAD_ARGUMENT,
            "linear_swiglu_fwd: up: expected a tensor beside gate, got none");
  a.gate = (tg_tensor){0};
  a.up = z;
  must_fail(ctx, tg_linear_swiglu_fwd(ctx, &a), TG_BAD_ARGUMENT,
            "linear_swiglu_fwd: gate: expected a tensor beside up, got none");
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_on_the_cpu),
                                     cmocka_unit_test(test_on_a_gpu),
                                     cmocka_unit_test(test_gate_without_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
