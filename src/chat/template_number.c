#include "template_number.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void fail_range(tgi_job *job)
{
  tgi_job_fail(job, TG_UNSUPPORTED, "whole numbers of 64 bits, got a larger one");
}

double tgi_to_real(tgi_value number)
{
  int64_t integer;
  return tgi_is_integer(number, &integer) ? (double)integer : number.as.real;
}

static tgi_order order_of(double a, double b)
{
  return a < b ? TGI_BELOW : a > b ? TGI_ABOVE : a == b ? TGI_SAME : TGI_UNORDERED;
}

static tgi_order order_mixed(int64_t a, double b)
{
  if (!(b > -0x1p63 && b < 0x1p63)) {
    return order_of(0, b); /* its size decides, or it is NaN */
  }
  const int64_t whole = (int64_t)b;
  return a != whole ? (a < whole ? TGI_BELOW : TGI_ABOVE) : order_of((double)whole, b);
}

tgi_order tgi_number_order(tgi_value a, tgi_value b)
{
  int64_t i, j;
  const bool whole_a = tgi_is_integer(a, &i), whole_b = tgi_is_integer(b, &j);
  if (whole_a && whole_b) {
    return i < j ? TGI_BELOW : i > j ? TGI_ABOVE : TGI_SAME;
  }
  if (whole_a) {
    return order_mixed(i, b.as.real);
  }
  if (whole_b) {
    const tgi_order order = order_mixed(j, a.as.real);
    return order == TGI_BELOW ? TGI_ABOVE : order == TGI_ABOVE ? TGI_BELOW : order;
  }
  return order_of(a.as.real, b.as.real);
}

/* ---- arithmetic ---- */

static int bits_of(uint64_t n)
{
  return n == 0 ? 0 : 64 - __builtin_clzll(n);
}

/** a / b, rounded once: 55 bits of the quotient, the last of which says whether anything follows.
 */
static double divide_integers(int64_t a, int64_t b)
{
  const uint64_t n = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
  const uint64_t d = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  int shift = 55 + bits_of(d) - bits_of(n);
  shift = shift < 0 ? 0 : shift;
  __extension__ typedef unsigned __int128 wide;
  const wide scaled = (wide)n << shift;
  const uint64_t quotient = (uint64_t)(scaled / d) | (scaled % d != 0);
  const double size = ldexp((double)quotient, -shift);
  return (a < 0) != (b < 0) ? -size : size;
}

static int64_t power_of(tgi_job *job, int64_t base, int64_t exponent)
{
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) {
      fail_range(job);
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      fail_range(job);
    }
  }
  return result;
}

static int64_t divide_down(tgi_job *job, int64_t a, int64_t b)
{
  if (a == INT64_MIN && b == -1) {
    fail_range(job);
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t remainder_down(int64_t a, int64_t b)
{
  if (b == -1) {
    return 0; /* INT64_MIN % -1 traps */
  }
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static tgi_value real_power(tgi_job *job, double a, double b)
{
  const bool fraction = b != floor(b);
  if ((a == 0 && b < 0) || (a < 0 && isfinite(a) && isfinite(b) && fraction)) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "a power that is a real number, got %g ** %g", a, b);
  }
  const double result = pow(a, b);
  if (isinf(result) && isfinite(a) && isfinite(b)) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "a power within the range, got %g ** %g", a, b);
  }
  return tgi_real(result);
}

/** As float_rem and float_floor_div of CPython. */
static tgi_value real_division(double a, double b, bool rest)
{
  double mod = fmod(a, b);
  double quotient = (a - mod) / b;
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) {
      mod += b;
      quotient -= 1;
    }
  } else {
    mod = copysign(0, b);
  }
  if (rest) {
    return tgi_real(mod);
  }
  if (quotient == 0) {
    return tgi_real(copysign(0, a / b));
  }
  const double down = floor(quotient);
  return tgi_real(quotient - down > 0.5 ? down + 1 : down);
}

static tgi_value whole_arithmetic(tgi_job *job, tgi_operation operation, int64_t a, int64_t b)
{
  int64_t result = 0;
  bool overflow = false;
  switch (operation) {
  case TGI_OP_ADD:
    overflow = __builtin_add_overflow(a, b, &result);
    break;
  case TGI_OP_SUB:
    overflow = __builtin_sub_overflow(a, b, &result);
    break;
  case TGI_OP_MUL:
    overflow = __builtin_mul_overflow(a, b, &result);
    break;
  case TGI_OP_DIV:
    return tgi_real(divide_integers(a, b));
  case TGI_OP_FLOORDIV:
    result = divide_down(job, a, b);
    break;
  case TGI_OP_MOD:
    result = remainder_down(a, b);
    break;
  default:
    return b < 0 ? real_power(job, (double)a, (double)b) : tgi_int(power_of(job, a, b));
  }
  if (overflow) {
    fail_range(job);
  }
  return tgi_int(result);
}

tgi_value tgi_arithmetic(tgi_job *job, tgi_operation operation, tgi_value a, tgi_value b)
{
  const bool divides =
      operation == TGI_OP_DIV || operation == TGI_OP_FLOORDIV || operation == TGI_OP_MOD;
  if (divides && tgi_to_real(b) == 0) {
    tgi_job_fail(job, TG_BAD_ARGUMENT, "a divisor other than 0, got 0");
  }
  int64_t i, j;
  if (tgi_is_integer(a, &i) && tgi_is_integer(b, &j)) {
    return whole_arithmetic(job, operation, i, j);
  }
  const double x = tgi_to_real(a), y = tgi_to_real(b);
  switch (operation) {
  case TGI_OP_ADD:
    return tgi_real(x + y);
  case TGI_OP_SUB:
    return tgi_real(x - y);
  case TGI_OP_MUL:
    return tgi_real(x * y);
  case TGI_OP_DIV:
    return tgi_real(x / y);
  case TGI_OP_FLOORDIV:
    return real_division(x, y, false);
  case TGI_OP_MOD:
    return real_division(x, y, true);
  default:
    return real_power(job, x, y);
  }
}

tgi_value tgi_negate(tgi_job *job, tgi_value number)
{
  int64_t integer;
  if (!tgi_is_integer(number, &integer)) {
    return tgi_real(-number.as.real);
  }
  if (integer == INT64_MIN) {
    fail_range(job);
  }
  return tgi_int(-integer);
}

int64_t tgi_truncate(tgi_job *job, double real)
{
  if (!(real > -0x1p63 && real < 0x1p63)) {
    fail_range(job);
  }
  return (int64_t)real;
}

/* ---- text ---- */

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
    fail_range(job);
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
