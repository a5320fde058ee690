/**
 * Ctrl-C. After the first SIGINT or SIGTERM the command finishes its current training step or token
 * and saves. The second signal ends the process at once with code 130: a checkpoint that is being
 * written stays in its temporary directory, and the old one remains valid.
 */
#ifndef TGI_CLI_INTERRUPT_H
#define TGI_CLI_INTERRUPT_H

#include <stdbool.h>

/** Installs the handlers of both signals. */
void tgi_interrupt_catch(void);

/**
 * For a handler of a command's own: notes a signal, and returns whether the process must end at
 * once, at SIGQUIT and where another signal than SIGINT came before. SIGINT never does that.
 */
bool tgi_interrupt_note(int number);

/** Forgets a SIGINT: the next one is the first again. */
void tgi_interrupt_forget(void);

/** 0, or after a signal the exit code 128 + its number. */
int tgi_interrupted(void);

#endif
