/* UTF-8: single code points, and streams that are cut anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants those four first */
#include "files/utf8.h"
#include "files/utf8_stream.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void every_code_point_round_trips(void **state)
{
  (void)state;
  for (uint32_t point = 0; point <= 0x10ffff; point++) {
    if (point >= 0xd800 && point < 0xe000) {
      continue;
    }
    char text[4];
    uint32_t back = 0;
    const size_t size = tgi_utf8_encode(point, text);
    if (tgi_utf8_decode(text, size, &back) != size || back != point) {
      fail_msg("U+%04X: got U+%04X", point, back);
    }
    if (tgi_utf8_decode(text, size - 1, &back) != 0) {
      fail_msg("U+%04X: one byte less is complete", point);
    }
  }
}

static void check_stream(const char *bytes, size_t size, const char *wanted)
{
  /* in every pair of pieces, and byte by byte */
  for (size_t cut = 0; cut <= size + 1; cut++) {
    tgi_utf8_stream stream = {0};
    char out[TGI_UTF8_STREAM_BOUND(64) + 4];
    size_t used = 0;
    if (cut <= size) {
      used += tgi_utf8_stream_push(&stream, bytes, cut, out);
      used += tgi_utf8_stream_push(&stream, bytes + cut, size - cut, out + used);
    } else {
      for (size_t i = 0; i < size; i++) {
        used += tgi_utf8_stream_push(&stream, bytes + i, 1, out + used);
      }
    }
    assert_int_equal(tgi_utf8_valid_bytes(out, used), used);
    used += tgi_utf8_stream_finish(&stream, out + used);
    out[used] = '\0';
    assert_string_equal(out, wanted);
    assert_int_equal(tgi_utf8_stream_finish(&stream, out), 0);
  }
}

#define FFFD "\xef\xbf\xbd"

static void streams_are_valid_utf8_at_every_cut(void **state)
{
  (void)state;
  check_stream("", 0, "");
  check_stream("plain", 5, "plain");
  check_stream("\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x99\x82", 9, "\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x99\x82");
  check_stream("a\x80z", 3, "a" FFFD "z");
  check_stream("\xc3(", 2, FFFD "(");
  check_stream("\xc0\xaf", 2, FFFD FFFD);
  check_stream("\xe0\x80\xaf", 3, FFFD FFFD FFFD);
  check_stream("\xed\xa0\x80", 3, FFFD FFFD FFFD);
  check_stream("\xf4\x91\x92\x93\xff"
               "A",
               6, FFFD FFFD FFFD FFFD FFFD "A");
  check_stream("\xf0\x9f\x99", 3, FFFD);
  check_stream("\xf0\x9f\x99\xf0\x9f\x99\x82", 7, FFFD "\xf0\x9f\x99\x82");
  /* the example of Unicode's table 3-11 */
  check_stream("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
               "A",
               9, FFFD FFFD FFFD FFFD "A");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_point_round_trips),
      cmocka_unit_test(streams_are_valid_utf8_at_every_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
