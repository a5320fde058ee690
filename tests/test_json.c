/* The JSON reader's limits and conversions, and the writer's form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "model/json_reader.h"
#include "model/json_writer.h"
#include <cmocka.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

static tg_error error;

static tg_status read_text(const char *text, tgi_json *json)
{
  return tgi_json_read("t", text, strlen(text), 0, json, &error);
}

static void accepted_texts(void **state)
{
  (void)state;
  static const char *const texts[] = {"0",
                                      "-0",
                                      "1.5e+10",
                                      "\"\"",
                                      " [ ] ",
                                      "{}",
                                      "[[],{}]",
                                      "\t{\"a\" : [1 , 2]}\r\n",
                                      "\"\\ud83d\\ude42\\/\"",
                                      "null",
                                      "123456789012345678901234567890",
                                      "1e999",
                                      "\"\x7f\"",
                                      "\"\\u007F\""};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    tgi_json json;
    EXPECT_OK(read_text(texts[i], &json), error);
    tgi_json_free(&json);
  }
}

static void refused_texts_are_reported_where_they_go_wrong(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "t: byte 0: expected a value, got the end of the text"},
      {" ", "t: byte 1: expected a value, got the end"},
      {"nul", "t: byte 0: expected a value, got nul"},
      {"True", "t: byte 0: expected a value, got True"},
      {"+1", "t: byte 0: expected a value, got +1"},
      {".5", "t: byte 0: expected a value, got .5"},
      {"-", "t: byte 1: expected a digit, got the end"},
      {"1.", "t: byte 2: expected a digit, got the end"},
      {"1e", "t: byte 2: expected a digit, got the end"},
      {"00", "t: byte 1: expected the end of the text, got 0"},
      {"1 2", "t: byte 2: expected the end of the text, got 2"},
      {"[1,]", "t: byte 3: expected a value, got ]"},
      {"[1", "t: byte 2: expected ',' or ']', got the end"},
      {"{\"a\"}", "t: byte 4: expected ':', got }"},
      {"{\"a\":1,}", "t: byte 7: expected a key in quotes, got }"},
      {"{a:1}", "t: byte 1: expected a key in quotes, got a:1}"},
      {"{\"a\":1", "t: byte 6: expected ',' or '}', got the end"},
      {"{\"a\":1,\"b\":2,\"a\":3}", "t: byte 13: expected each key once, got \"a\""},
      {"'a'", "t: byte 0: expected a value, got 'a'"},
      {"\"a", "t: byte 2: expected a closing quote"},
      {"\"\n\"", "t: byte 1: expected a closing quote, or control characters escaped, got \\x0a"},
      {"\"\\x\"", "t: byte 1: expected an escape sequence, got \\x"},
      {"\"\\u12g4\"", "t: byte 1: expected an escape sequence"},
      {"\"\\u123", "t: byte 1: expected an escape sequence"},
      {"\"\\", "t: byte 1: expected an escape sequence"},
      {"\"\\u0000\"", "t: byte 1: expected a character other than \\u0000"},
      {"\"\\ude42\"", "t: byte 1: expected a high surrogate before a low one"},
      {"\"\\ud83d\"", "t: byte 1: expected a low surrogate after a high one"},
      {"\"\\ud83d\\u0041\"", "t: byte 1: expected a low surrogate after a high one"},
      {"\"\xc3\"", "t: byte 1: expected UTF-8, got \\xc3\""},
      {"\"\xc0\x80\"", "t: byte 1: expected UTF-8"},
      {"\"\xed\xa0\x80\"", "t: byte 1: expected UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "t: byte 1: expected UTF-8"},
      {"\xef\xbb\xbf{}", "t: byte 0: expected a value"},
      {"[1] // x", "t: byte 4: expected the end of the text"},
      {"NaN", "t: byte 0: expected a value"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tgi_json json;
    EXPECT_ERROR(read_text(cases[i].text, &json), TG_BAD_FILE, cases[i].message, error);
    assert_null(json.nodes);
  }
}

static void offsets_count_from_the_base(void **state)
{
  (void)state;
  tgi_json json;
  EXPECT_ERROR(tgi_json_read("t", "[x", 2, 1000, &json, &error), TG_BAD_FILE,
               "t: byte 1001:", error);
  EXPECT_OK(tgi_json_read("t", "[7,8]", 5, 1000, &json, &error), error);
  assert_int_equal(tgi_json_byte(&json, 2), 1003);
  tgi_json_free(&json);
}

static void levels_are_limited(void **state)
{
  (void)state;
  char text[300];
  for (int levels = 126; levels <= 128; levels++) {
    memset(text, '[', (size_t)levels);
    memset(text + levels, ']', (size_t)levels);
    text[2 * levels] = '\0';
    tgi_json json;
    const tg_status status = read_text(text, &json);
    assert_int_equal(status, levels <= 127 ? TG_OK : TG_BAD_FILE);
    if (status == TG_OK) {
      tgi_json_free(&json);
    }
  }
}

static void many_keys_are_told_apart(void **state)
{
  (void)state;
  enum { KEYS = 5000 };
  char *text = malloc(KEYS * 16 + 32);
  for (int twice = 0; twice < 2; twice++) {
    size_t used = 0;
    for (int i = 0; i < KEYS; i++) {
      used += (size_t)sprintf(text + used, "%s\"k%d\":%d", i ? "," : "{", i * 7919 % KEYS, i);
    }
    strcpy(text + used, twice ? ",\"\\u006b77\":0}" : "}");
    tgi_json json;
    if (twice) {
      EXPECT_ERROR(read_text(text, &json), TG_BAD_FILE, "each key once, got \"\\u006b77\"", error);
      continue;
    }
    EXPECT_OK(read_text(text, &json), error);
    assert_int_equal(tgi_json_size(&json, TGI_JSON_ROOT), KEYS);
    int64_t value;
    assert_true(tgi_json_int64(&json, tgi_json_member(&json, TGI_JSON_ROOT, "k7919"), &value) ==
                false); /* absent: node 0, the object itself, is no number */
    assert_true(tgi_json_int64(&json, tgi_json_member(&json, TGI_JSON_ROOT, "k2919"), &value));
    assert_int_equal(value, 1);
    tgi_json_free(&json);
  }
  free(text);
}

/** "costarring" and "liquid" have the same FNV-1a hash; only their text tells them apart. */
static void colliding_keys_are_told_apart(void **state)
{
  (void)state;
  tgi_json json;
  EXPECT_OK(read_text("{\"costarring\":1,\"liquid\":2}", &json), error);
  assert_int_equal(tgi_json_hash(&json, 1), tgi_json_hash(&json, 3));
  tgi_json_free(&json);
  EXPECT_ERROR(read_text("{\"costarring\":1,\"liquid\":2,\"costarr\\u0069ng\":3}", &json),
               TG_BAD_FILE, "each key once, got \"costarr\\u0069ng\"", error);
}

static void values_convert_exactly_or_not_at_all(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    bool fits;
    int64_t value;
  } integers[] = {{"9223372036854775807", true, INT64_MAX},
                  {"9223372036854775808", false, 0},
                  {"-9223372036854775808", true, INT64_MIN},
                  {"-9223372036854775809", false, 0},
                  {"99999999999999999999999", false, 0},
                  {"-0", true, 0},
                  {"9007199254740993", true, 9007199254740993},
                  {"1.0", false, 0},
                  {"1e2", false, 0},
                  {"\"1\"", false, 0},
                  {"true", false, 0},
                  {"null", false, 0},
                  {"[1]", false, 0}};
  for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
    tgi_json json;
    int64_t value = 42;
    EXPECT_OK(read_text(integers[i].text, &json), error);
    assert_int_equal(tgi_json_int64(&json, 0, &value), integers[i].fits);
    assert_true(value == (integers[i].fits ? integers[i].value : 42));
    tgi_json_free(&json);
  }
  static const struct {
    const char *text;
    bool fits;
    double value;
  } reals[] = {{"1e-05", true, 1e-05}, {"5", true, 5},     {"-2.5E+1", true, -25},
               {"1e400", false, 0},    {"0.1", true, 0.1}, {"1e-400", true, 0},
               {"\"1\"", false, 0}};
  for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
    tgi_json json;
    double value;
    EXPECT_OK(read_text(reals[i].text, &json), error);
    assert_int_equal(tgi_json_double(&json, 0, &value), reals[i].fits);
    if (reals[i].fits && value != reals[i].value) {
      fail_msg("%s: expected %.17g, got %.17g", reals[i].text, reals[i].value, value);
    }
    tgi_json_free(&json);
  }
}

static void strings_decode(void **state)
{
  (void)state;
  tgi_json json;
  EXPECT_OK(
      read_text("[\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE42\xc3\xa9\",\"a\"]", &json),
      error);
  char text[64];
  assert_true(tgi_json_string_bound(&json, 1) < sizeof text);
  const size_t size = tgi_json_string(&json, 1, text);
  assert_string_equal(text, "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x99\x82\xc3\xa9");
  assert_int_equal(size, strlen(text));
  assert_true(tgi_json_equals(&json, 1, text));
  assert_false(tgi_json_equals(&json, 1, "a"));
  assert_true(tgi_json_equals(&json, 2, "a"));
  assert_false(tgi_json_equals(&json, 2, "ab"));
  assert_false(tgi_json_equals(&json, 2, ""));
  assert_true(tgi_json_compare(&json, 1, 2) > 0 && tgi_json_compare(&json, 2, 1) < 0);
  assert_int_equal(tgi_json_compare(&json, 2, 2), 0);
  tgi_json_free(&json);
}

static void writer_form(void **state)
{
  (void)state;
  for (int indent = 0; indent <= 2; indent += 2) {
    tgi_json_writer w = {.indent = indent};
    tgi_json_open_object(&w, NULL);
    tgi_json_put_string(&w, "s\"", "\x01\x1f\x7f\n\"\\/\xc3\xa9");
    tgi_json_open_array(&w, "a");
    tgi_json_put_integer(&w, NULL, INT64_MIN);
    tgi_json_put_bool(&w, NULL, true);
    tgi_json_put_null(&w, NULL);
    tgi_json_close_array(&w);
    tgi_json_open_array(&w, "e");
    tgi_json_close_array(&w);
    tgi_json_close_object(&w);
    tgi_json_put_raw(&w, "", 1);
    assert_true(tgi_json_writer_ok(&w));
    assert_string_equal(
        w.text,
        indent == 0
            ? "{\"s\\\"\":\"\\u0001\\u001f\\u007f\\n\\\"\\\\/\xc3\xa9\","
              "\"a\":[-9223372036854775808,true,null],\"e\":[]}"
            : "{\n  \"s\\\"\": \"\\u0001\\u001f\\u007f\\n\\\"\\\\/\xc3\xa9\",\n"
              "  \"a\": [\n    -9223372036854775808,\n    true,\n    null\n  ],\n  \"e\": []\n}");
    tgi_json_writer_free(&w);
  }
}

/** Also under a locale that writes decimal commas, where the machine has one. */
static void reals_are_short_and_read_back(void **state)
{
  (void)state;
  static const struct {
    double value;
    const char *text;
  } cases[] = {{1e-5, "1e-05"},
               {0.02, "0.02"},
               {0, "0.0"},
               {3, "3.0"},
               {0.1 + 0.2, "0.30000000000000004"},
               {-1.5, "-1.5"},
               {1e6, "1e+06"},
               {123456, "123456.0"},
               {5e-324, "5e-324"}};
  static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8"};
  for (size_t l = 0; l < sizeof locales / sizeof locales[0]; l++) {
    if (!setlocale(LC_NUMERIC, locales[l])) {
      continue;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      tgi_json_writer w = {0};
      tgi_json_put_real(&w, NULL, cases[i].value);
      tgi_json_put_raw(&w, "", 1);
      assert_string_equal(w.text, cases[i].text);
      tgi_json json;
      double value = -7;
      EXPECT_OK(read_text(w.text, &json), error);
      assert_true(tgi_json_double(&json, 0, &value));
      assert_true(value == cases[i].value);
      tgi_json_free(&json);
      tgi_json_writer_free(&w);
    }
  }
  setlocale(LC_NUMERIC, "C");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accepted_texts),
      cmocka_unit_test(refused_texts_are_reported_where_they_go_wrong),
      cmocka_unit_test(offsets_count_from_the_base),
      cmocka_unit_test(levels_are_limited),
      cmocka_unit_test(many_keys_are_told_apart),
      cmocka_unit_test(colliding_keys_are_told_apart),
      cmocka_unit_test(values_convert_exactly_or_not_at_all),
      cmocka_unit_test(strings_decode),
      cmocka_unit_test(writer_form),
      cmocka_unit_test(reals_are_short_and_read_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
