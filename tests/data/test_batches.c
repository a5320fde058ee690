/* Batches: what a step sees depends on its number alone, an epoch visits every window once, and an
 * evaluation scores every token once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "data/batches.h"
#include "expect.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 4096 };

static uint16_t text[kMost];
static int32_t ids[kMost], targets[kMost], ends[kMost];
static tgi_batch batch = {ids, targets, NULL, 0};
static tgi_token_part parts[3];
static tgi_token_store store;

/* Tokens from 7 on of a store in three parts: token i of the stream is the number i. */
static tgi_stream numbered(int64_t count)
{
  for (int i = 0; i < kMost; i++) {
    text[i] = (uint16_t)(i - 7);
  }
  parts[0] = (tgi_token_part){text, 2, 0};
  parts[1] = (tgi_token_part){text + 100, 2, 100};
  parts[2] = (tgi_token_part){text + 101, 2, 101};
  store = (tgi_token_store){.parts = parts, .num_parts = 3, .count = count + 7};
  return (tgi_stream){&store, 7, count};
}

/* Token i is the number i, so a row shows where it was cut. */
static void epochs_visit_every_window_once(void **state)
{
  (void)state;
  const tgi_batch_shape shapes[] = {{1, 7}, {3, 8}, {4, 64}, {2, 999}, {1, 1}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    const tgi_batch_shape shape = shapes[s];
    const tgi_stream tokens = numbered(1000);
    const int64_t spare = 1000 - shape.length;
    const int64_t windows = (1000 - (spare < shape.length ? spare : shape.length)) / shape.length;
    int64_t steps_of_epoch = windows; /* so many steps are shape.rows epochs */
    int *seen = calloc(1001, sizeof *seen);
    int32_t first_start = -1;
    bool moved = false;
    for (int64_t step = 0; step < steps_of_epoch; step++) {
      tgi_stream_train(tokens, 5, step, shape, &batch);
      for (int64_t row = 0; row < shape.rows; row++) {
        const int32_t start = ids[row * shape.length];
        seen[start]++;
        moved = moved || (first_start >= 0 && start != first_start);
        first_start = start;
        for (int64_t i = 0; i < shape.length; i++) {
          assert_int_equal(ids[row * shape.length + i], start + i);
          assert_int_equal(targets[row * shape.length + i], start + i + 1);
          assert_true(start + i + 1 < 1000);
        }
      }
    }
    int64_t visits = 0;
    for (int i = 0; i <= 1000; i++) {
      assert_true(seen[i] <= shape.rows); /* at most once an epoch */
      visits += seen[i];
    }
    assert_int_equal(visits, windows * shape.rows);
    assert_true(moved || windows * shape.rows < 3);
    free(seen);
  }
}

static void a_step_is_a_function_of_its_number(void **state)
{
  (void)state;
  const tgi_stream tokens = numbered(3000);
  const tgi_batch_shape shape = {2, 32};
  int32_t again[64];
  tgi_batch other = {again, targets, NULL, 0};
  int differ = 0;
  for (int64_t step = 0; step < 100; step++) {
    tgi_stream_train(tokens, 1, step, shape, &batch);
    tgi_stream_train(tokens, 1, (step * 37) % 100, shape, &other);
    tgi_stream_train(tokens, 1, step, shape, &other);
    assert_memory_equal(ids, again, sizeof again);
    tgi_stream_train(tokens, 2, step, shape, &other);
    differ += memcmp(ids, again, sizeof again) != 0;
  }
  assert_true(differ > 90); /* another seed, another order */
}

static void evaluation_scores_every_token_once(void **state)
{
  (void)state;
  const tgi_batch_shape shapes[] = {{1, 7}, {3, 8}, {4, 64}, {2, 500}, {1, 1}, {2, 2}};
  const int64_t counts[] = {2, 3, 8, 9, 63, 64, 65, 66, 97, 1000};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
      const tgi_batch_shape shape = shapes[s];
      const tgi_stream tokens = numbered(counts[c]);
      int *scored = calloc((size_t)counts[c], sizeof *scored);
      for (int64_t b = 0; b < tgi_stream_evaluations(tokens, shape); b++) {
        int64_t n = 0;
        const int64_t said = tgi_stream_evaluate(tokens, b, shape, &batch);
        for (int64_t i = 0; i < shape.rows * shape.length; i++) {
          if (targets[i] != -100) {
            assert_int_equal(targets[i], ids[i] + 1);
            scored[targets[i]]++;
            /* Half a row of text before it, where there is so much. */
            const int64_t before = i % shape.length + 1;
            assert_true(before >= shape.length / 2 || before == targets[i]);
            n++;
          }
        }
        assert_int_equal(n, said);
        assert_true(n > 0);
      }
      for (int64_t i = 1; i < counts[c]; i++) {
        assert_int_equal(scored[i], 1);
      }
      free(scored);
    }
  }
}

/* ---- packed rows ---- */

static uint64_t document_ends[300];
static uint8_t counted[kMost / 8];

/* Documents of 1 to 40 tokens, of which some do not count. */
static tgi_token_store documents(bool some_count)
{
  uint32_t random = 3;
  uint64_t at = 0;
  for (int d = 0; d < 100; d++) {
    random = random * 1664525u + 1013904223u;
    at += 1 + (random >> 16) % 40;
    document_ends[d] = at;
  }
  for (int i = 0; i < kMost; i++) {
    text[i] = (uint16_t)i;
  }
  memset(counted, 0x5b, sizeof counted);
  parts[0] = (tgi_token_part){text, 2, 0};
  return (tgi_token_store){.parts = parts,
                           .num_parts = 1,
                           .count = (int64_t)at,
                           .ends = document_ends,
                           .num_documents = 100,
                           .counted = some_count ? counted : NULL};
}

/* Every row of a batch begins a document, boundaries rise, and targets follow tokens within. */
static void check_batch(const tgi_token_store *all, tgi_batch_shape shape, const tgi_batch *b,
                        int *seen)
{
  const int64_t size = shape.rows * shape.length;
  bool begins[kMost] = {false};
  if (b->cu_seqlens) {
    assert_int_equal(b->cu_seqlens[0], 0);
    assert_int_equal(b->cu_seqlens[b->num_documents], size);
    for (int64_t d = 0; d < b->num_documents; d++) {
      assert_true(b->cu_seqlens[d] < b->cu_seqlens[d + 1]);
      begins[b->cu_seqlens[d]] = true;
    }
    for (int64_t row = 0; row < shape.rows; row++) {
      assert_true(begins[row * shape.length]);
    }
  }
  for (int64_t i = 0; i < size; i++) {
    if (b->targets[i] != TGI_IGNORED) {
      assert_int_equal(b->targets[i], b->tokens[i] + 1);
      assert_true(tgi_store_counts(all, b->targets[i]));
      seen[b->targets[i]]++;
    }
    if (i % shape.length > 0 && !begins[i] && b->cu_seqlens && b->targets[i] != TGI_IGNORED) {
      assert_int_equal(b->tokens[i], b->tokens[i - 1] + 1);
    }
  }
}

/* An epoch trains every target once that counts and is not the first of its document. */
static void an_epoch_of_rows_has_every_target_once(void **state)
{
  (void)state;
  const tgi_packing packings[] = {TGI_PACK_OFF, TGI_PACK_DOCUMENTS};
  for (int c = 0; c < 4; c++) {
    const tgi_token_store all = documents(c % 2);
    const tgi_batch_shape shape = {3, 16};
    const tgi_pack_options how = {packings[c / 2], TGI_LONG_SPLIT, 0, 100, 16, 9};
    tg_error error;
    tgi_rows rows;
    EXPECT_OK(tgi_rows_pack(&all, &how, &rows, &error), error);
    tgi_batch b = {ids, targets, tgi_rows_most_documents(&rows) > 0 ? ends : NULL, 0};
    assert_int_equal(b.cu_seqlens != NULL, c / 2);
    int *seen = calloc(kMost, sizeof *seen), *scored = calloc(kMost, sizeof *scored);
    for (int64_t step = 0; step < rows.num_rows; step++) { /* three epochs */
      tgi_rows_train(&all, &rows, 4, step, shape, &b);
      check_batch(&all, shape, &b, seen);
    }
    for (int64_t e = 0; e < tgi_rows_evaluations(&rows, shape); e++) {
      tgi_rows_evaluate(&all, &rows, e, shape, &b);
      check_batch(&all, shape, &b, scored);
    }
    for (int64_t d = 0, i = 0; i < all.count; i++) {
      const bool first = i == tgi_store_begin(&all, d);
      const int wanted = !first && tgi_store_counts(&all, i);
      assert_int_equal(seen[i], 3 * wanted);
      assert_int_equal(scored[i], wanted);
      d += (uint64_t)i + 1 == all.ends[d];
    }
    free(seen);
    free(scored);
    tgi_rows_free(&rows);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(epochs_visit_every_window_once),
      cmocka_unit_test(a_step_is_a_function_of_its_number),
      cmocka_unit_test(evaluation_scores_every_token_once),
      cmocka_unit_test(an_epoch_of_rows_has_every_target_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
