#include "template_literal.h"
#include <stdio.h>

typedef struct literal {
  tgi_writer writer;
  const tgi_string *text;
  size_t at; /* behind the backslash and the letter */
} literal;

static int digit_of(char c, int base)
{
  const int letter = c | 0x20;
  const int digit = c >= '0' && c <= '9'             ? c - '0'
                    : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                                     : 99;
  return digit < base ? digit : -1;
}

/** Up to `most` digits. */
static uint32_t take_digits(literal *l, int base, int most, int least)
{
  uint32_t point = 0;
  int count = 0;
  for (; count < most && l->at < l->text->size; count++, l->at++) {
    const int digit = digit_of(l->text->bytes[l->at], base);
    if (digit < 0) {
      break;
    }
    point = point * (uint32_t)base + (uint32_t)digit;
  }
  if (count < least || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
    tgi_job_fail(l->writer.job, TG_BAD_FILE, "%d digits of a Unicode character, got others", least);
  }
  return point;
}

static void take_escape(literal *l)
{
  static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
  const char c = l->text->bytes[l->at];
  for (size_t i = 0; letters[i]; i++) {
    if (c == letters[i]) {
      tgi_write(&l->writer, &meanings[i], 1);
      l->at++;
      return;
    }
  }
  if (c >= '0' && c <= '7') {
    tgi_write_point(&l->writer, take_digits(l, 8, 3, 1), 0);
    return;
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    l->at++;
    tgi_write_point(&l->writer, take_digits(l, 16, digits, digits), 0);
  } else if (c == 'N') {
    tgi_job_fail(l->writer.job, TG_UNSUPPORTED, "characters by number, got \\N");
  } else if (c == '\n') {
    l->at++;
  } else if ((unsigned char)c >= 0x80) {
    /* Jinja writes the character as an escape of its own first, which the backslash then disarms.
     */
    size_t length;
    char escape[12];
    const uint32_t point = tgi_string_point(l->text, l->at, &length);
    snprintf(escape, sizeof escape,
             point < 0x100     ? "\\x%02x"
             : point < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
             (unsigned)point);
    tgi_write_text(&l->writer, escape);
    l->at += length;
  } else {
    tgi_write(&l->writer, "\\", 1);
  }
}

tgi_string *tgi_read_literal(tgi_job *job, const char *text, size_t size)
{
  const tgi_string whole = {.bytes = text, .size = size};
  literal l = {tgi_writer_begin(job), &whole, 0};
  size_t plain = 0;
  while (l.at < size) {
    if (text[l.at] != '\\' || l.at + 1 == size) {
      l.at++;
      continue;
    }
    tgi_write_slice(&l.writer, &whole, plain, l.at);
    l.at++;
    take_escape(&l);
    plain = l.at;
  }
  tgi_write_slice(&l.writer, &whole, plain, size);
  return tgi_writer_end(&l.writer);
}
