/* Batches: what a step sees depends on its number alone, an epoch visits every window once, and an
 * evaluation scores every token once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "cli/dataset.h"
#include "expect.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 4096 };

static int32_t text[kMost];
static int32_t ids[kMost], targets[kMost];

static tgi_tokens numbered(int64_t count)
{
  for (int i = 0; i < kMost; i++) {
    text[i] = i;
  }
  return (tgi_tokens){text, count};
}

/* Token i is the number i, so a row shows where it was cut. */
static void epochs_visit_every_window_once(void **state)
{
  (void)state;
  const tgi_batch_shape shapes[] = {{1, 7}, {3, 8}, {4, 64}, {2, 999}, {1, 1}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    const tgi_batch_shape shape = shapes[s];
    const tgi_tokens tokens = numbered(1000);
    const int64_t spare = 1000 - shape.length;
    const int64_t windows = (1000 - (spare < shape.length ? spare : shape.length)) / shape.length;
    int64_t steps_of_epoch = windows; /* so many steps are shape.rows epochs */
    int *seen = calloc(1001, sizeof *seen);
    int32_t first_start = -1;
    bool moved = false;
    for (int64_t step = 0; step < steps_of_epoch; step++) {
      tgi_batch_for_training(tokens, 5, step, shape, ids, targets);
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
  const tgi_tokens tokens = numbered(3000);
  const tgi_batch_shape shape = {2, 32};
  int32_t again[64];
  int differ = 0;
  for (int64_t step = 0; step < 100; step++) {
    tgi_batch_for_training(tokens, 1, step, shape, ids, targets);
    tgi_batch_for_training(tokens, 1, (step * 37) % 100, shape, again, targets);
    tgi_batch_for_training(tokens, 1, step, shape, again, targets);
    assert_memory_equal(ids, again, sizeof again);
    tgi_batch_for_training(tokens, 2, step, shape, again, targets);
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
      const tgi_tokens tokens = numbered(counts[c]);
      int *scored = calloc((size_t)counts[c], sizeof *scored);
      for (int64_t b = 0; b < tgi_batches_for_evaluation(tokens, shape); b++) {
        int64_t n = 0;
        const int64_t said = tgi_batch_for_evaluation(tokens, b, shape, ids, targets);
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

static void files_are_read_or_refused(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "text");
  tg_tokenizer *tokenizer;
  tg_error error;
  tgi_dataset data, other;
  int64_t bytes;
  EXPECT_OK(tg_tokenizer_create_bytes(&tokenizer, &error), error);
  write_text(path, "h\xc3\xa9<|endoftext|>!");
  EXPECT_OK(tgi_dataset_load(path, tokenizer, &data, &error), error);
  assert_int_equal(data.count, 5);
  assert_int_equal(data.ids[0], 'h');
  assert_int_equal(data.ids[3], 256);
  EXPECT_OK(tgi_tokens_bytes((tgi_tokens){data.ids, data.count}, tokenizer, &bytes, &error), error);
  assert_int_equal(bytes, 3); /* the first token has no loss, the mark no bytes */
  write_text(path, "h\xc3\xa9<|endoftext|>?");
  EXPECT_OK(tgi_dataset_load(path, tokenizer, &other, &error), error);
  assert_true(data.hash != other.hash);
  tgi_dataset_free(&data);
  tgi_dataset_free(&other);

  write_text(path, "");
  EXPECT_ERROR(tgi_dataset_load(path, tokenizer, &data, &error), TG_BAD_FILE, "empty", error);
  write_text(path, "abc\xff");
  EXPECT_ERROR(tgi_dataset_load(path, tokenizer, &data, &error), TG_BAD_FILE, "byte 3", error);
  EXPECT_ERROR(tgi_dataset_load(dir.path, tokenizer, &data, &error), TG_BAD_FILE, "a directory",
               error);
  EXPECT_ERROR(tgi_dataset_load(scratch_file(&dir, "none"), tokenizer, &data, &error), TG_IO,
               "none", error);
  tg_tokenizer_destroy(tokenizer);
  scratch_remove(&dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(epochs_visit_every_window_once),
      cmocka_unit_test(a_step_is_a_function_of_its_number),
      cmocka_unit_test(evaluation_scores_every_token_once),
      cmocka_unit_test(files_are_read_or_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
