/**
 * The terminal of a chat: keys come one by one and unseen, pasted text comes between marks, and the
 * modes that were there return whenever the process stops or ends, also by a signal.
 *
 * Signal handlers reach for the one terminal of the process, so it is no argument.
 */
#ifndef TGI_CLI_CHAT_CHAT_TERMINAL_H
#define TGI_CLI_CHAT_CHAT_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tgi_terminal_kind {
  TGI_TERMINAL_NONE,  /* standard input is none */
  TGI_TERMINAL_LINES, /* it sends whole lines and shows them itself (TERM is dumb, or the output
                         goes elsewhere) */
  TGI_TERMINAL_KEYS,  /* lines are edited here */
} tgi_terminal_kind;

/**
 * Catches signals and, where lines are `asked` for and standard input is a terminal, sets the
 * modes; TGI_TERMINAL_NONE where they are not. SIGINT is noted (interrupt.h); so are SIGTERM and
 * SIGHUP, and the second of these or SIGQUIT ends the process.
 */
tgi_terminal_kind tgi_terminal_open(bool asked);

/** Gives the modes back. */
void tgi_terminal_close(void);

/** Columns of the terminal; 80 if unknown. */
int tgi_terminal_columns(void);

/** Writes to where lines are edited; to standard error where none are. */
void tgi_terminal_write(const char *bytes, size_t size);

typedef enum tgi_terminal_event {
  TGI_TERMINAL_INPUT,
  TGI_TERMINAL_ENDED,   /* no more input */
  TGI_TERMINAL_SIGNAL,  /* one was noted, see tgi_interrupted */
  TGI_TERMINAL_CHANGED, /* other columns, or stopped and continued: what was drawn is to be drawn
                           again */
} tgi_terminal_event;

/** Waits for something to happen; input goes to `bytes`, at most `room`, *size of them. */
tgi_terminal_event tgi_terminal_read(char *bytes, size_t room, size_t *size);

#endif
