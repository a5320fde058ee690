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

/* ---- numbers ---- */

static bool is_digit_at(const char *text, size_t size, size_t at)
{
  return at < size && text[at] >= '0' && text[at] <= '9';
}

/** Behind digits with single underscores between them. */
static size_t skip_digits(const char *text, size_t size, size_t at)
{
  while (is_digit_at(text, size, at) ||
         (at < size && text[at] == '_' && is_digit_at(text, size, at + 1))) {
    at++;
  }
  return at;
}

/** The end of a real number at `at`, or `at`: it is none. */
static size_t match_real(const char *text, size_t size, size_t at)
{
  size_t end = skip_digits(text, size, at);
  const size_t whole = end;
  if (at > 0 && text[at - 1] == '.') {
    return at; /* `list.0.1` */
  }
  if (end < size && text[end] == '.' && is_digit_at(text, size, end + 1)) {
    end = skip_digits(text, size, end + 1);
  }
  if (end < size && (text[end] | 0x20) == 'e') {
    const bool sign = end + 1 < size && (text[end + 1] == '-' || text[end + 1] == '+');
    if (is_digit_at(text, size, end + 1 + sign)) {
      return skip_digits(text, size, end + 1 + sign);
    }
  }
  return end > whole ? end : at;
}

size_t tgi_match_number(const char *text, size_t size, size_t at, bool *real)
{
  size_t end = match_real(text, size, at);
  *real = end > at;
  if (*real) {
    return end;
  }
  const int letter = at + 1 < size && text[at] == '0' ? text[at + 1] | 0x20 : 0;
  if (letter == 'x' || letter == 'o' || letter == 'b') {
    for (end += 2; end < size && (digit_of(text[end], 16) >= 0 || text[end] == '_');) {
      end++;
    }
    return end;
  }
  if (text[at] != '0') {
    return skip_digits(text, size, at);
  }
  while (end < size && (text[end] == '0' || text[end] == '_')) { /* only zeros may follow */
    end++;
  }
  return end;
}
