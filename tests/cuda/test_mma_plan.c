/* Plans of matrix products by mma.sync, from compute capability 8.0 on. */
#include "cuda/gemm/gemm_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const tgi_gemm_device kH200 = {132, 232448};

static tgi_gemm_problem f32_product(int64_t m, int64_t n, int64_t k)
{
  return (tgi_gemm_problem){.m = m,
                            .n = n,
                            .k = k,
                            .groups = 1,
                            .a = {TG_F32, TGI_GEMM_ALONG_K, true},
                            .b = {TG_F32, TGI_GEMM_ALONG_K, true},
                            .c = {TG_F32, TGI_GEMM_ACROSS_K, true},
                            .allow_tf32 = true};
}

static void expect_mma_tiles(const tgi_gemm_problem *p, int tile_m, int tile_n, int64_t tiles)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_mma(p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_MMA);
  assert_null(plan.reason);
  assert_int_equal(plan.tile_m, tile_m);
  assert_int_equal(plan.tile_n, tile_n);
  assert_int_equal(plan.tiles, tiles);
  assert_int_equal(plan.row_tiles * plan.column_tiles, tiles);
}

static void test_mma_tiles(void **state)
{
  (void)state;
  tgi_gemm_problem p = f32_product(4096, 4096, 4096);
  expect_mma_tiles(&p, 128, 128, 1024);
  p = f32_product(1024, 1024, 1024); /* 64 tiles of 128 for 132 multiprocessors */
  expect_mma_tiles(&p, 64, 64, 256);
  p = f32_product(65, 17000, 3);
  expect_mma_tiles(&p, 128, 128, 133);
  p = f32_product(64, 17000, 3); /* half of a large tile would be of no rows */
  expect_mma_tiles(&p, 64, 64, 266);
  p = f32_product(17, 33, 5);
  expect_mma_tiles(&p, 64, 64, 1);
  p = f32_product(16, 33, 5);
  expect_mma_tiles(&p, 16, 32, 2);
  p.a.major = p.b.major = TGI_GEMM_ACROSS_K; /* no kernel of few rows has A across k */
  expect_mma_tiles(&p, 64, 64, 1);
  p = f32_product(4096, 4096, 0); /* zeros are a result, too */
  expect_mma_tiles(&p, 128, 128, 1024);
  const tgi_gemm_device small = {16, 48 << 10};
  p = f32_product(4096, 4096, 64);
  assert_int_equal(tgi_gemm_plan_mma(&p, &small).tile_m, 64);
}

static void refuse_mma(const tgi_gemm_problem *p, const char *reason)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_mma(p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_NOT_TAKEN);
  assert_string_equal(plan.reason, reason);
}

/* f32 is multiplied there only in TF32, and only where that is allowed. */
static void test_mma_refusals(void **state)
{
  (void)state;
  static const char dtypes[] =
      "operands that are not both f16, both bf16, or both f32 that may be rounded to TF32";
  tgi_gemm_problem p = f32_product(64, 64, 64);
  p.allow_tf32 = false;
  refuse_mma(&p, dtypes);
  p.a.dtype = p.b.dtype = TG_BF16;
  assert_int_equal(tgi_gemm_plan_mma(&p, &kH200).kernel, TGI_GEMM_MMA);
  p.allow_tf32 = true;
  p.b.dtype = TG_F32;
  refuse_mma(&p, dtypes);
  p = f32_product(64, 64, 64);
  p.c.dtype = TG_BF16;
  refuse_mma(&p, "a result of another dtype");
  p = f32_product(64, 64, 64);
  p.a.major = TGI_GEMM_ACROSS_K;
  refuse_mma(&p, "A across k beside B along it");
  p = f32_product(64, (int64_t)1 << 30, 64);
  refuse_mma(&p, "extents above 2^30");
}

/* Hopper's tiles have no f32, allowed or not. */
static void test_tf32_is_not_for_tiles(void **state)
{
  (void)state;
  const tgi_gemm_problem p = f32_product(4096, 4096, 4096);
  const tgi_gemm_plan plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_NOT_TAKEN);
  assert_string_equal(plan.reason, "operands that are not both f16 or both bf16");
}

static void test_mma_text(void **state)
{
  (void)state;
  char text[160];
  tgi_gemm_problem p = f32_product(4096, 4096, 4096);
  tgi_gemm_plan plan = tgi_gemm_plan_mma(&p, &kH200);
  tgi_gemm_plan_text(&p, &plan, text, sizeof text);
  assert_string_equal(text, "mma.sync, TF32, NT, tiles of 128 x 128");
  p.m = 16;
  p.a.dtype = p.b.dtype = TG_F16;
  p.b.major = TGI_GEMM_ACROSS_K;
  plan = tgi_gemm_plan_mma(&p, &kH200);
  tgi_gemm_plan_text(&p, &plan, text, sizeof text);
  assert_string_equal(text, "mma.sync, NN, tiles of 16 x 32");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mma_tiles),
      cmocka_unit_test(test_mma_refusals),
      cmocka_unit_test(test_tf32_is_not_for_tiles),
      cmocka_unit_test(test_mma_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
