/* Numbers to text and back. */
#include "template_number.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/**
 * `count` significant digits of a positive number, with the exponent of the first. The locale's
 * point is passed over.
 */
static int take_digits(double real, int count, char digits[24])
{
  char text[40];
  snprintf(text, sizeof text, "%.*e", count - 1, real);
  int used = 0;
  const char *at = text;
  for (; *at != 'e'; at++) {
    if (*at >= '0' && *at <= '9') {
      digits[used++] = *at;
    }
  }
  digits[used] = '\0';
  return atoi(at + 1);
}

/** Without a point, so that the locale does not matter. */
static double read_digits(const char *digits, int exponent)
{
  char text[40];
  snprintf(text, sizeof text, "%se%d", digits, exponent - (int)strlen(digits) + 1);
  return strtod(text, NULL);
}

/** The next larger number of as many digits; false at 99...9. */
static bool add_one(char *digits)
{
  for (size_t i = strlen(digits); i > 0; i--) {
    if (digits[i - 1] != '9') {
      digits[i - 1]++;
      return true;
    }
    digits[i - 1] = '0';
  }
  return false;
}

/** Digits and exponent of a positive finite number. */
static int shortest_digits(double real, char digits[24])
{
  /* 15 digits are those of every number that was read from fewer, but for the smallest. */
  for (int count = real < DBL_MIN ? 1 : 15; count <= 17; count++) {
    const int exponent = take_digits(real, count, digits);
    if (read_digits(digits, exponent) == real) {
      return exponent;
    }
    /* Above a power of two the numbers are twice as far apart as below it. */
    char next[24];
    memcpy(next, digits, sizeof next);
    int whole;
    if (frexp(real, &whole) == 0.5 && add_one(next) && read_digits(next, exponent) == real) {
      memcpy(digits, next, sizeof next);
      return exponent;
    }
  }
  return take_digits(real, 17, digits);
}

void tgi_print_real(double real, char out[TGI_REAL_BYTES])
{
  if (!isfinite(real)) {
    strcpy(out, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
    return;
  }
  char digits[24] = "0";
  const int exponent = real == 0 ? 0 : shortest_digits(fabs(real), digits);
  size_t count = strlen(digits);
  while (count > 1 && digits[count - 1] == '0') {
    digits[--count] = '\0';
  }
  const char *sign = signbit(real) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    snprintf(out, TGI_REAL_BYTES, "%s%c%s%.18se%c%02d", sign, digits[0], count > 1 ? "." : "",
             digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
  } else if (exponent < 0) {
    snprintf(out, TGI_REAL_BYTES, "%s0.%.*s%.18s", sign, -exponent - 1, "000", digits);
  } else if ((size_t)exponent + 1 >= count) {
    snprintf(out, TGI_REAL_BYTES, "%s%.18s%.*s.0", sign, digits, exponent + 1 - (int)count,
             "0000000000000000");
  } else {
    snprintf(out, TGI_REAL_BYTES, "%s%.*s.%.18s", sign, exponent + 1, digits,
             digits + exponent + 1);
  }
}

static int digit_of(char c)
{
  const int letter = c | 0x20;
  return c >= '0' && c <= '9' ? c - '0' : letter >= 'a' && letter <= 'z' ? letter - 'a' + 10 : 99;
}

/** The base of a prefix such as "0x" where `base` allows it; *skip is its length. */
static int base_of(const char *text, size_t size, int base, size_t *skip)
{
  *skip = 0;
  if (size < 2 || text[0] != '0') {
    return base == 0 ? 10 : base;
  }
  const int letter = text[1] | 0x20;
  const int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (named != 0 && (base == 0 || base == named)) {
    *skip = 2;
    return named;
  }
  return base == 0 ? 10 : base;
}

bool tgi_parse_integer(tgi_job *job, const char *text, size_t size, int base, bool sign,
                       int64_t *integer)
{
  bool negative = false;
  if (sign && size > 0 && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text++;
    size--;
  }
  size_t at;
  const int radix = base_of(text, size, base, &at);
  const bool zero_first = base == 0 && at == 0 && size > 1 && text[0] == '0';
  const size_t prefix = at;
  int64_t value = 0;
  bool digit = prefix > 0, range = true;
  for (; at < size; at++) {
    if (text[at] == '_' && digit) {
      digit = false;
      continue;
    }
    const int next = digit_of(text[at]);
    if (next >= radix || (zero_first && next != 0)) {
      return false;
    }
    range = range && !__builtin_mul_overflow(value, radix, &value) &&
            !__builtin_add_overflow(value, negative ? -next : next, &value);
    digit = true;
  }
  if (!digit || size <= prefix) {
    return false;
  }
  if (!range) {
    tgi_fail_range(job);
  }
  *integer = value;
  return true;
}

/** Copies digits and single underscores between them, without the latter. */
static size_t take_run(const char *text, size_t size, size_t at, tgi_writer *digits)
{
  const size_t start = at;
  while (at < size && ((text[at] >= '0' && text[at] <= '9') ||
                       (text[at] == '_' && at > start && at + 1 < size && text[at - 1] != '_' &&
                        text[at + 1] >= '0' && text[at + 1] <= '9'))) {
    if (text[at] != '_') {
      tgi_write(digits, text + at, 1);
    }
    at++;
  }
  return at;
}

bool tgi_parse_real(tgi_job *job, const char *text, size_t size, double *real)
{
  tgi_writer digits = tgi_writer_begin(job);
  size_t at = take_run(text, size, 0, &digits);
  int64_t exponent = 0;
  if (at < size && text[at] == '.') {
    const size_t before = digits.size;
    at = take_run(text, size, at + 1, &digits);
    exponent = -(int64_t)(digits.size - before);
  }
  if (digits.size == 0) {
    return false;
  }
  if (at < size && (text[at] | 0x20) == 'e') {
    const bool negative = at + 1 < size && text[at + 1] == '-';
    const bool sign = at + 1 < size && (text[at + 1] == '-' || text[at + 1] == '+');
    tgi_writer more = tgi_writer_begin(job);
    at = take_run(text, size, at + 1 + sign, &more);
    int64_t value = 0;
    for (size_t i = 0; i < more.size; i++) {
      value = value < 100000000 ? 10 * value + (more.bytes[i] - '0') : value;
    }
    if (more.size == 0) {
      return false;
    }
    exponent += negative ? -value : value;
  }
  char tail[24];
  snprintf(tail, sizeof tail, "e%lld", (long long)exponent);
  tgi_write(&digits, tail, strlen(tail) + 1);
  *real = strtod(digits.bytes, NULL);
  return at == size;
}
