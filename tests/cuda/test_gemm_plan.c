/* Plans of matrix products: what Hopper's tiles take, how many tiles there are, and what is said.
 */
#include "cuda/gemm/gemm_choice.h"
#include "cuda/gemm/gemm_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const tgi_gemm_device kH200 = {132, 232448};

/* Up product of GPT-OSS 20B: 4096 tokens of 4 experts each, weights [in, out], gate and up in
 * pairs. */
static tgi_gemm_problem up_product(void)
{
  return (tgi_gemm_problem){.m = 16384,
                            .n = 5760,
                            .k = 2880,
                            .grouped = TGI_GEMM_GROUPS_OF_ROWS,
                            .groups = 32,
                            .a = {TG_BF16, TGI_GEMM_ALONG_K, true},
                            .b = {TG_BF16, TGI_GEMM_ACROSS_K, true},
                            .c = {TG_BF16, TGI_GEMM_ACROSS_K, true},
                            .epilogue = TGI_GEMM_GATED_PAIRS};
}

/* Its weights' gradient. */
static tgi_gemm_problem weight_product(tg_dtype to)
{
  return (tgi_gemm_problem){.m = 2880,
                            .n = 5760,
                            .k = 16384,
                            .grouped = TGI_GEMM_GROUPS_OF_STEPS,
                            .groups = 32,
                            .a = {TG_F16, TGI_GEMM_ACROSS_K, true},
                            .b = {TG_F16, TGI_GEMM_ACROSS_K, true},
                            .c = {to, TGI_GEMM_ACROSS_K, true}};
}

static void test_rows(void **state)
{
  (void)state;
  const tgi_gemm_problem p = up_product();
  const tgi_gemm_plan plan = tgi_gemm_plan_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_TILES);
  assert_null(plan.reason);
  assert_true(plan.fused);
  assert_int_equal(plan.column_tiles, 30);
  assert_int_equal(plan.row_tiles, 128 + 33); /* each group's last tile may be a part of one */
  assert_int_equal(plan.tiles, 161 * 30);
  assert_int_equal(plan.blocks, 132);
  /* 4 stages of 128 + 192 rows of 128 bytes, a result, and what lies beside */
  assert_int_equal(plan.shared, 1024 + 4 * 320 * 128 + 128 * 192 * 2 + 2048 + 34 * 8);
}

static void test_few_rows(void **state)
{
  (void)state;
  tgi_gemm_problem p = up_product();
  p.m = 4;
  p.n = 384;
  const tgi_gemm_plan plan = tgi_gemm_plan_sm90(&p, &kH200);
  assert_int_equal(plan.row_tiles, 4);
  assert_int_equal(plan.tiles, 8);
  assert_int_equal(plan.blocks, 8);
}

static void test_steps(void **state)
{
  (void)state;
  const tgi_gemm_problem p = weight_product(TG_F32);
  const tgi_gemm_plan plan = tgi_gemm_plan_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_TILES);
  assert_int_equal(plan.row_tiles, 23); /* 22.5 */
  assert_int_equal(plan.tiles, 23 * 30 * 32);
}

/* Gate and up in halves are in one tile where whole rows of B can be picked; tiles then have half
 * as many columns of each. */
static void test_halves(void **state)
{
  (void)state;
  tgi_gemm_problem p = up_product();
  p.epilogue = TGI_GEMM_GATED_HALVES;
  p.n = 2 * 200;
  assert_false(tgi_gemm_plan_sm90(&p, &kH200).fused);
  assert_int_equal(tgi_gemm_plan_sm90(&p, &kH200).column_tiles, 3); /* of 192 */
  p.b.major = TGI_GEMM_ALONG_K;
  assert_true(tgi_gemm_plan_sm90(&p, &kH200).fused);
  assert_int_equal(tgi_gemm_plan_sm90(&p, &kH200).column_tiles, 3); /* of 96 */
  p.n = 2 * 192;
  assert_int_equal(tgi_gemm_plan_sm90(&p, &kH200).column_tiles, 2);
}

static void refuse(const tgi_gemm_problem *p, const char *reason)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_sm90(p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_NOT_TAKEN);
  assert_string_equal(plan.reason, reason);
}

static void test_refusals(void **state)
{
  (void)state;
  tgi_gemm_problem p = up_product();
  p.b.dtype = TG_F32;
  refuse(&p, "operands that are not both f16 or both bf16");
  p = up_product();
  p.b.dtype = TG_F16;
  refuse(&p, "operands that are not both f16 or both bf16");
  p = up_product();
  p.c.dtype = TG_F32;
  refuse(&p, "a result of another dtype");
  p = weight_product(TG_BF16);
  refuse(&p, "a result of another dtype");
  p = up_product();
  p.k = 2884;
  refuse(&p, "rows that are not whole vectors of 16 bytes");
  p = up_product();
  p.n = 5768;
  refuse(&p, "rows of an activation that are not whole vectors of 16 bytes");
  p.epilogue = TGI_GEMM_STORE;
  assert_int_equal(tgi_gemm_plan_sm90(&p, &kH200).kernel, TGI_GEMM_SM90_TILES);
  p.a.vectors = false;
  refuse(&p, "rows that do not begin at multiples of 16 bytes");
  p = weight_product(TG_F16);
  p.m = 2884;
  refuse(&p, "rows that are not whole vectors of 16 bytes");
  p.m = 2880;
  p.k = 16381; /* rows of experts: any number */
  assert_int_equal(tgi_gemm_plan_sm90(&p, &kH200).kernel, TGI_GEMM_SM90_TILES);
  p.k = 0;
  refuse(&p, "nothing to multiply");
}

static void test_limits(void **state)
{
  (void)state;
  tgi_gemm_problem p = up_product();
  p.groups = TGI_GEMM_MOST_GROUPS;
  assert_int_equal(tgi_gemm_plan_sm90(&p, &kH200).kernel, TGI_GEMM_SM90_TILES);
  p.groups++;
  refuse(&p, "more groups than fit into shared memory");
  p = up_product();
  p.m = (int64_t)1 << 33;
  refuse(&p, "more tiles than 2^30");
  p = up_product();
  const tgi_gemm_device small = {108, 166912};
  assert_string_equal(tgi_gemm_plan_sm90(&p, &small).reason, "a device with less shared memory");
}

/* A layer of Qwen3-8B, one token. */
static tgi_gemm_problem few_rows(int64_t m, int64_t n, int64_t k)
{
  return (tgi_gemm_problem){.m = m,
                            .n = n,
                            .k = k,
                            .grouped = TGI_GEMM_ONE_GROUP,
                            .groups = 1,
                            .a = {TG_BF16, TGI_GEMM_ALONG_K, true},
                            .b = {TG_BF16, TGI_GEMM_ALONG_K, true},
                            .c = {TG_F32, TGI_GEMM_ACROSS_K, false}};
}

static int parts_of(int64_t m, int64_t n, int64_t k)
{
  const tgi_gemm_problem p = few_rows(m, n, k);
  const tgi_gemm_plan plan = tgi_gemm_plan_few_sm90(&p);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_FEW);
  assert_int_equal(plan.tile_n, plan.parts == 2 || plan.parts == 4 ? 64 : 128);
  assert_int_equal(plan.blocks, plan.column_tiles * plan.parts / (plan.tile_n == 64 ? 2 : 1));
  return plan.parts;
}

/* However many rows: the same parts of k. */
static void test_parts_of_few_rows(void **state)
{
  (void)state;
  for (int64_t m = 1; m <= 64; m++) {
    assert_int_equal(parts_of(m, 4096, 4096), 4);
    assert_int_equal(parts_of(m, 6144, 4096), 2);
    assert_int_equal(parts_of(m, 24576, 4096), 1);
    assert_int_equal(parts_of(m, 1000, 4096), 8); /* no more than a cluster has */
    assert_int_equal(parts_of(m, 1000, 1160), 4); /* 19 steps */
    assert_int_equal(parts_of(m, 1, 8), 1);
    assert_int_equal(parts_of(m, 151936, 4096), 1);
  }
  const tgi_gemm_problem p = few_rows(9, 4097, 4096);
  assert_int_equal(tgi_gemm_plan_few_sm90(&p).tile_m, 16);
  assert_int_equal(tgi_gemm_plan_few_sm90(&p).column_tiles, 65); /* of 64 */
}

/* ---- dense ---- */

/* A layer of Qwen3-8B: x W^T, dy W, dy^T x. */
static tgi_gemm_problem dense(tgi_gemm_major a, tgi_gemm_major b, int64_t m, int64_t n, int64_t k)
{
  return (tgi_gemm_problem){.m = m,
                            .n = n,
                            .k = k,
                            .groups = 1,
                            .a = {TG_BF16, a, true},
                            .b = {TG_BF16, b, true},
                            .c = {TG_BF16, TGI_GEMM_ACROSS_K, true}};
}

static tgi_gemm_problem forward(int64_t m, int64_t n, int64_t k)
{
  return dense(TGI_GEMM_ALONG_K, TGI_GEMM_ALONG_K, m, n, k);
}

static void test_dense_tiles(void **state)
{
  (void)state;
  tgi_gemm_problem p = forward(4096, 4096, 12288);
  tgi_gemm_plan plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_IN_STEP);
  assert_int_equal(plan.tile_n, 256); /* 512 tiles are 3.9 waves; of 192, 5.3 */
  assert_int_equal(plan.tiles, 512);
  assert_int_equal(plan.blocks, 132);
  assert_true(plan.shared <= 232448);
  p = forward(1024, 1024, 1024);
  plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
  assert_int_equal(plan.tile_n, 128); /* 64 tiles; of 256, 32 */
  assert_int_equal(plan.blocks, 64);
}

/* What is not rounded and stored alone is stored in step, by tiles of 256 or 128. */
static void test_dense_in_step(void **state)
{
  (void)state;
  tgi_gemm_problem p = forward(4096, 6144, 4096);
  assert_int_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 192).kernel, TGI_GEMM_SM90_TILES);
  p.finishes = true;
  assert_string_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 192).reason,
                      "results that are stored in step");
  assert_int_equal(tgi_gemm_plan_dense_sm90(&p, &kH200).kernel, TGI_GEMM_SM90_IN_STEP);
  p.finishes = false;
  p.c.dtype = TG_F32;
  assert_int_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 192).kernel, TGI_GEMM_NOT_TAKEN);
  assert_int_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 128).stages, 6);
}

static int parts_of_dense(tgi_gemm_problem p)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_tiles_sm90(&p, &kH200, 128);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_IN_STEP);
  assert_int_equal(plan.blocks, plan.parts         ? plan.tiles * plan.parts
                                : plan.tiles < 132 ? plan.tiles
                                                   : 132);
  return plan.parts;
}

/* Gradients of small weights over many rows: a tile is made in parts along k by a cluster. */
static void test_parts_of_dense(void **state)
{
  (void)state;
  const tgi_gemm_major across = TGI_GEMM_ACROSS_K;
  assert_int_equal(parts_of_dense(dense(across, across, 768, 768, 8192)), 3); /* 36 tiles */
  assert_int_equal(parts_of_dense(dense(across, across, 1024, 256, 8192)), 6);
  assert_int_equal(parts_of_dense(dense(across, across, 128, 128, 8192)), 8);
  assert_int_equal(parts_of_dense(dense(across, across, 128, 128, 24 * 64)), 3);
  assert_int_equal(parts_of_dense(dense(across, across, 128, 128, 15 * 64)), 0);
  assert_int_equal(parts_of_dense(dense(across, across, 64 * 128, 128, 8192)), 2);
  assert_int_equal(parts_of_dense(dense(across, across, 65 * 128, 128, 8192)), 0);
  /* of activations the number of rows is no row's business */
  assert_int_equal(parts_of_dense(forward(128, 768, 8192)), 0);
  assert_int_equal(parts_of_dense(dense(TGI_GEMM_ALONG_K, across, 128, 768, 8192)), 0);
  const tgi_gemm_problem p = dense(across, across, 768, 768, 8192);
  const tgi_gemm_device half = {66, 232448};
  assert_int_equal(tgi_gemm_plan_tiles_sm90(&p, &half, 128).parts, 3); /* sums go by shapes */
  assert_int_equal(tgi_gemm_plan_dense_sm90(&p, &kH200).tile_n, 128);
  char text[160];
  const tgi_gemm_plan plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
  tgi_gemm_plan_text(&p, &plan, text, sizeof text);
  assert_string_equal(text, "wgmma, TN, tiles of 128 x 128, k in 3 parts, 6 stages of 64 steps, "
                            "stored in step");
}

/* Gradients of activations over a vocabulary: one width and four parts, however many rows. */
static void test_parts_of_long_rows(void **state)
{
  (void)state;
  for (int64_t m = 65; m <= 65536; m *= 3) {
    const tgi_gemm_problem p = dense(TGI_GEMM_ALONG_K, TGI_GEMM_ACROSS_K, m, 1024, 151936);
    const tgi_gemm_plan plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
    assert_int_equal(plan.kernel, TGI_GEMM_SM90_IN_STEP);
    assert_int_equal(plan.tile_n, 256);
    assert_int_equal(plan.parts, 4);
    assert_int_equal(plan.blocks, 4 * plan.tiles);
    assert_int_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 128).kernel, TGI_GEMM_NOT_TAKEN);
  }
  const tgi_gemm_problem p = dense(TGI_GEMM_ALONG_K, TGI_GEMM_ACROSS_K, 768, 1024, 32767);
  assert_int_equal(tgi_gemm_plan_dense_sm90(&p, &kH200).parts, 0);
}

static void refuse_dense(tgi_gemm_problem p, const char *reason)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_NOT_TAKEN);
  assert_string_equal(plan.reason, reason);
}

static void test_refusals_of_dense(void **state)
{
  (void)state;
  refuse_dense(dense(TGI_GEMM_ACROSS_K, TGI_GEMM_ALONG_K, 64, 64, 64),
               "A across k beside B along it");
  refuse_dense(forward(64, 64, 0), "nothing to multiply");
  refuse_dense(forward((int64_t)1 << 31, 64, 64), "extents above 2^30");
  refuse_dense(dense(TGI_GEMM_ALONG_K, TGI_GEMM_ACROSS_K, (1 << 30) - 128, 64 * 256, 32768),
               "more tiles, or parts of them, than 2^30");
  tgi_gemm_problem p = dense(TGI_GEMM_ALONG_K, TGI_GEMM_ACROSS_K, 64, 64, 64);
  p.c.vectors = false;
  refuse_dense(p, "rows that do not begin at multiples of 16 bytes");
  p = forward(64, 64, 64);
  p.reads = true; /* a residual: stored in step */
  assert_int_equal(tgi_gemm_plan_dense_sm90(&p, &kH200).kernel, TGI_GEMM_SM90_IN_STEP);
  assert_int_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 192).kernel, TGI_GEMM_NOT_TAKEN);
  p.c.vectors = false;
  refuse_dense(p, "rows that do not begin at multiples of 16 bytes");
  p.c.vectors = true;
  p.c.dtype = TG_F16;
  refuse_dense(p, "a result of another dtype");
  p.a.dtype = TG_F32;
  refuse_dense(p, "operands that are not both f16 or both bf16");
  for (int width = -64; width <= 512; width++) { /* such as a table of measurements may name */
    p = forward(4096, 4096, 4096);
    const tgi_gemm_plan plan = tgi_gemm_plan_tiles_sm90(&p, &kH200, width);
    const bool known = width == 128 || width == 192 || width == 256;
    assert_int_equal(plan.kernel != TGI_GEMM_NOT_TAKEN, known);
    assert_true(known || strstr(plan.reason, "a width of tiles that no kernel has"));
  }
  p = forward(13, 77, 65); /* any extents, if rows begin at vectors */
  assert_int_equal(tgi_gemm_plan_dense_sm90(&p, &kH200).kernel, TGI_GEMM_SM90_IN_STEP);
}

/* Rows of a forward product's result may begin anywhere. */
static void test_loose_rows(void **state)
{
  (void)state;
  char text[160];
  tgi_gemm_problem p = forward(1024, 50257, 128);
  p.c.vectors = false;
  const tgi_gemm_plan plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
  assert_int_equal(plan.kernel, TGI_GEMM_SM90_IN_STEP);
  assert_false(tgi_gemm_prefers_lt(&p, &plan));
  tgi_gemm_plan_text(&p, &plan, text, sizeof text);
  assert_string_equal(text, "wgmma, NT, tiles of 128 x 128, 6 stages of 64 steps, stored in step "
                            "by warps");
  assert_string_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 192).reason,
                      "results that are stored in step");
  p.n = 50256; /* whole vectors, in rows that do not begin at one */
  assert_int_equal(tgi_gemm_plan_tiles_sm90(&p, &kH200, 192).kernel, TGI_GEMM_NOT_TAKEN);
  p.c.dtype = TG_F32;
  p.adds = true;
  refuse_dense(p, "rows that do not begin at multiples of 16 bytes");
}

static bool prefers_lt(tgi_gemm_problem p)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_dense_sm90(&p, &kH200);
  assert_int_not_equal(plan.kernel, TGI_GEMM_NOT_TAKEN);
  return tgi_gemm_prefers_lt(&p, &plan);
}

/* cublasLt where it was measured to be faster, but never 1 to 64 rows of activations. */
static void test_choice(void **state)
{
  (void)state;
  const tgi_gemm_major along = TGI_GEMM_ALONG_K, across = TGI_GEMM_ACROSS_K;
  assert_false(prefers_lt(forward(4096, 3072, 1024)));
  assert_true(prefers_lt(forward(4096, 4096, 12288)));
  assert_true(prefers_lt(forward(1024, 1024, 1024)));
  assert_false(prefers_lt(forward(64, 4096, 4096)));
  assert_true(prefers_lt(forward(65, 4096, 4096)));
  assert_false(prefers_lt(dense(along, across, 1, 4096, 4096)));
  assert_true(prefers_lt(dense(across, across, 64, 4096, 4096)));
  assert_false(prefers_lt(dense(across, across, 24576, 4096, 4096)));
  tgi_gemm_problem p = forward(4096, 3072, 1024);
  p.reads = true;
  assert_true(prefers_lt(p));
}

static void refuse_few(tgi_gemm_problem p, const char *reason)
{
  const tgi_gemm_plan plan = tgi_gemm_plan_few_sm90(&p);
  assert_int_equal(plan.kernel, TGI_GEMM_NOT_TAKEN);
  assert_string_equal(plan.reason, reason);
}

static void test_refusals_of_few_rows(void **state)
{
  (void)state;
  refuse_few(few_rows(65, 4096, 4096), "more rows");
  refuse_few(few_rows(0, 4096, 4096), "nothing to multiply");
  refuse_few(few_rows(1, 4096, 4092), "rows that are not whole vectors of 16 bytes");
  tgi_gemm_problem p = few_rows(1, 4096, 4096);
  p.b.vectors = false;
  refuse_few(p, "rows that are not whole vectors of 16 bytes");
  p.a.dtype = TG_F32;
  refuse_few(p, "operands that are not both f16, bf16 or e4m3");
}

static void test_text(void **state)
{
  (void)state;
  char text[160];
  tgi_gemm_problem p = up_product();
  tgi_gemm_plan plan = tgi_gemm_plan_sm90(&p, &kH200);
  tgi_gemm_plan_text(&p, &plan, text, sizeof text);
  assert_string_equal(text, "wgmma, NN, 32 groups of rows, tiles of 128 x 192, 4 stages of 64 "
                            "steps, the activation beside them");
  p = weight_product(TG_F16);
  plan = tgi_gemm_plan_sm90(&p, &kH200);
  tgi_gemm_plan_text(&p, &plan, text, sizeof text);
  assert_string_equal(text, "wgmma, TN, 32 groups of steps, tiles of 128 x 192, 4 stages of 64 "
                            "steps");
  const tgi_gemm_problem few = few_rows(1, 4096, 4096);
  plan = tgi_gemm_plan_few_sm90(&few);
  tgi_gemm_plan_text(&few, &plan, text, sizeof text);
  assert_string_equal(text, "wgmma, few rows: tiles of 8 rows x 64 columns, k in 4 parts");
  const tgi_gemm_problem one = forward(8192, 4096, 12288);
  plan = tgi_gemm_plan_dense_sm90(&one, &kH200);
  tgi_gemm_plan_text(&one, &plan, text, sizeof text);
  assert_string_equal(text, "wgmma, NT, tiles of 128 x 256, 4 stages of 64 steps, stored in step");
  plan.kernel = TGI_GEMM_SM90_TILES;
  p.grouped = TGI_GEMM_ONE_GROUP;
  p.a.major = p.b.major = TGI_GEMM_ALONG_K;
  tgi_gemm_plan_text(&p, &plan, text, 12);
  assert_string_equal(text, "wgmma, NT, ");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_few_rows),
      cmocka_unit_test(test_steps),
      cmocka_unit_test(test_halves),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_limits),
      cmocka_unit_test(test_parts_of_few_rows),
      cmocka_unit_test(test_refusals_of_few_rows),
      cmocka_unit_test(test_dense_tiles),
      cmocka_unit_test(test_dense_in_step),
      cmocka_unit_test(test_parts_of_dense),
      cmocka_unit_test(test_parts_of_long_rows),
      cmocka_unit_test(test_refusals_of_dense),
      cmocka_unit_test(test_loose_rows),
      cmocka_unit_test(test_choice),
      cmocka_unit_test(test_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
