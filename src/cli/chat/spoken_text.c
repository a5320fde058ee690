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
                      const char *end)
{
  *s = (tgi_spoken){.style = style};
  s->filter = tgi_thought_filter_begin(channels, thinking, end, take, s);
}

bool tgi_spoken_push(tgi_spoken *s, const char *bytes, size_t size)
{
  char *valid = malloc(TGI_UTF8_STREAM_BOUND(size));
  const bool ok =
      valid && tgi_thought_filter_push(&s->filter, valid,
                                       tgi_utf8_stream_push(&s->stream, bytes, size, valid));
  free(valid);
  fflush(stdout);
  return ok;
}

bool tgi_spoken_finish(tgi_spoken *s)
{
  char valid[8];
  const size_t left = tgi_utf8_stream_finish(&s->stream, valid);
  bool ok = tgi_thought_filter_push(&s->filter, valid, left);
  ok = tgi_thought_filter_finish(&s->filter) && ok;
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
  return s->filter.place == TGI_PLACE_END;
}

void tgi_spoken_free(tgi_spoken *s)
{
  tgi_text_free(&s->answer);
  tgi_text_free(&s->thought);
}
