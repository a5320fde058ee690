/** The lines of a chat that were typed before: the keys for up and down bring them back. */
#ifndef TGI_CLI_CHAT_LINE_HISTORY_H
#define TGI_CLI_CHAT_LINE_HISTORY_H

#include "line_edit.h"

enum { TGI_HISTORY_LINES = 100 };

/** Starts zeroed. */
typedef struct tgi_line_history {
  tgi_text_buffer lines[TGI_HISTORY_LINES]; /* the oldest first */
  size_t count, at;                         /* at count: the line that is typed now */
  tgi_text_buffer draft;                    /* that line, while another is shown */
} tgi_line_history;

/** Keeps a line, unless it is empty or that before; the oldest goes where there are too many. It
 * is not kept where memory is missing. */
void tgi_history_add(tgi_line_history *h, const tgi_text_buffer *text);

/** Puts the line before, or behind, the one shown into its place; false: no memory. */
bool tgi_history_recall(tgi_line_history *h, tgi_line *line, bool older);

void tgi_history_free(tgi_line_history *h);

#endif
