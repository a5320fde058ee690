#include "stop_strings.h"

#include "core/error_record.h"
#include "core/growing.h"
#include <stdlib.h>
#include <string.h>

typedef struct automaton {
  unsigned char *text; /* [size] */
  size_t *border;      /* [size]: longest end of text[0, i] that is also a shorter beginning */
  size_t size;
  size_t matched; /* bytes at the end of the text so far that begin this stop string */
} automaton;

struct tgi_stop_strings {
  automaton *stops;
  size_t count;
  int met;
  char *held; /* what was not handed on yet, and in front of it what the last call handed on */
  size_t handed, size, capacity;
};

static void find_borders(automaton *a)
{
  size_t length = 0;
  a->border[0] = 0;
  for (size_t i = 1; i < a->size; i++) {
    while (length > 0 && a->text[i] != a->text[length]) {
      length = a->border[length - 1];
    }
    length += a->text[i] == a->text[length];
    a->border[i] = length;
  }
}

static tg_status make_automaton(const char *text, size_t number, automaton *a, tg_error *error)
{
  a->size = strlen(text);
  if (a->size == 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "stop_strings: text %zu: expected at least one byte, got none", number);
  }
  a->text = malloc(a->size);
  a->border = malloc(a->size * sizeof *a->border);
  if (!a->text || !a->border) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "stop_strings: expected %zu bytes of memory, got none",
                         a->size * (1 + sizeof *a->border));
  }
  memcpy(a->text, text, a->size);
  find_borders(a);
  return TG_OK;
}

tg_status tgi_stop_strings_create(const char *const *texts, size_t count, tgi_stop_strings **out,
                                  tg_error *error)
{
  tgi_stop_strings *s = calloc(1, sizeof *s);
  automaton *stops = calloc(count ? count : 1, sizeof *stops);
  tg_status status = TG_OK;
  *out = NULL;
  if (!s || !stops) {
    free(s);
    free(stops);
    return tgi_error_set(error, TG_NO_MEMORY,
                         "stop_strings: expected memory for %zu texts, got none", count);
  }
  *s = (tgi_stop_strings){.stops = stops, .met = -1};
  for (; s->count < count && status == TG_OK; s->count++) {
    status = make_automaton(texts[s->count], s->count, &stops[s->count], error);
  }
  if (status != TG_OK) {
    tgi_stop_strings_destroy(s);
    return status;
  }
  *out = s;
  return TG_OK;
}

void tgi_stop_strings_destroy(tgi_stop_strings *s)
{
  for (size_t i = 0; s && i < s->count; i++) {
    free(s->stops[i].text);
    free(s->stops[i].border);
  }
  if (s) {
    free(s->stops);
    free(s->held);
    free(s);
  }
}

void tgi_stop_strings_reset(tgi_stop_strings *s)
{
  for (size_t i = 0; i < s->count; i++) {
    s->stops[i].matched = 0;
  }
  s->met = -1;
  s->handed = s->size = 0;
}

/* One byte further, in a text in which nothing was complete before. */
static bool step(automaton *a, unsigned char byte)
{
  while (a->matched > 0 && byte != a->text[a->matched]) {
    a->matched = a->border[a->matched - 1];
  }
  a->matched += byte == a->text[a->matched];
  return a->matched == a->size;
}

/* One byte further; the longest of the stop strings that it completes is met. */
static void step_all(tgi_stop_strings *s, unsigned char byte)
{
  for (size_t i = 0; i < s->count; i++) {
    if (step(&s->stops[i], byte) && (s->met < 0 || s->stops[i].size > s->stops[s->met].size)) {
      s->met = (int)i;
    }
  }
}

static size_t longest_beginning(const tgi_stop_strings *s)
{
  size_t longest = 0;
  for (size_t i = 0; i < s->count; i++) {
    longest = s->stops[i].matched > longest ? s->stops[i].matched : longest;
  }
  return longest;
}

/* Removes what the last call handed on. */
static void forget_handed(tgi_stop_strings *s)
{
  s->size -= s->handed;
  if (s->size > 0) {
    memmove(s->held, s->held + s->handed, s->size);
  }
  s->handed = 0;
}

static tgi_ready_bytes hand_on(tgi_stop_strings *s, size_t size)
{
  s->handed = size;
  return (tgi_ready_bytes){s->held, size};
}

tg_status tgi_stop_strings_push(tgi_stop_strings *s, const char *bytes, size_t size,
                                tgi_ready_bytes *ready, tg_error *error)
{
  *ready = (tgi_ready_bytes){"", 0};
  if (s->met >= 0 || size == 0) {
    return TG_OK;
  }
  forget_handed(s);
  char *grown = tgi_grow(s->held, &s->capacity, s->size + size, 1);
  if (!grown) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "stop_strings: expected %zu bytes of memory, got none", s->size + size);
  }
  s->held = grown;
  for (size_t i = 0; i < size && s->met < 0; i++) {
    s->held[s->size++] = bytes[i];
    step_all(s, (unsigned char)bytes[i]);
  }
  const size_t kept = s->met >= 0 ? s->stops[s->met].size : longest_beginning(s);
  *ready = hand_on(s, s->size - kept);
  return TG_OK;
}

tgi_ready_bytes tgi_stop_strings_finish(tgi_stop_strings *s)
{
  forget_handed(s);
  const size_t size = s->met >= 0 ? 0 : s->size;
  return size > 0 ? hand_on(s, size) : (tgi_ready_bytes){"", 0};
}

int tgi_stop_strings_met(const tgi_stop_strings *s)
{
  return s->met;
}
