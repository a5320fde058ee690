/* add_rms_norm is the addition in the dtype of x and then rms_norm of the rounded sum, bit for bit,
 * in every sharing of memory that the contract allows. And the sums and norms of the layers of
 * transformers. */
#include "golden/add_rms_norm/add_rms_norm_values.h"

#include "core/values/half.h"
#include "cpu_entries.h"
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { kRows = 9, kCols = 259, kElements = kRows * kCols };

static void fill(void *data, tg_dtype dtype, int64_t n, uint64_t seed, double scale)
{
  uint64_t s = seed;
  for (int64_t i = 0; i < n; i++) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    const double uniform = (double)(s >> 11) * 0x1p-53; /* in [0, 1) */
    tgi_store(data, dtype, i, scale * (4 * uniform - 2));
  }
}

/* Where the results go: memory of their own, or over the inputs. */
typedef enum placement { PLACE_APART, PLACE_SUM_Y, PLACE_Y_SUM, PLACEMENTS } placement;

static void check_parts(tg_context *ctx, tg_dtype dtype, tg_rms_norm_policy policy, placement where)
{
  static float x[kElements], residual[kElements], weight[kCols]; /* room for any dtype */
  static float own[2][kElements], sum[kElements], norm[kElements];
  float rstd[kRows], want_rstd[kRows];
  fill(x, dtype, kElements, 1, 1);
  fill(residual, dtype, kElements, 2, 20);
  fill(weight, dtype, kCols, 3, 0.7);
  for (int64_t i = 0; i < kElements; i++) { /* two 16-bit numbers, or f32 ones, added in f32 */
    const float s = (float)tgi_load(residual, dtype, i) + (float)tgi_load(x, dtype, i);
    tgi_store(sum, dtype, i, (double)s);
  }
  tg_rms_norm_fwd_args parts = {.x = tg_tensor_2d(sum, dtype, kRows, kCols),
                                .weight = tg_tensor_1d(weight, dtype, kCols),
                                .y = tg_tensor_2d(norm, dtype, kRows, kCols),
                                .rstd = tg_tensor_1d(want_rstd, TG_F32, kRows),
                                .eps = 1e-6f,
                                .weight_offset = 1,
                                .policy = policy};
  assert_int_equal(tg_rms_norm_fwd(ctx, &parts), TG_OK);
  void *to_sum = where == PLACE_APART ? own[0] : where == PLACE_SUM_Y ? x : residual;
  void *to_y = where == PLACE_APART ? own[1] : where == PLACE_SUM_Y ? residual : x;
  const tg_add_rms_norm_fwd_args whole = {.x = tg_tensor_2d(x, dtype, kRows, kCols),
                                          .residual = tg_tensor_2d(residual, dtype, kRows, kCols),
                                          .weight = parts.weight,
                                          .sum = tg_tensor_2d(to_sum, dtype, kRows, kCols),
                                          .y = tg_tensor_2d(to_y, dtype, kRows, kCols),
                                          .rstd = tg_tensor_1d(rstd, TG_F32, kRows),
                                          .eps = parts.eps,
                                          .weight_offset = parts.weight_offset,
                                          .policy = policy};
  assert_int_equal(tg_add_rms_norm_fwd(ctx, &whole), TG_OK);
  assert_memory_equal(to_sum, sum, kElements * tg_dtype_bytes(dtype));
  assert_memory_equal(to_y, norm, kElements * tg_dtype_bytes(dtype));
  assert_memory_equal(rstd, want_rstd, sizeof rstd);
}

static void test_parts(void **state)
{
  static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
      for (int where = 0; where < PLACEMENTS; where++) {
        check_parts(f->ctx[e], dtypes[d], TG_RMS_NORM_LLAMA, (placement)where);
        check_parts(f->ctx[e], dtypes[d], TG_RMS_NORM_GPT_OSS, (placement)where);
      }
    }
  }
}

/* Sums are exact. An output may differ by one place where a row's rstd has another last place than
 * PyTorch's, for the sum of squares has another order: about one in 2^14 for each rounding, so none
 * is expected in these 576 outputs; one is allowed. */
static void check_class(tg_context *ctx, const uint16_t *want, tg_rms_norm_policy policy)
{
  uint16_t x[kGoldenRows * kGoldenCols], residual[kGoldenRows * kGoldenCols], weight[kGoldenCols];
  uint16_t sum[kGoldenRows * kGoldenCols], y[kGoldenRows * kGoldenCols];
  float rstd[kGoldenRows];
  int moved = 0;
  memcpy(x, kGoldenX, sizeof x);
  memcpy(residual, kGoldenResidual, sizeof residual);
  memcpy(weight, kGoldenWeight, sizeof weight);
  const tg_add_rms_norm_fwd_args args = {
      .x = tg_tensor_2d(x, TG_BF16, kGoldenRows, kGoldenCols),
      .residual = tg_tensor_2d(residual, TG_BF16, kGoldenRows, kGoldenCols),
      .weight = tg_tensor_1d(weight, TG_BF16, kGoldenCols),
      .sum = tg_tensor_2d(sum, TG_BF16, kGoldenRows, kGoldenCols),
      .y = tg_tensor_2d(y, TG_BF16, kGoldenRows, kGoldenCols),
      .rstd = tg_tensor_1d(rstd, TG_F32, kGoldenRows),
      .eps = 1e-6f,
      .policy = policy};
  assert_int_equal(tg_add_rms_norm_fwd(ctx, &args), TG_OK);
  assert_memory_equal(sum, kGoldenSum, sizeof sum);
  for (int i = 0; i < kGoldenRows * kGoldenCols; i++) {
    const int row = i / kGoldenCols, places = abs((int)y[i] - (int)want[i]);
    const bool same_rstd = tgi_float_bits(rstd[row]) == tgi_float_bits(kGoldenRstd[row]);
    if (places > (same_rstd ? 0 : 1)) {
      fail_msg("%s, policy %d [%d, %d]: expected 0x%04x, got 0x%04x", tg_context_entry(ctx),
               (int)policy, row, i % kGoldenCols, want[i], y[i]);
    }
    moved += places;
  }
  assert_in_range(moved, 0, 1);
}

static void test_transformers(void **state)
{
  const cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    check_class(f->ctx[e], kGoldenQwen3, TG_RMS_NORM_LLAMA);
    check_class(f->ctx[e], kGoldenGptOss, TG_RMS_NORM_GPT_OSS);
  }
  assert_memory_not_equal(kGoldenQwen3, kGoldenGptOss, sizeof kGoldenGptOss);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_transformers),
  };
  return cmocka_run_group_tests(tests, open_entries, close_entries);
}
