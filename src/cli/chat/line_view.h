/**
 * A line that is edited, as a terminal shows it: over several rows where it is long or has line
 * breaks. What to write to the terminal comes out as text.
 */
#ifndef TGI_CLI_CHAT_LINE_VIEW_H
#define TGI_CLI_CHAT_LINE_VIEW_H

#include "line_edit.h"

#define TGI_LINE_PROMPT "> "

/** From the first row of the prompt; a column behind the last one waits for the next character. */
typedef struct tgi_screen_place {
  int row, column;
} tgi_screen_place;

typedef struct tgi_line_view {
  int columns;            /* of the terminal, at least 8 */
  tgi_screen_place place; /* of the terminal's cursor */
  size_t drawn;           /* bytes of text on the screen */
  bool drawn_to_end;      /* and the cursor stands behind them */
} tgi_line_view;

/** At the beginning of a row: nothing is drawn yet. */
tgi_line_view tgi_line_view_begin(int columns);

/**
 * Brings the screen up to date: adds what was typed at the end, or draws all of it again. False: no
 * memory.
 */
bool tgi_line_view_draw(tgi_line_view *view, tgi_line *line, tgi_text_buffer *out);

/** The terminal has other columns, and has broken its rows anew: all is drawn again. */
bool tgi_line_view_resize(tgi_line_view *view, tgi_line *line, int columns, tgi_text_buffer *out);

/** Leaves the line on the screen and begins a row below it. */
bool tgi_line_view_leave(tgi_line_view *view, tgi_line *line, tgi_text_buffer *out);

#endif
