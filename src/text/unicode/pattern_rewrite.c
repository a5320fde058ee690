/* A parser by recursive descent that writes what it reads. Each function returns false once the
 * pattern is refused or memory is short. */
#include "pattern_rewrite.h"
#include "core/growing.h"
#include "point_map.h"
#include <stdio.h>
#include <string.h>

enum { kMaxDepth = 16, kMaxRepeats = 1000 };

static const char kSpaces[] = "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x"
                              "{2029}\\x{202F}\\x{205F}\\x{3000}";

typedef struct rewriter {
  const char *begin, *at, *end;
  char *out;
  size_t used, capacity;
  bool classes;
  const char *beyond_ascii; /* the first such character; NULL: none */
  const char *rule, *wrong;
} rewriter;

/** What an expression matches at least. */
typedef struct extent {
  bool may_be_empty;
  bool is_group;
} extent;

static bool refuse(rewriter *r, const char *where, const char *rule)
{
  r->rule = rule;
  r->wrong = where;
  return false;
}

static bool put(rewriter *r, const char *text, size_t size)
{
  char *grown = tgi_grow(r->out, &r->capacity, r->used + size + 1, 1);
  if (!grown) {
    return refuse(r, r->at, NULL);
  }
  r->out = grown;
  memcpy(grown + r->used, text, size);
  r->used += size;
  grown[r->used] = '\0';
  return true;
}

static bool put_text(rewriter *r, const char *text)
{
  return put(r, text, strlen(text));
}

static bool put_point(rewriter *r, uint32_t point)
{
  char text[16];
  return put(r, text, (size_t)snprintf(text, sizeof text, "\\x{%X}", (unsigned)point));
}

static bool next_is(const rewriter *r, const char *text)
{
  const size_t size = strlen(text);
  return (size_t)(r->end - r->at) >= size && memcmp(r->at, text, size) == 0;
}

static bool take(rewriter *r, const char *text)
{
  const bool is = next_is(r, text);
  r->at += is ? strlen(text) : 0;
  return is;
}

/* ---- characters ---- */

static bool is_letter(uint32_t point)
{
  return (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z');
}

/** \p{..}, of which `at` stands behind the p. */
static bool property(rewriter *r, const char *escape)
{
  static const char *const known[] = {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    char text[8];
    snprintf(text, sizeof text, "{%s}", known[i]);
    if (take(r, text)) {
      r->classes = true;
      return put_text(r, "\\p") && put_text(r, text);
    }
  }
  return refuse(r, escape, "a class of L, Lu, Ll, Lt, Lm, Lo, M, N, Nd, P, S");
}

/**
 * An escape, in a class or outside. Writes classes; a single character becomes *point (else
 * UINT32_MAX), which the caller writes.
 */
static bool escape(rewriter *r, bool in_class, uint32_t *point)
{
  static const char letters[] = "rnt", values[] = "\r\n\t";
  static const char punctuation[] = ".-[](){}^$|?*+/\\#!\"%&,:;=@_~";
  const char *start = r->at++;
  *point = UINT32_MAX;
  if (r->at == r->end) {
    return refuse(r, start, "a character behind the \\");
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
    return put_text(r, "\\p{Nd}");
  case 's':
    return (in_class || put_text(r, "[")) && put_text(r, kSpaces) && (in_class || put_text(r, "]"));
  case 'S':
    if (!in_class) {
      return put_text(r, "[^") && put_text(r, kSpaces) && put_text(r, "]");
    }
    break;
  default:
    break;
  }
  return refuse(r, start,
                in_class ? "\\r, \\n, \\t, \\s, \\d, \\p{..} or \\ before punctuation"
                         : "\\r, \\n, \\t, \\s, \\S, \\d, \\p{..} or \\ before "
                           "punctuation");
}

/** Reads one plain character. */
static uint32_t plain(rewriter *r)
{
  const uint32_t point = tgi_point_at(r->at);
  if (point >= 0x80 && !r->beyond_ascii) {
    r->beyond_ascii = r->at;
  }
  r->at += tgi_point_bytes((unsigned char)*r->at);
  return point;
}

/** A character of a class, or a class within it (*point is UINT32_MAX). */
static bool member(rewriter *r, uint32_t *point)
{
  const char *start = r->at;
  if (*start == '\\') {
    return escape(r, true, point);
  }
  if (*start == '[' || next_is(r, "&&")) {
    return refuse(r, start, "a class without [ or && in it");
  }
  *point = plain(r);
  return true;
}

static bool class_range(rewriter *r, uint32_t first)
{
  const char *start = r->at;
  uint32_t last;
  r->at++; /* the - */
  if (r->at == r->end) {
    return refuse(r, start, "a class with its ]");
  }
  if (!put_text(r, "-") || !member(r, &last)) {
    return false;
  }
  if (last == UINT32_MAX || last < first) {
    return refuse(r, start, "a range that ends with a character above its first");
  }
  return put_point(r, last);
}

/** [...] or [^...]. */
static bool class_of_characters(rewriter *r)
{
  const char *start = r->at++;
  const bool negated = take(r, "^");
  const char *first = r->at;
  if (!put_text(r, negated ? "[^" : "[")) {
    return false;
  }
  while (r->at < r->end && *r->at != ']') {
    const char *where = r->at;
    const bool edge = where == first || next_is(r, "-]");
    uint32_t point;
    if (*where == '-' && !edge) {
      return refuse(r, where, "\\- for a - within a class");
    }
    if (!member(r, &point)) {
      return false;
    }
    if (point == UINT32_MAX) {
      continue;
    }
    const bool ranged = r->at < r->end && *r->at == '-' && !next_is(r, "-]");
    if (!put_point(r, point) || (ranged && !class_range(r, point))) {
      return false;
    }
  }
  if (r->at == r->end || r->at == first) {
    return refuse(r, start, "a class with something in it, and its ]");
  }
  r->at++;
  return put_text(r, "]");
}

/* ---- expressions ---- */

static bool alternatives(rewriter *r, int depth, extent *what);

/** Whether one character stands for the two where case is ignored. */
static bool is_folded_pair(char a, char b)
{
  static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    if ((a | 0x20) == pairs[i][0] && (b | 0x20) == pairs[i][1]) {
      return true;
    }
  }
  return false;
}

/** (?i:...), of which `at` stands behind the colon. */
static bool any_case(rewriter *r, extent *what)
{
  const char *branch = r->at;
  what->is_group = true;
  for (; r->at < r->end && *r->at != ')'; r->at++) {
    const char c = *r->at;
    if (c == '|') {
      what->may_be_empty = what->may_be_empty || r->at == branch;
      branch = r->at + 1;
    } else if (!is_letter((unsigned char)c) && c != '\'') {
      return refuse(r, r->at, "letters, ' and | alone within (?i:...)");
    } else if (r->at > branch && is_folded_pair(r->at[-1], c)) {
      return refuse(r, r->at - 1, "no ss, ff, fi, fl or st within (?i:...)");
    }
    if (!put(r, &c, 1)) {
      return false;
    }
  }
  what->may_be_empty = what->may_be_empty || r->at == branch;
  return true;
}

static bool group(rewriter *r, int depth, extent *what)
{
  static const char *const kinds[] = {"(?:", "(?i:", "(?=", "(?!"};
  const char *start = r->at;
  const char *kind = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !kind; i++) {
    kind = take(r, kinds[i]) ? kinds[i] : NULL;
  }
  if (!kind && next_is(r, "(?")) {
    return refuse(r, start, "(, (?:, (?i:, (?= or (?!");
  }
  r->at += kind ? 0 : 1;
  if (depth == kMaxDepth) {
    return refuse(r, start, "at most 16 groups within each other");
  }
  if (!put_text(r, kind ? kind : "(?:")) {
    return false;
  }
  const bool done = kind == kinds[1] ? any_case(r, what) : alternatives(r, depth + 1, what);
  if (!done) {
    return false;
  }
  if (!take(r, ")")) {
    return refuse(r, start, "a group with its )");
  }
  what->is_group = true;
  if (kind == kinds[2] || kind == kinds[3]) {
    what->may_be_empty = true; /* it takes no text */
  }
  return put_text(r, ")");
}

static bool number(rewriter *r, int *value)
{
  const char *start = r->at;
  *value = 0;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && *value <= kMaxRepeats) {
    *value = 10 * *value + (*r->at++ - '0');
  }
  return (r->at > start && *value <= kMaxRepeats) || refuse(r, start, "a number up to 1000");
}

/** {n}, {n,} or {n,m}. */
static bool counted(rewriter *r, int *least)
{
  const char *start = r->at++;
  int most;
  if (!number(r, least)) {
    return false;
  }
  most = *least;
  if (take(r, ",") && !next_is(r, "}") && !number(r, &most)) {
    return false;
  }
  if (!take(r, "}") || most < *least) {
    return refuse(r, start, "{n}, {n,} or {n,m} with n up to m");
  }
  return put(r, start, (size_t)(r->at - start));
}

/** What may stand behind an atom that began at `start`. */
static bool quantifier(rewriter *r, const char *start, extent *what)
{
  static const char marks[] = "?*+";
  if (r->at == r->end || !(strchr("?*+{", *r->at) && *r->at)) {
    return true;
  }
  const char *sign = r->at;
  if (what->is_group && (*sign != '?' || what->may_be_empty)) {
    return refuse(r, start, "a group without a sign behind it, or with ? and never empty");
  }
  int least = *sign == '+';
  if (*sign == '{') {
    if (!counted(r, &least)) {
      return false;
    }
  } else {
    r->at++;
    if (!put(r, sign, 1) || (take(r, "+") && !put_text(r, "+"))) {
      return false;
    }
  }
  if (r->at < r->end && *r->at && strchr(marks, *r->at)) {
    return refuse(r, sign, "?, *, +, {n,m}, or the first three with + behind");
  }
  what->may_be_empty = what->may_be_empty || least == 0;
  return true;
}

static bool atom(rewriter *r, int depth, extent *what)
{
  const char *start = r->at;
  uint32_t point = UINT32_MAX;
  switch (*start) {
  case '(':
    return group(r, depth, what);
  case '[':
    return class_of_characters(r);
  case '\\':
    if (!escape(r, false, &point)) {
      return false;
    }
    break;
  case '.':
  case '^':
  case '$':
  case '?':
  case '*':
  case '+':
  case '{':
  case '}':
  case ']':
    return refuse(r, start, "a character, with \\ before it if it is a sign");
  default:
    point = plain(r);
  }
  return point == UINT32_MAX || put_point(r, point);
}

static bool branch_of(rewriter *r, int depth, extent *what)
{
  what->may_be_empty = true;
  while (r->at < r->end && *r->at != '|' && *r->at != ')') {
    const char *start = r->at;
    extent part = {false, false};
    if (!atom(r, depth, &part) || !quantifier(r, start, &part)) {
      return false;
    }
    what->may_be_empty = what->may_be_empty && part.may_be_empty;
  }
  return true;
}

static bool alternatives(rewriter *r, int depth, extent *what)
{
  for (;;) {
    extent part = {false, false};
    if (!branch_of(r, depth, &part)) {
      return false;
    }
    what->may_be_empty = what->may_be_empty || part.may_be_empty;
    if (!take(r, "|")) {
      return true;
    }
    if (!put_text(r, "|")) {
      return false;
    }
  }
}

static bool whole(rewriter *r)
{
  extent what = {false, false};
  if (!alternatives(r, 0, &what)) {
    return false;
  }
  if (r->at < r->end) {
    return refuse(r, r->at, "a ( before each )");
  }
  if (what.may_be_empty) {
    return refuse(r, r->begin, "a pattern that never matches the empty text");
  }
  if (r->classes && r->beyond_ascii) {
    return refuse(r, r->beyond_ascii, "ASCII characters beside \\d and \\p{..}");
  }
  return true;
}

tgi_rewritten tgi_pattern_rewrite(const char *pattern, size_t size)
{
  rewriter r = {.begin = pattern, .at = pattern, .end = pattern + size};
  if (whole(&r)) {
    return (tgi_rewritten){.text = r.out, .size = r.used, .classes = r.classes};
  }
  free(r.out);
  return (tgi_rewritten){.rule = r.rule, .byte = (size_t)(r.wrong - pattern)};
}
