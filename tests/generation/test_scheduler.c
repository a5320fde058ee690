/* The engine's scheduler without a model: blocks, prefixes, and who goes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include <cmocka.h>

#define SCHEDULER_REQUIRE(condition) assert_true(condition)
#include "scheduler_run.h"

static void blocks_have_users(void **state)
{
  (void)state;
  tgi_block_pool pool;
  assert_true(tgi_block_pool_open(&pool, 3));
  assert_int_equal(tgi_block_take(&pool), 0);
  assert_int_equal(tgi_block_take(&pool), 1);
  assert_int_equal(tgi_block_take(&pool), 2);
  assert_int_equal(tgi_block_take(&pool), -1);
  tgi_block_share(&pool, 1);
  tgi_block_drop(&pool, 1);
  assert_int_equal(pool.num_free, 0);
  tgi_block_drop(&pool, 1);
  assert_int_equal(pool.num_free, 1);
  assert_int_equal(tgi_block_take(&pool), 1);
  tgi_block_pool_close(&pool);
}

/* Pieces of 64 tokens, a block each. */
static int32_t add_piece(tgi_prefix_cache *cache, tgi_block_pool *pool, int32_t before,
                         const int32_t *ids)
{
  const int32_t block = tgi_block_take(pool);
  const int32_t entry = tgi_prefix_add(cache, before, ids, &block);
  tgi_block_drop(pool, block);
  return entry;
}

static void prefixes_are_found(void **state)
{
  (void)state;
  tgi_block_pool pool;
  tgi_prefix_cache cache;
  int32_t a[64], b[64];
  for (int32_t i = 0; i < 64; i++) {
    a[i] = i;
    b[i] = i == 63 ? 0 : i;
  }
  assert_true(tgi_block_pool_open(&pool, 4));
  assert_true(tgi_prefix_cache_open(&cache, &pool, 64, 64));
  assert_int_equal(tgi_prefix_find(&cache, -1, a), -1);
  const int32_t first = add_piece(&cache, &pool, -1, a);
  assert_int_equal(tgi_prefix_find(&cache, -1, a), first);
  assert_int_equal(tgi_prefix_find(&cache, -1, b), -1);
  assert_int_equal(tgi_prefix_find(&cache, first, a), -1);
  const int32_t second = add_piece(&cache, &pool, first, a),
                other = add_piece(&cache, &pool, -1, b);
  assert_int_equal(tgi_prefix_find(&cache, first, a), second);
  assert_int_equal(tgi_prefix_idle_blocks(&cache), 3);
  /* The oldest that nothing follows goes first; what has a user stays. */
  tgi_block_share(&pool, tgi_prefix_blocks(&cache, other)[0]);
  assert_int_equal(tgi_prefix_idle_blocks(&cache), 2);
  assert_true(tgi_prefix_evict(&cache));
  assert_int_equal(tgi_prefix_find(&cache, first, a), -1);
  assert_int_equal(tgi_prefix_find(&cache, -1, a), first);
  assert_true(tgi_prefix_evict(&cache));
  assert_false(tgi_prefix_evict(&cache));
  assert_int_equal(tgi_prefix_find(&cache, -1, b), other);
  assert_int_equal(pool.num_free, 3);
  tgi_prefix_cache_close(&cache);
  tgi_block_pool_close(&pool);
}

static void older_ones_go_first(void **state)
{
  (void)state;
  tgi_scheduler s = {.batch = 4, .piece = 64, .most_tokens = 192};
  int32_t ids[3][193] = {{0}}, blocks[3][4];
  tgi_sequence q[3];
  tgi_step_plan plan;
  assert_true(tgi_scheduler_open(&s, 4));
  for (int i = 0; i < 3; i++) {
    q[i] = (tgi_sequence){
        .number = i + 1, .ids = ids[i], .blocks = blocks[i], .prompt = 64, .known = 64};
    tgi_scheduler_add(&s, &q[i]);
  }
  /* Two have a block for the prompt and one for what comes; the third waits. */
  for (int step = 0; step < 3; step++) {
    tgi_scheduler_plan(&s, &plan);
    assert_int_equal(plan.num_rows, step);
    for (int i = 0; i < plan.num_rows; i++) {
      assert_ptr_equal(plan.row[i], &q[i]);
      tgi_scheduler_advance(&s, plan.row[i], 1);
      plan.row[i]->known++;
    }
    if (step < 2) {
      assert_ptr_equal(plan.prompt, &q[step]);
      assert_int_equal(plan.count, 64);
      tgi_scheduler_advance(&s, plan.prompt, plan.count);
      plan.prompt->known++;
    } else {
      assert_null(plan.prompt);
    }
  }
  assert_int_equal(s.num_waiting, 1);
  assert_int_equal(s.pool.num_free, 0);
  /* The older one wants a third block: the younger one gives both of its own and waits, before the
   * one that never ran. */
  q[0].length = 128;
  q[0].known = 129;
  tgi_scheduler_plan(&s, &plan);
  assert_int_equal(plan.num_rows, 1);
  assert_ptr_equal(plan.row[0], &q[0]);
  assert_int_equal(s.set_back, 1);
  assert_ptr_equal(s.waiting, &q[1]);
  assert_ptr_equal(s.waiting->next, &q[2]);
  assert_int_equal(q[1].num_blocks, 0);
  for (int i = 0; i < 3; i++) {
    tgi_scheduler_end(&s, &q[i]);
  }
  assert_int_equal(s.pool.num_free, 4);
  tgi_scheduler_close(&s);
}

static void random_runs(void **state)
{
  (void)state;
  enum { kBytes = 6000, kRuns = 150 };
  static uint8_t bytes[kBytes];
  int64_t submitted = 0, cancelled = 0, set_back = 0, shared = 0;
  uint32_t x = 12345;
  for (int run = 0; run < kRuns; run++) {
    for (int i = 0; i < kBytes; i++) {
      x = x * 1664525u + 1013904223u;
      bytes[i] = (uint8_t)(x >> 24);
    }
    scheduler_run r;
    scheduler_run_bytes(&r, bytes, kBytes);
    submitted += r.submitted;
    cancelled += r.cancelled;
    set_back += r.s.set_back;
    shared += r.s.shared_tokens;
  }
  assert_true(submitted > 10000);
  assert_true(cancelled > 1000);
  assert_true(set_back > 100);
  assert_true(shared > 1000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_have_users),
      cmocka_unit_test(prefixes_are_found),
      cmocka_unit_test(older_ones_go_first),
      cmocka_unit_test(random_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
