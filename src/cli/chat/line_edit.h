/**
 * Editing of one line of input, without a terminal: bytes that a terminal sends go in, and a text
 * comes out. What is pasted (between the marks of bracketed paste) keeps its line breaks and does
 * not end the line.
 *
 *   Enter ends it; Alt-Enter breaks it. Left, right, Home, End, Delete, Backspace, and Ctrl-A -B -E
 *   -F -H -K -U -W as in shells. Ctrl-D ends the input where the line is empty, and deletes
 *   elsewhere. Up and Ctrl-P, down and Ctrl-N ask for other lines. Other keys do nothing.
 */
#ifndef TGI_CLI_CHAT_LINE_EDIT_H
#define TGI_CLI_CHAT_LINE_EDIT_H

#include "text_buffer.h"

typedef enum tgi_key_state {
  TGI_KEY_PLAIN,
  TGI_KEY_ESCAPE,   /* behind ESC */
  TGI_KEY_SEQUENCE, /* behind ESC [ */
  TGI_KEY_SINGLE,   /* behind ESC O */
  TGI_KEY_PASTE,    /* between ESC [ 200 ~ and ESC [ 201 ~ */
} tgi_key_state;

enum { TGI_KEY_BYTES = 16 };

/** Starts zeroed. */
typedef struct tgi_line {
  tgi_text_buffer text;
  size_t cursor;       /* a byte of the text, or its size */
  size_t changed_from; /* the text before this byte is as it was when this was set */
  tgi_key_state state;
  char key[TGI_KEY_BYTES]; /* of a sequence, or of a mark in pasted text */
  size_t num_key;
  bool after_return; /* pasted: a line feed that follows belongs to it */
} tgi_line;

typedef enum tgi_line_event {
  TGI_LINE_OPEN,
  TGI_LINE_DONE,      /* the text is a line */
  TGI_LINE_END,       /* the input ended */
  TGI_LINE_OLDER,     /* the line before is asked for */
  TGI_LINE_NEWER,     /* the line behind that */
  TGI_LINE_NO_MEMORY, /* the byte is lost */
} tgi_line_event;

tgi_line_event tgi_line_push(tgi_line *line, char byte);

/** An empty line, and no key or paste that is not complete. */
void tgi_line_clear(tgi_line *line);

void tgi_line_free(tgi_line *line);

#endif
