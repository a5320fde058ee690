/* Normalisation form C of Unicode 9. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "text/unicode/nfc.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static tgi_point_map *map;

/** NULL: the text is normalised as it stands. */
static void check(const char *text, const char *wanted)
{
  tgi_nfc nfc = {0};
  bool changed;
  assert_true(tgi_nfc_normalise(&nfc, map, text, strlen(text), &changed));
  if (changed != (wanted != NULL)) {
    fail_msg("%s: expected %s", text, wanted ? "a change" : "no look");
  }
  if (wanted) {
    assert_int_equal(nfc.size, strlen(wanted));
    assert_memory_equal(nfc.text, wanted, nfc.size);
  }
  tgi_nfc_free(&nfc);
}

static void marks_join_what_stands_before_them(void **state)
{
  (void)state;
  check("", NULL);
  check("plain text, \xc3\xa9, \xe4\xbd\xa0\xe5\xa5\xbd and \xea\xb0\x81 need no look", NULL);
  check("e\xcc\x81", "\xc3\xa9");
  check("abe\xcc\x81 e\xcc\x81!", "ab\xc3\xa9 \xc3\xa9!");
  check("x\xcc\x81", "x\xcc\x81");               /* no such letter */
  check("e\xcc\xa3\xcc\x82", "\xe1\xbb\x87");    /* U+1EC7 */
  check("e\xcc\x82\xcc\xa3", "\xe1\xbb\x87");    /* in the other order */
  check("\xc3\xaa\xcc\xa3", "\xe1\xbb\x87");     /* taken apart first */
  check("\xcc\x81\xcc\xa3", "\xcc\xa3\xcc\x81"); /* the class below comes first, without a letter */
  check("\xe2\x84\xa6", "\xce\xa9");             /* the ohm sign */
  check("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"); /* U+0958 stays apart */
  check("\xef\xa4\x80", "\xe8\xb1\x88");             /* a compatibility ideograph */
}

static void hangul_is_put_together(void **state)
{
  (void)state;
  check("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"); /* U+1100 1161 11A8 */
  check("\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81");             /* U+AC00 11A8 */
  check("\xe1\x86\xa8\xe1\x85\xa1", "\xe1\x86\xa8\xe1\x85\xa1");
}

/* U+1ABF is a mark since Unicode 13 (class 220), U+11935 U+11930 join since 13, U+105D2 U+0307
 * since 16; to Unicode 9 they are nothing. */
static void newer_marks_are_left_where_they_stand(void **state)
{
  (void)state;
  check("a\xcc\x81\xe1\xaa\xbf", "\xc3\xa1\xe1\xaa\xbf");
  check("e\xe1\xaa\xbf\xcc\x81", "e\xe1\xaa\xbf\xcc\x81");
  check("\xe1\xaa\xbf\xcc\x81\xcc\xa3", "\xe1\xaa\xbf\xcc\xa3\xcc\x81");
  check("\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0", NULL);
  check("\xf0\x90\x97\x92\xcc\x87", "\xf0\x90\x97\x92\xcc\x87");
}

/* 230 and 220 in turn: half a million swaps of neighbours each, if they were swapped. */
static void many_marks_are_ordered_at_once(void **state)
{
  (void)state;
  enum { kPairs = 200000 };
  char *text = malloc(4 * kPairs + 2), *at = text;
  *at++ = 'x';
  for (int i = 0; i < kPairs; i++, at += 4) {
    memcpy(at, "\xcc\x81\xcc\xa3", 4);
  }
  *at = '\0';
  tgi_nfc nfc = {0};
  bool changed;
  assert_true(tgi_nfc_normalise(&nfc, map, text, (size_t)(at - text), &changed));
  assert_int_equal(nfc.size, at - text);
  for (int i = 0; i < kPairs; i++) {
    assert_memory_equal(nfc.text + 1 + 2 * (size_t)i, "\xcc\xa3", 2);
    assert_memory_equal(nfc.text + 1 + 2 * (size_t)(kPairs + i), "\xcc\x81", 2);
  }
  tgi_nfc_free(&nfc);
  free(text);
}

static void edits_say_what_became_of_a_stretch(void **state)
{
  (void)state;
  tgi_nfc nfc = {0};
  bool changed;
  static const char text[] = "ab e\xcc\x81 \xe2\x84\xa6";
  assert_true(tgi_nfc_normalise(&nfc, map, text, sizeof text - 1, &changed));
  assert_int_equal(nfc.num_edits, 2);
  const tgi_nfc_edit first = nfc.edits[0], second = nfc.edits[1];
  assert_int_equal(first.from, 3);
  assert_int_equal(first.to, 6);
  assert_int_equal(first.out_from, 3);
  assert_int_equal(first.out_to, 5);
  assert_int_equal(second.from, 7);
  assert_int_equal(second.to, 10);
  assert_int_equal(second.out_from, 6);
  assert_int_equal(second.out_to, 8);
  assert_true(tgi_nfc_normalise(&nfc, map, "abc", 3, &changed));
  assert_int_equal(nfc.num_edits, 0);
  tgi_nfc_free(&nfc);
}

static int set_up(void **state)
{
  (void)state;
  map = tgi_point_map_make(tgi_nfc_points, tgi_nfc_points_count);
  return map ? 0 : -1;
}

static int tear_down(void **state)
{
  (void)state;
  free(map);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(marks_join_what_stands_before_them),
      cmocka_unit_test(hangul_is_put_together),
      cmocka_unit_test(newer_marks_are_left_where_they_stand),
      cmocka_unit_test(many_marks_are_ordered_at_once),
      cmocka_unit_test(edits_say_what_became_of_a_stretch),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
