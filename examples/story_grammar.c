/* Reads the rules of story_rules.c: writes stories, measures them, and finds their derivations. */
#include "story_grammar.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- reading a rule ---- */

static int find_rule(const char *name, size_t size)
{
  int r = 0;
  while (story_rules[r].name &&
         (strlen(story_rules[r].name) != size || memcmp(story_rules[r].name, name, size) != 0)) {
    r++;
  }
  return r;
}

/* A piece of an alternative: `size` literal bytes at `text`, or (rule >= 0) a reference. */
typedef struct piece {
  const char *text;
  size_t size;
  int rule, field;
} piece;

/* Cuts a piece off the front of an alternative; false at its end. */
static bool next_piece(const char **at, piece *p)
{
  if (**at == '\0' || **at == '|') {
    return false;
  }
  if (**at != '{') {
    *p = (piece){*at, strcspn(*at, "{|"), -1, 0};
    *at += p->size;
    return true;
  }
  const char *name = *at + 1;
  const size_t all = strcspn(name, "}"), size = strcspn(name, ".}");
  *p = (piece){name, size, find_rule(name, size), size < all ? name[size + 1] - '0' : 0};
  *at = name + all + 1;
  return true;
}

static int count_alternatives(int rule)
{
  int n = 1;
  for (const char *c = story_rules[rule].alternatives; *c; c++) {
    n += *c == '|';
  }
  return n;
}

static const char *find_alternative(int rule, int index)
{
  const char *at = story_rules[rule].alternatives;
  for (; index > 0; index--) {
    at = strchr(at, '|') + 1;
  }
  return at;
}

/* Field of a cast rule's alternative. */
static piece find_field(int rule, int alternative, int field)
{
  const char *at = find_alternative(rule, alternative);
  for (; field > 0; field--) {
    at = strchr(at, '/') + 1;
  }
  return (piece){at, strcspn(at, "/|"), -1, 0};
}

/* ---- writing ---- */

enum { kMaxRules = 64 };

typedef struct writer {
  uint64_t *state;
  char *text;
  size_t size;
  int cast[kMaxRules]; /* alternative of each cast rule */
} writer;

static int draw(uint64_t *state, int n)
{
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (int)((z >> 32) * (uint64_t)n >> 32);
}

static void append(writer *w, piece p)
{
  if (w->size + p.size < STORY_MAX_BYTES) {
    memcpy(w->text + w->size, p.text, p.size);
    w->size += p.size;
  }
}

static void write_rule(writer *w, int rule)
{
  const char *at = find_alternative(rule, draw(w->state, count_alternatives(rule)));
  piece p;
  while (next_piece(&at, &p)) {
    if (p.rule < 0) {
      append(w, p);
    } else if (story_rules[p.rule].cast) {
      append(w, find_field(p.rule, w->cast[p.rule], p.field));
    } else {
      write_rule(w, p.rule);
    }
  }
}

size_t story_write(uint64_t *state, char text[STORY_MAX_BYTES])
{
  writer w = {.state = state, .text = text};
  for (int r = 0; story_rules[r].name; r++) {
    w.cast[r] = story_rules[r].cast ? draw(state, count_alternatives(r)) : 0;
  }
  write_rule(&w, 0);
  text[w.size] = '\0';
  return w.size;
}

/* ---- measuring ---- */

static void measure_rule(int rule, double *bits, double *bytes)
{
  const int n = count_alternatives(rule);
  *bits = log2(n);
  *bytes = 0;
  for (int i = 0; i < n; i++) {
    const char *at = find_alternative(rule, i);
    piece p;
    while (next_piece(&at, &p)) {
      double inner_bits = 0, inner_bytes = (double)p.size;
      if (p.rule >= 0 && story_rules[p.rule].cast) {
        /* The cast is drawn apart from everything else, so means multiply and add. */
        const int values = count_alternatives(p.rule);
        inner_bytes = 0;
        for (int v = 0; v < values; v++) {
          inner_bytes += (double)find_field(p.rule, v, p.field).size / values;
        }
      } else if (p.rule >= 0) {
        measure_rule(p.rule, &inner_bits, &inner_bytes);
      }
      *bits += inner_bits / n;
      *bytes += inner_bytes / n;
    }
  }
}

void story_measure(double *bits, double *bytes)
{
  measure_rule(0, bits, bytes);
  for (int r = 0; story_rules[r].name; r++) {
    *bits += story_rules[r].cast ? log2(count_alternatives(r)) : 0;
  }
}

/* ---- finding derivations ---- */

/* What is still to match, innermost first. */
typedef struct rest {
  const char *at;
  const struct rest *then;
} rest;

typedef struct search {
  int cast[kMaxRules]; /* -1: not yet seen */
  double *bits;
} search;

static int64_t match(search *s, const char *text, const rest *r, double bits);

static int64_t match_cast(search *s, const char *text, const rest *r, piece p, double bits)
{
  const int bound = s->cast[p.rule], n = count_alternatives(p.rule);
  int64_t found = 0;
  for (int v = bound < 0 ? 0 : bound; v < (bound < 0 ? n : bound + 1); v++) {
    const piece value = find_field(p.rule, v, p.field);
    if (strncmp(text, value.text, value.size) == 0) {
      s->cast[p.rule] = v;
      found += match(s, text + value.size, r, bits + (bound < 0 ? log2(n) : 0));
    }
  }
  s->cast[p.rule] = bound;
  return found;
}

/* Tries every way to go on. */
static int64_t match(search *s, const char *text, const rest *r, double bits)
{
  if (!r) {
    *s->bits = *text ? *s->bits : bits;
    return *text == '\0';
  }
  rest after = *r;
  piece p;
  if (!next_piece(&after.at, &p)) {
    return match(s, text, r->then, bits);
  }
  if (p.rule < 0) {
    return strncmp(text, p.text, p.size) == 0 ? match(s, text + p.size, &after, bits) : 0;
  }
  if (story_rules[p.rule].cast) {
    return match_cast(s, text, &after, p, bits);
  }
  const int n = count_alternatives(p.rule);
  int64_t found = 0;
  for (int i = 0; i < n; i++) {
    const rest inner = {find_alternative(p.rule, i), &after};
    found += match(s, text, &inner, bits + log2(n));
  }
  return found;
}

int64_t story_derivations(const char *text, double *bits)
{
  search s = {.bits = bits};
  const rest whole = {"{story}", NULL};
  for (int r = 0; r < kMaxRules; r++) {
    s.cast[r] = -1;
  }
  *bits = 0;
  return match(&s, text, &whole, 0);
}

/* ---- words ---- */

size_t story_next_word(const char **text)
{
  while (**text && !isalpha((unsigned char)**text)) {
    ++*text;
  }
  size_t size = 0;
  while (isalpha((unsigned char)(*text)[size])) {
    size++;
  }
  return size;
}

static bool same_word(const char *a, const char *b, size_t size)
{
  for (size_t i = 0; i < size; i++) {
    if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i])) {
      return false;
    }
  }
  return true;
}

/* Walks over the words of the rules' own text, references left out. */
typedef struct word_walk {
  int rule;
  const char *at; /* NULL: at the start of the rule */
} word_walk;

/* Length of the next word, which *word gets; 0 after the last. */
static size_t next_rule_word(word_walk *walk, const char **word)
{
  while (story_rules[walk->rule].name) {
    const char *at = walk->at ? walk->at : story_rules[walk->rule].alternatives;
    while (*at && !isalpha((unsigned char)*at)) {
      at = *at == '{' ? strchr(at, '}') : at + 1;
    }
    if (*at) {
      const size_t size = story_next_word(&at);
      *word = at;
      walk->at = at + size;
      return size;
    }
    walk->rule++;
    walk->at = NULL;
  }
  return 0;
}

/* The first word of the rules that is the same; NULL if none is. */
static const char *find_word(const char *word, size_t size)
{
  word_walk walk = {0, NULL};
  const char *other;
  for (size_t n; (n = next_rule_word(&walk, &other)) > 0;) {
    if (n == size && same_word(word, other, size)) {
      return other;
    }
  }
  return NULL;
}

bool story_knows(const char *word, size_t size)
{
  return find_word(word, size) != NULL;
}

size_t story_words(void)
{
  word_walk walk = {0, NULL};
  size_t distinct = 0;
  const char *word;
  for (size_t n; (n = next_rule_word(&walk, &word)) > 0;) {
    distinct += find_word(word, n) == word;
  }
  return distinct;
}
