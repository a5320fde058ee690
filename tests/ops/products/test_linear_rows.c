/* A row of a product has the same bits beside any number of others: 1 to 64 rows on every entry, of
 * the widths at which kernels, blocks and edges change. The engine counts on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#include "core/values/half.h"
#include "cpu_entries.h"
#include "tegula/tegula.h"
#include <stdlib.h>
#include <string.h>

enum { kRows = 64 };

static void *fill(int64_t count, tg_dtype dtype, uint32_t seed)
{
  void *block = malloc((size_t)count * tg_dtype_bytes(dtype));
  assert_non_null(block);
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    tgi_store(block, dtype, i, (double)(seed >> 8) / (1 << 23) - 1);
  }
  return block;
}

static void multiply(tg_context *ctx, tg_linear_fwd_args a)
{
  assert_int_equal(tg_linear_fwd_workspace(ctx, &a, &a.workspace_bytes), TG_OK);
  a.workspace = aligned_alloc(256, (a.workspace_bytes + 511) / 256 * 256);
  assert_non_null(a.workspace);
  assert_int_equal(tg_linear_fwd(ctx, &a), TG_OK);
  free(a.workspace);
}

/* y of `rows` rows from `first` on, beside y of all. */
static void check_shape(tg_context *ctx, tg_dtype dtype, tg_dtype y_dtype, int64_t in, int64_t out)
{
  const size_t element = tg_dtype_bytes(dtype), y_row = (size_t)out * tg_dtype_bytes(y_dtype);
  char *x = fill(kRows * in, dtype, 1), *residual = fill(kRows * out, y_dtype, 2);
  void *weight = fill(out * in, dtype, 3), *bias = fill(out, dtype, 4);
  char *all = calloc(kRows, y_row), *some = calloc(kRows, y_row);
  assert_true(all && some);
  for (int64_t rows = kRows; rows > 0; rows--) {
    const int64_t first = rows == kRows ? 0 : (rows * 29) % (kRows - rows + 1);
    const size_t at = (size_t)first * y_row;
    char *to = rows == kRows ? all : some;
    multiply(ctx, (tg_linear_fwd_args){
                      .x = tg_tensor_2d(x + (size_t)(first * in) * element, dtype, rows, in),
                      .weight = tg_tensor_2d(weight, dtype, out, in),
                      .bias = tg_tensor_1d(bias, dtype, out),
                      .residual = tg_tensor_2d(residual + at, y_dtype, rows, out),
                      .y = tg_tensor_2d(to, y_dtype, rows, out)});
    if (memcmp(to, all + at, (size_t)rows * y_row) != 0) {
      fail_msg(
          "%s %s [%d, %d] from row %d on: expected the bits of 64 rows, got others for %d rows",
          tg_context_entry(ctx), tg_dtype_name(dtype), (int)out, (int)in, (int)first, (int)rows);
    }
  }
  free(x);
  free(residual);
  free(weight);
  free(bias);
  free(all);
  free(some);
}

static void rows_do_not_depend_on_others(void **state)
{
  (void)state;
  static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  static const int64_t shapes[][2] = {{64, 48}, {129, 77}, {384, 100}, {770, 33}, {1537, 40}};
  cpu_entries entries = open_cpu_entries(2);
  for (int e = 0; e < entries.count; e++) {
    for (size_t d = 0; d < 3; d++) {
      for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_shape(entries.ctx[e], dtypes[d], dtypes[d], shapes[i][0], shapes[i][1]);
      }
      check_shape(entries.ctx[e], dtypes[d], TG_F32, 256, 300);
    }
  }
  close_cpu_entries(&entries);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_do_not_depend_on_others)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
