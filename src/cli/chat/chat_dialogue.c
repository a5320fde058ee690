#include "chat_dialogue.h"

#include "cli/console.h"
#include "cli/interrupt.h"
#include "line_reader.h"
#include "slash_command.h"
#include <stdio.h>

static const char kName[] = "tegula chat";

static const char *end_text(tgi_turn_end end)
{
  switch (end) {
  case TGI_TURN_ENDED:
    return "end of turn";
  case TGI_TURN_INTERRUPTED:
    return "interrupted";
  case TGI_TURN_CUT:
    return "--max-tokens";
  case TGI_TURN_FULL:
    return "the context is full";
  case TGI_TURN_UNREAD:
    break;
  }
  return "standard output is closed";
}

static void print_statistics(const tgi_chat *chat, const tgi_turn *turn)
{
  const tgi_timeline *t = &chat->timeline;
  fprintf(stderr, "prompt: %lld tokens kept, %lld in %.1f ms | generated: %lld in %.1f ms",
          (long long)t->kept, (long long)t->evaluated, 1e3 * turn->prompt_seconds,
          (long long)turn->generated, 1e3 * turn->answer_seconds);
  if (turn->generated > 0 && turn->answer_seconds > 0) {
    fprintf(stderr, " (%.0f tok/s)", (double)turn->generated / turn->answer_seconds);
  }
  fprintf(stderr, " | ended: %s\n", end_text(turn->end));
}

/** What a reader must know of an answer that does not end by itself. */
static void print_note(const tgi_chat *chat, const tgi_turn *turn)
{
  switch (turn->end) {
  case TGI_TURN_INTERRUPTED:
    fprintf(stderr,
            turn->taken_back ? "(interrupted; the question is taken back)\n" : "(interrupted)\n");
    break;
  case TGI_TURN_CUT:
    fprintf(stderr, "(cut after %lld tokens; --max-tokens changes that)\n",
            (long long)turn->generated);
    break;
  case TGI_TURN_FULL:
    fprintf(stderr, "(cut: the context of %lld tokens is full; %s)\n",
            (long long)tg_session_capacity(chat->timeline.session), chat->advice);
    break;
  case TGI_TURN_ENDED:
  case TGI_TURN_UNREAD:
    break;
  }
}

/** Returns the status; what is wrong is printed. */
static tg_status take_turn(tgi_chat *chat, tgi_said question, bool statistics)
{
  tg_error error = {TG_OK, ""};
  tgi_turn turn;
  const tg_status status = tgi_chat_turn(chat, question, &turn, &error);
  fflush(stdout);
  if (status != TG_OK) {
    (void)tgi_console_fail_with(kName, &error);
    return status;
  }
  print_note(chat, &turn);
  if (statistics) {
    print_statistics(chat, &turn);
  }
  return TG_OK;
}

int tgi_chat_once(tgi_chat *chat, tgi_said question, bool statistics)
{
  return take_turn(chat, question, statistics) ? 1 : tgi_interrupted();
}

static bool is_blank(const tgi_text_buffer *text)
{
  for (size_t i = 0; i < text->size; i++) {
    if (!strchr(" \t\r\n", text->bytes[i])) {
      return false;
    }
  }
  return true;
}

/** A line of the person's; false where it ends the chat. */
static bool take_line(tgi_chat *chat, tgi_text_buffer *line, bool statistics)
{
  if (is_blank(line)) {
    return true;
  }
  if (!tgi_text_append(line, "", 1)) { /* a terminator */
    (void)tgi_console_fail(kName, "expected memory for a line, got none");
    return true;
  }
  switch (tgi_slash_command(&chat->conversation, line->bytes)) {
  case TGI_SLASH_QUIT:
    return false;
  case TGI_SLASH_DONE:
    return true;
  case TGI_SLASH_NONE:
    break;
  }
  (void)take_turn(chat, (tgi_said){line->bytes, line->size - 1}, statistics);
  tgi_interrupt_forget();
  return tgi_interrupted() == 0 && !ferror(stdout);
}

int tgi_chat_dialogue(tgi_chat *chat, tgi_terminal_kind kind, bool statistics)
{
  tgi_line_reader reader = {.kind = kind};
  int code = 0;
  for (bool on = true; on && code == 0;) {
    switch (tgi_line_read(&reader)) {
    case TGI_READ_LINE:
      on = take_line(chat, &reader.line.text, statistics);
      break;
    case TGI_READ_END:
      on = false;
      break;
    case TGI_READ_INTERRUPTED:
      code = tgi_interrupted();
      break;
    case TGI_READ_NO_MEMORY:
      (void)tgi_console_fail(kName, "expected memory for a line, got none");
      tgi_line_clear(&reader.line);
      break;
    }
  }
  tgi_line_reader_free(&reader);
  return code ? code : tgi_interrupted();
}
