#include "spoken_text.h"

#include "shown_character.h"
#include <stdio.h>

static const char kDim[] = "\033[2m", kPlain[] = "\033[0m";

static bool is_white(char byte)
{
  return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static void print(tgi_spoken *s, const char *bytes, size_t size)
{
  for (size_t at = 0; at < size && s->style.terminal;) {
    if (bytes[at] == '\n' || bytes[at] == '\t') {
      putchar(bytes[at++]);
      continue;
    }
    const tgi_shown shown = tgi_show_character(bytes + at, size - at);
    (void)fwrite(shown.text, 1, shown.size, stdout);
    at += shown.used;
  }
  if (!s->style.terminal) {
    (void)fwrite(bytes, 1, size, stdout);
  }
  s->last = size ? bytes[size - 1] : s->last;
}

/** Marks where thoughts begin and end, also where nothing can be dimmed. */
static void change(tgi_spoken *s, bool to_thought)
{
  if (s->in_thought == to_thought) {
    return;
  }
  s->in_thought = to_thought;
  if (to_thought) {
    fputs(s->style.dims ? kDim : "", stdout);
    fputs("<think>", stdout);
    s->last = '>';
  } else {
    fputs("</think>", stdout);
    fputs(s->style.dims ? kPlain : "", stdout);
    s->last = '>';
  }
}

static bool take_thought(tgi_spoken *s, const char *bytes, size_t size)
{
  if (!s->style.hides) {
    change(s, true);
    print(s, bytes, size);
  }
  s->answer.size = 0; /* white space before it */
  return (s->thought.size == 0 && is_white(bytes[0])) || tgi_text_append(&s->thought, bytes, size);
}

static bool take_answer(tgi_spoken *s, const char *bytes, size_t size)
{
  const bool between = s->thought.size > 0 && s->answer.size == 0 && is_white(bytes[0]);
  change(s, false);
  if (!(between && s->style.hides)) {
    print(s, bytes, size);
  }
  return between || tgi_text_append(&s->answer, bytes, size);
}

static bool take(void *user, tgi_speech kind, const char *bytes, size_t size)
{
  return kind == TGI_SPEECH_THOUGHT ? take_thought(user, bytes, size)
                                    : take_answer(user, bytes, size);
}

void tgi_spoken_begin(tgi_spoken *s, tgi_spoken_style style, bool channels, bool thinking,
                      tgi_stop_strings *stops)
{
  *s = (tgi_spoken){.style = style, .stops = stops};
  s->filter = tgi_thought_filter_begin(channels, thinking, take, s);
  if (stops) {
    tgi_stop_strings_reset(stops);
  }
}

/** Bytes that no stop string takes; `last`: no more follow. */
static bool say(tgi_spoken *s, tgi_ready_bytes ready, bool last)
{
  char *valid = malloc(TGI_UTF8_STREAM_BOUND(ready.size) + 3);
  if (!valid) {
    return false;
  }
  size_t size = tgi_utf8_stream_push(&s->stream, ready.bytes, ready.size, valid);
  if (last) {
    size += tgi_utf8_stream_finish(&s->stream, valid + size);
  }
  const bool ok = tgi_thought_filter_push(&s->filter, valid, size);
  free(valid);
  return ok && (!last || tgi_thought_filter_finish(&s->filter));
}

bool tgi_spoken_push(tgi_spoken *s, const char *bytes, size_t size)
{
  tgi_ready_bytes ready = {bytes, size};
  if (s->stops && tgi_stop_strings_push(s->stops, bytes, size, &ready, NULL) != TG_OK) {
    return false;
  }
  const bool ok = say(s, ready, false);
  fflush(stdout);
  return ok;
}

bool tgi_spoken_finish(tgi_spoken *s)
{
  const tgi_ready_bytes none = {"", 0};
  const bool ok = say(s, s->stops ? tgi_stop_strings_finish(s->stops) : none, true);
  change(s, false);
  if (s->last != '\n') {
    putchar('\n');
  }
  fflush(stdout);
  while (s->thought.size > 0 && is_white(s->thought.bytes[s->thought.size - 1])) {
    s->thought.size--;
  }
  return ok;
}

bool tgi_spoken_ended(const tgi_spoken *s)
{
  return s->stops && tgi_stop_strings_met(s->stops) >= 0;
}

void tgi_spoken_free(tgi_spoken *s)
{
  tgi_text_free(&s->answer);
  tgi_text_free(&s->thought);
}
