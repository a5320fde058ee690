#define _GNU_SOURCE /* pipe2 */
#include "chat_terminal.h"

#include "cli/interrupt.h"
#include "core/machine/environment.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* Bracketed paste on; attributes plain and bracketed paste off. */
static const char kEnter[] = "\033[?2004h", kLeave[] = "\033[0m\033[?2004l", kPlain[] = "\033[0m";

static struct {
  struct termios before, keys;
  int wake[2];                   /* a pipe: a handler writes a byte, whoever waits reads it */
  int out;                       /* where lines are edited; -1: nowhere */
  bool dims;                     /* standard output may hold attributes when the process ends */
  volatile sig_atomic_t entered; /* the modes are set */
  volatile sig_atomic_t changed; /* since the last look */
} terminal = {.wake = {-1, -1}, .out = -1};

/* ---- modes: these run in handlers, too ---- */

static void write_all(int fd, const char *bytes, size_t size)
{
  while (size > 0) {
    const ssize_t n = write(fd, bytes, size);
    if (n < 0 && errno != EINTR) {
      return;
    }
    bytes += n > 0 ? n : 0;
    size -= n > 0 ? (size_t)n : 0;
  }
}

static void enter(void)
{
  if (terminal.out >= 0) {
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal.keys);
    write_all(terminal.out, kEnter, sizeof kEnter - 1);
    terminal.entered = 1;
  }
}

static void leave(void)
{
  if (terminal.dims) {
    write_all(STDOUT_FILENO, kPlain, sizeof kPlain - 1);
  }
  if (terminal.entered) {
    terminal.entered = 0;
    write_all(terminal.out, kLeave, sizeof kLeave - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
  }
}

/* ---- signals ---- */

static void wake(void)
{
  const int before = errno;
  (void)!write(terminal.wake[1], "", 1);
  errno = before;
}

static void note_end(int number)
{
  if (tgi_interrupt_note(number)) {
    leave();
    _exit(128 + number);
  }
  wake();
}

static void note_change(int number)
{
  const int before = errno;
  if (number == SIGTSTP) {
    leave();
    (void)kill(getpid(), SIGSTOP); /* goes on at SIGCONT, whose handler runs first */
  } else if (number == SIGCONT) {
    enter();
  }
  terminal.changed = 1;
  wake();
  errno = before;
}

static void catch (int number, void (*handler)(int))
{
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask); /* one at a time */
  sigdelset(&action.sa_mask, SIGCONT);
  (void)sigaction(number, &action, NULL);
}

static void catch_all(bool keys)
{
  static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    struct sigaction before;
    const bool ignored =
        ends[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!ignored) { /* as by nohup */
      catch (ends[i], note_end);
    }
  }
  if (keys) {
    catch (SIGWINCH, note_change);
    catch (SIGTSTP, note_change);
    catch (SIGCONT, note_change);
  }
}

/* ---- the terminal ---- */

/** Where lines can be edited. */
static int find_output(void)
{
  if (tgi_environment_dumb_terminal()) {
    return -1;
  }
  return isatty(STDERR_FILENO) ? STDERR_FILENO : isatty(STDOUT_FILENO) ? STDOUT_FILENO : -1;
}

tgi_terminal_kind tgi_terminal_open(bool asked)
{
  const bool reads = asked && isatty(STDIN_FILENO);
  terminal.dims = isatty(STDOUT_FILENO) && !tgi_environment_dumb_terminal();
  if (terminal.wake[0] < 0 && pipe2(terminal.wake, O_CLOEXEC | O_NONBLOCK) != 0) {
    terminal.wake[0] = terminal.wake[1] = -1; /* then a signal is seen at the next key */
  }
  terminal.out = reads && tcgetattr(STDIN_FILENO, &terminal.before) == 0 ? find_output() : -1;
  if (terminal.out >= 0) {
    terminal.keys = terminal.before;
    terminal.keys.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | ISTRIP);
    terminal.keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    terminal.keys.c_cc[VMIN] = 1;
    terminal.keys.c_cc[VTIME] = 0;
  }
  catch_all(terminal.out >= 0);
  enter();
  return !reads ? TGI_TERMINAL_NONE : terminal.out < 0 ? TGI_TERMINAL_LINES : TGI_TERMINAL_KEYS;
}

void tgi_terminal_close(void)
{
  leave();
  terminal.out = -1;
}

int tgi_terminal_columns(void)
{
  struct winsize size;
  return terminal.out >= 0 && ioctl(terminal.out, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
             ? size.ws_col
             : 80;
}

void tgi_terminal_write(const char *bytes, size_t size)
{
  write_all(terminal.out >= 0 ? terminal.out : STDERR_FILENO, bytes, size);
}

static void empty_pipe(void)
{
  char bytes[64];
  while (read(terminal.wake[0], bytes, sizeof bytes) > 0) {
  }
}

tgi_terminal_event tgi_terminal_read(char *bytes, size_t room, size_t *size)
{
  for (;;) {
    if (tgi_interrupted()) {
      return TGI_TERMINAL_SIGNAL;
    }
    if (terminal.changed) {
      terminal.changed = 0;
      return TGI_TERMINAL_CHANGED;
    }
    struct pollfd ends[2] = {{STDIN_FILENO, POLLIN, 0}, {terminal.wake[0], POLLIN, 0}};
    if (poll(ends, 2, -1) < 0) {
      if (errno != EINTR) {
        return TGI_TERMINAL_ENDED;
      }
      continue;
    }
    if (ends[1].revents) {
      empty_pipe();
      continue;
    }
    const ssize_t n = read(STDIN_FILENO, bytes, room);
    if (n > 0) {
      *size = (size_t)n;
      return TGI_TERMINAL_INPUT;
    }
    if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      return TGI_TERMINAL_ENDED; /* also a terminal that is gone (EIO) */
    }
  }
}
