/**
 * What a model says, cut into thoughts and answer while it comes.
 *
 * A thought stands between <think> and </think>, at the beginning of what is said; or, where the
 * template has channels (GPT-OSS), in every channel but "final" and "commentary". The marks belong
 * to neither. Text that may be the beginning of a mark is held back until that is clear.
 */
#ifndef TGI_CLI_CHAT_THOUGHT_FILTER_H
#define TGI_CLI_CHAT_THOUGHT_FILTER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tgi_speech {
  TGI_SPEECH_ANSWER,
  TGI_SPEECH_THOUGHT,
} tgi_speech;

/** Takes a part of the text; false: no memory. */
typedef bool tgi_speech_sink(void *user, tgi_speech kind, const char *bytes, size_t size);

typedef enum tgi_filter_place {
  TGI_PLACE_START, /* nothing but white space was said */
  TGI_PLACE_THOUGHT,
  TGI_PLACE_ANSWER,
  TGI_PLACE_HEADER, /* of a channel */

} tgi_filter_place;

/** Bytes that may be held back: a mark, or the header of a channel. */
enum { TGI_FILTER_BYTES = 128 };

typedef struct tgi_thought_filter {
  bool channels;

  tgi_speech_sink *sink;
  void *user;
  tgi_filter_place place;
  char held[TGI_FILTER_BYTES];
  size_t num_held;
} tgi_thought_filter;

/** At the beginning of an answer; `thinking`: the prompt ended within a thought. */
tgi_thought_filter tgi_thought_filter_begin(bool channels, bool thinking, tgi_speech_sink *sink,
                                            void *user);

/** Takes UTF-8, whole characters; false: no memory. */
bool tgi_thought_filter_push(tgi_thought_filter *f, const char *bytes, size_t size);

/** Gives what is held back. */
bool tgi_thought_filter_finish(tgi_thought_filter *f);

#endif
