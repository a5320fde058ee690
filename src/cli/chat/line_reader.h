/** Lines that a person types, from the terminal of chat_terminal.h. */
#ifndef TGI_CLI_CHAT_LINE_READER_H
#define TGI_CLI_CHAT_LINE_READER_H

#include "chat_terminal.h"
#include "line_edit.h"
#include "line_history.h"

#include "line_view.h"

enum { TGI_READER_BYTES = 4096 };

/** Zeroed but for the kind. */
typedef struct tgi_line_reader {
  tgi_terminal_kind kind;
  tgi_line line;
  tgi_line_view view;
  tgi_line_history history;
  tgi_text_buffer out; /* on its way to the terminal */
  char bytes[TGI_READER_BYTES];
  size_t at, have; /* of what was read, the part that no line has taken */
} tgi_line_reader;

typedef enum tgi_read_result {
  TGI_READ_LINE,        /* UTF-8 in line.text, which may hold line breaks; valid until the next */
  TGI_READ_END,         /* Ctrl-D, or the terminal is gone */
  TGI_READ_INTERRUPTED, /* by a signal: Ctrl-C where nothing was typed, or another */
  TGI_READ_NO_MEMORY,
} tgi_read_result;

/** Prompts for a line and waits for it. Ctrl-C with something typed forgets that. */
tgi_read_result tgi_line_read(tgi_line_reader *reader);

void tgi_line_reader_free(tgi_line_reader *reader);

#endif
