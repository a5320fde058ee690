#include "pattern_characters.h"
#include "core/growing.h"
#include "point_map.h"
#include <stdio.h>
#include <string.h>

static const char kSpaces[] = "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x"
                              "{2029}\\x{202F}\\x{205F}\\x{3000}";

bool tgi_pattern_refuse(tgi_rewriter *r, const char *where, const char *rule)
{
  r->rule = rule;
  r->wrong = where;
  return false;
}

bool tgi_pattern_put(tgi_rewriter *r, const char *text, size_t size)
{
  char *grown = tgi_grow(r->out, &r->capacity, r->used + size + 1, 1);
  if (!grown) {
    return tgi_pattern_refuse(r, r->at, NULL);
  }
  r->out = grown;
  memcpy(grown + r->used, text, size);
  r->used += size;
  grown[r->used] = '\0';
  return true;
}

bool tgi_pattern_put_text(tgi_rewriter *r, const char *text)
{
  return tgi_pattern_put(r, text, strlen(text));
}

bool tgi_pattern_put_point(tgi_rewriter *r, uint32_t point)
{
  char text[16];
  return tgi_pattern_put(r, text, (size_t)snprintf(text, sizeof text, "\\x{%X}", (unsigned)point));
}

bool tgi_pattern_next_is(const tgi_rewriter *r, const char *text)
{
  const size_t size = strlen(text);
  return (size_t)(r->end - r->at) >= size && memcmp(r->at, text, size) == 0;
}

bool tgi_pattern_take(tgi_rewriter *r, const char *text)
{
  const bool is = tgi_pattern_next_is(r, text);
  r->at += is ? strlen(text) : 0;
  return is;
}

/** \p{..}, of which `at` stands behind the p. */
static bool property(tgi_rewriter *r, const char *escape)
{
  static const char *const known[] = {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    char text[8];
    snprintf(text, sizeof text, "{%s}", known[i]);
    if (tgi_pattern_take(r, text)) {
      r->classes = true;
      return tgi_pattern_put_text(r, "\\p") && tgi_pattern_put_text(r, text);
    }
  }
  return tgi_pattern_refuse(r, escape, "a class of L, Lu, Ll, Lt, Lm, Lo, M, N, Nd, P, S");
}

bool tgi_pattern_escape(tgi_rewriter *r, bool in_class, uint32_t *point)
{
  static const char letters[] = "rnt", values[] = "\r\n\t";
  static const char punctuation[] = ".-[](){}^$|?*+/\\#!\"%&,:;=@_~";
  const char *start = r->at++;
  *point = UINT32_MAX;
  if (r->at == r->end) {
    return tgi_pattern_refuse(r, start, "a character behind the \\");
  }
  const char c = *r->at++;
  const char *letter = c ? strchr(letters, c) : NULL;
  if (letter || (c && strchr(punctuation, c))) {
    *point = letter ? (uint32_t)values[letter - letters] : (uint32_t)c;
    return true;
  }
  switch (c) {
  case 'p':
    return property(r, start);
  case 'd':
    r->classes = true;
    return tgi_pattern_put_text(r, "\\p{Nd}");
  case 's':
    return (in_class || tgi_pattern_put_text(r, "[")) && tgi_pattern_put_text(r, kSpaces) &&
           (in_class || tgi_pattern_put_text(r, "]"));
  case 'S':
    if (!in_class) {
      return tgi_pattern_put_text(r, "[^") && tgi_pattern_put_text(r, kSpaces) &&
             tgi_pattern_put_text(r, "]");
    }
    break;
  default:
    break;
  }
  return tgi_pattern_refuse(r, start,
                            in_class ? "\\r, \\n, \\t, \\s, \\d, \\p{..} or \\ before punctuation"
                                     : "\\r, \\n, \\t, \\s, \\S, \\d, \\p{..} or \\ before "
                                       "punctuation");
}

uint32_t tgi_pattern_plain(tgi_rewriter *r)
{
  const uint32_t point = tgi_point_at(r->at);
  if (point >= 0x80 && !r->beyond_ascii) {
    r->beyond_ascii = r->at;
  }
  r->at += tgi_point_bytes((unsigned char)*r->at);
  return point;
}

/** A character of a class, or a class within it (*point is UINT32_MAX). */
static bool member(tgi_rewriter *r, uint32_t *point)
{
  const char *start = r->at;
  if (*start == '\\') {
    return tgi_pattern_escape(r, true, point);
  }
  if (*start == '[' || tgi_pattern_next_is(r, "&&")) {
    return tgi_pattern_refuse(r, start, "a class without [ or && in it");
  }
  *point = tgi_pattern_plain(r);
  return true;
}

static bool class_range(tgi_rewriter *r, uint32_t first)
{
  const char *start = r->at;
  uint32_t last;
  r->at++; /* the - */
  if (r->at == r->end) {
    return tgi_pattern_refuse(r, start, "a class with its ]");
  }
  if (!tgi_pattern_put_text(r, "-") || !member(r, &last)) {
    return false;
  }
  if (last == UINT32_MAX || last < first) {
    return tgi_pattern_refuse(r, start, "a range that ends with a character above its first");
  }
  return tgi_pattern_put_point(r, last);
}

bool tgi_pattern_class_of_characters(tgi_rewriter *r)
{
  const char *start = r->at++;
  const bool negated = tgi_pattern_take(r, "^");
  const char *first = r->at;
  if (!tgi_pattern_put_text(r, negated ? "[^" : "[")) {
    return false;
  }
  while (r->at < r->end && *r->at != ']') {
    const char *where = r->at;
    const bool edge = where == first || tgi_pattern_next_is(r, "-]");
    uint32_t point;
    if (*where == '-' && !edge) {
      return tgi_pattern_refuse(r, where, "\\- for a - within a class");
    }
    if (!member(r, &point)) {
      return false;
    }
    if (point == UINT32_MAX) {
      continue;
    }
    const bool ranged = r->at < r->end && *r->at == '-' && !tgi_pattern_next_is(r, "-]");
    if (!tgi_pattern_put_point(r, point) || (ranged && !class_range(r, point))) {
      return false;
    }
  }
  if (r->at == r->end || r->at == first) {
    return tgi_pattern_refuse(r, start, "a class with something in it, and its ]");
  }
  r->at++;
  return tgi_pattern_put_text(r, "]");
}
