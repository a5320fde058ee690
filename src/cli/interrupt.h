/**
 * Ctrl-C: the first SIGINT or SIGTERM asks the command to finish what it is at (a training step, a
 * token) and to save; the second ends the process at once with code 130. A checkpoint that is being
 * written then stays in its temporary directory, and the old one stands.
 */
#ifndef TGI_CLI_INTERRUPT_H
#define TGI_CLI_INTERRUPT_H

/** From here on signals are caught. */
void tgi_interrupt_catch(void);

/** 0, or the exit code of the signal that asked to stop: 128 + its number. */
int tgi_interrupted(void);

#endif
