/* Picking tokens: the generator's published vectors, each filter, and the ends of the distribution.
 */
#include "core/values/philox.h"
#include "tegula/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect.h"

/* Known answers of philox4x32 with 10 rounds, from the Random123 distribution. */
static void test_philox(void **state)
{
  (void)state;
  const tgi_philox_block zero = tgi_philox(0, 0, 0);
  const tgi_philox_block ones = tgi_philox(~0ull, ~0ull, ~0ull);
  const tgi_philox_block pi =
      tgi_philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull);
  const uint32_t want[3][4] = {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u},
                               {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu},
                               {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}};
  assert_memory_equal(zero.word, want[0], sizeof want[0]);
  assert_memory_equal(ones.word, want[1], sizeof want[1]);
  assert_memory_equal(pi.word, want[2], sizeof want[2]);
}

static int32_t pick(const float *logits, int32_t n, tg_sampling s, uint64_t position)
{
  int32_t id = -1;
  tg_error error = {0};
  EXPECT_OK(tg_sample_token(logits, n, &s, position, &id, &error), error);
  assert_in_range(id, 0, n - 1);
  return id;
}

/* How often each of n ids comes in 20000 draws. */
static void count(const float *logits, int32_t n, tg_sampling s, int *times)
{
  memset(times, 0, (size_t)n * sizeof *times);
  for (uint64_t position = 0; position < 20000; position++) {
    times[pick(logits, n, s, position)]++;
  }
}

static void test_greedy(void **state)
{
  (void)state;
  const float logits[6] = {-INFINITY, 1, 3, 3, -1e30f, 2};
  assert_int_equal(pick(logits, 6, (tg_sampling){.temperature = 0}, 0), 2);
  assert_int_equal(pick(logits, 6, (tg_sampling){.temperature = 0, .top_k = 1, .seed = 9}, 5), 2);
  const float last[3] = {-2, -1, -0.5f};
  assert_int_equal(pick(last, 3, (tg_sampling){.temperature = 0}, 0), 2);
}

/* p = e^logit / sum: within five standard deviations. */
static void test_distribution(void **state)
{
  (void)state;
  const float logits[4] = {0, 0.6931472f, 1.3862944f, -INFINITY}; /* 1 : 2 : 4 : 0 */
  int times[4];
  count(logits, 4, (tg_sampling){.temperature = 1, .seed = 3}, times);
  for (int i = 0; i < 3; i++) {
    const double p = (double)(1 << i) / 7, mean = 20000 * p, deviation = sqrt(mean * (1 - p));
    assert_true(fabs(times[i] - mean) < 5 * deviation);
  }
  assert_int_equal(times[3], 0);
  /* At temperature 1/2 the ratios are squared: 1 : 4 : 16. */
  count(logits, 4, (tg_sampling){.temperature = 0.5f, .seed = 4}, times);
  assert_true(fabs(times[2] - 20000 * 16.0 / 21) < 5 * sqrt(20000 * 16.0 / 21 * 5 / 21));
}

static void test_filters(void **state)
{
  (void)state;
  /* probabilities 0.4, 0.3, 0.2, 0.1 */
  const float logits[4] = {-0.9162907f, -1.2039728f, -1.6094379f, -2.3025851f};
  int times[4];
  count(logits, 4, (tg_sampling){.temperature = 1, .top_k = 2}, times);
  assert_true(times[0] > 0 && times[1] > 0 && times[2] == 0 && times[3] == 0);
  count(logits, 4, (tg_sampling){.temperature = 1, .top_k = 9}, times);
  assert_true(times[3] > 0);
  count(logits, 4, (tg_sampling){.temperature = 1, .top_p = 0.65f}, times);
  assert_true(times[0] > 0 && times[1] > 0 && times[2] == 0 && times[3] == 0);
  count(logits, 4, (tg_sampling){.temperature = 1, .top_p = 0.75f}, times);
  assert_true(times[2] > 0 && times[3] == 0);
  count(logits, 4, (tg_sampling){.temperature = 1, .top_p = 1}, times);
  assert_true(times[3] > 0);
  count(logits, 4, (tg_sampling){.temperature = 1, .top_p = 1e-6f}, times); /* at least one */
  assert_int_equal(times[0], 20000);
  count(logits, 4, (tg_sampling){.temperature = 1, .min_p = 0.6f}, times); /* 0.24 and more */
  assert_true(times[1] > 0 && times[2] == 0 && times[3] == 0);
  count(logits, 4, (tg_sampling){.temperature = 1, .min_p = 1}, times);
  assert_int_equal(times[0], 20000);
}

/* The same seed and position give the same id; others do not always. */
static void test_seeds(void **state)
{
  (void)state;
  float logits[100] = {0};
  int same_seed = 0, same_position = 0;
  for (uint64_t position = 0; position < 500; position++) {
    const int32_t a = pick(logits, 100, (tg_sampling){.temperature = 1, .seed = 1}, position);
    assert_int_equal(a, pick(logits, 100, (tg_sampling){.temperature = 1, .seed = 1}, position));
    same_seed += a == pick(logits, 100, (tg_sampling){.temperature = 1, .seed = 1}, position + 1);
    same_position += a == pick(logits, 100, (tg_sampling){.temperature = 1, .seed = 2}, position);
  }
  assert_true(same_seed < 25 && same_position < 25);
}

/* Many equal logits: a sum that rounds must never give an id past the end. */
static void test_large_vocabulary(void **state)
{
  (void)state;
  enum { kVocab = 201088 };
  float *logits = calloc(kVocab, sizeof *logits);
  for (uint64_t position = 0; position < 40; position++) {
    pick(logits, kVocab, (tg_sampling){.temperature = 1.7f, .seed = 8}, position);
  }
  for (int i = 0; i < kVocab; i++) {
    logits[i] = i == kVocab - 1 ? 1e30f : -1e30f; /* overflow of a difference is no NaN */
  }
  assert_int_equal(pick(logits, kVocab, (tg_sampling){.temperature = 1}, 0), kVocab - 1);
  free(logits);
}

static void test_errors(void **state)
{
  (void)state;
  const float good[2] = {0, 1}, none[2] = {-INFINITY, -INFINITY}, infinite[2] = {INFINITY, 0};
  const float nan[2] = {NAN, 0}; /* of a model that broke: picking another id would hide it */
  const tg_sampling s = {.temperature = 1};
  tg_error error = {0};
  int32_t id;
#define REFUSED(changed, part)                                                                     \
  do {                                                                                             \
    const tg_sampling bad = changed;                                                               \
    EXPECT_ERROR(tg_sample_token(good, 2, &bad, 0, &id, &error), TG_BAD_ARGUMENT, part, error);    \
  } while (0)
  REFUSED(((tg_sampling){.temperature = -1}), "temperature: expected");
  REFUSED(((tg_sampling){.temperature = NAN}), "temperature: expected");
  REFUSED(((tg_sampling){.temperature = INFINITY}), "temperature: expected");
  REFUSED(((tg_sampling){.temperature = 1, .top_k = -1}), "top_k: expected");
  REFUSED(((tg_sampling){.temperature = 1, .top_p = 1.5f}), "top_p: expected");
  REFUSED(((tg_sampling){.temperature = 1, .top_p = -0.5f}), "top_p: expected");
  REFUSED(((tg_sampling){.temperature = 1, .min_p = NAN}), "min_p: expected");
#undef REFUSED
  EXPECT_ERROR(tg_sample_token(none, 2, &s, 0, &id, &error), TG_BAD_ARGUMENT, "finite", error);
  EXPECT_ERROR(tg_sample_token(infinite, 2, &s, 0, &id, &error), TG_BAD_ARGUMENT, "finite", error);
  EXPECT_ERROR(tg_sample_token(nan, 2, &s, 0, &id, &error), TG_BAD_ARGUMENT, "finite", error);
  EXPECT_ERROR(tg_sample_token(NULL, 2, &s, 0, &id, &error), TG_BAD_ARGUMENT, "pointers", error);
  EXPECT_ERROR(tg_sample_token(good, 0, &s, 0, &id, &error), TG_BAD_ARGUMENT, "vocab_size", error);
  assert_int_equal(tg_sample_token(good, 2, NULL, 0, &id, NULL), TG_BAD_ARGUMENT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_philox),       cmocka_unit_test(test_greedy),
      cmocka_unit_test(test_distribution), cmocka_unit_test(test_filters),
      cmocka_unit_test(test_seeds),        cmocka_unit_test(test_large_vocabulary),
      cmocka_unit_test(test_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
