#include "template_format.h"
#include "template_number.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

int tgi_format_count(tgi_job *job, const tgi_string *format, size_t *at)
{
  int count = 0;
  for (; *at < format->size && format->bytes[*at] >= '0' && format->bytes[*at] <= '9'; ++*at) {
    count = 10 * count + (format->bytes[*at] - '0');
    if (count > TGI_MAX_FORMAT_WIDTH) {
      tgi_job_fail(job, TG_UNSUPPORTED, "a width and a precision of at most %d, got more",
                   TGI_MAX_FORMAT_WIDTH);
    }
  }
  return count;
}

static void fill(tgi_writer *writer, uint32_t point, int count)
{
  for (int i = 0; i < count; i++) {
    tgi_write_point(writer, point ? point : ' ', 0);
  }
}

/** `head` characters come before the padding of '='. */
static void pad(tgi_writer *writer, const tgi_format_spec *spec, char align, tgi_string *s,
                size_t head)
{
  const size_t points = tgi_string_points(writer->job, s);
  const int missing = (size_t)spec->width > points ? spec->width - (int)points : 0;
  const int left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  tgi_write_slice(writer, s, 0, align == '=' ? head : 0);
  fill(writer, spec->fill, left);
  tgi_write_slice(writer, s, align == '=' ? head : 0, s->size);
  fill(writer, spec->fill, missing - left);
}

void tgi_format_string(tgi_writer *writer, const tgi_format_spec *spec, const tgi_string *s)
{
  tgi_job *job = writer->job;
  tgi_string *cut = tgi_string_slice(job, s, 0, s->size);
  if (spec->precision >= 0) {
    cut = tgi_string_slice(job, s, 0, tgi_string_offset(job, cut, (size_t)spec->precision));
  }
  pad(writer, spec, spec->align ? spec->align : '<', cut, 0);
}

/** Digits of a whole number, with the prefix of the base where it is wanted; the sign apart. */
static void whole_digits(const tgi_format_spec *spec, uint64_t size, char text[80])
{
  const char *prefix = "";
  const unsigned base = spec->type == 'x' || spec->type == 'X' ? 16
                        : spec->type == 'o'                    ? 8
                        : spec->type == 'b'                    ? 2
                                                               : 10;
  if (spec->alternate && base != 10) {
    prefix = base == 8 ? "0o" : base == 2 ? "0b" : spec->type == 'x' ? "0x" : "0X";
  }
  const char *letters = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  char digits[65];
  size_t at = sizeof digits - 1;
  digits[at] = '\0';
  do {
    digits[--at] = letters[size % base];
    size /= base;
  } while (size > 0);
  snprintf(text, 80, "%s%s", prefix, digits + at);
}

/** By printf, whose point depends on the locale. */
static void real_digits(const tgi_format_spec *spec, double size, char *text, size_t bytes)
{
  const bool percent = spec->type == '%';
  const char form[] = {'%', spec->alternate ? '#' : '0', '.', '*', percent ? 'f' : spec->type, 0};
  const int precision = spec->precision < 0 ? 6 : spec->precision;
  snprintf(text, bytes - 1, form, precision, percent ? 100 * size : size);
  for (char *c = text; *c; c++) {
    const bool plain = strchr("0123456789+-eEinfaINFA", *c) != NULL;
    *c = plain ? *c : '.';
  }
  if (percent) {
    strcat(text, "%");
  }
}

void tgi_format_number(tgi_writer *writer, const tgi_format_spec *spec, tgi_value number)
{
  char digits[TGI_MAX_FORMAT_WIDTH + 400]; /* 309 digits before the point */
  int64_t integer;
  bool negative;
  if (strchr("eEfFgG%", spec->type)) {
    const double real = tgi_to_real(number);
    negative = signbit(real) && !isnan(real);
    real_digits(spec, fabs(real), digits, sizeof digits);
  } else {
    integer = number.kind == TGI_REAL ? tgi_truncate(writer->job, number.as.real) : 0;
    tgi_is_integer(number, &integer);
    negative = integer < 0;
    whole_digits(spec, negative ? 0 - (uint64_t)integer : (uint64_t)integer, digits);
  }
  tgi_writer signed_digits = tgi_writer_begin(writer->job);
  const char sign[2] = {negative ? '-' : spec->sign, 0};
  tgi_write_text(&signed_digits, sign);
  tgi_write_text(&signed_digits, digits);
  const size_t prefix = spec->alternate && strchr("xXob", spec->type) ? 2 : 0;
  pad(writer, spec, spec->align ? spec->align : '>', tgi_writer_end(&signed_digits),
      strlen(sign) + prefix);
}
