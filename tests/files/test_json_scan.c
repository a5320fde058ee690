/* JSON read in place: what it takes is what jansson takes, and refusals name the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "expect.h"
#include "files/json_file.h"
#include "files/json_scan.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static tg_error error;

static tgi_json_scan scan_of(const char *text)
{
  return (tgi_json_scan){.path = "t", .text = text, .size = strlen(text), .error = &error};
}

/** The string is the same as jansson's, or refused by both. */
static void check_string(const char *text)
{
  char document[256];
  tgi_json json;
  sprintf(document, "[%s]", text);
  const tg_status theirs =
      tgi_json_parse("t", document, strlen(document), 0, 0, &json, &(tg_error){0});
  tgi_json_scan scan = scan_of(text);
  tgi_json_string got;
  const tg_status ours = tgi_json_scan_string(&scan, &got);
  if (ours != theirs) {
    fail_msg("%s: expected %s, got %s: %s", text, tg_status_name(theirs), tg_status_name(ours),
             error.text);
  }
  if (ours == TG_OK) {
    const json_t *wanted = json_array_get(json.root, 0);
    assert_int_equal(got.size, json_string_length(wanted));
    assert_memory_equal(got.bytes, json_string_value(wanted), got.size);
    assert_int_equal(scan.at, strlen(text));
    json_decref(json.root);
  }
  free(scan.unescaped);
}

static void strings_are_those_of_jansson(void **state)
{
  (void)state;
  static const char *const texts[] = {
      "\"\"", "\"plain\"", "\"\xc4\xa0the\"", "\"\\u0120the\\n\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
      "\"\\ud83d\\ude42!\"", "\"\xf0\x9f\x99\x82\"", "\"a\\u00e9b\\u00E9c\"",
      /* refused */
      "\"", "\"a", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\u0000\"", "\"\\ud83d\"",
      "\"\\ud83dx\"", "\"\\ud83d\\u0041\"", "\"\\ude42\"", "\"\n\"", "\"\x01\"", "\"\xff\"",
      "\"\xc3(\"", "\"\xed\xa0\x80\"", "\"\\", "\"\\u", "\"\\ud83d\\u"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    check_string(texts[i]);
  }
}

static void check_integer(const char *text, tg_status status, int64_t wanted)
{
  tgi_json_scan scan = scan_of(text);
  int64_t got = -1;
  assert_int_equal(tgi_json_scan_integer(&scan, 5000, &got), status);
  if (status == TG_OK) {
    assert_int_equal(got, wanted);
  } else {
    assert_non_null(strstr(error.text, "expected an integer from 0 to 5000, got "));
  }
}

static void integers_are_whole_and_bounded(void **state)
{
  (void)state;
  check_integer("0", TG_OK, 0);
  check_integer("  5000 ,", TG_OK, 5000);
  check_integer("5001", TG_BAD_FILE, 0);
  check_integer("99999999999999999999999999", TG_BAD_FILE, 0);
  check_integer("-1", TG_BAD_FILE, 0);
  check_integer("01", TG_BAD_FILE, 0);
  check_integer("1.0", TG_BAD_FILE, 0);
  check_integer("1e2", TG_BAD_FILE, 0);
  check_integer("\"1\"", TG_BAD_FILE, 0);
  check_integer("", TG_BAD_FILE, 0);
}

static void check_skip(const char *text, size_t end, size_t wanted)
{
  tgi_json_scan scan = scan_of(text);
  size_t strings;
  EXPECT_OK(tgi_json_scan_skip(&scan, &strings), error);
  assert_int_equal(scan.at, end);
  assert_int_equal(strings, wanted);
}

static void values_are_passed_over(void **state)
{
  (void)state;
  check_skip("12,", 2, 0);
  check_skip(" null }", 6, 0);
  check_skip("\"a\\\"]\\\\\", 1", 8, 1);
  check_skip("{\"a\": [1, \"}\", {}], \"b\": \"\\\\\"} ,", 30, 4);
  check_skip("[]]", 2, 0);
  size_t strings;
  tgi_json_scan scan = scan_of("  [1, {\"a\": ");
  EXPECT_ERROR(tgi_json_scan_skip(&scan, &strings), TG_BAD_FILE,
               "t: byte 12: expected a value of JSON, got the end of the file", error);
  scan = scan_of("}");
  EXPECT_ERROR(tgi_json_scan_skip(&scan, &strings), TG_BAD_FILE, "byte 0", error);
  scan = scan_of("[\"abc");
  EXPECT_ERROR(tgi_json_scan_skip(&scan, &strings), TG_BAD_FILE,
               "byte 1: expected a string with its last", error);
  char deep[3000];
  memset(deep, '[', sizeof deep);
  deep[sizeof deep - 1] = '\0';
  scan = scan_of(deep);
  EXPECT_ERROR(tgi_json_scan_skip(&scan, &strings), TG_BAD_FILE, "byte 2048", error);
}

static void refusals_name_byte_and_place(void **state)
{
  (void)state;
  tgi_json_scan scan = scan_of("  \x07\xc3\xa9 and more than twenty bytes");
  scan.place = "model: vocab";
  assert_false(tgi_json_scan_take(&scan, '"'));
  EXPECT_ERROR(tgi_json_scan_refuse(&scan, scan.at, "a string"), TG_BAD_FILE,
               "t: byte 2: model: vocab: expected a string, got \\x07\xc3\xa9 and more than tw",
               error);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strings_are_those_of_jansson),
      cmocka_unit_test(integers_are_whole_and_bounded),
      cmocka_unit_test(values_are_passed_over),
      cmocka_unit_test(refusals_name_byte_and_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
