#include "template_number.h"
#include <math.h>

_Noreturn void tgi_fail_range(tgi_job *job)
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
  if (!(b > -TGI_INTEGER_END && b < TGI_INTEGER_END)) {
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
      tgi_fail_range(job);
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      tgi_fail_range(job);
    }
  }
  return result;
}

static int64_t divide_down(tgi_job *job, int64_t a, int64_t b)
{
  if (a == INT64_MIN && b == -1) {
    tgi_fail_range(job);
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
    tgi_fail_range(job);
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
    tgi_fail_range(job);
  }
  return tgi_int(-integer);
}

int64_t tgi_truncate(tgi_job *job, double real)
{
  if (!(real > -TGI_INTEGER_END && real < TGI_INTEGER_END)) {
    tgi_fail_range(job);
  }
  return (int64_t)real;
}
