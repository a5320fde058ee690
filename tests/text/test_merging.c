/* Byte pair encoding of pieces against the plainest way to do it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "text/bpe/merging.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 400 };

static int32_t byte_ids[256];

static void number_bytes(void)
{
  for (int i = 0; i < 256; i++) {
    byte_ids[i] = i;
  }
}

/* Of all neighbours the pair of the lowest rank, the leftmost of those, until none is left. */
static size_t merge_plainly(const tgi_merge_table *table, const char *bytes, size_t size,
                            int32_t *ids)
{
  for (size_t i = 0; i < size; i++) {
    ids[i] = byte_ids[(unsigned char)bytes[i]];
  }
  for (;;) {
    const tgi_merge *best = NULL;
    size_t at = 0;
    for (size_t i = 0; i + 1 < size; i++) {
      const tgi_merge *merge = tgi_merge_table_find(table, ids[i], ids[i + 1]);
      if (merge && (!best || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (!best) {
      return size;
    }
    ids[at] = best->id;
    size--;
    memmove(ids + at + 1, ids + at + 2, (size - at - 1) * sizeof *ids);
  }
}

/* Random merges of tokens over the letters a to a + letters - 1. */
static void make_table(tgi_merge_table *table, int letters, int merges)
{
  for (int i = 0; i < merges; i++) {
    int32_t side[2];
    for (int s = 0; s < 2; s++) {
      const int pick = rand() % (letters + i);
      side[s] = pick < letters ? 'a' + pick : 256 + (pick - letters);
    }
    assert_true(tgi_merge_table_add(table, side[0], side[1], (uint32_t)i, 256 + i));
  }
}

static void every_length_merges_as_the_plain_way_does(void **state)
{
  (void)state;
  tgi_merging m = {0};
  srand(7);
  number_bytes();
  for (int round = 0; round < 60; round++) {
    tgi_merge_table table = {0};
    const int letters = 1 + round % 4;
    make_table(&table, letters, 1 + rand() % 60);
    for (int i = 0; i < 30; i++) {
      char text[kMost];
      int32_t wanted[kMost];
      const size_t size = 1 + (size_t)rand() % (i % 2 ? 80 : kMost);
      for (size_t k = 0; k < size; k++) {
        text[k] = (char)('a' + rand() % letters);
      }
      const size_t count = merge_plainly(&table, text, size, wanted);
      assert_int_equal(tgi_merge_piece(&m, &table, byte_ids, text, size), count);
      assert_memory_equal(m.ids, wanted, count * sizeof *wanted);
    }
    tgi_merge_table_free(&table);
  }
  tgi_merging_free(&m);
}

/* aa, then aaaa, ...: a scan for each merge would take minutes. */
static void half_a_million_equal_bytes_are_merged(void **state)
{
  (void)state;
  enum { kSize = 500000 };
  tgi_merging m = {0};
  tgi_merge_table table = {0};
  number_bytes();
  for (int32_t i = 0; i < 4; i++) {
    const int32_t half = i == 0 ? 'a' : 255 + i;
    assert_true(tgi_merge_table_add(&table, half, half, (uint32_t)i, 256 + i));
  }
  char *text = malloc(kSize);
  memset(text, 'a', kSize);
  const size_t count = tgi_merge_piece(&m, &table, byte_ids, text, kSize);
  assert_int_equal(count, kSize / 16);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(m.ids[i], 259);
  }
  free(text);
  tgi_merging_free(&m);
  tgi_merge_table_free(&table);
}

static void the_last_rank_of_a_pair_counts(void **state)
{
  (void)state;
  tgi_merging m = {0};
  tgi_merge_table table = {0};
  number_bytes();
  assert_null(tgi_merge_table_find(&table, 'a', 'b'));
  assert_true(tgi_merge_table_add(&table, 'a', 'b', 0, 256));
  assert_true(tgi_merge_table_add(&table, 'b', 'c', 1, 257));
  assert_int_equal(tgi_merge_piece(&m, &table, byte_ids, "abc", 3), 2);
  assert_int_equal(m.ids[0], 256);
  assert_true(tgi_merge_table_add(&table, 'a', 'b', 2, 256));
  assert_int_equal(table.count, 2);
  assert_int_equal(tgi_merge_piece(&m, &table, byte_ids, "abc", 3), 2);
  assert_int_equal(m.ids[1], 257);
  tgi_merging_free(&m);
  tgi_merge_table_free(&table);
}

static void tables_grow(void **state)
{
  (void)state;
  tgi_merge_table table = {0};
  for (int32_t i = 0; i < 20000; i++) {
    assert_true(tgi_merge_table_add(&table, i % 141, i / 141, (uint32_t)i, i));
  }
  assert_int_equal(table.count, 20000);
  assert_true(table.num_slots >= 2 * table.count);
  for (int32_t i = 0; i < 20000; i++) {
    assert_int_equal(tgi_merge_table_find(&table, i % 141, i / 141)->id, i);
  }
  assert_null(tgi_merge_table_find(&table, 0, 150));
  tgi_merge_table_free(&table);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_length_merges_as_the_plain_way_does),
      cmocka_unit_test(half_a_million_equal_bytes_are_merged),
      cmocka_unit_test(the_last_rank_of_a_pair_counts),
      cmocka_unit_test(tables_grow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
