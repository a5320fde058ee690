/* Embedding where the spec driver cannot reach: ids out of range, what is read and what is not,
 * the rule of positions, rows that are copied bit by bit. */
#include "tegula/tegula.h"

#include "core/context_state.h"
#include "core/values/half.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "expect_op.h"

enum { kTokens = 24, kVocab = 40, kDim = 37, kPlaces = 30 };

typedef struct fixture {
  tg_context *ctx;
  float table[kVocab * kDim], positions[kPlaces * kDim], y[kTokens * kDim];
  int64_t ids[kTokens];
  int32_t position_ids[kTokens];
  _Alignas(64) unsigned char workspace[4096];
} fixture;

static int set_up(void **state)
{
  fixture *f = aligned_alloc(64, (sizeof *f + 63) / 64 * 64);
  memset(f, 0, sizeof *f);
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 2};
  assert_int_equal(tg_context_create(&o, &f->ctx, NULL), TG_OK);
  for (int i = 0; i < kVocab * kDim; i++) {
    f->table[i] = (float)i;
  }
  for (int i = 0; i < kPlaces * kDim; i++) {
    const int place = i / kDim;
    f->positions[i] = (float)(10000 * place);
  }
  for (int i = 0; i < kTokens; i++) {
    f->ids[i] = 7 * i % kVocab;
    f->position_ids[i] = 5 * i % kPlaces;
  }
  *state = f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  tg_context_destroy(f->ctx);
  free(f);
  return 0;
}

static tg_embedding_fwd_args forward_args(fixture *f, bool positions)
{
  tg_embedding_fwd_args a = {.ids = tg_tensor_1d(f->ids, TG_I64, kTokens),
                             .table = tg_tensor_2d(f->table, TG_F32, kVocab, kDim),
                             .y = tg_tensor_2d(f->y, TG_F32, kTokens, kDim)};
  if (positions) {
    a.positions = tg_tensor_2d(f->positions, TG_F32, kPlaces, kDim);
  }
  return a;
}

static tg_embedding_bwd_args backward_args(fixture *f)
{
  return (tg_embedding_bwd_args){.dy = tg_tensor_2d(f->y, TG_F32, kTokens, kDim),
                                 .ids = tg_tensor_1d(f->ids, TG_I64, kTokens),
                                 .position_ids = tg_tensor_1d(f->position_ids, TG_I32, kTokens),
                                 .dtable = tg_tensor_2d(f->table, TG_F32, kVocab, kDim),
                                 .dpositions = tg_tensor_2d(f->positions, TG_F32, kPlaces, kDim),
                                 .workspace = f->workspace,
                                 .workspace_bytes = sizeof f->workspace};
}

/* y[i] is row `id` of the table plus `place`'s position. */
static void expect_row(const fixture *f, int i, int64_t id, int64_t place)
{
  for (int j = 0; j < kDim; j++) {
    const float wanted = (float)(id * kDim + j) + (float)(10000 * place);
    if (f->y[i * kDim + j] != wanted) {
      fail_msg("y[%d, %d]: expected %g, got %g", i, j, (double)wanted, (double)f->y[i * kDim + j]);
    }
  }
}

/* ---- ids out of range ---- */

static void test_bad_ids_forward(void **state)
{
  fixture *f = *state;
  const int64_t bad[] = {kVocab, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
  for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
    char message[128];
    tg_embedding_fwd_args a = forward_args(f, k % 2);
    f->ids[17] = bad[k];
    f->ids[19] = -5; /* the first one is named */
    f->y[0] = 77;
    snprintf(message, sizeof message, "embedding_fwd: ids[17]: expected 0 to 39, got %lld",
             (long long)bad[k]);
    must_fail(f->ctx, tg_embedding_fwd(f->ctx, &a), TG_BAD_ARGUMENT, message);
    assert_true(f->y[0] == 77);
  }
}

static void test_bad_position_ids(void **state)
{
  fixture *f = *state;
  tg_embedding_fwd_args a = forward_args(f, true);
  a.position_ids = tg_tensor_1d(f->position_ids, TG_I32, kTokens);
  f->position_ids[23] = kPlaces;
  f->y[0] = 77;
  must_fail(f->ctx, tg_embedding_fwd(f->ctx, &a), TG_BAD_ARGUMENT,
            "embedding_fwd: position_ids[23]: expected 0 to 29, got 30");
  f->position_ids[23] = -1;
  must_fail(f->ctx, tg_embedding_fwd(f->ctx, &a), TG_BAD_ARGUMENT,
            "embedding_fwd: position_ids[23]: expected 0 to 29, got -1");
  f->position_ids[23] = 0;
  f->ids[3] = kVocab; /* good positions do not hide it */
  must_fail(f->ctx, tg_embedding_fwd(f->ctx, &a), TG_BAD_ARGUMENT,
            "embedding_fwd: ids[3]: expected 0 to 39, got 40");
  assert_true(f->y[0] == 77);
}

static void test_bad_ids_backward(void **state)
{
  fixture *f = *state;
  static float table[kVocab * kDim], positions[kPlaces * kDim];
  memcpy(table, f->table, sizeof table);
  memcpy(positions, f->positions, sizeof positions);
  tg_embedding_bwd_args a = backward_args(f);
  f->position_ids[0] = kPlaces;
  must_fail(f->ctx, tg_embedding_bwd(f->ctx, &a), TG_BAD_ARGUMENT,
            "embedding_bwd: position_ids[0]: expected 0 to 29, got 30");
  f->ids[23] = kVocab;
  must_fail(f->ctx, tg_embedding_bwd(f->ctx, &a), TG_BAD_ARGUMENT,
            "embedding_bwd: ids[23]: expected 0 to 39, got 40");
  f->ids[23] = -100;
  must_fail(f->ctx, tg_embedding_bwd(f->ctx, &a), TG_BAD_ARGUMENT,
            "embedding_bwd: ids[23]: expected 0 to 39, got -100");
  /* Nothing was written, not even to the accumulator whose ids were good. */
  assert_memory_equal(table, f->table, sizeof table);
  assert_memory_equal(positions, f->positions, sizeof positions);
  /* Ids are read with their gradient alone. */
  a.dtable = a.dpositions = (tg_tensor){0};
  must_run(f->ctx, tg_embedding_bwd(f->ctx, &a));
  a = backward_args(f);
  a.dtable = (tg_tensor){0};
  f->position_ids[0] = 0;
  must_run(f->ctx, tg_embedding_bwd(f->ctx, &a));
}

/* ---- positions ---- */

static void test_rule_of_positions(void **state)
{
  fixture *f = *state;
  tg_embedding_fwd_args a = forward_args(f, true);
  must_run(f->ctx, tg_embedding_fwd(f->ctx, &a)); /* one sequence */
  for (int i = 0; i < kTokens; i++) {
    expect_row(f, i, f->ids[i], i);
  }
  a.seq_len = 8; /* three sequences from position 5 on */
  a.position_offset = 5;
  must_run(f->ctx, tg_embedding_fwd(f->ctx, &a));
  for (int i = 0; i < kTokens; i++) {
    expect_row(f, i, f->ids[i], 5 + i % 8);
  }
  a.seq_len = 1; /* decoding a batch at the last position */
  a.position_offset = kPlaces - 1;
  must_run(f->ctx, tg_embedding_fwd(f->ctx, &a));
  for (int i = 0; i < kTokens; i++) {
    expect_row(f, i, f->ids[i], kPlaces - 1);
  }
  a.position_ids = tg_tensor_1d(f->position_ids, TG_I32, kTokens); /* these decide alone */
  must_run(f->ctx, tg_embedding_fwd(f->ctx, &a));
  for (int i = 0; i < kTokens; i++) {
    expect_row(f, i, f->ids[i], f->position_ids[i]);
  }
}

static void test_too_few_positions(void **state)
{
  fixture *f = *state;
  tg_embedding_fwd_args a = forward_args(f, true);
  a.position_offset = kPlaces - kTokens;
  must_run(f->ctx, tg_embedding_fwd(f->ctx, &a));
  a.position_offset++;
  must_fail(f->ctx, tg_embedding_fwd(f->ctx, &a), TG_BAD_SHAPE,
            "embedding_fwd: positions: expected at least 7 + 24 rows (position_offset + tokens of "
            "a sequence), got 30");
  a.position_offset = INT64_MAX;
  assert_int_equal(tg_embedding_fwd(f->ctx, &a), TG_BAD_SHAPE);
  a.position_offset = 0;
  a.positions.shape[0] = kTokens - 1;
  assert_int_equal(tg_embedding_fwd(f->ctx, &a), TG_BAD_SHAPE);
  a.positions = (tg_tensor){0};
  a.position_ids = tg_tensor_1d(f->position_ids, TG_I32, kTokens);
  must_fail(f->ctx, tg_embedding_fwd(f->ctx, &a), TG_BAD_ARGUMENT,
            "embedding_fwd: position_ids: expected none without positions, got some");
}

static void test_empty_table(void **state)
{
  fixture *f = *state;
  tg_embedding_fwd_args a = forward_args(f, false);
  a.table.shape[0] = 0;
  must_fail(f->ctx, tg_embedding_fwd(f->ctx, &a), TG_BAD_SHAPE,
            "embedding_fwd: table: expected at least 1 row, got 0");
  a.ids.shape[0] = a.y.shape[0] = 0;
  must_run(f->ctx, tg_embedding_fwd(f->ctx, &a));
}

/* ---- bits ---- */

/* Without positions rows are copied: every 16-bit pattern, signalling NaN included, through and
 * past the cache, at even and odd addresses of words. */
static void test_rows_are_copied(void **state)
{
  fixture *f = *state;
  enum { kOdd = 67, kWide = 96, kRows = 8 };
  _Alignas(64) static uint16_t table[kRows * kWide], y[kTokens * kWide];
  for (int i = 0; i < kRows * kWide; i++) {
    table[i] = (uint16_t)(0x7f80 + 93 * i);
  }
  for (int i = 0; i < kTokens; i++) {
    f->ids[i] = 5 * i % kRows;
  }
  for (int past = 0; past < 2; past++) {
    for (int width = kOdd; width <= kWide; width += kWide - kOdd) {
      tg_embedding_fwd_args a = {.ids = tg_tensor_1d(f->ids, TG_I64, kTokens),
                                 .table = tg_tensor_2d(table, TG_BF16, kRows, width),
                                 .y = tg_tensor_2d(y, TG_BF16, kTokens, width)};
      a.table.stride[0] = a.y.stride[0] = kWide;
      a.table.stride[1] = a.y.stride[1] = 1;
      f->ctx->processor.l3_bytes = past ? 1 : (size_t)1 << 30;
      memset(y, 0, sizeof y);
      must_run(f->ctx, tg_embedding_fwd(f->ctx, &a));
      for (int i = 0; i < kTokens; i++) {
        assert_memory_equal(y + i * kWide, table + f->ids[i] * kWide, (size_t)width * sizeof y[0]);
        assert_true(width == kWide || y[i * kWide + width] == 0);
      }
    }
  }
}

/* Rows of the gradient whose id does not occur keep their bits; a 16-bit accumulator is rounded
 * once, not at each of many small additions. */
static void test_accumulation(void **state)
{
  fixture *f = *state;
  static uint16_t dy[kTokens * kDim], sums[kVocab * kDim];
  for (int i = 0; i < kTokens; i++) {
    f->ids[i] = 3;
  }
  for (int i = 0; i < kTokens * kDim; i++) {
    dy[i] = tgi_f32_to_bf16(0x1p-9f);
  }
  for (int i = 0; i < kVocab * kDim; i++) {
    sums[i] = i / kDim == 3 ? tgi_f32_to_bf16(1) : 0x7f81; /* else a signalling NaN */
  }
  tg_embedding_bwd_args a = backward_args(f);
  a.dy = tg_tensor_2d(dy, TG_BF16, kTokens, kDim);
  a.dtable = tg_tensor_2d(sums, TG_BF16, kVocab, kDim);
  a.dpositions = a.position_ids = (tg_tensor){0};
  must_run(f->ctx, tg_embedding_bwd(f->ctx, &a));
  for (int i = 0; i < kVocab * kDim; i++) {
    if (i / kDim == 3) { /* 1 + 24 * 2^-9; one at a time, each would round away */
      assert_true(tgi_bf16_to_f32(sums[i]) == 1.046875f);
    } else {
      assert_int_equal(sums[i], 0x7f81);
    }
  }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_bad_ids_forward),   TEST(test_bad_position_ids),  TEST(test_bad_ids_backward),
      TEST(test_rule_of_positions), TEST(test_too_few_positions), TEST(test_empty_table),
      TEST(test_rows_are_copied),   TEST(test_accumulation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
