/*
 * Upper, lower and title case as in Python: the mappings of single code points are utf8proc's,
 * those to several code points and the final sigma stand here.
 */
#include "template_case.h"
#include <utf8proc.h>

/** Code points whose upper case is two or three others (Unicode 14 to 16, SpecialCasing). */
static const struct {
  uint16_t from, to[3];
} long_upper[] = {
    {0x00df, {0x0053, 0x0053}},         {0x0149, {0x02bc, 0x004e}},
    {0x01f0, {0x004a, 0x030c}},         {0x0390, {0x0399, 0x0308, 0x0301}},
    {0x03b0, {0x03a5, 0x0308, 0x0301}}, {0x0587, {0x0535, 0x0552}},
    {0x1e96, {0x0048, 0x0331}},         {0x1e97, {0x0054, 0x0308}},
    {0x1e98, {0x0057, 0x030a}},         {0x1e99, {0x0059, 0x030a}},
    {0x1e9a, {0x0041, 0x02be}},         {0x1f50, {0x03a5, 0x0313}},
    {0x1f52, {0x03a5, 0x0313, 0x0300}}, {0x1f54, {0x03a5, 0x0313, 0x0301}},
    {0x1f56, {0x03a5, 0x0313, 0x0342}}, {0x1f80, {0x1f08, 0x0399}},
    {0x1f81, {0x1f09, 0x0399}},         {0x1f82, {0x1f0a, 0x0399}},
    {0x1f83, {0x1f0b, 0x0399}},         {0x1f84, {0x1f0c, 0x0399}},
    {0x1f85, {0x1f0d, 0x0399}},         {0x1f86, {0x1f0e, 0x0399}},
    {0x1f87, {0x1f0f, 0x0399}},         {0x1f88, {0x1f08, 0x0399}},
    {0x1f89, {0x1f09, 0x0399}},         {0x1f8a, {0x1f0a, 0x0399}},
    {0x1f8b, {0x1f0b, 0x0399}},         {0x1f8c, {0x1f0c, 0x0399}},
    {0x1f8d, {0x1f0d, 0x0399}},         {0x1f8e, {0x1f0e, 0x0399}},
    {0x1f8f, {0x1f0f, 0x0399}},         {0x1f90, {0x1f28, 0x0399}},
    {0x1f91, {0x1f29, 0x0399}},         {0x1f92, {0x1f2a, 0x0399}},
    {0x1f93, {0x1f2b, 0x0399}},         {0x1f94, {0x1f2c, 0x0399}},
    {0x1f95, {0x1f2d, 0x0399}},         {0x1f96, {0x1f2e, 0x0399}},
    {0x1f97, {0x1f2f, 0x0399}},         {0x1f98, {0x1f28, 0x0399}},
    {0x1f99, {0x1f29, 0x0399}},         {0x1f9a, {0x1f2a, 0x0399}},
    {0x1f9b, {0x1f2b, 0x0399}},         {0x1f9c, {0x1f2c, 0x0399}},
    {0x1f9d, {0x1f2d, 0x0399}},         {0x1f9e, {0x1f2e, 0x0399}},
    {0x1f9f, {0x1f2f, 0x0399}},         {0x1fa0, {0x1f68, 0x0399}},
    {0x1fa1, {0x1f69, 0x0399}},         {0x1fa2, {0x1f6a, 0x0399}},
    {0x1fa3, {0x1f6b, 0x0399}},         {0x1fa4, {0x1f6c, 0x0399}},
    {0x1fa5, {0x1f6d, 0x0399}},         {0x1fa6, {0x1f6e, 0x0399}},
    {0x1fa7, {0x1f6f, 0x0399}},         {0x1fa8, {0x1f68, 0x0399}},
    {0x1fa9, {0x1f69, 0x0399}},         {0x1faa, {0x1f6a, 0x0399}},
    {0x1fab, {0x1f6b, 0x0399}},         {0x1fac, {0x1f6c, 0x0399}},
    {0x1fad, {0x1f6d, 0x0399}},         {0x1fae, {0x1f6e, 0x0399}},
    {0x1faf, {0x1f6f, 0x0399}},         {0x1fb2, {0x1fba, 0x0399}},
    {0x1fb3, {0x0391, 0x0399}},         {0x1fb4, {0x0386, 0x0399}},
    {0x1fb6, {0x0391, 0x0342}},         {0x1fb7, {0x0391, 0x0342, 0x0399}},
    {0x1fbc, {0x0391, 0x0399}},         {0x1fc2, {0x1fca, 0x0399}},
    {0x1fc3, {0x0397, 0x0399}},         {0x1fc4, {0x0389, 0x0399}},
    {0x1fc6, {0x0397, 0x0342}},         {0x1fc7, {0x0397, 0x0342, 0x0399}},
    {0x1fcc, {0x0397, 0x0399}},         {0x1fd2, {0x0399, 0x0308, 0x0300}},
    {0x1fd3, {0x0399, 0x0308, 0x0301}}, {0x1fd6, {0x0399, 0x0342}},
    {0x1fd7, {0x0399, 0x0308, 0x0342}}, {0x1fe2, {0x03a5, 0x0308, 0x0300}},
    {0x1fe3, {0x03a5, 0x0308, 0x0301}}, {0x1fe4, {0x03a1, 0x0313}},
    {0x1fe6, {0x03a5, 0x0342}},         {0x1fe7, {0x03a5, 0x0308, 0x0342}},
    {0x1ff2, {0x1ffa, 0x0399}},         {0x1ff3, {0x03a9, 0x0399}},
    {0x1ff4, {0x038f, 0x0399}},         {0x1ff6, {0x03a9, 0x0342}},
    {0x1ff7, {0x03a9, 0x0342, 0x0399}}, {0x1ffc, {0x03a9, 0x0399}},
    {0xfb00, {0x0046, 0x0046}},         {0xfb01, {0x0046, 0x0049}},
    {0xfb02, {0x0046, 0x004c}},         {0xfb03, {0x0046, 0x0046, 0x0049}},
    {0xfb04, {0x0046, 0x0046, 0x004c}}, {0xfb05, {0x0053, 0x0054}},
    {0xfb06, {0x0053, 0x0054}},         {0xfb13, {0x0544, 0x0546}},
    {0xfb14, {0x0544, 0x0535}},         {0xfb15, {0x0544, 0x053b}},
    {0xfb16, {0x054e, 0x0546}},         {0xfb17, {0x0544, 0x053d}},
};

enum { kLongUpper = sizeof long_upper / sizeof long_upper[0] };

static const uint16_t *find_long(uint32_t point)
{
  for (int i = 0; point >= 0xdf && i < kLongUpper; i++) {
    if (long_upper[i].from == point) {
      return long_upper[i].to;
    }
  }
  return NULL;
}

static void write_upper(tgi_writer *writer, uint32_t point, uint8_t ink)
{
  const uint16_t *several = find_long(point);
  if (!several) {
    tgi_write_point(writer, (uint32_t)utf8proc_toupper((utf8proc_int32_t)point), ink);
    return;
  }
  for (int i = 0; i < 3 && several[i]; i++) {
    tgi_write_point(writer, several[i], ink);
  }
}

static void write_title(tgi_writer *writer, uint32_t point, uint8_t ink)
{
  const uint32_t title = (uint32_t)utf8proc_totitle((utf8proc_int32_t)point);
  const uint16_t *several = find_long(point);
  if (!several || (title != point && title != 0x1e9e)) {
    tgi_write_point(writer, title, ink);
    return;
  }
  tgi_write_point(writer, several[0], ink);
  for (int i = 1; i < 3 && several[i]; i++) {
    tgi_write_point(writer, (uint32_t)utf8proc_tolower(several[i]), ink);
  }
}

static bool is_cased(uint32_t point)
{
  const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

/** Marks, modifiers and the punctuation that stands within words. */
static bool is_ignorable(uint32_t point)
{
  const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
         category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
         category == UTF8PROC_CATEGORY_SK || point == '\'' || point == '.' || point == ':' ||
         point == 0xb7 || point == 0x2018 || point == 0x2019 || point == 0x2024 || point == 0x2027;
}

/** Whether a sigma at `at` ends a word: a letter before it, none behind. */
static bool is_final(tgi_job *job, const tgi_string *s, size_t at)
{
  size_t length, before = at;
  bool letter = false;
  while (before > 0) {
    tgi_job_step(job, 0);
    before = tgi_string_before(s, before);
    const uint32_t point = tgi_string_point(s, before, &length);
    letter = is_cased(point);
    if (!is_ignorable(point)) {
      break;
    }
  }
  for (at += 2; letter && at < s->size; at += length) {
    tgi_job_step(job, 0);
    const uint32_t point = tgi_string_point(s, at, &length);
    if (!is_ignorable(point)) {
      return !is_cased(point);
    }
  }
  return letter;
}

static void write_lower(tgi_writer *writer, const tgi_string *s, size_t at, uint32_t point,
                        uint8_t ink)
{
  if (point == 0x3a3) {
    tgi_write_point(writer, is_final(writer->job, s, at) ? 0x3c2 : 0x3c3, ink);
    return;
  }
  tgi_write_point(writer, (uint32_t)utf8proc_tolower((utf8proc_int32_t)point), ink);
  if (point == 0x130) {
    tgi_write_point(writer, 0x307, ink);
  }
}

typedef enum letter_case { UPPER, LOWER, TITLE } letter_case;

/** Writes every code point in the case that `choose` gives it. */
static tgi_string *convert(tgi_job *job, const tgi_string *s,
                           letter_case (*choose)(uint32_t before, bool first))
{
  tgi_writer writer = tgi_writer_begin(job);
  uint32_t before = 0;
  size_t length;
  for (size_t at = 0; at < s->size; at += length) {
    const uint32_t point = tgi_string_point(s, at, &length);
    const uint8_t ink = s->ink ? s->ink[at] : 0;
    switch (choose(before, at == 0)) {
    case UPPER:
      write_upper(&writer, point, ink);
      break;
    case LOWER:
      write_lower(&writer, s, at, point, ink);
      break;
    case TITLE:
      write_title(&writer, point, ink);
      break;
    }
    before = point;
  }
  tgi_string *converted = tgi_writer_end(&writer);
  converted->safe = s->safe;
  return converted;
}

static letter_case choose_lower(uint32_t before, bool first)
{
  (void)before;
  (void)first;
  return LOWER;
}

static letter_case choose_upper(uint32_t before, bool first)
{
  (void)before;
  (void)first;
  return UPPER;
}

static letter_case choose_capital(uint32_t before, bool first)
{
  (void)before;
  return first ? TITLE : LOWER;
}

tgi_string *tgi_lower(tgi_job *job, const tgi_string *s)
{
  return convert(job, s, choose_lower);
}

tgi_string *tgi_upper(tgi_job *job, const tgi_string *s)
{
  return convert(job, s, choose_upper);
}

tgi_string *tgi_capitalize(tgi_job *job, const tgi_string *s)
{
  return convert(job, s, choose_capital);
}

static bool starts_word(uint32_t before)
{
  return tgi_is_space(before) || before == '-' || before == '(' || before == '{' || before == '[' ||
         before == '<';
}

/** Each word by itself, so that a sigma looks at its own word alone. */
tgi_string *tgi_title(tgi_job *job, const tgi_string *s)
{
  tgi_writer writer = tgi_writer_begin(job);
  size_t length;
  for (size_t at = 0; at < s->size;) {
    write_upper(&writer, tgi_string_point(s, at, &length), s->ink ? s->ink[at] : 0);
    const bool word = !starts_word(tgi_string_point(s, at, &length));
    const size_t rest = at + length;
    for (at = rest; word && at < s->size; at += length) {
      if (starts_word(tgi_string_point(s, at, &length))) {
        break;
      }
    }
    tgi_write_string(&writer, tgi_lower(job, tgi_string_slice(job, s, rest, at)));
  }
  return tgi_writer_end(&writer);
}

tgi_value tgi_ignore_case(tgi_job *job, tgi_value v)
{
  return v.kind == TGI_STRING ? tgi_text(tgi_lower(job, v.as.string)) : v;
}
