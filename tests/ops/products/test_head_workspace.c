/* The workspace of linear_cross_entropy: how it grows with chunks, and the chunks that 0 stands
 * for. */
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "head_batch.h"

static size_t forward_bytes(const batch *b, int64_t rows, int64_t vocab, int64_t chunk_rows,
                            int64_t chunk_cols)
{
  size_t bytes = 0;
  const tg_linear_cross_entropy_fwd_args a = {
      .hidden = tg_tensor_2d(NULL, TG_F32, rows, 768),
      .weight = tg_tensor_2d(NULL, TG_F32, vocab, 768),
      .targets = tg_tensor_1d(NULL, TG_I64, rows),
      .loss = tg_tensor_1d(NULL, TG_F32, 1),
      .reduction = TG_REDUCTION_MEAN,
      .chunk_rows = chunk_rows,
      .chunk_cols = chunk_cols,
  };
  must_run(b->ctx, tg_linear_cross_entropy_fwd_workspace(b->ctx, &a, &bytes));
  return bytes;
}

/* One chunk of logits and hidden states, 72 bytes a row; a default chunk has at most 64 MiB. */
static void test_workspace(void **state)
{
  const batch *b = *state;
  const size_t one = forward_bytes(b, 4096, 50257, 64, 1600);
  assert_int_equal(forward_bytes(b, 4096, 50257, 128, 1600) - one, 64 * (1600 + 768) * 4);
  assert_int_equal(forward_bytes(b, 4096, 50257, 64, 3200) - one, 64 * 1600 * 4);
  assert_int_equal(forward_bytes(b, 8192, 50257, 64, 1600) - one, 4096 * 72);
  assert_int_equal(forward_bytes(b, 8192, 50257, 0, 0) - forward_bytes(b, 8192, 50257, 64, 0),
                   (328 - 64) * (50272 + 768) * 4);
  assert_int_equal(forward_bytes(b, 100, 50257, 0, 0), forward_bytes(b, 100, 50257, 100, 50257));
  assert_int_equal(forward_bytes(b, 64, 1000000, 0, 0), forward_bytes(b, 64, 1000000, 64, 0));
  assert_int_equal(forward_bytes(b, 65, 1000000, 0, 0), forward_bytes(b, 65, 1000000, 33, 0));
}

static size_t gradient_bytes(const batch *b, tg_dtype dweight, int64_t hidden_size,
                             int64_t chunk_cols)
{
  enum { rows = 64, vocab = 50257 };
  size_t bytes = 0;
  const tg_linear_cross_entropy_bwd_args a = {
      .hidden = tg_tensor_2d(NULL, TG_BF16, rows, hidden_size),
      .weight = tg_tensor_2d(NULL, TG_BF16, vocab, hidden_size),
      .targets = tg_tensor_1d(NULL, TG_I64, rows),
      .lse = tg_tensor_1d(NULL, TG_F32, rows),
      .dweight = tg_tensor_2d(NULL, dweight, vocab, hidden_size),
      .reduction = TG_REDUCTION_MEAN,
      .chunk_cols = chunk_cols,
  };
  must_run(b->ctx, tg_linear_cross_entropy_bwd_workspace(b->ctx, &a, &bytes));
  return bytes;
}

/* 0 columns: all of them, or beside a 16-bit dweight what 32 MiB of f32 sums hold, at least 1024.
 */
static void test_default_columns(void **state)
{
  const batch *b = *state;
  const int64_t held = (32 << 20) / (768 * 4);
  assert_int_equal(gradient_bytes(b, TG_BF16, 768, 0), gradient_bytes(b, TG_BF16, 768, held));
  assert_true(gradient_bytes(b, TG_BF16, 768, 0) < gradient_bytes(b, TG_BF16, 768, held + 16));
  assert_int_equal(gradient_bytes(b, TG_BF16, 16384, 0), gradient_bytes(b, TG_BF16, 16384, 1024));
  assert_int_equal(gradient_bytes(b, TG_F32, 768, 0), gradient_bytes(b, TG_F32, 768, 50257));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_workspace, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_default_columns, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
