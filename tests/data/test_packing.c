/* Rows of documents: every pair is in one piece, rows are as full as they can be, long documents
 * are cut, split or refused, and pieces without targets are left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "data/packing.h"
#include "expect.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kDocuments = 500, kTokens = 20000 };

static uint64_t ends[kDocuments];
static uint8_t counted[kTokens / 8];

/* Documents of random lengths from 1 to `most`; without ids, which packing does not read. */
static tgi_token_store make(uint32_t random, uint64_t most, bool some_count)
{
  uint64_t at = 0;
  for (int d = 0; d < kDocuments; d++) {
    random = random * 1664525u + 1013904223u;
    at += 1 + (random >> 16) % most;
    ends[d] = at;
  }
  for (size_t i = 0; i < sizeof counted; i++) {
    random = random * 1664525u + 1013904223u;
    counted[i] = random >> 30 == 0 ? (uint8_t)(random >> 16) : 0;
  }
  return (tgi_token_store){.count = (int64_t)at,
                           .ends = ends,
                           .num_documents = kDocuments,
                           .counted = some_count ? counted : NULL};
}

static void check_rows(const tgi_token_store *store, const tgi_rows *rows)
{
  int64_t pairs = 0, targets = 0;
  int32_t most = 0;
  assert_int_equal(rows->begins[0], 0);
  assert_int_equal(rows->begins[rows->num_rows], rows->num_pieces);
  for (int64_t r = 0; r < rows->num_rows; r++) {
    int64_t used = 0;
    assert_true(rows->begins[r] < rows->begins[r + 1]);
    for (int64_t p = rows->begins[r]; p < rows->begins[r + 1]; p++) {
      const tgi_piece *piece = &rows->pieces[p];
      const int64_t here = tgi_store_count_targets(store, piece->first + 1, piece->count);
      assert_true(here > 0);
      used += piece->count;
      targets += here;
    }
    assert_true(used <= rows->row_length);
    const int32_t pieces = (int32_t)(rows->begins[r + 1] - rows->begins[r]);
    most = pieces > most ? pieces : most;
    pairs += used;
  }
  assert_int_equal(pairs, rows->num_pairs);
  assert_int_equal(targets, rows->num_targets);
  assert_int_equal(most, rows->most_pieces);
}

/* How often each token is the target of a piece. */
static int *count_targets(const tgi_token_store *store, const tgi_rows *rows)
{
  int *seen = calloc((size_t)store->count + 1, sizeof *seen);
  for (int64_t p = 0; p < rows->num_pieces; p++) {
    for (int32_t i = 0; i < rows->pieces[p].count; i++) {
      seen[rows->pieces[p].first + 1 + i]++;
    }
  }
  return seen;
}

static void every_pair_is_in_one_piece(void **state)
{
  (void)state;
  const int32_t lengths[] = {1, 7, 39, 64, 128, 1000};
  for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
    for (int packing = 0; packing < 2; packing++) {
      const tgi_token_store store = make((uint32_t)l + 1, 39, false);
      const tgi_pack_options how = {packing ? TGI_PACK_DOCUMENTS : TGI_PACK_OFF,
                                    TGI_LONG_SPLIT,
                                    0,
                                    kDocuments,
                                    lengths[l],
                                    7};
      tg_error error;
      tgi_rows rows;
      EXPECT_OK(tgi_rows_pack(&store, &how, &rows, &error), error);
      check_rows(&store, &rows);
      int *seen = count_targets(&store, &rows);
      int64_t alone = 0;
      for (int64_t d = 0, i = 0; i < store.count; i++) {
        const int64_t begin = tgi_store_begin(&store, d);
        assert_int_equal(seen[i], i > begin); /* the first token is no target */
        alone += i == begin && (uint64_t)i + 1 == ends[d];
        d += (uint64_t)i + 1 == ends[d];
      }
      assert_int_equal(rows.left_out, alone); /* documents of one token */
      assert_int_equal(rows.pairs_cut, 0);
      free(seen);
      if (packing) { /* two half-empty rows would have been one */
        const double fill = (double)rows.num_pairs / ((double)rows.num_rows * rows.row_length);
        assert_true(fill > (lengths[l] < 39 ? 0.5 : 0.95) || rows.num_rows == 1 ||
                    lengths[l] == 1000);
      }
      tgi_rows_free(&rows);
    }
  }
}

static void long_documents_are_cut_or_refused(void **state)
{
  (void)state;
  const tgi_token_store store = make(5, 39, false);
  tgi_pack_options how = {TGI_PACK_DOCUMENTS, TGI_LONG_CUT, 0, kDocuments, 16, 0};
  tg_error error;
  tgi_rows rows;
  EXPECT_OK(tgi_rows_pack(&store, &how, &rows, &error), error);
  check_rows(&store, &rows);
  int *seen = count_targets(&store, &rows);
  int64_t longer = 0, cut = 0, first = -1;
  for (int64_t d = 0; d < kDocuments; d++) {
    const int64_t begin = tgi_store_begin(&store, d), size = (int64_t)ends[d] - begin;
    longer += size > 17;
    cut += size > 17 ? size - 17 : 0;
    first = first < 0 && size > 17 ? d : first;
    for (int64_t i = 0; i < size; i++) {
      assert_int_equal(seen[begin + i], i > 0 && i <= 16);
    }
  }
  assert_int_equal(rows.long_documents, longer);
  assert_int_equal(rows.pairs_cut, cut);
  free(seen);
  tgi_rows_free(&rows);
  how.rule = TGI_LONG_REFUSE;
  char wanted[64];
  snprintf(wanted, sizeof wanted, "got document %lld of ", (long long)first + 1);
  EXPECT_ERROR(tgi_rows_pack(&store, &how, &rows, &error), TG_BAD_FILE, wanted, error);
  EXPECT_ERROR(tgi_rows_pack(&store, &how, &rows, &error), TG_BAD_FILE,
               "expected documents of at most 17 tokens", error);
}

static void what_has_no_targets_is_left_out(void **state)
{
  (void)state;
  const tgi_token_store store = make(6, 39, true);
  const tgi_pack_options how = {TGI_PACK_DOCUMENTS, TGI_LONG_SPLIT, 0, kDocuments, 64, 0};
  tg_error error;
  tgi_rows rows;
  EXPECT_OK(tgi_rows_pack(&store, &how, &rows, &error), error);
  check_rows(&store, &rows);
  int64_t without = 0;
  for (int64_t d = 0; d < kDocuments; d++) {
    const int64_t begin = tgi_store_begin(&store, d);
    without += tgi_store_count_targets(&store, begin + 1, (int64_t)ends[d] - begin - 1) == 0;
  }
  assert_true(without > 10 && without < kDocuments - 10);
  assert_int_equal(rows.left_out, without);
  tgi_rows_free(&rows);
}

static void a_part_of_the_documents_is_packed(void **state)
{
  (void)state;
  const tgi_token_store store = make(8, 39, false);
  const tgi_pack_options how = {TGI_PACK_DOCUMENTS, TGI_LONG_SPLIT, 100, 50, 64, 0};
  tg_error error;
  tgi_rows rows;
  EXPECT_OK(tgi_rows_pack(&store, &how, &rows, &error), error);
  check_rows(&store, &rows);
  for (int64_t p = 0; p < rows.num_pieces; p++) {
    assert_true(rows.pieces[p].first >= tgi_store_begin(&store, 100));
    assert_true(rows.pieces[p].first + rows.pieces[p].count < tgi_store_begin(&store, 150));
  }
  tgi_rows_free(&rows);
}

static void the_seed_decides(void **state)
{
  (void)state;
  const tgi_token_store store = make(9, 39, false);
  tgi_pack_options how = {TGI_PACK_DOCUMENTS, TGI_LONG_SPLIT, 0, kDocuments, 64, 1};
  tg_error error;
  tgi_rows rows[3];
  for (int i = 0; i < 3; i++) {
    how.seed = i == 2 ? 2 : 1;
    EXPECT_OK(tgi_rows_pack(&store, &how, &rows[i], &error), error);
  }
  assert_int_equal(rows[0].num_pieces, rows[1].num_pieces);
  int differ = 0;
  for (int64_t p = 0; p < rows[0].num_pieces; p++) {
    assert_int_equal(rows[0].pieces[p].first, rows[1].pieces[p].first);
    differ += rows[0].pieces[p].first != rows[2].pieces[p].first;
  }
  assert_true(differ > rows[0].num_pieces / 2);
  for (int i = 0; i < 3; i++) {
    tgi_rows_free(&rows[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_pair_is_in_one_piece),
      cmocka_unit_test(long_documents_are_cut_or_refused),
      cmocka_unit_test(what_has_no_targets_is_left_out),
      cmocka_unit_test(a_part_of_the_documents_is_packed),
      cmocka_unit_test(the_seed_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
