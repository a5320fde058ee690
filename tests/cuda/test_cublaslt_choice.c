/* Which of cublasLt's candidates is taken on Hopper, by tiles, waves and length of the sums. */
#include "cuda/cublaslt/cublaslt_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { kShared256x128 = 24 }; /* of two warp groups, as any tile that is not named */

static int choice_of_two(uint32_t first, float first_waves, uint32_t second, float second_waves,
                         int64_t k)
{
  const tgi_lt_candidate both[] = {{first, first_waves}, {second, second_waves}};
  return tgi_lt_choice(both, 2, k);
}

static void test_first_that_takes_turns(void **state)
{
  (void)state;
  assert_int_equal(choice_of_two(kTile128x160, 12.1F, kTile168x128, 20, 1024), 0);
}

static void test_tiles_that_are_shared(void **state)
{
  (void)state;
  assert_int_equal(choice_of_two(kShared256x128, 12.1F, kTile320x128, 20, 1024), 0);
}

/* 164 / k - 0.04, and 0.03 more if the first is 320 x 128: at most that part of a wave's time. */
static void test_sums(void **state)
{
  (void)state;
  assert_int_equal(choice_of_two(kShared256x128, 20, kTile128x160, 17.9F, 1024), 1);  /* 1.0056 */
  assert_int_equal(choice_of_two(kShared256x128, 20, kTile128x160, 17.01F, 1024), 1); /* 1.058 */
  assert_int_equal(choice_of_two(kShared256x128, 20, kTile128x160, 17.01F, 2048), 0);
  assert_int_equal(choice_of_two(kShared256x128, 20, kTile128x160, 20, 4096), 1);
  assert_int_equal(choice_of_two(kShared256x128, 20, kTile128x160, 19.9F, 4096), 0);
  assert_int_equal(choice_of_two(kTile320x128, 20, kTile128x160, 19.9F, 4096), 1);
  assert_int_equal(choice_of_two(kShared256x128, 20, kTile128x160, 20, 12288), 0);
  assert_int_equal(choice_of_two(kShared256x128, 19.4F, kTile128x160, 20, 12288), 1); /* 1.031 */
}

static void test_few_waves(void **state)
{
  (void)state;
  assert_int_equal(choice_of_two(kShared256x128, 11.5F, kTile176x128, 11.99F, 1024), 0);
  assert_int_equal(choice_of_two(kShared256x128, 11.5F, kTile176x128, 12, 1024), 1);
}

/* The cheapest last wave, of equal ones the earlier candidate; never one that cannot run. */
static void test_several(void **state)
{
  (void)state;
  const tgi_lt_candidate all[] = {{kShared256x128, 15.5F}, {kTile128x160, 15.5F},
                                  {kTile176x128, 0},       {kTile168x128, 15.9F},
                                  {kTile320x128, 16},      {kTile128x160, 15.9F}};
  assert_int_equal(tgi_lt_choice(all, 6, 2048), 3);
  assert_int_equal(tgi_lt_choice(all, 3, 2048), 1);
  assert_int_equal(tgi_lt_choice(all, 1, 2048), 0);
}

/* The head of Qwen3-8B, 4096 rows of 151936 logits on 132 multiprocessors. */
static void test_head(void **state)
{
  (void)state;
  const float tiles = 13 * 1187, halves = 32 * 950;
  assert_int_equal(choice_of_two(kTile320x128, tiles / 132, kTile128x160, halves / 132, 4096), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_first_that_takes_turns),
      cmocka_unit_test(test_tiles_that_are_shared),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_few_waves),
      cmocka_unit_test(test_several),
      cmocka_unit_test(test_head),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
