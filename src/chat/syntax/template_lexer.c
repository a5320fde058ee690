#include "template_lexer.h"
#include "chat/values/template_number.h"
#include "files/file_error.h"
#include "files/utf8.h"
#include "template_literal.h"
#include <string.h>

typedef struct lexer {
  tgi_job *job;
  const char *text; /* line ends are "\n" */
  size_t size, at;
  size_t placed; /* the byte that `place` stands for */
  tgi_place place;
  bool line_starts;                      /* what was read last ended with a line end */
  char open[TG_CHAT_TEMPLATE_MAX_DEPTH]; /* closing brackets that are awaited */
  int num_open;
  tgi_token *tokens;
  size_t count, capacity;
} lexer;

/* ---- places ---- */

static tgi_place place_of(lexer *l, size_t at)
{
  for (; l->placed < at; l->placed++) {
    if (l->text[l->placed] == '\n') {
      l->place.line++;
      l->place.column = 1;
    } else {
      l->place.column += ((unsigned char)l->text[l->placed] & 0xc0) != 0x80;
    }
  }
  return l->place;
}

static _Noreturn void fail_at(lexer *l, size_t at, const char *rule, const char *got)
{
  l->job->place = place_of(l, at); /* not before what was placed already */
  tgi_job_fail(l->job, TG_BAD_FILE, "%s, got %s", rule, got);
}

static tgi_token *add(lexer *l, tgi_token_kind kind, size_t at)
{
  if (l->count == l->capacity) {
    const size_t capacity = l->capacity ? 2 * l->capacity : 256;
    l->tokens = tgi_job_grow(l->job, l->tokens, l->capacity * sizeof *l->tokens,
                             capacity * sizeof *l->tokens);
    l->capacity = capacity;
  }
  tgi_token *token = &l->tokens[l->count++];
  *token = (tgi_token){.kind = kind, .place = place_of(l, at)};
  return token;
}

/** Text that never changes again: its code points are counted now, as threads will share it. */
static tgi_string *keep(lexer *l, tgi_string *s)
{
  tgi_string_points(l->job, s);
  return s;
}

/* ---- white space ---- */

static size_t skip_space(const lexer *l, size_t at)
{
  while (at < l->size) {
    uint32_t point;
    const size_t length = tgi_utf8_decode(l->text + at, l->size - at, &point);
    if (!tgi_is_space(point)) {
      break;
    }
    at += length;
  }
  return at;
}

static size_t strip_end(const lexer *l, size_t from, size_t to)
{
  const tgi_string s = {.bytes = l->text, .size = l->size};
  size_t length;
  while (to > from) {
    const size_t before = tgi_string_before(&s, to);
    if (!tgi_is_space(tgi_string_point(&s, before, &length))) {
      break;
    }
    to = before;
  }
  return to;
}

/** Whether white space alone, and at least some, stands from `from` to `to`. */
static bool only_space(const lexer *l, size_t from, size_t to)
{
  return from < to && strip_end(l, from, to) == from;
}

/* ---- text and comments ---- */

static bool is_at(const lexer *l, size_t at, const char *word)
{
  const size_t size = strlen(word);
  return l->size - at >= size && memcmp(l->text + at, word, size) == 0;
}

/** The next "{{", "{%" or "{#", or the end. */
static size_t find_opening(const lexer *l, size_t at)
{
  for (; at < l->size; at++) {
    const char *brace = memchr(l->text + at, '{', l->size - at);
    if (!brace) {
      return l->size;
    }
    at = (size_t)(brace - l->text);
    if (is_at(l, at, "{{") || is_at(l, at, "{%") || is_at(l, at, "{#")) {
      return at;
    }
  }
  return l->size;
}

/** Adds the text from `from` to `to`, where a tag with the sign stands; 0: no tag. */
static void add_text(lexer *l, size_t from, size_t to, char sign, bool lstrip)
{
  size_t end = to;
  if (sign == '-') {
    end = strip_end(l, from, to);
  } else if (sign != '+' && lstrip) {
    size_t line = to;
    while (line > from && l->text[line - 1] != '\n') {
      line--;
    }
    if ((line > from || l->line_starts) && only_space(l, line, to)) {
      end = line;
    }
  }
  if (end > from) {
    add(l, TGI_TOKEN_TEXT, from)->text =
        keep(l, tgi_string_new(l->job, l->text + from, end - from));
  }
}

static char sign_at(const lexer *l, size_t at)
{
  return at < l->size && (l->text[at] == '-' || l->text[at] == '+') ? l->text[at] : 0;
}

/** Goes behind an end of `size` bytes at `at`, with what its sign and trim_blocks take along. */
static void go_behind(lexer *l, size_t at, size_t size, char sign, bool trim)
{
  l->at = at + size;
  if (sign == '-') {
    l->at = skip_space(l, l->at);
  } else if (trim && sign != '+' && l->at < l->size && l->text[l->at] == '\n') {
    l->at++;
  }
  l->line_starts = l->text[l->at - 1] == '\n';
}

static void skip_comment(lexer *l, size_t start)
{
  size_t at = start + 2 + (sign_at(l, start + 2) != 0);
  const size_t first = at;
  while (at < l->size && !is_at(l, at, "#}")) {
    at++;
  }
  if (at >= l->size) {
    fail_at(l, start, "an end of this comment", "none");
  }
  go_behind(l, at, 2, at > first ? sign_at(l, at - 1) : 0, true);
}

/** Behind "{%" with its sign and the word, or 0: another word stands there. */
static size_t match_word(const lexer *l, size_t at, const char *word)
{
  if (!is_at(l, at, "{%")) {
    return 0;
  }
  at = skip_space(l, at + 2 + (sign_at(l, at + 2) != 0));
  return is_at(l, at, word) ? skip_space(l, at + strlen(word)) : 0;
}

/** {% raw %} to {% endraw %}: text as it is; false: something else begins at `start`. */
static bool take_raw(lexer *l, size_t start)
{
  size_t at = match_word(l, start, "raw");
  const bool strips = at && is_at(l, at, "-%}");
  if (!at || !(strips || is_at(l, at, "%}"))) {
    return false;
  }
  go_behind(l, at, strips ? 3 : 2, strips ? '-' : 0, false);
  const size_t from = l->at;
  for (at = from; at < l->size; at++) {
    const size_t end = match_word(l, at, "endraw");
    const char sign = end ? sign_at(l, end) : 0;
    if (end && is_at(l, end + (sign != 0), "%}")) {
      add_text(l, from, at, sign_at(l, at + 2), true);
      go_behind(l, end + (sign != 0), 2, sign, true);
      return true;
    }
  }
  fail_at(l, start, "an {% endraw %} for this {% raw %}", "none");
}

/* ---- expressions ---- */

static bool is_name_byte(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (unsigned char)c >= 0x80;
}

static void take_number(lexer *l)
{
  const size_t start = l->at;
  bool real;
  l->at = tgi_match_number(l->text, l->size, start, &real);
  tgi_token *token = add(l, TGI_TOKEN_NUMBER, start);
  l->job->place = token->place;
  double fraction = 0;
  int64_t whole = 0;
  const bool valid =
      real ? tgi_parse_real(l->job, l->text + start, l->at - start, &fraction)
           : tgi_parse_integer(l->job, l->text + start, l->at - start, 0, false, &whole);
  if (!valid) {
    fail_at(l, start, "a number", "another");
  }
  token->value = real ? tgi_real(fraction) : tgi_int(whole);
}

static void take_string(lexer *l)
{
  const size_t start = l->at;
  const char quote = l->text[start];
  size_t end = start + 1;
  while (end < l->size && l->text[end] != quote) {
    end += l->text[end] == '\\' ? 2 : 1;
  }
  if (end >= l->size) {
    fail_at(l, start, "an end of this text", "none");
  }
  tgi_token *token = add(l, TGI_TOKEN_STRING, start);
  l->job->place = token->place;
  token->text = keep(l, tgi_read_literal(l->job, l->text + start + 1, end - start - 1));
  l->at = end + 1;
}

static void take_name(lexer *l)
{
  const size_t start = l->at;
  while (l->at < l->size && is_name_byte(l->text[l->at])) {
    l->at++;
  }
  add(l, TGI_TOKEN_NAME, start)->text =
      keep(l, tgi_string_new(l->job, l->text + start, l->at - start));
}

static void balance(lexer *l, char c)
{
  const char closing = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
  if (closing) {
    if (l->num_open == TG_CHAT_TEMPLATE_MAX_DEPTH) {
      fail_at(l, l->at, "fewer open brackets", "one more");
    }
    l->open[l->num_open++] = closing;
  } else if (c == ')' || c == ']' || c == '}') {
    if (l->num_open == 0 || l->open[l->num_open - 1] != c) {
      fail_at(l, l->at, "another bracket or none", (const char[]){c, 0});
    }
    l->num_open--;
  }
}

static void take_operator(lexer *l)
{
  static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                          "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                          ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
    if (is_at(l, l->at, operators[i])) {
      const size_t size = strlen(operators[i]);
      balance(l, l->text[l->at]);
      add(l, TGI_TOKEN_OPERATOR, l->at)->text =
          keep(l, tgi_string_new(l->job, l->text + l->at, size));
      l->at += size;
      return;
    }
  }
  fail_at(l, l->at, "an expression", tgi_quote(l->text + l->at, 1).text);
}

/** The end of the tag, if that is next and no bracket is open. */
static bool take_end(lexer *l, const char *end, bool block)
{
  const char sign = sign_at(l, l->at);
  const size_t skip = sign == '-' || (sign == '+' && block) ? 1 : 0;
  if (l->num_open > 0 || !is_at(l, l->at + skip, end)) {
    return false;
  }
  add(l, block ? TGI_TOKEN_BLOCK_END : TGI_TOKEN_PRINT_END, l->at);
  go_behind(l, l->at + skip, 2, skip ? sign : 0, block);
  return true;
}

static void take_tag(lexer *l, size_t start)
{
  const bool block = l->text[start + 1] == '%';
  const tgi_place place = add(l, block ? TGI_TOKEN_BLOCK : TGI_TOKEN_PRINT, start)->place;
  l->at = start + 2 + (sign_at(l, start + 2) != 0);
  for (;;) {
    if (l->at < l->size && take_end(l, block ? "%}" : "}}", block)) {
      return;
    }
    const size_t next = skip_space(l, l->at);
    if (next >= l->size) {
      l->job->place = place;
      tgi_job_fail(l->job, TG_BAD_FILE, "an end of this %s, got none",
                   block ? "block" : "expression");
    }
    if (next > l->at) {
      l->at = next;
    } else if (l->text[next] >= '0' && l->text[next] <= '9') {
      take_number(l);
    } else if (is_name_byte(l->text[next])) {
      take_name(l);
    } else if (l->text[next] == '"' || l->text[next] == '\'') {
      take_string(l);
    } else {
      take_operator(l);
    }
  }
}

/** All line ends become "\n"; one at the end is dropped. */
static void normalize(lexer *l, const char *text, size_t size)
{
  char *copy = tgi_job_allocate(l->job, size + 1);
  size_t used = 0;
  for (size_t i = 0; i < size; i++) {
    if (text[i] == '\n' && i > 0 && text[i - 1] == '\r') {
      continue;
    }
    copy[used++] = text[i] == '\r' ? '\n' : text[i];
  }
  l->text = copy;
  l->size = used > 0 && copy[used - 1] == '\n' ? used - 1 : used;
}

tgi_token *tgi_tokenize(tgi_job *job, const char *text, size_t size)
{
  lexer *l = tgi_job_allocate(job, sizeof *l);
  *l = (lexer){.job = job, .place = {1, 1}, .line_starts = true};
  normalize(l, text, size);
  while (l->at < l->size) {
    const size_t from = l->at, tag = find_opening(l, from);
    if (tag == l->size) {
      add_text(l, from, tag, 0, false);
      break;
    }
    add_text(l, from, tag, sign_at(l, tag + 2), l->text[tag + 1] != '{');
    if (l->text[tag + 1] == '#') {
      skip_comment(l, tag);
    } else if (!take_raw(l, tag)) {
      take_tag(l, tag);
    }
  }
  add(l, TGI_TOKEN_END, l->size);
  return l->tokens;
}
