#include "line_view.h"

#include "shown_character.h"
#include <stdio.h>

enum { kLeastColumns = 8, kPromptColumns = sizeof TGI_LINE_PROMPT - 1 };

static const tgi_screen_place kBehindPrompt = {0, kPromptColumns};

tgi_line_view tgi_line_view_begin(int columns)
{
  return (tgi_line_view){.columns = columns < kLeastColumns ? kLeastColumns : columns};
}

/** Behind a character of so many columns; what does not fit into a row begins the next. */
static void advance(const tgi_line_view *view, int columns, tgi_screen_place *place)
{
  if (place->column + columns > view->columns) {
    *place = (tgi_screen_place){place->row + 1, 0};
  }
  place->column += columns;
}

/** Moves a place behind the text, and appends what is shown of it; `out` NULL: nothing. */
static bool show(const tgi_line_view *view, const char *text, size_t size, tgi_screen_place *place,
                 tgi_text_buffer *out)
{
  bool ok = true;
  for (size_t at = 0; at < size && ok;) {
    if (text[at] == '\n') {
      *place = (tgi_screen_place){place->row + 1, 0};
      ok = !out || tgi_text_append(out, "\r\n", 2);
      at++;
      continue;
    }
    const tgi_shown shown = tgi_show_character(text + at, size - at);
    const bool stand_in = shown.size == (size_t)shown.columns; /* of characters of one column */
    for (int i = 0; i < (stand_in ? shown.columns : 1); i++) {
      advance(view, stand_in ? 1 : shown.columns, place);
    }
    ok = !out || tgi_text_append(out, shown.text, shown.size);
    at += shown.used;
  }
  return ok;
}

static bool put(tgi_text_buffer *out, const char *format, int number)
{
  char text[32];
  const int size = snprintf(text, sizeof text, format, number);
  return tgi_text_append(out, text, (size_t)size);
}

/** A full row is left at once, so that the cursor stands where the next character will. */
static bool leave_full_row(const tgi_line_view *view, tgi_screen_place *place, tgi_text_buffer *out)
{
  if (place->column < view->columns) {
    return true;
  }
  *place = (tgi_screen_place){place->row + 1, 0};
  return tgi_text_append(out, " \r", 2);
}

/** Where the line's cursor stands; before a line break it stays in its row. */
static tgi_screen_place cursor_place(const tgi_line_view *view, const tgi_line *line)
{
  tgi_screen_place place = kBehindPrompt;
  (void)show(view, line->text.bytes, line->cursor, &place, NULL);
  if (place.column >= view->columns) {
    const bool breaks = line->cursor < line->text.size && line->text.bytes[line->cursor] == '\n';
    place = breaks ? (tgi_screen_place){place.row, view->columns - 1}
                   : (tgi_screen_place){place.row + 1, 0};
  }
  return place;
}

static bool move(tgi_screen_place from, tgi_screen_place to, tgi_text_buffer *out)
{
  bool ok = from.row <= to.row || put(out, "\033[%dA", from.row - to.row);
  ok = ok && (from.row >= to.row || put(out, "\033[%dB", to.row - from.row));
  ok = ok && tgi_text_append(out, "\r", 1);
  return ok && (to.column == 0 || put(out, "\033[%dC", to.column));
}

static bool draw_all(tgi_line_view *view, const tgi_line *line, tgi_text_buffer *out)
{
  tgi_screen_place end = kBehindPrompt;
  bool ok = move(view->place, (tgi_screen_place){0, 0}, out);
  ok = ok && tgi_text_append(out, "\033[J" TGI_LINE_PROMPT, 3 + kPromptColumns);
  ok = ok && show(view, line->text.bytes, line->text.size, &end, out);
  ok = ok && leave_full_row(view, &end, out);
  view->place = cursor_place(view, line);
  return ok && (line->cursor == line->text.size || move(end, view->place, out));
}

/** Whether it is enough to add what stands behind the drawn text. */
static bool only_grew(const tgi_line_view *view, const tgi_line *line)
{
  const size_t drawn = view->drawn, size = line->text.size;
  if (!view->drawn_to_end || line->changed_from < drawn || line->cursor != size) {
    return false;
  }
  /* A break behind a full row, which was left already, would come twice. */
  const bool left_full =
      drawn > 0 && view->place.column == 0 && line->text.bytes[drawn - 1] != '\n';
  return !left_full || drawn == size || line->text.bytes[drawn] != '\n';
}

bool tgi_line_view_draw(tgi_line_view *view, tgi_line *line, tgi_text_buffer *out)
{
  const size_t size = line->text.size;
  bool ok = true;
  if (only_grew(view, line)) {
    ok = show(view, line->text.bytes + view->drawn, size - view->drawn, &view->place, out);
    ok = ok && leave_full_row(view, &view->place, out);
  } else {
    ok = draw_all(view, line, out);
  }
  view->drawn = size;
  view->drawn_to_end = line->cursor == size;
  line->changed_from = size;
  return ok;
}

bool tgi_line_view_resize(tgi_line_view *view, tgi_line *line, int columns, tgi_text_buffer *out)
{
  view->columns = columns < kLeastColumns ? kLeastColumns : columns;
  view->place = cursor_place(view, line);
  view->drawn_to_end = false;
  return tgi_line_view_draw(view, line, out);
}

bool tgi_line_view_leave(tgi_line_view *view, tgi_line *line, tgi_text_buffer *out)
{
  line->cursor = line->text.size;
  bool ok = tgi_line_view_draw(view, line, out);
  /* A row that was left because it was full is the row below already. */
  if (view->place.column > 0 || view->place.row == 0 ||
      (line->text.size > 0 && line->text.bytes[line->text.size - 1] == '\n')) {
    ok = ok && tgi_text_append(out, "\r\n", 2);
  }
  *view = tgi_line_view_begin(view->columns);
  return ok;
}
