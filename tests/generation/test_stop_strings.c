/* Stop strings beside a plain search in the whole text, however it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "generation/stop_strings.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 512 };

static tg_error error;

typedef struct outcome {
  char text[kMost];
  size_t size;
  int met;
} outcome;

static tgi_stop_strings *make(const char *const *texts, size_t count)
{
  tgi_stop_strings *s = NULL;
  EXPECT_OK(tgi_stop_strings_create(texts, count, &s, &error), error);
  return s;
}

static void take(outcome *o, tgi_ready_bytes ready)
{
  assert_true(o->size + ready.size <= kMost);
  memcpy(o->text + o->size, ready.bytes, ready.size);
  o->size += ready.size;
}

/* Pushes the text in pieces of `piece` bytes; no piece may hand on what the whole would take back.
 */
static outcome run(tgi_stop_strings *s, const char *text, size_t size, size_t piece)
{
  outcome o = {.met = -1};
  tgi_stop_strings_reset(s);
  for (size_t at = 0; at < size; at += piece) {
    tgi_ready_bytes ready;
    const size_t some = size - at < piece ? size - at : piece;
    EXPECT_OK(tgi_stop_strings_push(s, text + at, some, &ready, &error), error);
    take(&o, ready);
  }
  o.met = tgi_stop_strings_met(s);
  take(&o, tgi_stop_strings_finish(s));
  return o;
}

/* The first end of any stop string, and of those that end there the longest. */
static outcome search(const char *const *texts, size_t count, const char *text, size_t size)
{
  outcome o = {.met = -1};
  size_t end = 0;
  while (end < size && o.met < 0) {
    end++;
    for (size_t i = 0; i < count; i++) {
      const size_t n = strlen(texts[i]);
      if (n <= end && memcmp(text + end - n, texts[i], n) == 0 &&
          (o.met < 0 || n > strlen(texts[o.met]))) {
        o.met = (int)i;
      }
    }
  }
  o.size = o.met < 0 ? size : end - strlen(texts[o.met]);
  memcpy(o.text, text, o.size);
  return o;
}

static void check(const char *const *texts, size_t count, const char *text, size_t size)
{
  const outcome want = search(texts, count, text, size);
  tgi_stop_strings *s = make(texts, count);
  for (size_t piece = 1; piece <= size; piece += piece < 9          ? 1
                                                 : size - piece > 0 ? size - piece
                                                                    : 1) {
    const outcome got = run(s, text, size, piece);
    if (got.met != want.met || got.size != want.size ||
        memcmp(got.text, want.text, want.size) != 0) {
      fail_msg("\"%.*s\" by %zu: expected stop %d and \"%.*s\", got %d and \"%.*s\"", (int)size,
               text, piece, want.met, (int)want.size, want.text, got.met, (int)got.size, got.text);
    }
  }
  tgi_stop_strings_destroy(s);
}

#define CHECK(text, ...)                                                                           \
  check((const char *const[]){__VA_ARGS__},                                                        \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), text, strlen(text))

static void texts_end_before_the_stop(void **state)
{
  (void)state;
  CHECK("one, two END of it", "END");
  CHECK("END", "END");
  CHECK("one, two EN", "END"); /* what was held comes at the end */
  CHECK("no stop at all", "END");
  CHECK("EEND", "END");
  CHECK("ENEND", "END");
  CHECK("\n\n", "\n\n");
  CHECK("aaaaab", "aaab");
  CHECK("abacabadabacabae", "abacabae");
}

static void overlapping_stops(void **state)
{
  (void)state;
  CHECK("xabcd", "abcd", "bc");  /* the first to be complete */
  CHECK("xabcd", "bcd", "abcd"); /* at the same byte: the longest */
  CHECK("xabcd", "abcd", "bcd");
  CHECK("xabxabc", "abc", "bxabd"); /* one fails where another has begun */
  CHECK("ababab", "abac", "babab");
  CHECK("aab", "aa", "ab");
  CHECK("same", "am", "am");
}

/* U+1F642 is F0 9F 99 82; a stop may begin with bytes that other characters share. */
static void characters_cut_by_pieces(void **state)
{
  (void)state;
  CHECK("a \xf0\x9f\x99\x82 b", "\xf0\x9f\x99\x82");
  CHECK("a \xf0\x9f\x99\x83 b", "\xf0\x9f\x99\x82");
  CHECK("gr\xc3\xbc\xc3\x9f"
        "e",
        "\xc3\x9f");
  CHECK("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", "\xe6\x9c\xac", "\xe8\xaa\x9e");
}

/* Nothing is held longer than it must be. */
static void what_is_decided_is_ready(void **state)
{
  (void)state;
  static const char *const texts[] = {"abac"};
  static const struct {
    const char *piece, *ready;
  } steps[] = {{"x", "x"},   {"a", ""}, {"b", ""},     {"b", "abb"}, {"ab", ""},
               {"ab", "ab"}, {"a", ""}, {"d", "abad"}, {"", ""},     {"yaba", "y"}};
  tgi_stop_strings *s = make(texts, 1);
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
    tgi_ready_bytes ready;
    EXPECT_OK(tgi_stop_strings_push(s, steps[i].piece, strlen(steps[i].piece), &ready, &error),
              error);
    if (ready.size != strlen(steps[i].ready) ||
        memcmp(ready.bytes, steps[i].ready, ready.size) != 0) {
      fail_msg("step %zu: expected \"%s\", got \"%.*s\"", i, steps[i].ready, (int)ready.size,
               ready.bytes);
    }
  }
  tgi_ready_bytes ready;
  EXPECT_OK(tgi_stop_strings_push(s, "cz", 2, &ready, &error), error);
  assert_int_equal(ready.size, 0);
  assert_int_equal(tgi_stop_strings_met(s), 0);
  EXPECT_OK(tgi_stop_strings_push(s, "more", 4, &ready, &error), error); /* behind the end */
  assert_int_equal(ready.size, 0);
  assert_int_equal(tgi_stop_strings_finish(s).size, 0);
  tgi_stop_strings_destroy(s);
}

static void random_texts(void **state)
{
  (void)state;
  uint32_t seed = 7;
  for (int round = 0; round < 3000; round++) {
    char text[60], stop[3][8];
    const char *texts[3];
    for (int i = 0; i < 3; i++) {
      const size_t n = 1 + (seed = seed * 1664525u + 1013904223u) % 7977 % 6;
      for (size_t k = 0; k < n; k++) {
        stop[i][k] = (char)('a' + ((seed = seed * 1664525u + 1013904223u) >> 20) % 2);
      }
      stop[i][n] = '\0';
      texts[i] = stop[i];
    }
    for (size_t k = 0; k < sizeof text; k++) {
      seed = seed * 1664525u + 1013904223u;
      text[k] = (char)('a' + ((seed >> 20) % 9 == 0 ? 2 : (seed >> 21) % 2));
    }
    check(texts, (size_t)round % 3 + 1, text, sizeof text);
  }
}

static void refusals(void **state)
{
  (void)state;
  static const char *const texts[] = {"a", ""};
  tgi_stop_strings *s = NULL;
  EXPECT_ERROR(tgi_stop_strings_create(texts, 2, &s, &error), TG_BAD_ARGUMENT,
               "stop_strings: text 1: expected at least one byte, got none", error);
  assert_null(s);
  s = make(NULL, 0);
  const outcome all = run(s, "anything", 8, 3);
  assert_int_equal(all.size, 8);
  assert_int_equal(all.met, -1);
  tgi_stop_strings_destroy(s);
  tgi_stop_strings_destroy(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_end_before_the_stop),
      cmocka_unit_test(overlapping_stops),
      cmocka_unit_test(characters_cut_by_pieces),
      cmocka_unit_test(what_is_decided_is_ready),
      cmocka_unit_test(random_texts),
      cmocka_unit_test(refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
