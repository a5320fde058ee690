#include "chat_turn.h"

#include "cli/interrupt.h"
#include "core/error_record.h"
#include "core/machine/clock.h"
#include <stdio.h>
#include <string.h>

/** The answer while it is generated. */
typedef struct answering {
  tgi_chat *chat;
  tgi_turn *turn;
  tgi_spoken spoken;
  bool has_end; /* turn->end is known */
  tg_status status;
  tg_error *error;
} answering;

static bool is_interrupted(void)
{
  return tgi_interrupted() != 0;
}

static bool end(answering *a, tgi_turn_end how)
{
  a->turn->end = how;
  a->has_end = true;
  return false;
}

static bool ends_turn(const tg_generate_options *how, int32_t id)
{
  for (int64_t i = 0; i < how->num_stop_ids; i++) {
    if (how->stop_ids[i] == id) {
      return true;
    }
  }
  return false;
}

static bool is_text(tg_token token, const char *text)
{
  return token.size == strlen(text) && memcmp(token.bytes, text, token.size) == 0;
}

/** Special tokens are not said, but for those that mark thoughts. */
static bool is_said(const answering *a, tg_token token)
{
  return token.size > 0 && (token.kind != TG_TOKEN_SPECIAL || a->spoken.filter.channels ||
                            is_text(token, "<think>") || is_text(token, "</think>"));
}

/** The tg_token_callback of the session. */
static bool take_token(void *user, int32_t id)
{
  answering *a = user;
  const tg_generate_options *how = &a->chat->how;
  a->status = tgi_timeline_note(&a->chat->timeline, id, a->error);
  if (a->status != TG_OK || ends_turn(how, id)) {
    return end(a, TGI_TURN_ENDED);
  }
  const tg_token token = tg_tokenizer_piece(a->chat->form.tokenizer, id);
  if (is_said(a, token) && !tgi_spoken_push(&a->spoken, token.bytes, token.size)) {
    a->status = tgi_error_set(a->error, TG_NO_MEMORY, "chat: expected memory, got none");
    return false;
  }
  a->turn->generated++;
  return tgi_spoken_ended(&a->spoken)                ? end(a, TGI_TURN_ENDED)
         : is_interrupted()                          ? end(a, TGI_TURN_INTERRUPTED)
         : ferror(stdout)                            ? end(a, TGI_TURN_UNREAD)
         : a->turn->generated == how->max_new_tokens ? end(a, TGI_TURN_CUT)
                                                     : true;
}

/** The prompt in the timeline; *complete: an answer may follow. */
static tg_status evaluate(tgi_chat *chat, const tgi_chat_prompt *prompt, bool *complete,
                          tg_error *error)
{
  const int64_t capacity = tg_session_capacity(chat->timeline.session);
  if (prompt->count >= capacity) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "context: expected room for a conversation of %lld tokens and an answer, "
                         "got %lld tokens in all; %s",
                         (long long)prompt->count, (long long)capacity, chat->advice);
  }
  return tgi_timeline_set(&chat->timeline, prompt->ids, prompt->count, is_interrupted, complete,
                          error);
}

static tg_status generate(answering *a)
{
  const double start = tgi_clock();
  tg_status status =
      tg_session_generate(a->chat->timeline.session, &a->chat->how, take_token, a, a->error);
  tgi_timeline_settle(&a->chat->timeline);
  if (!tgi_spoken_finish(&a->spoken) && status == TG_OK && a->status == TG_OK) {
    status = tgi_error_set(a->error, TG_NO_MEMORY, "chat: expected memory, got none");
  }
  a->turn->answer_seconds = tgi_clock() - start;
  if (!a->has_end) {
    a->turn->end = TGI_TURN_FULL;
  }
  return status ? status : a->status;
}

static tg_status keep_answer(answering *a)
{
  const tgi_text_buffer *answer = &a->spoken.answer, *thought = &a->spoken.thought;
  if (a->turn->end == TGI_TURN_INTERRUPTED && answer->size == 0 && thought->size == 0) {
    a->turn->taken_back = tgi_chat_history_undo(&a->chat->conversation);
    return TG_OK;
  }
  return tgi_chat_history_answer(
      &a->chat->conversation, (tgi_said){answer->size ? answer->bytes : "", answer->size},
      (tgi_said){thought->size ? thought->bytes : "", thought->size}, a->error);
}

static tg_status answer(tgi_chat *chat, const tgi_chat_prompt *prompt, tgi_turn *turn,
                        tg_error *error)
{
  answering a = {.chat = chat, .turn = turn, .error = error};
  bool complete = false;
  const double start = tgi_clock();
  tgi_spoken_begin(&a.spoken, chat->style, tgi_chat_has_channels(&chat->form), prompt->thinking,
                   chat->stops);
  tg_status status = evaluate(chat, prompt, &complete, error);
  turn->prompt_seconds = tgi_clock() - start;
  if (status == TG_OK && complete) {
    status = generate(&a);
  } else {
    turn->end = TGI_TURN_INTERRUPTED;
  }
  status = status ? status : keep_answer(&a);
  tgi_spoken_free(&a.spoken);
  return status;
}

tg_status tgi_chat_turn(tgi_chat *chat, tgi_said question, tgi_turn *turn, tg_error *error)
{
  tgi_chat_prompt prompt;
  *turn = (tgi_turn){0};
  tg_status status = tgi_chat_history_ask(&chat->conversation, question, error);
  if (status != TG_OK) {
    return status;
  }
  status = tgi_chat_prompt_make(&chat->form, &chat->conversation, &prompt, error);
  status = status ? status : answer(chat, &prompt, turn, error);
  tgi_chat_prompt_free(&prompt);
  if (status != TG_OK) {
    (void)tgi_chat_history_undo(&chat->conversation);
  }
  return status;
}
