/* What json_file.c guards jansson against, each trap by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/json_file.h"
#include "scratch_directory.h"
#include <cmocka.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static tg_error error;

/* ---- an allocator that a host program has given to jansson before ---- */

static long requests;    /* so far */
static long fail_at;     /* the request that fails, from 1; 0: none */
static bool for_good;    /* every request from that one on */
static long alive;       /* blocks not yet freed */
static long host_blocks; /* that were there before the tests */

static void *host_allocate(size_t size)
{
  requests++;
  if (fail_at > 0 && (requests == fail_at || (for_good && requests > fail_at))) {
    return NULL;
  }
  alive++;
  return malloc(size);
}

static void host_release(void *block)
{
  alive--;
  free(block);
}

static tg_status parse(const char *text, size_t flags, tgi_json *json)
{
  return tgi_json_parse("t", text, strlen(text), 0, flags, json, &error);
}

/** Every request fails once, and from there on for good: NO_MEMORY, never a changed value. */
static void check_reading(const char *text)
{
  tgi_json json;
  fail_at = 0;
  requests = 0;
  EXPECT_OK(parse(text, 0, &json), error);
  json_decref(json.root);
  const long total = requests;
  for (int sticky = 0; sticky < 2; sticky++) {
    for (long at = 1; at <= total; at++) {
      requests = 0;
      fail_at = at;
      for_good = sticky;
      EXPECT_ERROR(parse(text, 0, &json), TG_NO_MEMORY, "t: expected", error);
      assert_null(json.root);
      assert_int_equal(alive, 0);
    }
  }
  fail_at = 0;
}

/**
 * The buffer of a token grows at 15, 31, 63, ... bytes: at every length up to there, the byte that
 * finds no room is another one (inside, the closing quote, the comma behind a number, an escape).
 */
static void tokens_survive_failing_requests(void **state)
{
  (void)state;
  for (int length = 0; length <= 70; length++) {
    char run[80], text[256];
    memset(run, '7', sizeof run);
    sprintf(text, "[\"%.*s\", {\"%.*s\": null}]", length, run, length, run);
    check_reading(text);
    sprintf(text, "[\"%.*s\\u00e9\xf0\x9f\x99\x82\\\\\\\"\", true]", length, run);
    check_reading(text);
    sprintf(text, "[1%.*s, 0.%.*s7, -1]", length % 19, run, length, run);
    check_reading(text);
  }
  check_reading("{\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": 7, \"h\": 8, "
                "\"i\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}");
}

static json_t *make_document(void)
{
  json_t *root = tgi_json_new();
  char key[40];
  for (int i = 0; i < 30; i++) {
    sprintf(key, "a key of some length %d", i);
    json_object_set_new(root, key, json_pack("{s:s, s:[I, f]}", "s", key, "n", (json_int_t)i, 0.5));
  }
  return root;
}

static void texts_survive_failing_requests(void **state)
{
  (void)state;
  char *text, *good;
  requests = 0;
  EXPECT_OK(tgi_json_text("t", make_document(), 0, &good, &error), error);
  const long total = requests;
  for (int sticky = 0; sticky < 2; sticky++) {
    for (long at = 1; at <= total; at++) {
      requests = 0;
      fail_at = at;
      for_good = sticky;
      EXPECT_ERROR(tgi_json_text("t", make_document(), 0, &text, &error), TG_NO_MEMORY,
                   "bytes of memory, got none", error);
      assert_null(text);
      assert_int_equal(alive, 1); /* the good one */
    }
  }
  fail_at = 0;
  EXPECT_OK(tgi_json_text("t", make_document(), 0, &text, &error), error);
  assert_string_equal(text, good);
  tgi_json_free_text(text);
  tgi_json_free_text(good);
  assert_int_equal(alive, 0);
}

/** What the host made before the first call here is still its own to free. */
static void values_of_the_host_stay_valid(void **state)
{
  assert_int_equal(alive, 0);
  alive = host_blocks;
  json_decref(*state);
  assert_int_equal(alive, 0);
}

static void bad_texts_name_the_byte(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    int byte;
    const char *part;
  } cases[] = {
      {"", 0, "'[' or '{' expected"},
      {"7", 1, "'[' or '{' expected"},
      {"[1", 2, "']' expected near end of file"},
      {"[1,]", 4, "unexpected token near ']'"},
      {"{\"a\":1,}", 8, "string or '}' expected near '}'"},
      {"{\"a\" 1}", 6, "':' expected near '1'"},
      {"[01]", 2, "invalid token near '0'"},
      {"[NaN]", 4, "invalid token near 'NaN'"},
      {"['a']", 2, "invalid token"},
      {"[1] x", 5, "end of file expected near 'x'"},
      {"[1] // x", 5, "end of file expected"},
      {"\xef\xbb\xbf{}", 3, "expected"},
      {"[\"\n\"]", 2, "unexpected newline"},
      {"[\"\xff\"]", 2, "unable to decode byte 0xff"},
      {"[\"\xc0\x80\"]", 2, "unable to decode byte 0xc0"},
      {"[\"\xed\xa0\x80\"]", 2, "unable to decode byte 0xed"},
      {"[\"\\ud83d\"]", 9, "invalid Unicode '\\uD83D'"},
      {"{\"a\":1,\"b\":2,\"\\u0061\":3}", 21, "duplicate object key"},
      {"[9223372036854775808]", 20, "too big integer"},
      {"[1e400]", 6, "real number overflow"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_json json;
    char place[64];
    sprintf(place, "t: byte %d: expected JSON, got this error: ", 1000 + cases[i].byte);
    EXPECT_ERROR(tgi_json_parse("t", cases[i].text, strlen(cases[i].text), 1000, 0, &json, &error),
                 TG_BAD_FILE, place, error);
    EXPECT_ERROR(parse(cases[i].text, 0, &json), TG_BAD_FILE, cases[i].part, error);
    assert_null(json.root);
  }
}

/* It is JSON, so the message says what is wrong with it. */
static void an_escaped_nul_is_named(void **state)
{
  (void)state;
  tgi_json json;
  EXPECT_ERROR(parse("[\"a\\u0000b\"]", 0, &json), TG_BAD_FILE,
               "t: byte 11: expected text without \\u0000, got it near '\"a\\u0000b\"'", error);
  EXPECT_ERROR(parse("{\"a\\u0000b\":1}", JSON_ALLOW_NUL, &json), TG_BAD_FILE,
               "t: byte 11: expected text without \\u0000, got it near '\"a\\u0000b\"'", error);
  EXPECT_OK(parse("[\"a\\u0000b\"]", JSON_ALLOW_NUL, &json), error);
  assert_int_equal(json_string_length(json_array_get(json.root, 0)), 3);
  json_decref(json.root);
}

static void bytes_of_value_0_are_refused_anywhere(void **state)
{
  (void)state;
  static const char good[] = "{\"a\": [1, true, \"x\", 2.5]}";
  const size_t size = sizeof good - 1;
  for (size_t at = 0; at <= size; at++) {
    char text[sizeof good];
    tgi_json json;
    memcpy(text, good, at);
    text[at] = '\0';
    memcpy(text + at + 1, good + at, size - at);
    char message[64];
    sprintf(message, "t: byte %zu: expected JSON, got a byte of value 0", at);
    EXPECT_ERROR(tgi_json_parse("t", text, size + 1, 0, 0, &json, &error), TG_BAD_FILE, message,
                 error);
  }
}

static void levels_are_limited(void **state)
{
  (void)state;
  for (int levels = JSON_PARSER_MAX_DEPTH; levels <= 100000; levels += 97951) {
    char *text = malloc(2 * (size_t)levels + 1);
    memset(text, '[', (size_t)levels);
    memset(text + levels, ']', (size_t)levels);
    text[2 * levels] = '\0';
    tgi_json json;
    if (levels == JSON_PARSER_MAX_DEPTH) {
      EXPECT_OK(parse(text, 0, &json), error);
      json_decref(json.root);
    } else {
      EXPECT_ERROR(parse(text, 0, &json), TG_BAD_FILE, "t: byte 2049: ", error);
    }
    free(text);
  }
}

static void numbers_are_exact_or_reals(void **state)
{
  (void)state;
  tgi_json json;
  EXPECT_OK(parse("[9223372036854775807, -9223372036854775808, 9007199254740993]", 0, &json),
            error);
  assert_true(json_integer_value(json_array_get(json.root, 0)) == INT64_MAX);
  assert_true(json_integer_value(json_array_get(json.root, 1)) == INT64_MIN);
  assert_true(json_integer_value(json_array_get(json.root, 2)) == 9007199254740993);
  json_decref(json.root);

  static const char huge[] = "[1000000000000000019884624838656, 7]";
  EXPECT_ERROR(parse(huge, 0, &json), TG_BAD_FILE, "too big integer", error);
  EXPECT_OK(parse(huge, JSON_DECODE_INT_AS_REAL, &json), error);
  assert_true(json_real_value(json_array_get(json.root, 0)) == 1e30);
  assert_true(json_real_value(json_array_get(json.root, 1)) == 7);
  json_decref(json.root);
}

/** Also under a locale that writes decimal commas, where the machine has one. */
static void reals_do_not_depend_on_the_locale(void **state)
{
  (void)state;
  static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8"};
  for (size_t i = 0; i < sizeof locales / sizeof locales[0]; i++) {
    if (!setlocale(LC_NUMERIC, locales[i])) {
      continue;
    }
    tgi_json json;
    char *text;
    EXPECT_OK(parse("[1.5, 1e-05, 0.1]", 0, &json), error);
    assert_true(json_real_value(json_array_get(json.root, 2)) == 0.1);
    EXPECT_OK(tgi_json_text("t", json.root, JSON_COMPACT | JSON_REAL_PRECISION(15), &text, &error),
              error);
    assert_string_equal(text, "[1.5,1e-5,0.1]");
    tgi_json_free_text(text);
  }
  setlocale(LC_NUMERIC, "C");
}

static void refusals_show_the_value(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    size_t flags;
    const char *message;
  } cases[] = {
      {"[null]", 0, "t: k: expected x, got null"},
      {"[7]", 0, "got 7"},
      {"[7.0]", 0, "got 7.0"},
      {"[7]", JSON_DECODE_INT_AS_REAL, "got 7"},
      {"[7.5]", JSON_DECODE_INT_AS_REAL, "got 7.5"},
      {"[[0, 7, 7.5, 1e300]]", JSON_DECODE_INT_AS_REAL, "got [0,7,7.5,1e300]"},
      {"[{\"a\": [30], \"b\\\" 1.0, 2\": 7.05}]", JSON_DECODE_INT_AS_REAL,
       "got {\"a\":[30],\"b\\\" 1.0, 2\":7.05}"},
      {"[\"a\\n\"]", 0, "got \"a\\x0a\""},
      {"[[1, {\"a\": []}]]", 0, "got [1,{\"a\":[]}]"},
      {"[]", 0, "got none"},
      {"[[\"0123456789012345678901234567890123456789012345678901234567890123456789\","
       "\"0123456789012345678901234567890123456789012345678901234567890123456789\","
       "\"0123456789012345678901234567890123456789012345678901234567890123456789\"]]",
       0, "56789\",\"01234567890123456..."},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_json json;
    const char *text = cases[i].text;
    EXPECT_OK(tgi_json_parse("t", text, strlen(text), 8, cases[i].flags, &json, &error), error);
    EXPECT_ERROR(tgi_json_refuse(&json, TG_UNSUPPORTED, json_array_get(json.root, 0), &error,
                                 "%s: expected x", "k"),
                 TG_UNSUPPORTED, cases[i].message, error);
    if (strlen(cases[i].message) < 10 &&
        strcmp(strstr(error.text, "got "), cases[i].message) != 0) {
      fail_msg("expected \"%s\" at the end, got \"%s\"", cases[i].message, error.text);
    }
    json_decref(json.root);
  }
}

static void files_are_saved_and_loaded(void **state)
{
  (void)state;
  const scratch dir = scratch_make();
  const char *path = scratch_file(&dir, "a.json");
  json_t *root = tgi_json_new();
  json_object_set_new(root, "b", json_pack("[I, b, n, []]", (json_int_t)1, 1));
  json_object_set_new(root, "a", json_string("\x01\"\\/\xc3\xa9"));
  EXPECT_OK(tgi_json_save(path, root, 0, &error), error);
  char *text = read_file(path, NULL);
  assert_string_equal(text, "{\n  \"b\": [\n    1,\n    true,\n    null,\n    []\n  ],\n"
                            "  \"a\": \"\\u0001\\\"\\\\/\xc3\xa9\"\n}\n");
  free(text);
  tgi_json json;
  EXPECT_OK(tgi_json_load(path, 1000, 0, &json, &error), error);
  assert_string_equal(json_string_value(json_object_get(json.root, "a")), "\x01\"\\/\xc3\xa9");
  json_decref(json.root);
  EXPECT_ERROR(tgi_json_load(path, 10, 0, &json, &error), TG_BAD_FILE, "at most 10 bytes", error);
  assert_null(json.root);
  EXPECT_ERROR(tgi_json_load(scratch_file(&dir, "b.json"), 10, 0, &json, &error), TG_IO,
               "/b.json: expected to open it", error);
  assert_null(json.root);
  EXPECT_ERROR(tgi_json_save(scratch_file(&dir, "no/a.json"), tgi_json_new(), 0, &error), TG_IO,
               "create a temporary file", error);
  scratch_remove(&dir);
}

int main(void)
{
  json_set_alloc_funcs(host_allocate, host_release);
  json_t *of_host = json_pack("[s, I]", "a string", (json_int_t)7);
  host_blocks = alive;
  alive = 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_survive_failing_requests),
      cmocka_unit_test(texts_survive_failing_requests),
      cmocka_unit_test(bad_texts_name_the_byte),
      cmocka_unit_test(an_escaped_nul_is_named),
      cmocka_unit_test(bytes_of_value_0_are_refused_anywhere),
      cmocka_unit_test(levels_are_limited),
      cmocka_unit_test(numbers_are_exact_or_reals),
      cmocka_unit_test(reals_do_not_depend_on_the_locale),
      cmocka_unit_test(refusals_show_the_value),
      cmocka_unit_test(files_are_saved_and_loaded),
      cmocka_unit_test_prestate(values_of_the_host_stay_valid, of_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
