/** One turn of a chat: a question in, an answer out. */
#ifndef TGI_CLI_CHAT_CHAT_TURN_H
#define TGI_CLI_CHAT_CHAT_TURN_H

#include "chat_prompt.h"
#include "spoken_text.h"
#include "timeline.h"

/** What turns need; all but conversation and timeline is set once. */
typedef struct tgi_chat {
  tgi_chat_form form;

  tgi_timeline timeline;
  tgi_chat_history conversation;
  tg_generate_options how; /* with the ids that end a turn */
  tgi_stop_strings *stops; /* borrowed: the texts that do */
  tgi_spoken_style style;
  const char *advice; /* what a person can do about a full context */
} tgi_chat;

typedef enum tgi_turn_end {
  TGI_TURN_ENDED,       /* by a token or text that ends an answer */
  TGI_TURN_INTERRUPTED, /* by a signal */
  TGI_TURN_CUT,         /* at max_new_tokens */
  TGI_TURN_FULL,        /* at the end of the context */
  TGI_TURN_UNREAD,      /* standard output is closed */
} tgi_turn_end;

typedef struct tgi_turn {
  tgi_turn_end end;
  bool taken_back; /* interrupted before the first word: the question is not kept */
  int64_t generated;
  double prompt_seconds, answer_seconds;
} tgi_turn;

/**
 * Asks, prints the answer on standard output while it comes, and keeps both in the conversation.
 * After a failure the question is not kept. Errors: those of tgi_chat_prompt_make and of sessions;
 * BAD_ARGUMENT (the conversation does not fit into the context).
 */
tg_status tgi_chat_turn(tgi_chat *chat, tgi_said question, tgi_turn *turn, tg_error *error);

#endif
