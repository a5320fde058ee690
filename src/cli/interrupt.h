/**
 * Ctrl-C. After the first SIGINT or SIGTERM the command finishes its current training step or token
 * and saves. The second signal ends the process at once with code 130: a checkpoint that is being
 * written stays in its temporary directory, and the old one remains valid.
 */
#ifndef TGI_CLI_INTERRUPT_H
#define TGI_CLI_INTERRUPT_H

/** Installs the handlers of both signals. */
void tgi_interrupt_catch(void);

/** 0, or after a signal the exit code 128 + its number. */
int tgi_interrupted(void);

#endif
