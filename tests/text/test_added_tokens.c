/* Where a text holds added tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "text/added_tokens.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(tgi_added_tokens *set, const char *content, int32_t id)
{
  assert_true(tgi_added_tokens_add(set, content, strlen(content), (tgi_added_token){.id = id}));
}

/** The tokens as "id@begin-end " each. */
static void check(const tgi_added_tokens *set, const char *text, const tg_text_range *ranges,
                  size_t num_ranges, const char *wanted)
{
  tgi_token_walk walk = {
      .set = set, .text = text, .size = strlen(text), .ranges = ranges, .num_ranges = num_ranges};
  char got[256] = "", *out = got;
  const tgi_added_token *token;
  size_t begin, end;
  while ((token = tgi_added_tokens_next(&walk, &begin, &end))) {
    out += sprintf(out, "%d@%zu-%zu ", token->id, begin, end);
  }
  if (strcmp(got, wanted) != 0) {
    fail_msg("%s: expected %s, got %s", text, wanted, got);
  }
}

static void the_leftmost_and_longest_is_found(void **state)
{
  (void)state;
  tgi_added_tokens set = {0};
  check(&set, "abc", NULL, 0, "");
  add(&set, "<ab>", 1);
  assert_int_equal(set.only_start, '<');
  check(&set, "<ab><ab", NULL, 0, "1@0-4 ");
  add(&set, "<ab>c", 2);
  add(&set, "<a", 3);
  add(&set, "b", 4);
  assert_int_equal(set.only_start, -1);
  add(&set, "<ab>", 5); /* the first one with a content is found */
  check(&set, "", NULL, 0, "");
  check(&set, "x<ab>cb<ab<a<<ab>", NULL, 0, "2@1-6 4@6-7 3@7-9 4@9-10 3@10-12 1@13-17 ");
  tgi_added_tokens_free(&set);
}

static void no_byte_of_a_token_lies_in_a_range(void **state)
{
  (void)state;
  tgi_added_tokens set = {0};
  add(&set, "<ab>", 1);
  add(&set, "<a", 2);
  static const tg_text_range all[] = {{0, 8}}, ends[] = {{3, 4}, {4, 4}}, second[] = {{4, 5}},
                             middle[] = {{2, 2}, {6, 7}};
  check(&set, "<ab><ab>", all, 1, "");
  check(&set, "<ab><ab>", ends, 2, "2@0-2 1@4-8 "); /* the shorter one fits before the range */
  check(&set, "<ab><ab>", second, 1, "1@0-4 ");
  check(&set, "<ab><ab>", middle, 2, "1@0-4 2@4-6 ");
  tgi_added_tokens_free(&set);
}

static void white_space_is_unicodes(void **state)
{
  (void)state;
  static const char text[] = "a \xe3\x80\x80\xc2\x85\t<x>\xe2\x80\x8b \n";
  assert_int_equal(tgi_space_before(text, 8), 1);
  assert_int_equal(tgi_space_before(text, 1), 1);
  assert_int_equal(tgi_space_before("  ", 2), 0);
  assert_int_equal(tgi_space_behind(text, 1, sizeof text - 1), 8);
  assert_int_equal(tgi_space_behind(text, 11, sizeof text - 1), 11); /* U+200B is none */
  assert_int_equal(tgi_space_behind(text, 14, sizeof text - 1), 16);
  assert_int_equal(tgi_space_behind("\x1c", 0, 1), 0);
}

static void two_thousand_tokens_are_found(void **state)
{
  (void)state;
  tgi_added_tokens set = {0};
  char content[64], text[128], wanted[64];
  for (int32_t i = 0; i < 2000; i++) {
    sprintf(content, "<|reserved_special_token_%d|>", i);
    add(&set, content, i);
  }
  for (int32_t i = 0; i < 2000; i++) {
    sprintf(text, "<|reserved_<|reserved_special_token_%d|>", i);
    sprintf(wanted, "%d@11-%zu ", i, strlen(text));
    check(&set, text, NULL, 0, wanted);
  }
  tgi_added_tokens_free(&set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_leftmost_and_longest_is_found),
      cmocka_unit_test(no_byte_of_a_token_lies_in_a_range),
      cmocka_unit_test(white_space_is_unicodes),
      cmocka_unit_test(two_thousand_tokens_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
