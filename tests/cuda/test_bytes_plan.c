/* Plans of products of e4m3 by e4m3 and of int8 by int8: what Hopper's kernels take, widths of
 * tiles, and that tiles fit the shared memory. */
#include "cuda/gemm/gemm_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const tgi_gemm_device kH200 = {132, 232448};

/* e4m3 */
static tgi_gemm_problem product(int64_t m, int64_t n, int64_t k)
{
  return (tgi_gemm_problem){.m = m,
                            .n = n,
                            .k = k,
                            .groups = 1,
                            .a = {TG_F8_E4M3, TGI_GEMM_ALONG_K, true},
                            .b = {TG_F8_E4M3, TGI_GEMM_ALONG_K, true},
                            .c = {TG_BF16, TGI_GEMM_ACROSS_K, true}};
}

static void test_widths(void **state)
{
  (void)state;
  tgi_gemm_problem p = product(4096, 4096, 4097);
  tgi_gemm_plan plan = tgi_gemm_plan_bytes_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_IN_STEP);
  assert_int_equal(plan.tile_n, 256);
  assert_int_equal(plan.tile_k, 128);
  assert_int_equal(plan.tiles, 32 * 16);
  assert_int_equal(plan.blocks, 132);
  /* stages, pages of results, scales of columns for both warpgroups, barriers */
  assert_int_equal(plan.shared, 4 * 384 * 128 + 32768 + 2 * 256 * 4 + 256);
  assert_true((int64_t)plan.shared <= kH200.shared_bytes);
  p = product(128, 8192, 8192); /* few tiles are narrow */
  plan = tgi_gemm_plan_bytes_sm90(&p, &kH200);
  assert_int_equal(plan.tile_n, 128);
  assert_int_equal(plan.blocks, 64);
  assert_int_equal(plan.stages, 6);
  assert_true((int64_t)plan.shared <= kH200.shared_bytes);
}

/* Zero points of columns lie behind their scales; else plans are those of e4m3. */
static void test_int8(void **state)
{
  (void)state;
  const int64_t shapes[][3] = {{4096, 4096, 4097}, {128, 8192, 8192}, {129, 40, 16}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    const tgi_gemm_problem floats = product(shapes[i][0], shapes[i][1], shapes[i][2]);
    tgi_gemm_problem integers = floats;
    integers.a.dtype = integers.b.dtype = TG_I8;
    const tgi_gemm_plan plan = tgi_gemm_plan_bytes_sm90(&integers, &kH200);
    const tgi_gemm_plan other = tgi_gemm_plan_bytes_sm90(&floats, &kH200);
    assert_int_equal(plan.kernel, TGI_GEMM_SM90_IN_STEP);
    assert_int_equal(plan.tile_n, other.tile_n);
    assert_int_equal(plan.blocks, other.blocks);
    assert_int_equal(plan.shared, other.shared + 2 * (size_t)plan.tile_n);
    assert_true((int64_t)plan.shared <= kH200.shared_bytes);
  }
}

/* Where wide tiles do not fit, narrow ones are not measured against them. */
static void test_narrow_alone(void **state)
{
  (void)state;
  const tgi_gemm_device small = {132, 231424}; /* narrow tiles' bytes are 230656 */
  const tgi_gemm_problem p = product(4096, 4096, 4096);
  const tgi_gemm_plan plan = tgi_gemm_plan_bytes_sm90(&p, &small);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_IN_STEP);
  assert_int_equal(plan.tile_n, 128);
}

static void refuse(tgi_gemm_problem p, const char *reason)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_bytes_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_NOT_TAKEN);
  assert_string_equal(plan.reason, reason);
}

static void test_refusals(void **state)
{
  (void)state;
  refuse(product(0, 256, 256), "nothing to multiply");
  refuse(product(256, 256, 0), "nothing to multiply");
  refuse(product(256, (int64_t)1 << 31, 256), "extents above 2^30");
  tgi_gemm_problem p = product(256, 256, 256);
  p.c.vectors = false;
  refuse(p, "rows that do not begin at multiples of 16 bytes");
  p = product(256, 256, 256);
  p.b.major = TGI_GEMM_ACROSS_K;
  refuse(p, "operands that are not both e4m3 or both int8, along k");
  p = product(256, 256, 256);
  p.a.dtype = TG_BF16;
  refuse(p, "operands that are not both e4m3 or both int8, along k");
  p.a.dtype = TG_I8; /* beside e4m3 */
  refuse(p, "operands that are not both e4m3 or both int8, along k");
  const tgi_gemm_device small = {132, 160 * 1024};
  p = product(256, 256, 256);
  assert_string_equal(tgi_gemm_plan_bytes_sm90(&p, &small).reason,
                      "a device with less shared memory");
}

/* How k is split does not depend on the number of rows; steps have 128 columns. */
static void test_few_rows(void **state)
{
  (void)state;
  for (int64_t rows = 1; rows <= 64; rows++) {
    const tgi_gemm_problem p = product(rows, 4096, 14335);
    const tgi_gemm_plan plan = tgi_gemm_plan_few_sm90(&p);
    assert_int_equal(plan.kernel, TGI_GEMM_SM90_FEW);
    assert_int_equal(plan.tile_k, 128);
    assert_int_equal(plan.parts, 4);
  }
  const tgi_gemm_problem p = product(65, 4096, 14336);
  assert_string_equal(tgi_gemm_plan_few_sm90(&p).reason, "more rows");
}

static void test_text(void **state)
{
  (void)state;
  char text[160];
  const tgi_gemm_problem p = product(2048, 8192, 8192);
  const tgi_gemm_plan plan = tgi_gemm_plan_bytes_sm90(&p, &kH200);
  tgi_gemm_plan_text(&p, &plan, text, sizeof text);
  assert_string_equal(text, "wgmma, NT, tiles of 128 x 256, 4 stages of 128 steps, stored in step");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widths),       cmocka_unit_test(test_int8),
      cmocka_unit_test(test_narrow_alone), cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_few_rows),     cmocka_unit_test(test_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
