/* A row of a linear layer has the same bits alone and among up to 63 others, in 16 bits: on the
 * CPU, and on a GPU if there is one. On Hopper that holds of a prepared context, too. */
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

enum { kRows = 64 };

/* in and out: parts of k that are not equal, tiles of columns that end within, both ways. */
typedef struct layer {
  int64_t in, out;
} layer;

static const layer kLayers[] = {{1160, 264}, {72, 1000}, {2880, 40}};

/* Two bytes of each: bf16 of about 1 in size, of either sign. */
static uint16_t element(uint64_t i)
{
  const uint64_t z = (i + 1) * 0x9E3779B97F4A7C15U;
  return (uint16_t)(0x3F00U + (z >> 56) + ((z >> 40 & 1) << 15));
}

static void *upload(tg_context *ctx, int64_t elements, uint64_t seed)
{
  const size_t bytes = 2 * (size_t)elements;
  uint16_t *host = malloc(bytes);
  void *there = NULL;
  for (int64_t i = 0; i < elements; i++) {
    host[i] = element(seed + (uint64_t)i);
  }
  must_run(ctx, tg_memory_allocate(ctx, bytes, &there));
  must_run(ctx, tg_memory_copy(ctx, there, bytes, host, bytes, bytes, 1));
  free(host);
  return there;
}

/* Rows first .. first + rows - 1 of the product, to the host. */
static void multiply(tg_context *ctx, layer l, void *x, void *weight, void *y, int64_t first,
                     int64_t rows, uint16_t *out)
{
  const size_t bytes = 2 * (size_t)(rows * l.out);
  tg_linear_fwd_args a = {.x = tg_tensor_2d((uint16_t *)x + first * l.in, TG_BF16, rows, l.in),
                          .weight = tg_tensor_2d(weight, TG_BF16, l.out, l.in),
                          .y = tg_tensor_2d(y, TG_BF16, rows, l.out)};
  must_run(ctx, tg_linear_fwd_workspace(ctx, &a, &a.workspace_bytes));
  must_run(ctx, tg_memory_allocate(ctx, a.workspace_bytes + 256, &a.workspace));
  must_run(ctx, tg_linear_fwd(ctx, &a));
  must_run(ctx, tg_memory_copy(ctx, out, bytes, y, bytes, bytes, 1));
  tg_memory_free(ctx, a.workspace);
}

static void expect_same_bits(tg_context *ctx, layer l)
{
  void *x = upload(ctx, kRows * l.in, 1), *weight = upload(ctx, l.out * l.in, 1U << 30);
  void *y = upload(ctx, kRows * l.out, 2);
  uint16_t *all = malloc(2 * (size_t)(kRows * l.out)), *some = malloc(2 * (size_t)(kRows * l.out));
  multiply(ctx, l, x, weight, y, 0, kRows, all);
  for (int64_t rows = 1; rows < kRows; rows++) {
    const int64_t first = rows % 2 ? kRows - rows : 0;
    multiply(ctx, l, x, weight, y, first, rows, some);
    for (int64_t i = 0; i < rows * l.out; i++) {
      if (some[i] != all[first * l.out + i]) {
        fail_msg("%s: %lld x %lld, row %lld of %lld: expected the bits 0x%04x in column %lld, got "
                 "0x%04x",
                 tg_context_entry(ctx), (long long)l.in, (long long)l.out, (long long)(i / l.out),
                 (long long)rows, all[first * l.out + i], (long long)(i % l.out), some[i]);
      }
    }
  }
  free(some);
  free(all);
  tg_memory_free(ctx, y);
  tg_memory_free(ctx, weight);
  tg_memory_free(ctx, x);
}

static void expect_same_bits_in(tg_context *ctx)
{
  for (size_t i = 0; i < sizeof kLayers / sizeof kLayers[0]; i++) {
    expect_same_bits(ctx, kLayers[i]);
  }
}

static void test_on_the_cpu(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  expect_same_bits_in(ctx);
  tg_context_destroy(ctx);
}

static void test_on_a_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  expect_same_bits_in(ctx);
  if (strcmp(tg_context_entry(ctx), "sm90") == 0) {
    must_run(ctx, tg_context_prepare(ctx));
    expect_same_bits_in(ctx);
  }
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_on_the_cpu),
                                     cmocka_unit_test(test_on_a_gpu)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
