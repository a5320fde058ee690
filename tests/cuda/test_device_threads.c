/* Two threads with contexts of their own on one GPU start the same kernel at the same time, with
 * different amounts of shared memory: a limit that one sets must not stop the other. */
#include "tegula/tegula.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect.h"
#include "expect_op.h"
#include "open_context.h"

/* Of few outputs strips multiply, of many Hopper's blocks, in clusters. */
enum { kRows = 64, kFewOut = 512, kOut = 5760, kIn = 1024, kCalls = 4000 };

/* One weight of ones in groups of a size, so that every result is kIn. */
typedef struct product {
  tg_context *ctx;
  tg_linear_int4_fwd_args args;
  pthread_barrier_t *together;
  tg_status status; /* of the first call that failed */
} product;

static void *on_device(tg_context *ctx, const void *host, size_t bytes)
{
  void *there = NULL;
  must_run(ctx, tg_memory_allocate(ctx, bytes, &there));
  must_run(ctx, tg_memory_copy(ctx, there, bytes, host, bytes, bytes, 1));
  return there;
}

static void open_product(product *p, int64_t out, int64_t group_size)
{
  static uint8_t weight[kOut * kIn / 2], packed[kOut * kIn];
  static float scale[kOut * kIn / 32];
  static uint16_t x[kRows * kIn];
  static float y[kRows * kOut];
  tg_error error;
  memset(weight, 0x99, sizeof weight);
  for (size_t i = 0; i < sizeof scale / sizeof scale[0]; i++) {
    scale[i] = 1;
  }
  for (int i = 0; i < kRows * kIn; i++) {
    x[i] = 0x3f80;
  }
  tg_linear_int4_pack_source source = {.weight = tg_tensor_2d(weight, TG_U8, out, kIn / 2),
                                       .scale = tg_tensor_2d(scale, TG_F32, out, kIn / group_size),
                                       .in = kIn,
                                       .group_size = group_size};
  const int64_t bytes = tg_linear_int4_packed_bytes(&source);
  assert_in_range(bytes, 1, sizeof packed);
  source.packed = tg_tensor_1d(packed, TG_U8, bytes);
  EXPECT_OK(tg_linear_int4_pack(&source, &error), error);
  p->ctx = open_context(TG_BACKEND_CUDA);
  p->args = (tg_linear_int4_fwd_args){
      .x = tg_tensor_2d(on_device(p->ctx, x, sizeof x), TG_BF16, kRows, kIn),
      .weight = tg_tensor_1d(on_device(p->ctx, packed, (size_t)bytes), TG_U8, bytes),
      .y = tg_tensor_2d(on_device(p->ctx, y, sizeof y), TG_F32, kRows, out)};
  must_run(p->ctx, tg_linear_int4_fwd_workspace(p->ctx, &p->args, &p->args.workspace_bytes));
  must_run(p->ctx, tg_memory_allocate(p->ctx, p->args.workspace_bytes + 64, &p->args.workspace));
}

static void *multiply(void *argument)
{
  product *p = argument;
  pthread_barrier_wait(p->together);
  for (int i = 0; i < kCalls && p->status == TG_OK; i++) {
    p->status = tg_linear_int4_fwd(p->ctx, &p->args);
  }
  return NULL;
}

static void close_product(product *p)
{
  static float y[kRows * kOut];
  if (p->status != TG_OK) {
    fail_msg("expected every product to run, got %s", tg_context_message(p->ctx));
  }
  must_run(p->ctx, tg_memory_copy(p->ctx, y, sizeof y, p->args.y.data, sizeof y, sizeof y, 1));
  for (int64_t i = 0; i < kRows * p->args.y.shape[1]; i++) {
    assert_true(y[i] == kIn);
  }
  tg_memory_free(p->ctx, p->args.x.data);
  tg_memory_free(p->ctx, p->args.weight.data);
  tg_memory_free(p->ctx, p->args.y.data);
  tg_memory_free(p->ctx, p->args.workspace);
  tg_context_destroy(p->ctx);
}

static void multiply_at_once(int64_t out)
{
  product p[2] = {{0}};
  pthread_t thread[2];
  pthread_barrier_t together;
  assert_int_equal(pthread_barrier_init(&together, NULL, 2), 0);
  for (int i = 0; i < 2; i++) {
    open_product(&p[i], out, i ? 128 : 32);
    p[i].together = &together;
  }
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pthread_create(&thread[i], NULL, multiply, &p[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    assert_int_equal(pthread_join(thread[i], NULL), 0);
  }
  for (int i = 0; i < 2; i++) {
    close_product(&p[i]);
  }
  pthread_barrier_destroy(&together);
}

static void test_two_sizes_of_shared_memory(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  multiply_at_once(kFewOut);
  multiply_at_once(kOut);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_sizes_of_shared_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
