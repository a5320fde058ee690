#include "interrupt.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { kExitInterrupted = 128 + SIGINT };

/* A signal handler can only write a global. */
static volatile sig_atomic_t caught;

static void note_signal(int number)
{
  if (caught) {
    _exit(kExitInterrupted);
  }
  caught = number;
}

void tgi_interrupt_catch(void)
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART; /* so that no write of a checkpoint fails with EINTR */
  sigemptyset(&action.sa_mask);
  (void)sigaction(SIGINT, &action, NULL);
  (void)sigaction(SIGTERM, &action, NULL);
}

bool tgi_interrupt_note(int number)
{
  const bool again = number != SIGINT && caught && caught != SIGINT;
  if (number != SIGINT || !caught) {
    caught = number;
  }
  return again || number == SIGQUIT;
}

void tgi_interrupt_forget(void)
{
  if (caught == SIGINT) {
    caught = 0;
  }
}

int tgi_interrupted(void)
{
  return caught ? 128 + caught : 0;
}
