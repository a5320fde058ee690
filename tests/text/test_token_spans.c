/* Which bytes of a text each id stands for: pieces, added tokens and the white space they take, and
 * what was normalised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "scratch_directory.h"
#include "small_tokenizer.h"
#include "text/tokenizer_state.h"
#include <cmocka.h>
#include <string.h>

static scratch dir;
static tg_tokenizer *tokenizer;

static int set_up(void **state)
{
  (void)state;
  dir = scratch_make();
  tokenizer = small_tokenizer_load(
      &dir,
      &(small_tokenizer){
          .tokens = ", \"th\": 256",
          .merges = "[\"t h\"]",
          .normalizer = "{\"type\": \"NFC\"}",
          .added =
              "[{\"id\": 257, \"content\": \"<a>\", \"special\": true, \"single_word\": false, "
              "\"lstrip\": true, \"rstrip\": true, \"normalized\": false}, "
              "{\"id\": 258, \"content\": \"<b>\", \"special\": false, \"single_word\": false, "
              "\"lstrip\": false, \"rstrip\": false, \"normalized\": true}]",
          .post_processor =
              "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
              "\"<a>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
              "\"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": "
              "\"B\", \"type_id\": 1}}], \"special_tokens\": {\"<a>\": {\"id\": \"<a>\", \"ids\": "
              "[257], \"tokens\": [\"<a>\"]}}}"});
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  tg_tokenizer_destroy(tokenizer);
  scratch_remove(&dir);
  return 0;
}

typedef struct wanted {
  int32_t id;
  size_t begin, end;
} wanted;

static void expect_spans(const char *text, const tg_text_range *ranges, size_t num_ranges,
                         uint32_t flags, const wanted *list, size_t count)
{
  tgi_spanned_ids got = {0};
  tg_error error;
  const tgi_marked_text marked = {text, strlen(text), ranges, num_ranges};
  for (int again = 0; again < 2; again++) { /* the memory is reused */
    EXPECT_OK(tgi_tokenizer_encode_spans(tokenizer, &marked, flags, &got, &error), error);
    assert_int_equal(got.count, count);
    assert_int_equal(got.spans.count, count);
    for (size_t i = 0; i < count; i++) {
      assert_int_equal(got.ids[i], list[i].id);
      assert_int_equal(got.spans.list[i].begin, list[i].begin);
      assert_int_equal(got.spans.list[i].end, list[i].end);
    }
  }
  tgi_spanned_ids_free(&got);
}

#define EXPECT_SPANS(text, flags, ...)                                                             \
  expect_spans(text, NULL, 0, flags, (const wanted[]){__VA_ARGS__},                                \
               sizeof((const wanted[]){__VA_ARGS__}) / sizeof(wanted))

static void pieces_follow_each_other(void **state)
{
  (void)state;
  EXPECT_SPANS("the", 0, {256, 0, 2}, {'e', 2, 3});
  /* A character of two bytes, one token each. */
  EXPECT_SPANS("\xc3\xb1th", 0, {0xc3, 0, 1}, {0xb1, 1, 2}, {256, 2, 4});
}

static void added_tokens_have_the_space_they_take(void **state)
{
  (void)state;
  EXPECT_SPANS("x <a> y", 0, {'x', 0, 1}, {257, 1, 6}, {'y', 6, 7});
  EXPECT_SPANS("x<b>y", 0, {'x', 0, 1}, {258, 1, 4}, {'y', 4, 5});
  EXPECT_SPANS("xy", TG_TOKENIZER_ADD_SPECIAL, {257, 0, 0}, {'x', 0, 1}, {'y', 1, 2});
  EXPECT_SPANS("<b>", TG_TOKENIZER_PLAIN, {'<', 0, 1}, {'b', 1, 2}, {'>', 2, 3});
  const tg_text_range user = {1, 4};
  const wanted list[] = {{'x', 0, 1}, {'<', 1, 2}, {'b', 2, 3}, {'>', 3, 4}, {258, 4, 7}};
  expect_spans("x<b><b>", &user, 1, 0, list, sizeof list / sizeof list[0]);
}

/* "e" and an accent are one character of two bytes, which both come from all three. */
static void normalised_text_has_all_it_was_made_of(void **state)
{
  (void)state;
  EXPECT_SPANS("xe\xcc\x81y", 0, {'x', 0, 1}, {0xc3, 1, 4}, {0xa9, 1, 4}, {'y', 4, 5});
  EXPECT_SPANS("<a>e\xcc\x81<b>z", 0, {257, 0, 3}, {0xc3, 3, 6}, {0xa9, 3, 6}, {258, 6, 9},
               {'z', 9, 10});
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_follow_each_other),
      cmocka_unit_test(added_tokens_have_the_space_they_take),
      cmocka_unit_test(normalised_text_has_all_it_was_made_of),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
