/* A parser by recursive descent that writes what it reads. */
#include "pattern_rewrite.h"
#include "pattern_characters.h"
#include <stdlib.h>
#include <string.h>

enum { kMaxDepth = 16, kMaxRepeats = 1000 };

/** What an expression matches at least. */
typedef struct extent {
  bool may_be_empty;
  bool is_group;
} extent;

static bool is_letter(uint32_t point)
{
  return (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z');
}

static bool alternatives(tgi_rewriter *r, int depth, extent *what);

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
static bool any_case(tgi_rewriter *r, extent *what)
{
  const char *branch = r->at;
  what->is_group = true;
  for (; r->at < r->end && *r->at != ')'; r->at++) {
    const char c = *r->at;
    if (c == '|') {
      what->may_be_empty = what->may_be_empty || r->at == branch;
      branch = r->at + 1;
    } else if (!is_letter((unsigned char)c) && c != '\'') {
      return tgi_pattern_refuse(r, r->at, "letters, ' and | alone within (?i:...)");
    } else if (r->at > branch && is_folded_pair(r->at[-1], c)) {
      return tgi_pattern_refuse(r, r->at - 1, "no ss, ff, fi, fl or st within (?i:...)");
    }
    if (!tgi_pattern_put(r, &c, 1)) {
      return false;
    }
  }
  what->may_be_empty = what->may_be_empty || r->at == branch;
  return true;
}

static bool group(tgi_rewriter *r, int depth, extent *what)
{
  static const char *const kinds[] = {"(?:", "(?i:", "(?=", "(?!"};
  const char *start = r->at;
  const char *kind = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !kind; i++) {
    kind = tgi_pattern_take(r, kinds[i]) ? kinds[i] : NULL;
  }
  if (!kind && tgi_pattern_next_is(r, "(?")) {
    return tgi_pattern_refuse(r, start, "(, (?:, (?i:, (?= or (?!");
  }
  r->at += kind ? 0 : 1;
  if (depth == kMaxDepth) {
    return tgi_pattern_refuse(r, start, "at most 16 groups within each other");
  }
  if (!tgi_pattern_put_text(r, kind ? kind : "(?:")) {
    return false;
  }
  const bool done = kind == kinds[1] ? any_case(r, what) : alternatives(r, depth + 1, what);
  if (!done) {
    return false;
  }
  if (!tgi_pattern_take(r, ")")) {
    return tgi_pattern_refuse(r, start, "a group with its )");
  }
  what->is_group = true;
  if (kind == kinds[2] || kind == kinds[3]) {
    what->may_be_empty = true; /* it takes no text */
  }
  return tgi_pattern_put_text(r, ")");
}

static bool number(tgi_rewriter *r, int *value)
{
  const char *start = r->at;
  *value = 0;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && *value <= kMaxRepeats) {
    *value = 10 * *value + (*r->at++ - '0');
  }
  return (r->at > start && *value <= kMaxRepeats) ||
         tgi_pattern_refuse(r, start, "a number up to 1000");
}

/** {n}, {n,} or {n,m}. */
static bool counted(tgi_rewriter *r, int *least)
{
  const char *start = r->at++;
  int most;
  if (!number(r, least)) {
    return false;
  }
  most = *least;
  if (tgi_pattern_take(r, ",") && !tgi_pattern_next_is(r, "}") && !number(r, &most)) {
    return false;
  }
  if (!tgi_pattern_take(r, "}") || most < *least) {
    return tgi_pattern_refuse(r, start, "{n}, {n,} or {n,m} with n up to m");
  }
  return tgi_pattern_put(r, start, (size_t)(r->at - start));
}

/** What may stand behind an atom that began at `start`. */
static bool quantifier(tgi_rewriter *r, const char *start, extent *what)
{
  static const char marks[] = "?*+";
  if (r->at == r->end || !(strchr("?*+{", *r->at) && *r->at)) {
    return true;
  }
  const char *sign = r->at;
  if (what->is_group && (*sign != '?' || what->may_be_empty)) {
    return tgi_pattern_refuse(r, start,
                              "a group without a sign behind it, or with ? and never empty");
  }
  int least = *sign == '+';
  if (*sign == '{') {
    if (!counted(r, &least)) {
      return false;
    }
  } else {
    r->at++;
    if (!tgi_pattern_put(r, sign, 1) ||
        (tgi_pattern_take(r, "+") && !tgi_pattern_put_text(r, "+"))) {
      return false;
    }
  }
  if (r->at < r->end && *r->at && strchr(marks, *r->at)) {
    return tgi_pattern_refuse(r, sign, "?, *, +, {n,m}, or the first three with + behind");
  }
  what->may_be_empty = what->may_be_empty || least == 0;
  return true;
}

static bool atom(tgi_rewriter *r, int depth, extent *what)
{
  const char *start = r->at;
  uint32_t point = UINT32_MAX;
  switch (*start) {
  case '(':
    return group(r, depth, what);
  case '[':
    return tgi_pattern_class_of_characters(r);
  case '\\':
    if (!tgi_pattern_escape(r, false, &point)) {
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
    return tgi_pattern_refuse(r, start, "a character, with \\ before it if it is a sign");
  default:
    point = tgi_pattern_plain(r);
  }
  return point == UINT32_MAX || tgi_pattern_put_point(r, point);
}

static bool branch_of(tgi_rewriter *r, int depth, extent *what)
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

static bool alternatives(tgi_rewriter *r, int depth, extent *what)
{
  for (;;) {
    extent part = {false, false};
    if (!branch_of(r, depth, &part)) {
      return false;
    }
    what->may_be_empty = what->may_be_empty || part.may_be_empty;
    if (!tgi_pattern_take(r, "|")) {
      return true;
    }
    if (!tgi_pattern_put_text(r, "|")) {
      return false;
    }
  }
}

static bool whole(tgi_rewriter *r)
{
  extent what = {false, false};
  if (!alternatives(r, 0, &what)) {
    return false;
  }
  if (r->at < r->end) {
    return tgi_pattern_refuse(r, r->at, "a ( before each )");
  }
  if (what.may_be_empty) {
    return tgi_pattern_refuse(r, r->begin, "a pattern that never matches the empty text");
  }
  if (r->classes && r->beyond_ascii) {
    return tgi_pattern_refuse(r, r->beyond_ascii, "ASCII characters beside \\d and \\p{..}");
  }
  return true;
}

tgi_rewritten tgi_pattern_rewrite(const char *pattern, size_t size)
{
  tgi_rewriter r = {.begin = pattern, .at = pattern, .end = pattern + size};
  if (whole(&r)) {
    return (tgi_rewritten){.text = r.out, .size = r.used, .classes = r.classes};
  }
  free(r.out);
  return (tgi_rewritten){.rule = r.rule, .byte = (size_t)(r.wrong - pattern)};
}
