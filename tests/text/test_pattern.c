/* Patterns: what is parsed, what is refused, and which characters classes hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/utf8.h"
#include "text/unicode/late_points.h"
#include "text/unicode/pattern.h"
#include "text/unicode/pattern_rewrite.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static tg_error error;

static tgi_pattern *compile(const char *text)
{
  tgi_pattern *pattern = NULL;
  EXPECT_OK(tgi_pattern_compile(text, strlen(text), "t", "regex", &pattern, &error), error);
  return pattern;
}

/* ---- what is parsed ---- */

static void signs_mean_what_they_mean_to_pcre2(void **state)
{
  (void)state;
  static const char *const cases[][2] = {
      {"a", "\\x{61}"},
      {" ?\xc3\xa9", "\\x{20}?\\x{E9}"},
      {"\\r\\n\\t\\.\\\\", "\\x{D}\\x{A}\\x{9}\\x{2E}\\x{5C}"},
      {"[^\\r\\n-]", "[^\\x{D}\\x{A}\\x{2D}]"},
      {"[-a-z]", "[\\x{2D}\\x{61}-\\x{7A}]"},
      {"\\p{N}{1,3}", "\\p{N}{1,3}"},
      {"\\d{2,}", "\\p{Nd}{2,}"},
      {"a?+b*+c++", "\\x{61}?+\\x{62}*+\\x{63}++"},
      {"(?i:'s|'LL)?x", "(?i:'s|'LL)?\\x{78}"},
      {"(a|b)(?:c)", "(?:\\x{61}|\\x{62})(?:\\x{63})"},
      {"a(?!b)(?=c)", "\\x{61}(?!\\x{62})(?=\\x{63})"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_rewritten r = tgi_pattern_rewrite(cases[i][0], strlen(cases[i][0]));
    if (!r.text) {
      fail_msg("%s: expected a pattern, got: byte %zu: %s", cases[i][0], r.byte, r.rule);
    }
    assert_string_equal(r.text, cases[i][1]);
    assert_int_equal(r.size, strlen(r.text));
    assert_int_equal(r.classes, strstr(r.text, "\\p") != NULL);
    tgi_pattern_free(compile(cases[i][0]));
    free(r.text);
  }
}

static void all_else_is_refused(void **state)
{
  (void)state;
  static const struct {
    const char *pattern;
    size_t byte;
    const char *rule;
  } cases[] = {
      {"", 0, "never matches the empty"},
      {"a*", 0, "never matches the empty"},
      {"a|", 0, "never matches the empty"},
      {"(?!a)", 0, "never matches the empty"},
      {"a.b", 1, "a character, with \\ before"},
      {"^a", 0, "a character, with \\"},
      {"a$", 1, "a character, with \\"},
      {"ab)", 2, "a ( before each )"},
      {"a]", 1, "a character, with \\"},
      {"a}", 1, "a character, with \\"},
      {"*a", 0, "a character, with \\"},
      {"a??", 1, "?, *, +, {n,m}"},
      {"a+?", 1, "?, *, +, {n,m}"},
      {"a{2}+", 1, "?, *, +, {n,m}"},
      {"a**", 1, "?, *, +, {n,m}"},
      {"a{,3}", 2, "a number up to 1000"},
      {"a{1,1001}", 4, "a number up to 1000"},
      {"a{3,2}", 1, "{n}, {n,} or {n,m}"},
      {"a{3", 1, "{n}, {n,} or {n,m}"},
      {"(a|b)+", 0, "a group without a sign"},
      {"(?:a){2}", 0, "a group without a sign"},
      {"(?:a|b*)?c", 0, "a group without a sign"},
      {"(?=a)?b", 0, "a group without a sign"},
      {"(?<=a)b", 0, "(, (?:, (?i:"},
      {"(?>a)", 0, "(, (?:, (?i:"},
      {"(?i)a", 0, "(, (?:, (?i:"},
      {"(a", 0, "a group with its )"},
      {"a(?i:[ab])", 5, "letters, ' and | alone"},
      {"(?i:\\p{L})", 4, "letters, ' and | alone"},
      {"(?i:'ss)", 5, "no ss, ff, fi, fl or st"},
      {"(?i:aSt)", 5, "no ss, ff, fi, fl or st"},
      {"(?i:a|)?b", 0, "a group without a sign"},
      {"\\b", 0, "\\r, \\n, \\t, \\s, \\S"},
      {"\\", 0, "a character behind the \\"},
      {"a\\w", 1, "\\r, \\n, \\t, \\s, \\S"},
      {"\\x41", 0, "\\r, \\n, \\t, \\s, \\S"},
      {"\\p{Han}", 0, "a class of L, Lu"},
      {"\\p{^L}", 0, "a class of L, Lu"},
      {"\\pL", 0, "a class of L, Lu"},
      {"\\P{L}", 0, "\\r, \\n, \\t, \\s, \\S"},
      {"[\\S]", 1, "\\r, \\n, \\t, \\s, \\d"},
      {"[]", 0, "a class with something in it"},
      {"[]a]", 0, "a class with something in it"},
      {"[^]", 0, "a class with something in it"},
      {"[a", 0, "a class with something in it"},
      {"[a[b]]", 2, "a class without [ or &&"},
      {"[[:alpha:]]", 1, "a class without [ or &&"},
      {"[a&&b]", 2, "a class without [ or &&"},
      {"[a-c-e]", 4, "\\- for a -"},
      {"[z-a]", 2, "a range that ends with"},
      {"[a-\\s]", 2, "a range that ends with"},
      {"[a-", 2, "a class with its ]"},
      {"\\p{L}\xc3\xa9", 5, "ASCII characters beside"},
      {"[\\d\xe4\xb8\x80-\xe9\xbe\xa5]", 3, "ASCII characters beside"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_rewritten r = tgi_pattern_rewrite(cases[i].pattern, strlen(cases[i].pattern));
    if (r.text || !strstr(r.rule, cases[i].rule) || r.byte != cases[i].byte) {
      fail_msg("%s: expected byte %zu: %s, got byte %zu: %s", cases[i].pattern, cases[i].byte,
               cases[i].rule, r.byte, r.text ? r.text : r.rule);
    }
  }
  char deep[64] = "";
  for (int i = 0; i < 17; i++) {
    strcat(deep, "(a");
  }
  tgi_rewritten r = tgi_pattern_rewrite(deep, strlen(deep));
  assert_string_equal(r.rule, "at most 16 groups within each other");
  tgi_pattern *none;
  EXPECT_ERROR(tgi_pattern_compile("a.b", 3, "dir/t.json", "pre_tokenizer: pattern", &none, &error),
               TG_UNSUPPORTED,
               "dir/t.json: pre_tokenizer: pattern: byte 1 of the pattern: expected a "
               "character, with \\ before it if it is a sign, got \".b\"",
               error);
  assert_null(none);
}

/* ---- pieces ---- */

static const char kGpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char kQwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                             "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** Pieces of the text, with | between them. */
static void check_pieces(const char *pattern_text, const char *text, const char *wanted)
{
  tgi_pattern *pattern = compile(pattern_text);
  tgi_matches *matches = tgi_matches_make();
  char got[256], *out = got;
  size_t at = 0, begin, end;
  const size_t size = strlen(text);
  while (at < size &&
         tgi_pattern_find(pattern, matches, text, size, at, &begin, &end) == TGI_MATCH_FOUND) {
    assert_true(begin >= at && end > begin);
    out += sprintf(out, "%s%.*s", out == got ? "" : "|", (int)(end - begin), text + begin);
    at = end;
  }
  assert_int_equal(at, size);
  assert_string_equal(got, wanted);
  tgi_matches_free(matches);
  tgi_pattern_free(pattern);
}

static void text_is_cut_into_pieces(void **state)
{
  (void)state;
  check_pieces(kGpt2, "I'll  see 123's, OK?\n", "I|'ll| | see| 123|'s|,| OK|?|\n");
  check_pieces(kGpt2, "I'LL", "I|'|LL");
  check_pieces(kQwen2, "I'LL  see 12's, OK?\n\n x", "I|'LL| | see| |1|2|'s|,| OK|?\n\n| x");
  check_pieces(kQwen2,
               "d'\xc5\xbf\xe3\x80\x80"
               "a",
               "d|'\xc5\xbf|\xe3\x80\x80"
               "a"); /* the long s is an s; an ideographic space goes with the letter */
}

static void long_runs_are_one_piece(void **state)
{
  (void)state;
  enum { kSize = 500000 };
  static const char runs[] = "a 1!\n";
  char *text = malloc(kSize);
  tgi_pattern *pattern = compile(kGpt2);
  tgi_matches *matches = tgi_matches_make();
  for (const char *c = runs; *c; c++) {
    size_t begin, end;
    memset(text, *c, kSize);
    assert_int_equal(tgi_pattern_find(pattern, matches, text, kSize, 0, &begin, &end),
                     TGI_MATCH_FOUND);
    assert_int_equal(begin, 0);
    assert_int_equal(end, kSize);
  }
  free(text);
  tgi_matches_free(matches);
  tgi_pattern_free(pattern);
}

/* ---- classes ---- */

static bool holds(const tgi_pattern *pattern, tgi_matches *matches, const char *text, size_t size)
{
  size_t begin, end;
  return tgi_pattern_find(pattern, matches, text, size, 0, &begin, &end) == TGI_MATCH_FOUND;
}

static void white_space_is_25_code_points(void **state)
{
  (void)state;
  tgi_pattern *space = compile("\\s"), *other = compile("\\S"), *in_class = compile("[a\\s]");
  tgi_matches *matches = tgi_matches_make();
  int found = 0;
  for (uint32_t point = 1; point < 0x110000; point++) {
    if (point >= 0xd800 && point < 0xe000) {
      continue;
    }
    char text[4];
    const size_t size = tgi_utf8_encode(point, text);
    const bool is = holds(space, matches, text, size);
    found += is;
    assert_int_equal(holds(other, matches, text, size), !is);
    assert_int_equal(holds(in_class, matches, text, size), is || point == 'a');
  }
  assert_int_equal(found, 25);
  assert_false(holds(space, matches, "\xe1\xa0\x8e", 3)); /* U+180E, which PCRE2 adds */
  tgi_pattern_free(space);
  tgi_pattern_free(other);
  tgi_pattern_free(in_class);
  tgi_matches_free(matches);
}

static const struct {
  const char *pattern;
  tgi_point_kind kinds[6];
} classes[] = {
    {"\\p{L}", {TGI_POINT_LU, TGI_POINT_LL, TGI_POINT_LT, TGI_POINT_LM, TGI_POINT_LO}},
    {"\\p{Lu}", {TGI_POINT_LU}},
    {"\\p{Ll}", {TGI_POINT_LL}},
    {"\\p{Lt}", {TGI_POINT_LT}},
    {"\\p{Lm}", {TGI_POINT_LM}},
    {"\\p{Lo}", {TGI_POINT_LO}},
    {"\\p{M}", {TGI_POINT_M}},
    {"\\p{N}", {TGI_POINT_N, TGI_POINT_ND}},
    {"\\p{Nd}", {TGI_POINT_ND}},
    {"\\d", {TGI_POINT_ND}},
    {"\\p{P}", {TGI_POINT_P}},
    {"\\p{S}", {TGI_POINT_S}},
};

static bool is_of(size_t class, tgi_point_kind kind)
{
  for (size_t i = 0; i < 6; i++) {
    if (kind != TGI_POINT_NONE && classes[class].kinds[i] == kind) {
      return true;
    }
  }
  return false;
}

/* Late code points in the classes of the table, though PCRE2 knows no class of theirs. */
static void late_code_points_have_their_classes(void **state)
{
  (void)state;
  tgi_point_map *map = tgi_point_map_make(tgi_late_points, tgi_late_points_count);
  tgi_matches *matches = tgi_matches_make();
  tgi_shown copy = {0};
  int late = 0;
  tgi_pattern *patterns[sizeof classes / sizeof classes[0]];
  for (size_t c = 0; c < sizeof classes / sizeof classes[0]; c++) {
    patterns[c] = compile(classes[c].pattern);
  }
  for (uint32_t point = 0x80; point < 0x110000; point++) {
    char text[4];
    const tgi_point_kind kind = tgi_point_map_kind(map, point);
    const bool unassigned_plane = point >= 0x40000 && point < 0xe0000 && point % 4099 != 0;
    if (kind == TGI_POINT_NONE || (point >= 0xd800 && point < 0xe000) || unassigned_plane) {
      continue;
    }
    const char *shown;
    const size_t size = tgi_utf8_encode(point, text);
    assert_true(tgi_late_points_show(&copy, map, text, size, &shown));
    assert_ptr_not_equal(shown, text);
    for (size_t c = 0; c < sizeof classes / sizeof classes[0]; c++) {
      if (holds(patterns[c], matches, shown, size) != is_of(c, kind)) {
        fail_msg("U+%04X: %s: expected %d", point, classes[c].pattern, is_of(c, kind));
      }
    }
    late++;
  }
  assert_true(late > 80000);
  for (size_t c = 0; c < sizeof classes / sizeof classes[0]; c++) {
    tgi_pattern_free(patterns[c]);
  }
  free(copy.text);
  free(map);
  tgi_matches_free(matches);
}

static void only_late_code_points_are_replaced(void **state)
{
  (void)state;
  tgi_point_map *map = tgi_point_map_make(tgi_late_points, tgi_late_points_count);
  tgi_shown copy = {0};
  const char *shown;
  static const char old[] = "plain \xc3\xa9 \xe4\xbd\xa0\xf0\x9f\x99\x82 \xee\x80\x80";
  assert_true(tgi_late_points_show(&copy, map, old, sizeof old - 1, &shown));
  assert_ptr_equal(shown, old);
  /* U+0897 (M), U+1FAE8 (S), U+0378 (not assigned) */
  static const char late[] = "a\xe0\xa2\x97 \xf0\x9f\xab\xa8\xcd\xb8z";
  assert_true(tgi_late_points_show(&copy, map, late, sizeof late - 1, &shown));
  assert_memory_equal(shown, "a\xe0\xa4\x80 \xf0\x9f\x98\x80\xc2\x80z", sizeof late - 1);
  free(copy.text);
  free(map);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(signs_mean_what_they_mean_to_pcre2),
      cmocka_unit_test(all_else_is_refused),
      cmocka_unit_test(text_is_cut_into_pieces),
      cmocka_unit_test(long_runs_are_one_piece),
      cmocka_unit_test(white_space_is_25_code_points),
      cmocka_unit_test(late_code_points_have_their_classes),
      cmocka_unit_test(only_late_code_points_are_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
