#include "line_reader.h"

#include "cli/interrupt.h"
#include "files/utf8_stream.h"
#include <signal.h>
#include <stdlib.h>

/** Writes what was made for the terminal. */
static bool flush(tgi_line_reader *r, bool made)
{
  tgi_terminal_write(r->out.size ? r->out.bytes : "", r->out.size);
  r->out.size = 0;
  return made;
}

static bool edits(const tgi_line_reader *r)
{
  return r->kind == TGI_TERMINAL_KEYS;
}

static void draw(tgi_line_reader *r)
{
  if (edits(r)) {
    (void)flush(r, tgi_line_view_draw(&r->view, &r->line, &r->out));
  }
}

static void begin(tgi_line_reader *r)
{
  tgi_line_clear(&r->line);
  r->view = tgi_line_view_begin(tgi_terminal_columns());
  if (!edits(r)) {
    tgi_terminal_write(TGI_LINE_PROMPT, sizeof TGI_LINE_PROMPT - 1);
  }
}

static void leave(tgi_line_reader *r)
{
  if (edits(r)) {
    (void)flush(r, tgi_line_view_leave(&r->view, &r->line, &r->out));
  }
}

/** Bytes that are no UTF-8 become U+FFFD. */
static bool make_valid(tgi_text_buffer *text)
{
  tgi_utf8_stream stream = {0};
  const size_t room = TGI_UTF8_STREAM_BOUND(text->size) + 4;
  char *valid = malloc(room);
  if (!valid) {
    return false;
  }
  size_t size = tgi_utf8_stream_push(&stream, text->size ? text->bytes : "", text->size, valid);
  size += tgi_utf8_stream_finish(&stream, valid + size);
  free(text->bytes);
  *text = (tgi_text_buffer){valid, size, room};
  return true;
}

/** Takes bytes that were read, up to the end of a line. */
static tgi_line_event take(tgi_line_reader *r)
{
  tgi_line_event event = TGI_LINE_OPEN;
  while (r->at < r->have && event == TGI_LINE_OPEN) {
    event = tgi_line_push(&r->line, r->bytes[r->at++]);
    if (event == TGI_LINE_OLDER || event == TGI_LINE_NEWER) {
      const bool ok = tgi_history_recall(&r->history, &r->line, event == TGI_LINE_OLDER);
      event = ok ? TGI_LINE_OPEN : TGI_LINE_NO_MEMORY;
    }
  }
  return event;
}

/** Ctrl-C: forgets what was typed; false where there is nothing. */
static bool forget(tgi_line_reader *r)
{
  if (tgi_interrupted() != 128 + SIGINT || r->line.text.size == 0) {
    return false;
  }
  leave(r);
  tgi_interrupt_forget();
  begin(r);
  return true;
}

static tgi_read_result finish(tgi_line_reader *r, tgi_line_event event)
{
  leave(r);
  if (event == TGI_LINE_NO_MEMORY || event == TGI_LINE_END) {
    return event == TGI_LINE_END ? TGI_READ_END : TGI_READ_NO_MEMORY;
  }
  if (!make_valid(&r->line.text)) {
    return TGI_READ_NO_MEMORY;
  }
  tgi_history_add(&r->history, &r->line.text);
  return TGI_READ_LINE;
}

/** Ends a row that holds the prompt alone. */
static tgi_read_result give_up(tgi_line_reader *r, tgi_read_result result)
{
  leave(r);
  if (!edits(r)) {
    tgi_terminal_write("\n", 1);
  }
  return result;
}

tgi_read_result tgi_line_read(tgi_line_reader *r)
{
  begin(r);
  for (;;) {
    const tgi_line_event event = take(r);
    if (event != TGI_LINE_OPEN) {
      return finish(r, event);
    }
    draw(r);
    r->at = r->have = 0;
    switch (tgi_terminal_read(r->bytes, sizeof r->bytes, &r->have)) {
    case TGI_TERMINAL_INPUT:
      break;
    case TGI_TERMINAL_ENDED:
      return r->line.text.size > 0 ? finish(r, TGI_LINE_DONE) : give_up(r, TGI_READ_END);
    case TGI_TERMINAL_SIGNAL:
      if (!forget(r)) {
        return give_up(r, TGI_READ_INTERRUPTED);
      }
      break;
    case TGI_TERMINAL_CHANGED:
      if (edits(r)) {
        (void)flush(r, tgi_line_view_resize(&r->view, &r->line, tgi_terminal_columns(), &r->out));
      }
      break;
    }
  }
}

void tgi_line_reader_free(tgi_line_reader *r)
{
  tgi_line_free(&r->line);
  tgi_history_free(&r->history);
  tgi_text_free(&r->out);
}
