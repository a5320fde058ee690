/* What is held is always the beginning of a mark, a part of a character, or a channel's header. */
#include "thought_filter.h"

#include <string.h>

static const char kChannel[] = "<|channel|>", kMessage[] = "<|message|>";

/** A mark that counts at a place, and where it leads. */
typedef struct mark {
  const char *text;
  tgi_filter_place to;
} mark;

tgi_thought_filter tgi_thought_filter_begin(bool channels, bool thinking, tgi_speech_sink *sink,
                                            void *user)
{
  return (tgi_thought_filter){.channels = channels,

                              .sink = sink,
                              .user = user,
                              .place = channels   ? TGI_PLACE_HEADER
                                       : thinking ? TGI_PLACE_THOUGHT
                                                  : TGI_PLACE_START};
}

/** The mark that counts; in an answer without channels none does, and it has no text. */
static mark mark_at(const tgi_thought_filter *f)
{
  if (f->channels) {
    return (mark){"<|end|>", TGI_PLACE_HEADER};
  }
  return f->place == TGI_PLACE_START     ? (mark){"<think>", TGI_PLACE_THOUGHT}
         : f->place == TGI_PLACE_THOUGHT ? (mark){"</think>", TGI_PLACE_ANSWER}
                                         : (mark){"", TGI_PLACE_ANSWER};
}

static void drop(tgi_thought_filter *f, size_t size)
{
  f->num_held -= size;
  memmove(f->held, f->held + size, f->num_held);
}

/** Gives the first bytes of what is held. Behind other text than white space no thought begins. */
static bool say(tgi_thought_filter *f, size_t size)
{
  if (f->place == TGI_PLACE_START && size > 0 && !strchr(" \t\r\n", f->held[0])) {
    f->place = TGI_PLACE_ANSWER;
  }
  const tgi_speech kind = f->place == TGI_PLACE_THOUGHT ? TGI_SPEECH_THOUGHT : TGI_SPEECH_ANSWER;
  const bool ok = size == 0 || f->sink(f->user, kind, f->held, size);
  drop(f, size);
  return ok;
}

static size_t character_size(unsigned char lead)
{
  return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/** Whether the held bytes wait for more; a whole mark is taken. */
static bool waits(tgi_thought_filter *f)
{
  const mark m = mark_at(f);
  const size_t size = strlen(m.text);
  if (f->num_held <= size && memcmp(f->held, m.text, f->num_held) == 0) {
    if (f->num_held == size) {
      f->num_held = 0;
      f->place = m.to;
    }
    return true;
  }
  return f->num_held < character_size((unsigned char)f->held[0]);
}

static bool starts_with(const char *text, size_t size, const char *word)
{
  const size_t n = strlen(word);
  return size >= n && memcmp(text, word, n) == 0;
}

/** "<|start|>assistant<|channel|>analysis<|message|>": whether what follows is a thought. */
static bool is_thought(const char *header, size_t size)
{
  for (size_t at = 0; at < size; at++) {
    if (starts_with(header + at, size - at, kChannel)) {
      const char *name = header + at + sizeof kChannel - 1;
      const size_t left = size - at - (sizeof kChannel - 1);
      return !starts_with(name, left, "final") && !starts_with(name, left, "commentary");
    }
  }
  return false;
}

static void read_header(tgi_thought_filter *f)
{
  const size_t size = sizeof kMessage - 1;
  if (f->num_held >= size && memcmp(f->held + f->num_held - size, kMessage, size) == 0) {
    f->place = is_thought(f->held, f->num_held) ? TGI_PLACE_THOUGHT : TGI_PLACE_ANSWER;
    f->num_held = 0;
  } else if (f->num_held == sizeof f->held) { /* none of a known form: look for its end */
    drop(f, sizeof f->held / 2);
  }
}

bool tgi_thought_filter_push(tgi_thought_filter *f, const char *bytes, size_t size)
{
  bool ok = true;
  for (size_t i = 0; i < size && ok; i++) {
    f->held[f->num_held++] = bytes[i];
    if (f->place == TGI_PLACE_HEADER) {
      read_header(f);
      continue;
    }
    while (ok && f->num_held > 0 && !waits(f)) {
      ok = say(f, character_size((unsigned char)f->held[0]));
    }
  }
  return ok;
}

bool tgi_thought_filter_finish(tgi_thought_filter *f)
{
  if (f->place == TGI_PLACE_HEADER && starts_with(f->held, f->num_held, "<|")) {
    f->num_held = 0;
  }
  return say(f, f->num_held);
}
